//! `ampere run --repeat`: a series of runs of one command.

use ampere_tests::jobs::{Done, Place, run, start, until};
use rustix::process::Signal;

/// Makes a series of runs of a shell command in the directory `series`.
fn series(place: &Place, options: &[&str], script: &str) -> Done {
    run(&mut command(place, options, script))
}

fn command(place: &Place, options: &[&str], script: &str) -> std::process::Command {
    let fixed = ["-o", "series", "--listen", "off", "--", "sh", "-c", script];
    let mut command = place.ampere([&["run"], options, &fixed].concat());
    command.current_dir(place.path(""));
    command
}

fn runs(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path("series")).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_series_has_a_directory_for_each_run_and_is_a_group() {
    let place = Place::new();
    let options = ["--repeat", "3", "--until", "0%", "--trace", "off"];
    let done = series(&place, &options, "echo a line of the command");
    assert_eq!((done.code, done.stdout.lines().count()), (0, 3), "{done:#?}");
    assert_eq!(runs(&place), ["1", "2", "3"]);
    let said = |start: &str| done.stderr.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    assert!(said("ampere: run 1 of 3: ").ends_with(" s; one run has no range"), "{done:#?}");
    assert!(said("ampere: run 3 of 3: ").contains(" s; mean "), "{done:#?}");
    let last = done.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("ampere: 3 runs of at most 3 in series: mean "), "{done:#?}");
    assert!(last.ends_with(": the range is not below ± 0 %, more runs narrow it"), "{done:#?}");
    assert!(!place.path("series/1/traces.otf2").exists(), "each run has the options of the series");
    let ids: Vec<_> =
        (1..=3).map(|number| place.summary(&format!("series/{number}"))["run"]["id"].clone()).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
    let compared = run(place.ampere(["compare", "series", "--", "series/1"]).current_dir(place.path("")));
    assert!(compared.stderr.contains("series/1 was named twice"), "the series is its runs: {compared:#?}");
    let reported = run(place.ampere(["report", "series"]).current_dir(place.path("")));
    let words = "ampere: series is a series of 3 runs: series/1 ... series/3; ampere compare series OTHER compares its mean";
    assert!(reported.code == 1 && reported.stderr.starts_with(words), "{reported:#?}");
    // A second series does not become a part of the first one.
    let again = series(&place, &options, "true");
    again.said_once(&["series holds the results of other runs: name another directory"]);
    assert_eq!((again.code, runs(&place).len()), (1, 3));
}

#[test]
fn a_series_ends_when_the_mean_is_known_or_the_command_fails() {
    let place = Place::new();
    // The range of three positive figures is never that large.
    let done = series(&place, &["--repeat", "9", "--until", "1000%"], "true");
    assert_eq!((done.code, runs(&place)), (0, ["1", "2", "3"].map(str::to_owned).to_vec()), "{done:#?}");
    assert!(done.stderr.trim_end().ends_with(": the range is below ± 1000 %"), "{done:#?}");
    let quiet = series(&Place::new(), &["-q", "--repeat", "2"], "true");
    assert!(quiet.code == 0 && !quiet.stderr.contains("of 2"), "{quiet:#?}");
    let place = Place::new();
    let fails_at_last = "echo >> count; [ $(wc -l < count) -lt 2 ] || exit 7";
    let done = series(&place, &["--repeat", "9"], fails_at_last);
    assert_eq!((done.code, runs(&place).len()), (7, 2), "{done:#?}");
    assert!(done.stderr.contains("run 2 of 9 ended with a bad status: the series stops here"), "{done:#?}");
    for (options, words) in [
        (&["--until", "2%"][..], "--repeat"),
        (&["--repeat", "0"], "0 is not in 1..=1000"),
        (&["--repeat", "2", "--until", "0.02"], "write the percent sign"),
    ] {
        let done = series(&Place::new(), options, "true");
        assert_eq!((done.code, done.stderr.contains(words)), (2, true), "{options:?}: {done:#?}");
    }
}

#[test]
fn a_signal_ends_the_series_with_its_run() {
    let place = Place::new();
    let series = start(&mut command(&place, &["--repeat", "9"], "echo > started; exec sleep 1000"));
    until("a command that runs", || place.path("started").exists());
    series.signal(Signal::TERM);
    let done = series.wait();
    assert_eq!((done.code, runs(&place)), (143, vec!["1".to_owned()]), "{done:#?}");
    assert!(place.path("series/1/summary.json").exists(), "{done:#?}");
    place.no_process_left();
}
