//! `ampere report`: of runs that are over, that go on and that were killed.

use ampere_tests::collector::announced;
use ampere_tests::jobs::{Done, Place, run, start, until};

const WAITS: &str = r#"
    #include <unistd.h>
    static void step(void) { usleep(1000); }
    int main(void) {
        while (access("go", F_OK)) step();
        return 0;
    }
"#;

fn report(place: &Place, arguments: &[&str]) -> Done {
    let mut command = place.ampere(["report"]);
    run(command.args(arguments).current_dir(place.path("")))
}

#[test]
fn each_format_of_a_run_that_goes_on_and_of_one_that_is_over() {
    let place = Place::new();
    let program = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    let running = start(place.ampere_run("out", [&program]).env("AMPERE_COUNTERS", "estimate"));
    until("it is announced", || announced(&place.path("out")).is_some());
    let as_of_now = || report(&place, &["out", "-f", "json"]);
    let has_events = |done: &Done| {
        let summary: serde_json::Value = serde_json::from_str(&done.stdout).expect("a summary");
        done.code == 0 && summary["quality"]["events"].as_u64() > Some(0)
    };
    until("the collector tells of events", || has_events(&as_of_now()));
    assert!(!place.path("out/summary.json").exists());
    // The same run, found by itself, until it is over.
    let watching = start(&mut place.ampere(["top"]));
    std::thread::sleep(std::time::Duration::from_millis(300));
    place.write("go", "");
    assert_eq!(running.wait().code, 0);
    let watched = watching.wait();
    assert_eq!(watched.code, 0, "{watched:#?}");
    assert!(watched.stdout.contains("top: ") && watched.stderr.contains("the run is over"), "{watched:#?}");

    let formats = [
        ("table", "ampere: 1 rank"),
        ("json", "{\n  \"schema\": \"ampere-summary/1\""),
        ("csv", "node,device,"),
        ("html", "<!DOCTYPE html>"),
        ("folded", "node;Process;"),
        ("flamegraph", "<?xml"),
    ];
    for (format, begins) in formats {
        let shown = report(&place, &["out", "--format", format]);
        assert_eq!(shown.code, 0, "{shown:#?}");
        shown.said_nothing();
        assert!(shown.stdout.starts_with(begins), "{}", shown.stdout);
        let written = report(&place, &["out/summary.json", "-f", format, "-o", "report"]);
        assert_eq!((written.code, written.stdout.as_str()), (0, ""), "{written:#?}");
        assert_eq!(std::fs::read_to_string(place.path("report")).expect("a file"), shown.stdout);
    }
    let table = std::fs::read_to_string(place.path("out/summary.txt")).expect("a table");
    assert_eq!(report(&place, &["out"]).stdout, table, "the same as in the directory");
    assert!(table.contains("in short:") && table.contains("estimated"), "{table}");
    let compared = run(place.ampere(["compare", "out", "out/summary.json"]).current_dir(place.path("")));
    assert_eq!(compared.code, 0, "{compared:#?}");
    assert!(compared.stdout.lines().any(|row| row.ends_with("=  step")), "{}", compared.stdout);
    let kernels = report(&place, &["out", "-f", "csv", "--view", "kernels"]);
    assert!(!kernels.stdout.contains(",ranks,"), "{}", kernels.stdout);
}

#[test]
fn what_is_no_run_is_told_in_one_line() {
    let place = Place::new();
    let refuse = |arguments: &[&str], words: &[&str]| {
        let done = report(&place, arguments);
        assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:#?}");
        done.said_once(words);
    };
    refuse(&["absent"], &["absent/summary.json", "No such file", "name an output directory"]);
    place.write("summary.json", "{\"schema\": 1}");
    refuse(&["."], &["summary.json is no summary"]);
    std::fs::create_dir_all(place.path("killed/spool-here")).expect("a directory");
    std::fs::write(place.path("killed/spool-here/run.json"), "{}").expect("a file");
    refuse(&["killed"], &["was killed", "ampere recover killed"]);
    let program = place.instrumented();
    run(&mut place.ampere_run("out", [&program]));
    refuse(&["out", "--device", "GPU-7"], &["no device \"GPU-7\"", "node"]);
    refuse(&["out", "-o", "absent/file"], &["cannot write absent/file"]);
    assert_eq!(report(&place, &["out", "-f", "poem"]).code, 2);
    let nobody = run(&mut place.ampere(["top"]));
    assert_eq!(nobody.code, 1);
    nobody.said_once(&["no run of yours goes on"]);
    let over = run(place.ampere(["top", "out"]).current_dir(place.path("")));
    assert_eq!(over.code, 1);
    over.said_once(&["no run goes on in out"]);
    assert_eq!(run(&mut place.ampere(["compare", "out"])).code, 2);
}
