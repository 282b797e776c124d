//! Compares the crate's types with Score-P 8.4's own headers. The table in this folder is the output of `print_abi.c`, compiled
//! against those headers. If headers are installed, the program is compiled and run again.
//!
//! For another version of Score-P, put its `scorep-config` on the PATH and run the test: it leaves that version's table in
//! `target/tmp`.

use scorep_abi::metric::*;
use scorep_abi::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Sizes, offsets and values, by their names in C: `type`, `type.field` and `CONSTANT`.
type Table = BTreeMap<String, i64>;

/// A type's name in C, its size, and its fields' names in C with their offsets.
type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

/// Returns the types of the crate.
fn types() -> Vec<Layout> {
    let structures = [
        Callbacks::LAYOUT,
        SubstratePluginInfo::LAYOUT,
        MetricPluginInfo::LAYOUT,
        MetricProperties::LAYOUT,
        TimeValuePair::LAYOUT,
    ];
    let handle = ("SCOREP_AnyHandle", size_of::<AnyHandle>(), &[][..]);
    structures.into_iter().chain([handle]).collect()
}

/// Returns the constants of the crate by their names in C.
fn constants() -> Vec<(&'static str, i64)> {
    let enums = [
        event::VALUES,
        location_type::VALUES,
        handle_type::VALUES,
        region_type::VALUES,
        paradigm::VALUES,
        collective::VALUES,
        mode::VALUES,
        metric_per::VALUES,
        metric_synchronicity::VALUES,
        metric_synchronization::VALUES,
        metric_mode::VALUES,
        metric_value_type::VALUES,
        metric_base::VALUES,
    ];
    let others = [
        ("SCOREP_SUBSTRATE_PLUGIN_VERSION", PLUGIN_VERSION.into()),
        ("SCOREP_METRIC_PLUGIN_VERSION", METRIC_PLUGIN_VERSION.into()),
        ("SCOREP_SUBSTRATES_NUM_EVENTS", NUM_EVENTS as i64),
    ];
    enums.into_iter().flat_map(|(_, values)| values).copied().chain(others).collect()
}

fn ours() -> Table {
    let mut table = Table::new();
    for (name, bytes, fields) in types() {
        table.insert(name.to_owned(), bytes as i64);
        table.extend(fields.iter().map(|(field, offset)| (format!("{name}.{field}"), *offset as i64)));
    }
    table.extend(constants().into_iter().map(|(name, value)| (name.to_owned(), value)));
    table
}

/// Returns the text of `names.h`, which `print_abi.c` includes: one line for each type, field and constant of the crate.
fn names() -> String {
    let mut text = String::new();
    for (name, _, fields) in types() {
        text += &format!("SIZE({name})\n");
        fields.iter().for_each(|(field, _)| text += &format!("FIELD({name}, {field})\n"));
    }
    constants().into_iter().for_each(|(name, _)| text += &format!("VALUE({name})\n"));
    text
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn types_and_constants_are_those_of_score_p_8_4() {
    let table: Table = serde_json::from_str(include_str!("scorep-8.4-abi.json")).unwrap();
    assert_eq!(ours(), table);
}

#[test]
fn installed_headers_of_score_p_8_4_give_the_same_table() {
    let Ok(config) = Command::new("scorep-config").arg("--version").output() else {
        println!("skipped: no scorep-config on the PATH");
        return;
    };
    let version = String::from_utf8_lossy(&config.stdout).trim().to_owned();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(directory.join("names.h"), names()).unwrap();
    let program = directory.join("print_abi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/print_abi.c");
    let flags = run(Command::new("scorep-config").arg("--cppflags"));
    run(Command::new("cc")
        .args(flags.split_whitespace())
        .arg("-I")
        .arg(directory)
        .arg(&source)
        .arg("-o")
        .arg(&program));
    let printed = run(&mut Command::new(&program));
    std::fs::write(directory.join(format!("scorep-{version}-abi.json")), &printed).unwrap();
    if version != "8.4" {
        println!("skipped: the scorep-config on the PATH is for Score-P {version}, not 8.4");
        return;
    }
    assert_eq!(serde_json::from_str::<Table>(&printed).unwrap(), ours());
}
