//! Compares the crate's types with CUPTI's own headers, of CUDA 12 and 13. The tables in this folder are the output of
//! `print_abi.c`, compiled against those headers. If headers are installed, the program is compiled and run again.
//!
//! For another version, install it (`pip install nvidia-cuda-cupti nvidia-cuda-runtime nvidia-cuda-crt`) and run the test with
//! `CUPTI_INCLUDE`, the directories of its headers separated by colons. It leaves the version's table in `target/tmp`.

use ampere_cuda::cupti::{LAYOUTS, VALUES};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Sizes, offsets and values, by their names in C: `type`, `type.field` and `CONSTANT`.
type Table = BTreeMap<String, i64>;

const TABLES: [(&str, &str); 2] = [
    ("CUPTI of CUDA 12.9", include_str!("cupti-12.9-abi.json")),
    ("CUPTI of CUDA 13.5", include_str!("cupti-13.5-abi.json")),
];

/// Returns the crate's offsets and values of the types that are in `headers`: a newer version of CUPTI has newer records.
fn ours(headers: &Table) -> Table {
    let mut table: Table = VALUES.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    for (types, fields) in LAYOUTS {
        let known: Vec<_> = types.iter().filter(|name| headers.contains_key(**name)).collect();
        assert!(!known.is_empty(), "none of {types:?} is in the headers");
        for name in known {
            table.extend(fields.iter().map(|(field, offset)| (format!("{name}.{field}"), *offset as i64)));
        }
    }
    table
}

/// Returns the table without the sizes of types and without CUPTI's version, which the crate does not define.
fn offsets_and_values(table: &Table) -> Table {
    let is_ours = |name: &str| name.contains('.') || VALUES.iter().any(|(value, _)| *value == name);
    table.iter().filter(|(name, _)| is_ours(name)).map(|(name, number)| (name.clone(), *number)).collect()
}

#[test]
fn offsets_and_values_are_those_of_cuda_12_and_13() {
    for (version, table) in TABLES {
        let table: Table = serde_json::from_str(table).unwrap();
        assert_eq!(ours(&table), offsets_and_values(&table), "{version}");
    }
}

/// Returns the text of `names.h`, which `print_abi.c` includes: one line for each type, field and value to print. Types that the
/// headers in these directories do not define are left out.
fn names(directories: &[String]) -> String {
    let headers: String = directories
        .iter()
        .flat_map(|directory| {
            ["cupti_activity.h", "cupti_activity_deprecated.h", "cupti_callbacks.h"]
                .map(|file| Path::new(directory).join(file))
        })
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .collect();
    let mut text = String::new();
    for (types, fields) in LAYOUTS {
        for name in types.iter().filter(|name| headers.contains(&format!("}} {name};"))) {
            text += &format!("SIZE({name})\n");
            fields.iter().for_each(|(field, _)| text += &format!("FIELD({name}, {field})\n"));
        }
    }
    VALUES.iter().for_each(|(name, _)| text += &format!("VALUE({name})\n"));
    text
}

#[test]
fn installed_headers_give_the_same_offsets_and_values() {
    let usual = "/usr/local/cuda/extras/CUPTI/include:/usr/local/cuda/include";
    let directories: Vec<String> = std::env::var("CUPTI_INCLUDE")
        .unwrap_or_else(|_| usual.to_owned())
        .split(':')
        .map(str::to_owned)
        .collect();
    if !directories.iter().any(|directory| Path::new(directory).join("cupti.h").is_file()) {
        println!("skipped: no headers of CUPTI");
        return;
    }
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(here.join("names.h"), names(&directories)).unwrap();
    let program = here.join("print_cupti_abi");
    let mut compile = Command::new("cc");
    directories.iter().for_each(|directory| {
        compile.arg("-I").arg(directory);
    });
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/print_abi.c");
    let compiled = compile.arg("-I").arg(here).arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let printed = Command::new(&program).output().unwrap().stdout;
    let table: Table = serde_json::from_slice(&printed).unwrap();
    std::fs::write(here.join(format!("cupti-{}-abi.json", table["CUPTI_API_VERSION"])), &printed).unwrap();
    assert_eq!(ours(&table), offsets_and_values(&table));
}
