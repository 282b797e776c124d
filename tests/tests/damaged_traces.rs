//! `ampere attribute` on traces that are cut short or incomplete, and on files that are not traces.

use ampere_tests::jobs::{Done, Place, run};
use ampere_tests::runs::{parse, recorded_trace};
use ampere_tests::skip_unless;
use std::path::{Path, PathBuf};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a trace").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).expect("a copy");
        }
    }
}

fn cut(file: &Path, keep: f64) {
    let file = std::fs::OpenOptions::new().write(true).open(file).expect("a file");
    let length = file.metadata().expect("a length").len();
    file.set_len((length as f64 * keep) as u64).expect("cut");
}

/// Makes a small trace in `own`, which is then copied and damaged.
fn own_trace(place: &Place) -> PathBuf {
    let program = place.instrumented();
    let done = run(&mut place.ampere_run("own", [&program]));
    assert_eq!(done.code, 7, "{done:#?}");
    place.path("own")
}

fn attribute(place: &Place, trace: &str, more: &[&str]) -> Done {
    run(place.ampere(["attribute", "--json", trace]).args(more))
}

/// Checks that the trace is refused with one line, and that nothing is printed on standard output.
#[track_caller]
fn refused(done: &Done, words: &[&str]) {
    assert_eq!(done.code, 1, "{done:#?}");
    assert!(done.stdout.is_empty(), "{done:#?}");
    done.said_once(words);
}

/// Checks that the trace is attributed with these lines about what is missing or left out, which the JSON has as well.
#[track_caller]
fn with_warnings(done: &Done, lines: &[&[&str]]) -> serde_json::Value {
    assert_eq!(done.code, 0, "{done:#?}");
    done.no_panic();
    prints(done, lines);
    incomplete(done, lines.len())
}

/// What is printed if the events of a location are cut off within regions.
const UNENDED: &[&str] = &["regions that are never left"];

#[track_caller]
fn incomplete(done: &Done, notes: usize) -> serde_json::Value {
    let summary: serde_json::Value = parse(&done.stdout).expect("JSON");
    assert_eq!(summary["run"]["complete"], false);
    assert_eq!(summary["run"]["notes"].as_array().map(Vec::len), Some(notes), "{}", summary["run"]);
    summary
}

/// The notes that the recorded trace always has: its powers are not devices.
const POWERS_LEFT_OUT: [&[&str]; 2] = [
    &["left out because they are powers of devices whose energy is recorded, too: \
         A2rocm_smi:::current_socket_power:device=0-3"],
    &[
        "left out because they are powers next to energies",
        ": A2coretemp:::hwmon2:power1_input, A2coretemp:::hwmon3:power1_input, A2coretemp:::hwmon4:power1_input, \
         A2coretemp:::hwmon5:power1_input",
    ],
];

/// Checks that there are exactly these lines, each of which has at least its words.
#[track_caller]
fn prints(done: &Done, lines: &[&[&str]]) {
    let said = done.said();
    assert_eq!(said.len(), lines.len(), "{done:#?}");
    for (line, words) in said.iter().zip(lines) {
        words.iter().for_each(|word| assert!(line.contains(word), "{word:?} is not in {line:?}"));
    }
}

fn joules(summary: &serde_json::Value) -> f64 {
    let devices = summary["devices"].as_array().expect("devices");
    devices.iter().filter_map(|device| device["total_joules"].as_f64()).sum()
}

#[test]
fn a_file_that_is_no_trace_is_refused() {
    let place = Place::new();
    place.write("empty.otf2", "");
    place.write("text.otf2", "This is no trace, it is a letter.\n");
    place.write("text", "This is no trace, it is a letter.\n");
    place.write("binary.otf2", &"\u{1}\u{0}OTF2".repeat(1000));
    std::fs::create_dir(place.path("directory")).expect("a directory");
    let cases: [(&str, &[&str]); 7] = [
        ("absent.otf2", &["absent.otf2", "no such file"]),
        ("absent/traces.otf2", &["absent/traces.otf2", "no such file"]),
        ("empty.otf2", &["empty.otf2", "not an OTF2 anchor file", "empty"]),
        ("text.otf2", &["text.otf2", "not an OTF2 anchor file"]),
        ("text", &["text", "not an OTF2 anchor file"]),
        ("binary.otf2", &["binary.otf2", "not an OTF2 anchor file"]),
        ("directory", &["directory has no traces.otf2"]),
    ];
    for (trace, words) in cases {
        refused(&attribute(&place, trace, &["-o", "out"]), words);
        assert!(!place.path("out").exists());
    }
}

#[test]
fn damaged_definitions_are_refused() {
    let place = Place::new();
    let own = own_trace(&place);
    copy(&own, &place.path("cut"));
    cut(&place.path("cut/traces.def"), 0.5);
    refused(&attribute(&place, "cut/traces.otf2", &[]), &["cut/traces.def", "cut short or damaged"]);
    copy(&own, &place.path("gone"));
    std::fs::remove_file(place.path("gone/traces.def")).expect("it was there");
    refused(&attribute(&place, "gone/traces.otf2", &[]), &["gone/traces.def", "missing"]);
    copy(&own, &place.path("anchor"));
    cut(&place.path("anchor/traces.otf2"), 0.5);
    refused(&attribute(&place, "anchor/traces.otf2", &[]), &["anchor/traces.otf2"]);
}

#[test]
fn events_that_are_cut_short_are_attributed_up_to_there() {
    let place = Place::new();
    let own = own_trace(&place);
    let whole = attribute(&place, "own/traces.otf2", &[]);
    assert_eq!(whole.code, 0, "{whole:#?}");
    let whole: serde_json::Value = parse(&whole.stdout).expect("JSON");

    copy(&own, &place.path("cut"));
    cut(&place.path("cut/traces/0.evt"), 0.6);
    let done = attribute(&place, "cut/traces.otf2", &[]);
    let summary =
        with_warnings(&done, &[&["location 0", "up to the end of its events", "cut/traces/0.evt"], UNENDED]);
    assert!((joules(&summary) - joules(&whole)).abs() < 1e-9, "the samples are all there");
    assert!(summary["quality"]["events"].as_u64() < whole["quality"]["events"].as_u64());
    assert!(summary["quality"]["events"].as_u64() > Some(0));

    copy(&own, &place.path("gone"));
    std::fs::remove_file(place.path("gone/traces/0.evt")).expect("it was there");
    let done = attribute(&place, "gone/traces.otf2", &[]);
    let summary =
        with_warnings(&done, &[&["location 0 (Process/Master thread)", "no event file", "left out"]]);
    let device = &summary["devices"][0];
    assert_eq!(device["views"][0]["attributed_joules"], 0.0);
    assert!((joules(&summary) - joules(&whole)).abs() < 1e-9);
}

#[test]
fn a_trace_without_its_samples_is_refused() {
    let place = Place::new();
    let own = own_trace(&place);
    copy(&own, &place.path("gone"));
    let samples = std::fs::read_dir(place.path("gone/traces")).expect("a trace").flatten();
    let samples = samples.map(|e| e.path()).filter(|path| path.extension().is_some_and(|e| e == "evt"));
    // The sampler's location has the largest number. The locations of threads only have samples of CPU time.
    let number_of = |path: &PathBuf| path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
    let samples = samples.max_by_key(number_of).expect("a location");
    std::fs::remove_file(&samples).expect("it was there");
    let number = &number_of(&samples).expect("a number").to_string();
    let done = attribute(&place, "gone/traces.otf2", &["-o", "out"]);
    refused(&done, &["no samples of an energy metric", number, "no event file"]);
    assert!(!place.path("out").exists());
}

#[test]
fn a_trace_without_energy_is_refused() {
    let place = Place::new();
    let program = place.instrumented();
    let done = run(place.ampere_run("none", [&program]).env("AMPERE_COUNTERS", "none"));
    assert_eq!(done.code, 7, "{done:#?}");
    refused(
        &attribute(&place, "none/traces.otf2", &[]),
        &["has no metric, so it has no energy", "ampere run"],
    );

    own_trace(&place);
    place.write("other.toml", "[[device]]\nname = \"x\"\nmetric = 'rocm.*'\n");
    let done = attribute(&place, "own/traces.otf2", &["--config", "other.toml"]);
    refused(&done, &["[[device]]", "matches", "it has estimate:::energy"]);
    let done = attribute(&place, "own/traces.otf2", &["--config", "absent.toml"]);
    refused(&done, &["absent.toml", "No such file"]);
    place.write("file", "a file");
    let done = attribute(&place, "own/traces.otf2", &["-o", "file/below"]);
    refused(&done, &["cannot create file/below", "Not a directory"]);
}

#[test]
fn the_rest_of_a_damaged_score_p_trace_is_attributed() {
    let recorded = recorded_trace();
    skip_unless!(recorded.is_some(), "no ../shared/traces/mi300a-two-kernels");
    let recorded = recorded.expect("checked").with_file_name("");
    let place = Place::new();
    copy(&recorded, &place.path("whole"));
    let whole = attribute(&place, "whole/traces.otf2", &[]);
    assert_eq!(whole.code, 0, "{whole:#?}");
    whole.no_panic();
    prints(&whole, &POWERS_LEFT_OUT);
    let whole: serde_json::Value = parse(&whole.stdout).expect("JSON");
    assert!(joules(&whole) > 0.0);
    assert_eq!(whole["run"]["notes"].as_array().map(Vec::len), Some(2), "{}", whole["run"]);

    // This takes the smallest file that has events; the largest one has the samples.
    let mut files: Vec<(u64, PathBuf)> = std::fs::read_dir(place.path("whole/traces"))
        .expect("a trace")
        .flatten()
        .map(|e| (e.metadata().expect("metadata").len(), e.path()))
        .filter(|(_, path)| path.extension().is_some_and(|e| e == "evt"))
        .collect();
    files.sort();
    let (_, small) = files.iter().find(|(bytes, _)| *bytes > 200).expect("a file with events");
    let name = small.file_name().expect("a name").to_owned();
    let number = small.file_stem().and_then(|s| s.to_str()).expect("a number").to_owned();

    copy(&recorded, &place.path("cut"));
    cut(&place.path("cut/traces").join(&name), 0.5);
    let done = attribute(&place, "cut/traces.otf2", &[]);
    let location = format!("location {number}");
    let [energies, others] = POWERS_LEFT_OUT;
    with_warnings(&done, &[&[&location, "up to the end of its events"], energies, others, UNENDED]);

    copy(&recorded, &place.path("gone"));
    std::fs::remove_file(place.path("gone/traces").join(&name)).expect("it was there");
    let done = attribute(&place, "gone/traces.otf2", &[]);
    with_warnings(&done, &[&[&location, "no event file"], energies, others]);
}
