//! Files and disks that are full, and files that are gone.

use ampere_tests::counting_program::{
    assert_conserved, assert_trace_readable, build_serial, calls, check, total_calls, until_paused,
    without_ampere,
};
use ampere_tests::jobs::{Done, Place, Running, Tiny, files_below, run, start};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// The trace of this run would take more than the whole disk.
#[test]
fn a_disk_that_fills_up_cuts_the_trace_and_not_the_figures() {
    let place = Place::new();
    let Some(tiny) = Tiny::mount(place.path("disk"), "3m") else { return };
    let program = build_serial(&place);
    let words = [program.into(), "none".into(), "100000".into()];
    let without = without_ampere(&place, &words);
    // Coalesced calls would take less space.
    let done = run(place.ampere_run("disk/out", &words).env("AMPERE_EVENTS", "all"));
    done.as_without(&without);
    done.no_panic();
    let summary = place.summary("disk/out");
    assert_conserved(&summary);
    assert_eq!(total_calls(&summary, "step"), 100_000);
    assert_eq!(summary["run"]["complete"], false);
    let notes = summary["run"]["missing"].to_string();
    assert!(notes.contains("the trace ends early, so that there is room for it"), "{notes}");
    let traced = assert_trace_readable(&place, "disk/out");
    assert_conserved(&traced);
    let of_trace = calls(&traced, "step").values().sum::<u64>();
    assert!((1000..100_000).contains(&of_trace), "{of_trace} calls");
    // The program's own output would still fit on the disk.
    assert!(std::fs::write(tiny.at.join("own"), vec![1; 100 << 10]).is_ok());
    place.assert_clean();
}

/// Makes a run that writes to a disk, which is filled during the run, and runs the same program without ampere.
fn fill_while_it_runs(place: &Place, tiny: &Tiny) -> (Running, Done) {
    let words = [build_serial(place).into(), "none".into(), "20000".into(), "0".into(), "0".into()];
    let without = without_ampere(place, &words);
    let running = start(place.ampere_run("disk/out", &words).arg("2000"));
    until_paused(place);
    tiny.fill();
    (running, without)
}

/// Another program fills the disk immediately: room for the summary was reserved.
#[test]
fn a_disk_that_is_full_has_room_for_the_summary() {
    let place = Place::new();
    let Some(tiny) = Tiny::mount(place.path("disk"), "16m") else { return };
    let (running, without) = fill_while_it_runs(&place, &tiny);
    place.write("go", "");
    let done = running.wait();
    done.as_without(&without);
    done.no_panic();
    let summary = place.summary("disk/out");
    assert_conserved(&summary);
    assert_eq!(total_calls(&summary, "step"), 20000);
    assert_eq!(summary["run"]["complete"], false, "{}", summary["run"]);
    assert!(summary["run"]["missing"].to_string().contains("ends early"), "{}", summary["run"]);
    place.assert_clean();
}

#[test]
fn an_output_directory_that_is_removed_is_made_again() {
    let place = Place::new();
    let program = build_serial(&place);
    let words = [program.into(), "threads".into(), "20000".into(), "0".into(), "15000".into()];
    let without = without_ampere(&place, &words);
    let running = start(place.ampere_run("out", &words).arg("2000"));
    until_paused(&place);
    // The collector may make a file there in the meantime.
    while let Err(error) = std::fs::remove_dir_all(place.path("out")) {
        assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty, "{error}");
    }
    place.write("go", "");
    let done = running.wait();
    done.as_without(&without);
    done.said_nothing();
    let summary = check(&place, "out", true);
    assert_eq!(total_calls(&summary, "step"), 20000);
    assert!(
        summary["run"]["notes"].to_string().contains("was removed while the job ran"),
        "{}",
        summary["run"]
    );
    assert!(files_below(&place.path("out")).iter().all(|file| !file.ends_with("reserve")));
    place.assert_clean();
}

/// The directory cannot be written any more: the figures matter more than the trace, which is lost with it.
#[test]
fn an_output_directory_that_cannot_be_made_again_does_not_cost_the_figures() {
    let place = Place::new();
    let program = build_serial(&place);
    let words = [program.into(), "threads".into(), "20000".into(), "0".into(), "15000".into()];
    let without = without_ampere(&place, &words);
    let temporary = place.path("temporary");
    std::fs::create_dir(&temporary).expect("a directory");
    let running = start(place.ampere_run("out", &words).arg("2000").env("TMPDIR", &temporary));
    until_paused(&place);
    std::fs::remove_dir_all(place.path("out")).expect("the output directory");
    std::fs::write(place.path("out"), "another user's").expect("a file in its place");
    place.write("go", "");
    let done = running.wait();
    done.as_without(&without);
    done.said_once(&["the collector failed: cannot write", "the figures without a trace are in"]);
    let kept: Vec<PathBuf> = files_below(&temporary);
    assert!(kept.iter().any(|file| file.ends_with("report.html")), "{kept:?}");
    let directory = kept[0].parent().expect("a directory");
    assert_eq!(std::fs::metadata(directory).expect("it exists").permissions().mode() & 0o777, 0o700);
    let name = directory.strip_prefix(place.path("")).expect("below").to_str().expect("text").to_owned();
    let summary = place.summary(&name);
    assert_conserved(&summary);
    assert_eq!(total_calls(&summary, "step"), 20000);
    assert_eq!(summary["run"]["complete"], false);
    assert_eq!(std::fs::read_to_string(place.path("out")).expect("it stays"), "another user's");
    // No records are left, and a note reports it.
    assert_eq!(files_below(&place.path("tmp/spool")), Vec::<PathBuf>::new());
    let advice = done.stderr.split("ampere recover ").nth(1).expect("what to do");
    let left = advice.split_whitespace().next().expect("the session");
    let recovered = run(place.ampere(["recover", "-o", "rest", left]).current_dir(place.path("")));
    recovered.said_once(&["no records remain", "has been removed"]);
    place.assert_clean();
}

#[test]
fn when_shared_memory_fills_up_only_later_threads_are_unrecorded() {
    let place = Place::new();
    let Some(tiny) = Tiny::mount(place.path("tiny"), "24m") else { return };
    let program = build_serial(&place);
    let words = [program.into(), "threads".into(), "20000".into(), "0".into(), "15000".into()];
    let without = without_ampere(&place, &words);
    let mut command = place.ampere_run("out", &words);
    let running = start(command.arg("2000").env("AMPERE_SHM", &tiny.at));
    until_paused(&place);
    tiny.fill();
    place.write("go", "");
    let done = running.wait();
    done.as_without(&without);
    done.said_once(&["no room for", "threads without a ring are not recorded"]);
    let summary = check(&place, "out", false);
    assert!(summary["quality"]["unrecorded_calls"].as_u64() > Some(0), "{}", summary["quality"]);
    assert_eq!(total_calls(&summary, "step"), 20000);
    assert_eq!(files_below(&tiny.at), [tiny.at.join("filler")]);
}

/// The new collector finds a full disk as well: what is measured from then on is in the figures.
#[test]
fn a_collector_that_is_killed_on_a_full_disk_is_replaced() {
    let place = Place::new();
    let Some(tiny) = Tiny::mount(place.path("disk"), "16m") else { return };
    let (running, without) = fill_while_it_runs(&place, &tiny);
    let first = place.collectors();
    first.iter().for_each(|collector| ampere_tests::jobs::signal(*collector, rustix::process::Signal::KILL));
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, &done.stdout), (without.code, &without.stdout), "{done:#?}");
    done.said_once(&["killed by signal 9", "another one takes over"]);
    let summary = place.summary("disk/out");
    assert_conserved(&summary);
    let made = total_calls(&summary, "step");
    assert!((10_000..=20_000).contains(&made), "{made}: {}", summary["run"]);
    assert_eq!(summary["run"]["complete"], false, "{}", summary["run"]);
    place.assert_clean();
}

/// The records end where the disk became full, but the figures do not: a trace that is written later must not replace them.
#[test]
fn recovering_keeps_figures_that_cover_more_than_the_trace() {
    let place = Place::new();
    let Some(tiny) = Tiny::mount(place.path("disk"), "600k") else { return };
    let program = build_serial(&place);
    let words = [program.as_os_str(), "none".as_ref(), "40000".as_ref()];
    let running = start(place.ampere_run("disk/out", words).args(["0", "0", "100"]));
    until_paused(&place);
    // The trace cannot be written from these records either.
    std::fs::create_dir(place.path("disk/out/traces.def")).expect("a directory");
    place.write("go", "");
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let before = place.summary("disk/out");
    assert_eq!(calls(&before, "step").values().sum::<u64>(), 40000);
    assert!(before["run"]["notes"].to_string().contains("the records are in"), "{}", before["run"]);
    let larger = Command::new("mount").args(["-o", "remount,size=60m"]).arg(&tiny.at).status();
    assert!(larger.expect("mount").success());
    std::fs::remove_dir(place.path("disk/out/traces.def")).expect("it exists");
    let recovered = run(place.ampere(["recover", "disk/out"]).current_dir(place.path("")));
    assert_eq!(recovered.code, 0, "{recovered:#?}");
    recovered.said_once(&["now has a trace of the remaining records", "and is unchanged"]);
    assert_eq!(place.summary("disk/out"), before);
    let of_trace = calls(&assert_trace_readable(&place, "disk/out"), "step").values().sum::<u64>();
    assert!((1..40000).contains(&of_trace), "{of_trace} calls");
    place.assert_clean();
}
