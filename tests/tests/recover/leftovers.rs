//! What `ampere recover` refuses, and what the next run does with a run that was cut off.

use super::*;

fn recover(place: &Place, directory: &Path) -> Done {
    let mut command = place.ampere(["recover"]);
    run(command.arg(directory).current_dir(place.path("")))
}

#[test]
fn a_run_that_has_not_ended_is_refused() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.bare("out", &program);
    let running = start(with_estimate(&mut command));
    let first = collector(&place, "out", &[]);
    // If the collector is killed before it is ready, the program continues without being measured.
    until_events(&place, "out", 1);
    let refused = recover(&place, &place.path("out"));
    assert_eq!(refused.code, 1);
    refused.said_once(&["in use", &first.to_string()]);
    let listed = run(place.ampere(["recover"]).current_dir(place.path("")));
    assert_eq!((listed.code, listed.stdout.as_str()), (0, ""), "{listed:#?}");
    // Now the collector is killed, and the program is still running.
    processes_with(&place, "--supervise").into_iter().for_each(kill);
    kill(first);
    until("no collector runs", || place.collectors().is_empty());
    let refused = recover(&place, &place.path("out"));
    assert_eq!(refused.code, 1, "{refused:#?}");
    refused.said_once(&["in use", "process"]);
    place.write("go", "");
    let done = running.wait();
    assert_eq!(done.code, 7);
    assert!(place.path("out/summary.json").exists(), "{done:#?}");
    assert_eq!(place.summary("out")["run"]["complete"], true);
    place.assert_clean();
}

#[test]
fn a_directory_without_a_run_is_refused_in_one_line() {
    let place = Place::new();
    let refuse = |directory: &Path, words: &[&str]| {
        let done = recover(&place, directory);
        assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:#?}");
        done.said_once(words);
    };
    refuse(Path::new("absent"), &["there is no absent"]);
    std::fs::create_dir(place.path("empty")).expect("a directory");
    refuse(Path::new("empty"), &["nothing to recover in empty"]);
    place.write("file", "");
    refuse(Path::new("file"), &["nothing to recover in file"]);
    std::fs::create_dir_all(place.path("out/spool-here")).expect("a directory");
    for text in ["", "{}", "[1, 2]", "{\"format\": 99}", "\u{0}\u{0}\u{0}"] {
        std::fs::write(place.path("out/spool-here/run.json"), text).expect("a file");
        refuse(Path::new("out"), &["run.json"]);
    }
    std::fs::create_dir(place.path("session-like")).expect("a directory");
    place.write("session-like/session", "no page of ours");
    refuse(Path::new("session-like"), &["not a session of this version of ampere"]);
    let listed = run(place.ampere(["recover"]).current_dir(place.path("")));
    assert_eq!((listed.code, listed.stdout.as_str()), (0, ""), "{listed:#?}");
    listed.said_once(&["nothing to recover"]);
}

#[test]
fn the_next_run_leaves_an_unfinished_run_alone_and_the_doctor_names_it() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.bare("first", &program);
    let running = start(with_estimate(&mut command));
    until_events(&place, "first", 150);
    processes_with(&place, "--supervise").into_iter().for_each(kill);
    place.processes().into_iter().for_each(|(pid, _)| kill(pid));
    running.wait();
    until_all_are_dead(&place);
    place.write("go", "");
    let mut command = place.ampere_run("second", [&program]);
    let done = run(with_estimate(&mut command));
    assert_eq!(done.code, 7);
    done.said_nothing();
    let found = run(&mut place.ampere(["doctor"]));
    let line = found.stdout.lines().find(|line| line.contains("whose collector ended early"));
    assert!(line.is_some() && found.stdout.contains("ampere recover "), "{found:#?}");
    let recovered = recover(&place, &place.path("first"));
    assert_eq!(recovered.code, 0, "{recovered:#?}");
    assert!(calls(&place.summary("first"))["step"] > 50);
    let mut command = place.ampere_run("third", [&program]);
    run(with_estimate(&mut command)).said_nothing();
    place.assert_clean();
}

/// A process joined the run and was killed with all others before it had an event.
#[test]
fn the_next_run_removes_a_run_without_events() {
    let source = r#"
        #include <unistd.h>
        __attribute__((noinline)) void never(void) { usleep(1); }
        __attribute__((no_instrument_function)) int main(int argc, char **argv) {
            if (argc > 2) never();
            sleep(30);
            return 0;
        }
    "#;
    let killed = || {
        let place = Place::new();
        let program = place.compile("cc", "idle", source, &["-finstrument-functions"]);
        let mut command = place.bare("first", &program);
        let running = start(with_estimate(&mut command));
        until("a collector or a process starts", || {
            place.path("first/collector.json").exists() || place.processes().len() == 1
        });
        sleep_ms(300);
        processes_with(&place, "--supervise").into_iter().for_each(kill);
        place.processes().into_iter().for_each(|(pid, _)| kill(pid));
        running.wait();
        until_all_are_dead(&place);
        // After a second, which may have passed on a busy machine, a run has figures, and is not removed.
        (!place.path("first/summary.json").exists()).then_some(place)
    };
    let place = (0..10).find_map(|_| killed()).expect("a run of less than a second");
    let plain = place.instrumented();
    let mut command = place.ampere_run("second", [&plain]);
    run(with_estimate(&mut command)).said_nothing();
    place.assert_clean();
    assert!(!place.path("first").exists(), "{:?}", files_below(&place.path("first")));
}

#[test]
fn recovering_a_run_without_events_removes_it() {
    let killed = || {
        let place = Place::new();
        let mut command = place.ampere_run("out", ["sleep", "30"]);
        let running = start(with_estimate(&mut command));
        let first = collector(&place, "out", &[]);
        running.signal(Signal::KILL);
        kill(first);
        place.processes().into_iter().for_each(|(pid, _)| kill(pid));
        running.wait();
        until_all_are_dead(&place);
        // After a second, which may have passed on a busy machine, a run has figures, and is not removed.
        (!place.path("out/summary.json").exists()).then_some(place)
    };
    let place = (0..10).find_map(|_| killed()).expect("a run of less than a second");
    let plain = place.instrumented();
    let refused = run(with_estimate(&mut place.ampere_run("out", [&plain])));
    refused.said_once(&["out is in use by another run", "`ampere recover` finishes it", "out-2"]);
    let recovered = recover(&place, &place.path("out"));
    assert_eq!(recovered.code, 0, "{recovered:#?}");
    recovered.said_once(&["no records remain", "has been removed"]);
    place.assert_clean();
    assert!(!place.path("out").exists());
    run(with_estimate(&mut place.ampere_run("out", [&plain]))).said_nothing();
    assert_eq!(place.summary("out")["run"]["complete"], true);
}

/// This is the state after a job on several nodes, one of which left files that cannot be read.
#[test]
fn a_node_that_cannot_be_finished_does_not_prevent_the_others_from_being_finished() {
    let place = Place::new();
    killed_together::kill_everything(&place, true);
    for name in ["out/spool-a", "out/z/spool-z"] {
        std::fs::create_dir_all(place.path(name)).expect("a directory");
        place.write(&format!("{name}/run.json"), "{}");
    }
    let recovered = recover(&place, &place.path("out"));
    assert_eq!((recovered.code, recovered.said().len()), (1, 2), "{recovered:#?}");
    assert!(
        recovered.said().iter().all(|line| line.contains("is not a file of this version of ampere")),
        "{recovered:#?}"
    );
    check_trace(&place, "out");
    place.assert_clean();
}

/// The other recoveries remove nothing that the successful one has written.
#[test]
fn one_of_several_recoveries_at_once_finishes_the_run() {
    for shared_memory_is_gone in [false, true] {
        let place = Place::new();
        let published = killed_together::kill_everything(&place, true);
        if shared_memory_is_gone {
            for entry in std::fs::read_dir(place.path("shm")).expect("a directory").flatten() {
                std::fs::remove_dir_all(entry.path()).expect("removed");
            }
        }
        let at_once: Vec<Running> =
            (0..4).map(|_| start(place.ampere(["recover", "out"]).current_dir(place.path("")))).collect();
        let done: Vec<Done> = at_once.into_iter().map(Running::wait).collect();
        assert_eq!(done.iter().filter(|done| done.code == 0).count(), 1, "{done:#?}");
        for refused in done.iter().filter(|done| done.code != 0) {
            assert_eq!((refused.code, refused.said().len()), (1, 1), "{refused:#?}");
        }
        let events = place.summary("out")["quality"]["events"].as_u64().expect("a number");
        assert!(events > 100 && events <= published + 2, "{events} of {published}");
        check_trace(&place, "out");
        place.assert_clean();
    }
}

/// The run ended normally, but there was no room for its trace: no record of it is lost.
#[test]
fn a_trace_that_could_not_be_written_can_be_written_later() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_gpus(&mut command));
    until_events(&place, "out", 50);
    place.write("out/traces", "in its place");
    place.write("go", "");
    assert_eq!(running.wait().code, 7);
    let before = place.summary("out");
    assert_eq!(before["run"]["complete"], false);
    assert!(before["run"]["notes"].to_string().contains("traces"), "{}", before["run"]["notes"]);
    std::fs::remove_file(place.path("out/traces")).expect("it exists");
    let recovered = recover(&place, &place.path("out"));
    assert_eq!(recovered.code, 0, "{recovered:#?}");
    let after = place.summary("out");
    assert_eq!(after["run"]["complete"], true, "{}", after["run"]);
    assert_eq!(calls(&before), calls(&after));
    check_conserved(&after, true);
    check_trace(&place, "out");
    place.assert_clean();
}

/// The application writes into the output directory, too, under names that a trace would have.
#[test]
fn files_of_the_application_are_not_mistaken_for_half_of_a_trace() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_gpus(&mut command));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 50);
    std::fs::create_dir(place.path("out/traces")).expect("a directory");
    place.write("out/traces/precious.dat", "a week of computing");
    place.write("out/traces.def", "mine");
    kill(first);
    collector(&place, "out", &[first]);
    place.write("go", "");
    assert_eq!(running.wait().code, 7);
    let all_there =
        || place.path("out/traces/precious.dat").exists() && place.path("out/traces.def").exists();
    assert!(all_there(), "{:?}", files_below(&place.path("out")));
    let before = place.summary("out");
    assert!(before["run"]["notes"].to_string().contains("already exists"), "{}", before["run"]["notes"]);
    let refused = recover(&place, &place.path("out"));
    assert_eq!(refused.code, 1, "{refused:#?}");
    refused.said_once(&["has no trace", "already exists", "run this command again"]);
    assert!(all_there(), "{:?}", files_below(&place.path("out")));
    // When these files are moved away, the trace can be written.
    std::fs::rename(place.path("out/traces"), place.path("traces")).expect("moved");
    std::fs::remove_file(place.path("out/traces.def")).expect("removed");
    let recovered = recover(&place, &place.path("out"));
    assert_eq!(recovered.code, 0, "{recovered:#?}");
    assert_eq!(calls(&before), calls(&place.summary("out")));
    check_trace(&place, "out");
    place.assert_clean();
}

/// The records are gone, and the next run's are in their place.
#[test]
fn a_run_whose_directory_another_run_has_taken_is_finished_elsewhere_or_discarded() {
    for discard in [false, true] {
        let place = Place::new();
        killed_together::kill_everything(&place, false);
        let session = session_directory(&place);
        std::fs::remove_dir_all(place.path("out")).expect("it exists");
        let plain = place.compile("cc", "plain", "int main(void) { return 0; }", &[]);
        assert_eq!(run(with_estimate(&mut place.ampere_run("out", [&plain]))).code, 0);
        let others = std::fs::read(place.path("out/summary.json")).expect("another run's");
        let refused = recover(&place, &session);
        assert_eq!(refused.code, 1);
        refused.said_once(&["holds the results of another run", "ampere recover -o", "--discard"]);
        let mut command = place.ampere(["recover"]);
        match discard {
            true => command.arg("--discard"),
            false => command.args(["-o", "new"]),
        };
        let done = run(command.arg(&session).current_dir(place.path("")));
        assert_eq!(done.code, 0, "{done:#?}");
        assert_eq!(place.path("new/summary.json").exists(), !discard);
        if discard {
            done.said_once(&["it is not wanted", "has been removed"]);
        } else {
            let summary = place.summary("new");
            assert_eq!(summary["run"]["complete"], false);
            check_conserved(&summary, false);
        }
        assert_eq!(std::fs::read(place.path("out/summary.json")).expect("it stays"), others);
        place.assert_clean();
    }
}

fn copy(place: &Place, from: &str, to: &str) {
    let copied = Command::new("cp").arg("-a").arg(place.path(from)).arg(place.path(to)).status();
    assert!(copied.expect("cp").success());
}

#[track_caller]
fn recovers_all(place: &Place, output: &str, published: u64) {
    let done = recover(place, &place.path(output));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary(output);
    assert!(summary["quality"]["events"].as_u64() >= Some(published), "{published} {}", summary["quality"]);
    place.assert_clean();
}

#[test]
fn recovering_a_copy_leaves_the_run_as_it_is() {
    let place = Place::new();
    let published = killed_together::kill_everything(&place, false);
    copy(&place, "out", "copy");
    copy(&place, "out", "unwanted");
    let session = session_directory(&place);
    let summary = || std::fs::read(place.path("out/summary.json")).ok();
    let while_it_ran = summary();
    let done = recover(&place, &place.path("copy"));
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(place.path("copy/summary.json").exists());
    let mut command = place.ampere(["recover", "--discard"]);
    let done = run(command.arg(place.path("unwanted")).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(session.exists() && summary() == while_it_ran, "the run itself is as it was");
    recovers_all(&place, "out", published);
}

#[test]
fn a_run_whose_directory_was_moved_is_recovered_with_its_rings() {
    let place = Place::new();
    let published = killed_together::kill_everything(&place, false);
    std::fs::rename(place.path("out"), place.path("moved")).expect("a directory");
    let listed = run(place.ampere(["recover"]).current_dir(place.path("")));
    assert_eq!(listed.stdout.lines().count(), 1, "{listed:#?}");
    assert!(listed.stdout.contains("moved"), "{listed:#?}");
    recovers_all(&place, "moved", published);
}

#[test]
fn definitions_that_were_removed_are_read_from_the_spool() {
    let place = Place::new();
    killed_together::kill_everything(&place, false);
    for log in files_below(&session_directory(&place)) {
        let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".defs") && name != "sampler.defs" {
            std::fs::remove_file(log).expect("a file");
        }
    }
    let done = recover(&place, &place.path("out"));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], false);
    // The figures that were written during the run may cover more than the records that were on disk by then.
    let notes = summary["run"]["notes"].to_string();
    let is_noted = ["the log itself was removed; its copy is read", "its last records are lost"];
    assert!(is_noted.iter().any(|note| notes.contains(note)), "{notes}");
    assert!(calls(&summary)["step"] > 100, "{}", summary["quality"]);
    place.assert_clean();
}

/// The process that wrote the results was killed before it removed the session.
#[test]
fn a_session_whose_results_are_written_is_removed() {
    for next_run in [false, true] {
        let place = Place::new();
        killed_together::kill_everything(&place, false);
        let session = session_directory(&place);
        let kept = place.path("kept");
        let copied = Command::new("cp").arg("-a").arg(&session).arg(&kept).status();
        assert!(copied.expect("cp").success());
        assert_eq!(recover(&place, &place.path("out")).code, 0);
        std::fs::rename(&kept, &session).expect("the same place");
        if next_run {
            let plain = place.instrumented();
            run(with_estimate(&mut place.ampere_run("second", [&plain]))).said_nothing();
        } else {
            let listed = run(place.ampere(["recover"]).current_dir(place.path("")));
            listed.said_once(&["nothing to recover"]);
            let done = recover(&place, &session);
            assert_eq!(done.code, 0, "{done:#?}");
            done.said_once(&["its results exist"]);
        }
        place.assert_clean();
    }
}

/// The run has recorded process IDs of its own namespace, which mean nothing outside of it.
#[test]
fn a_run_that_was_killed_with_its_pid_namespace_is_not_in_use() {
    let place = Place::new();
    let alone = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    let program = program(&place, WAITS);
    let inside = place.ampere_run("out", [&program]);
    let mut command = place.command("unshare");
    command.args(alone).arg(inside.get_program()).args(inside.get_args());
    let running = start(with_estimate(&mut command));
    until_events(&place, "out", 50);
    let refused = recover(&place, &session_directory(&place));
    assert_eq!(refused.code, 1);
    refused.said_once(&["in use"]);
    running.signal(Signal::KILL); // this also kills all processes that it has started
    running.wait();
    until_all_are_dead(&place);
    let done = recover(&place, &place.path("out"));
    assert_eq!(done.code, 0, "{done:#?}");
    check_conserved(&place.summary("out"), false);
    place.assert_clean();
}
