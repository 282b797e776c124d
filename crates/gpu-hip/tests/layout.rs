//! Compares the crate's types with rocprofiler-sdk's own headers. The tables in this folder are the output of `print_abi.c`,
//! compiled against the headers of four versions. If headers are installed, the program is compiled and run again.

use ampere_hip::abi::{VALUES, layouts};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Sizes, offsets and values, by their names in C: `type`, `type.field` and `CONSTANT`.
type Table = BTreeMap<String, i64>;

fn ours(version: u32) -> Table {
    let mut table = Table::from([("version".to_owned(), version.into())]);
    for (name, bytes, fields) in layouts(version) {
        table.extend(bytes.map(|bytes| (name.to_owned(), bytes as i64)));
        table.extend(fields.iter().map(|(field, offset)| (format!("{name}.{field}"), *offset as i64)));
    }
    table.extend(VALUES.iter().map(|(name, value)| ((*name).to_owned(), *value)));
    table
}

/// Returns the text of `names.h`, which `print_abi.c` includes: one line for each type, field and value of the crate.
fn names() -> String {
    let mut text = String::new();
    for (name, bytes, fields) in layouts(10_000) {
        text += &bytes.map(|_| format!("SIZE({name})\n")).unwrap_or_default();
        fields.iter().for_each(|(field, _)| text += &format!("FIELD({name}, {field})\n"));
    }
    VALUES.iter().for_each(|(name, _)| text += &format!("VALUE({name})\n"));
    text
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn types_and_values_are_those_of_rocprofiler_sdk_0_4_to_1_0() {
    let printed = [
        include_str!("rocprofiler-sdk-0.4.json"),
        include_str!("rocprofiler-sdk-0.5.json"),
        include_str!("rocprofiler-sdk-0.6.json"),
        include_str!("rocprofiler-sdk-1.0.json"),
    ];
    for text in printed {
        let table: Table = serde_json::from_str(text).unwrap();
        assert_eq!(ours(table["version"] as u32), table);
    }
}

#[test]
fn installed_headers_of_rocprofiler_sdk_give_the_same_table() {
    let include = std::env::var("ROCM_PATH").unwrap_or_else(|_| "/opt/rocm".to_owned()) + "/include";
    if !Path::new(&include).join("rocprofiler-sdk/rocprofiler.h").exists() {
        println!("skipped: no headers of rocprofiler-sdk in {include}");
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(directory.join("names.h"), names()).unwrap();
    let program = directory.join("print_rocprofiler_abi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/print_abi.c");
    run(Command::new("cc")
        .arg("-D__HIP_PLATFORM_AMD__")
        .arg("-I")
        .arg(&include)
        .arg("-I")
        .arg(directory)
        .arg(&source)
        .arg("-o")
        .arg(&program));
    let printed = run(&mut Command::new(&program));
    let table: Table = serde_json::from_str(&printed).unwrap();
    let version = table["version"] as u32;
    std::fs::write(directory.join(format!("rocprofiler-sdk-{version}.json")), &printed).unwrap();
    assert_eq!(ours(version), table);
}
