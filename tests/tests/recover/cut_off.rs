//! Runs that a batch system has cut off: which figures are on disk by then, and how `ampere report`, `top` and `compare` use
//! them.

use super::killed_together::kill_everything;
use super::*;
use ampere_tests::jobs::signal;
use std::time::Instant;

/// A program that continues when it is asked to end. It runs until there is a file "go".
const STUBBORN: &str = r#"
    #include <signal.h>
    #include <unistd.h>
    __attribute__((noinline)) void step(void) { usleep(500); }
    int main(void) {
        signal(SIGTERM, SIG_IGN);
        while (access("go", F_OK)) step();
        return 0;
    }
"#;
/// Without a signal, figures are written every ten seconds.
const SOON: Duration = Duration::from_secs(2);
const FINISHED: [&str; 2] =
    ["the run was interrupted", "its results have now been recovered from its records"];

fn figures_on_disk(place: &Place) -> Option<Value> {
    let text = std::fs::read(place.path("out/summary.json")).ok()?;
    Some(serde_json::from_slice(&text).expect("whole, or not there"))
}

fn is_running(summary: &Value) -> bool {
    summary["run"]["running"] == true && summary["run"]["complete"] == false
}

#[test]
fn figures_are_on_disk_at_once_after_a_signal_that_may_announce_the_end() {
    let place = Place::new();
    let program = place.compile("cc", "stubborn", STUBBORN, &["-finstrument-functions"]);
    let running = start(with_gpus(&mut place.ampere_run("out", [&program])));
    let first = collector(&place, "out", &[]);
    until("figures are on disk", || figures_on_disk(&place).is_some());
    let mut waits: Vec<Duration> = Vec::new();
    let ampere_run = running.pid().as_raw_nonzero().get() as u32;
    // `ampere run` passes the signal on to the command and informs the collector; then `ampere run` is killed; at last the
    // collector itself gets the signal.
    let asked = [(ampere_run, Signal::TERM); 3].into_iter();
    for (to, with) in asked.chain([(ampere_run, Signal::KILL), (first, Signal::TERM)]) {
        let before = figures_on_disk(&place).expect("figures");
        assert!(is_running(&before), "{}", before["run"]);
        until_events(&place, "out", number(&before["quality"], "events") as u64 + 20);
        let begun = Instant::now();
        signal(to, with);
        let mut after = before.clone();
        until("newer figures are on disk", || {
            after = figures_on_disk(&place).expect("figures");
            after["quality"]["events"] != before["quality"]["events"]
        });
        waits.push(begun.elapsed());
        check_conserved(&after, false); // the last increase is known after the next reading
    }
    // This checks all but the two slowest cases, because other programs use this machine's cores.
    waits.sort();
    assert!(waits[2] < SOON, "{waits:?}");
    println!("figures were on disk after {waits:?}");
    place.write("go", "");
    running.wait();
    place.no_process_left();
    let summary = place.summary("out");
    assert!(!is_running(&summary) && summary["run"].get("running").is_none(), "{}", summary["run"]);
    place.assert_clean();
}

/// The batch system's last signal comes when half of the figures are written.
#[test]
fn a_run_that_was_cut_off_is_finished_by_the_command_that_asks_for_it() {
    for command in ["report", "top", "compare"] {
        let place = Place::new();
        let published = kill_everything(&place, true);
        place.write("out/.ampere-summary.json.part", "{\"schema\": \"ampere-su");
        let arguments = if command == "compare" { vec!["out", "out"] } else { vec!["out"] };
        let ask = || run(place.ampere([command]).args(&arguments).current_dir(place.path("")));
        let done = ask();
        assert_eq!(done.code, 0, "{command}: {done:#?}");
        done.said_once(&FINISHED);
        assert!(done.stdout.contains("step"), "{command}: {done:#?}");
        let summary = place.summary("out");
        let events = number(&summary["quality"], "events") as u64;
        assert!(
            (published..=published + 2).contains(&events),
            "{published} published, {events} in the summary"
        );
        assert!(!is_running(&summary), "{}", summary["run"]);
        check_conserved(&summary, true);
        check_trace(&place, "out");
        let left = files_below(&place.path("out"));
        assert!(!left.iter().any(|path| path.to_string_lossy().contains(".part")), "{left:?}");
        place.assert_clean();
        if command != "top" {
            ask().said_nothing();
        }
    }
}

/// Makes a run whose processes were all killed after it had written figures.
fn killed_run() -> Place {
    let place = Place::new();
    let program = program(&place, WAITS);
    let running = start(with_gpus(&mut place.ampere_run("out", [&program])));
    until("figures are on disk", || figures_on_disk(&place).is_some());
    let first = collector(&place, "out", &[]);
    kill_with_ampere_run(&place, &running, first);
    place.processes().into_iter().for_each(|(pid, _)| kill(pid));
    running.wait();
    until_all_are_dead(&place);
    place
}

#[test]
fn facts_that_are_in_no_record_are_taken_from_the_figures_that_were_left() {
    let place = killed_run();
    let before = figures_on_disk(&place).expect("figures");
    let done = run(place.ampere(["report", "out"]).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    assert!(!is_running(&summary), "{}", summary["run"]);
    assert!(before["run"]["node_cpu"].is_object(), "{}", before["run"]);
    assert_eq!(summary["run"]["node_cpu"], before["run"]["node_cpu"]);
    let cost = |summary: &Value| number(&summary["overhead"], "collector_cpu_seconds");
    assert!(cost(&summary) > cost(&before), "{}", summary["overhead"]);
    assert!(summary["overhead"]["sampler"].is_object(), "{}", summary["overhead"]);
    place.assert_clean();
}

/// The node is gone, with the records on its disk.
#[test]
fn the_last_figures_of_a_run_whose_records_are_gone_are_shown() {
    let place = killed_run();
    std::fs::remove_dir_all(session_directory(&place)).expect("the shared memory");
    let spools = std::fs::read_dir(place.path("out")).expect("the output").flatten();
    for spool in spools.filter(|entry| entry.file_name().to_string_lossy().starts_with("spool-")) {
        std::fs::remove_dir_all(spool.path()).expect("the records");
    }
    let _ = std::fs::remove_file(place.path("out/collector.json"));
    let before = figures_on_disk(&place).expect("figures");
    let done = run(place.ampere(["report", "out"]).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    let end = before["run"]["end"].as_str().expect("a time");
    done.said_once(&["these figures were written at ", end, "its records are not on this node"]);
    assert!(done.stdout.contains(" RUNNING") && done.stdout.contains("step"), "{done:#?}");
    assert_eq!(figures_on_disk(&place), Some(before), "they stay as they are");
}

/// The records are on the disk of another node.
#[test]
fn on_another_node_a_run_counts_as_running_until_its_figures_are_old_and_then_the_command_for_its_node_is_named()
 {
    let place = killed_run();
    let _ = std::fs::remove_file(place.path("out/collector.json"));
    std::fs::remove_dir_all(session_directory(&place)).expect("the shared memory");
    let spool = place.path(format!("out/spool-{}", ampere_ring::process::node_name()));
    let read = |path: &Path| -> Value {
        serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
    };
    let (mut manifest, mut figures) =
        (read(&spool.join("run.json")), figures_on_disk(&place).expect("figures"));
    manifest["node"] = "n1".into();
    manifest["records"] = "/tmp/no-such-records".into();
    figures["run"]["nodes"] = serde_json::json!(["n1"]);
    std::fs::write(spool.join("run.json"), manifest.to_string()).expect("a manifest");
    place.write("out/summary.json", &figures.to_string());
    place.script("srun", "");
    let ask = |path: &str, words: &[&str]| {
        let done = run(place.ampere(words).env("PATH", path).current_dir(place.path("")));
        assert_eq!(done.code, 0, "{done:#?}");
        done
    };
    let end = figures["run"]["end"].as_str().expect("a time");
    ask("/nowhere", &["report", "out"]).said_once(&[
        "out: the run is still running on n1 (or was killed",
        "figures as of ",
        end,
    ]);
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(60);
    let file = std::fs::File::open(place.path("out/summary.json")).expect("the summary");
    file.set_modified(long_ago).expect("another time");
    for (path, there) in [("/nowhere", "ssh"), (place.directory().to_str().expect("UTF-8"), "srun -w")] {
        let command = format!("{there} n1 ampere report {} finishes it", place.path("out").display());
        ask(path, &["report", "out"]).said_once(&["these figures were written at ", end, &command]);
        ask(path, &["recover"]).said_once(&[&command]);
    }
}

/// If there are fewer records than the figures cover, the figures are kept.
#[test]
fn figures_that_cover_more_than_the_remaining_records_are_kept() {
    let place = Place::new();
    kill_everything(&place, true);
    let records = run(place.ampere(["report", "out", "-f", "json"]).current_dir(place.path("")));
    let known: Value = serde_json::from_str(&records.stdout).expect("JSON");
    let place = Place::new();
    kill_everything(&place, true);
    let id = ampere_collector::run_directory::nodes::run_in(&place.path("out")).expect("its run");
    let changes = [
        (known["run"]["id"].as_str().expect("a name").to_owned(), id),
        ("\"complete\": false".to_owned(), "\"complete\": false, \"running\": true".to_owned()),
        (format!("\"events\": {}", known["quality"]["events"]), "\"events\": 1000000000".to_owned()),
    ];
    let more = changes.iter().fold(records.stdout, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    place.write("out/summary.json", &more);
    let done = run(place.ampere(["report", "out"]).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    done.said_once(&FINISHED);
    let kept = place.summary("out");
    assert!(!is_running(&kept) && kept["quality"]["events"] == 1_000_000_000, "{}", kept["run"]);
    assert!(kept["run"]["missing"].to_string().contains("its last records are lost: the figures are those"));
}

/// Renaming into a run's directory fails, as on a file system that stores objects.
const RENAMES_NOTHING: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static int is_of_run(int directory, const char *to) {
        char link[40], path[4096] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        if (to[0] != '/' && readlink(link, path, sizeof path - 2) < 0) return 0;
        return strstr(strcat(path, "/"), "/out/") || strstr(to, "/out/");
    }
    int renameat(int from_directory, const char *from, int to_directory, const char *to) {
        if (is_of_run(to_directory, to)) { errno = ENOSYS; return -1; }
        return syscall(SYS_renameat, from_directory, from, to_directory, to);
    }
"#;

#[test]
fn figures_stay_whole_on_a_file_system_that_cannot_rename() {
    let place = Place::new();
    let shim = place.compile("cc", "shim.so", RENAMES_NOTHING, &["-shared", "-fPIC"]);
    let program = program(&place, WAITS);
    let running = start(with_gpus(&mut place.ampere_run("out", [&program])).env("LD_PRELOAD", &shim));
    until("figures are on disk", || place.path("out/summary.json").exists());
    // The signal is for the program, which may not have begun when the first figures are written.
    until_events(&place, "out", 1);
    running.signal(Signal::TERM);
    let done = running.wait();
    assert_eq!(done.code, 143, "{done:#?}");
    let summary = place.summary("out");
    assert!(!is_running(&summary), "{}", summary["run"]);
    check_conserved(&summary, true);
    for name in ["summary.txt", "report.html"] {
        assert!(std::fs::metadata(place.path("out").join(name)).expect("a file").len() > 1000, "{name}");
    }
    let left = files_below(&place.path("out"));
    assert!(!left.iter().any(|path| path.to_string_lossy().contains(".part")), "{left:?}");
    // Another run overwrites none of its files.
    let before = std::fs::read(place.path("out/summary.json")).expect("figures");
    let plain = place.compile("cc", "plain", ampere_tests::jobs::PLAIN, &[]);
    let refused = run(with_gpus(&mut place.ampere_run("out", [&plain])).env("LD_PRELOAD", &shim));
    assert_eq!(refused.code, 7, "{refused:#?}");
    assert_eq!(std::fs::read(place.path("out/summary.json")).expect("figures"), before);
}
