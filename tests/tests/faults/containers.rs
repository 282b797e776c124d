//! Ranks that differ from others because they have a shared memory or a pid namespace of their own, as containers have.

use ampere_tests::counting_program::{
    assert_every_call_recorded, build_mpi, check, counted, forget_counts, mpirun,
};
use ampere_tests::jobs::{Done, Place, have, preloaded, run};
use std::ffi::OsString;

const RANKS: u32 = 3;
const PIDS: &str = "exec unshare --pid --fork --mount-proc --kill-child";

/// Whether such namespaces can be made here, and whether there is an MPI.
fn can_unshare(place: &Place) -> bool {
    let alone = ["--mount", "--pid", "--fork", "--mount-proc", "true"];
    if !have(&["mpirun.openmpi", "mpicc.openmpi", "unshare"]) {
        return false;
    }
    let can = run(place.command("unshare").args(alone)).code == 0;
    if !can {
        println!("skipped: no namespaces can be made here");
    }
    can
}

/// Returns an `mpirun` of a script that starts the program. In the ranks from `first` on, the command `how` is in front of it.
fn ranks(place: &Place, how: &str, first: u32) -> Vec<OsString> {
    let program = format!("'{}' none 2000", build_mpi(place).display());
    let text =
        format!("#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK -lt {first} ] && exec {program}\n{how} {program}\n");
    mpirun(RANKS, &place.script("as-in-a-container", &text), &[])
}

/// Returns a command that mounts an empty file system in place of the shared memory.
fn own_memory(place: &Place) -> String {
    let shared = place.path("shm");
    format!("exec unshare --mount sh -c 'mount -t tmpfs tmpfs \"{}\" && exec \"$@\"' sh", shared.display())
}

fn cannot_be_seen(done: &Done) -> usize {
    done.no_panic();
    let lines: Vec<_> = done.said().into_iter().filter(|line| line.contains("/dev/shm of its own")).collect();
    assert!(
        lines.iter().all(|line| line.contains("energy is not measured") && line.contains("AMPERE_SHM")),
        "{done:#?}"
    );
    lines.len()
}

#[test]
fn a_rank_with_its_own_shared_memory_reports_it_and_is_missing_from_the_run() {
    let place = Place::new();
    if !can_unshare(&place) {
        return;
    }
    let words = ranks(&place, &own_memory(&place), 1);
    let done = run(&mut place.ampere_run("out", &words));
    assert_eq!((done.code, done.stdout.as_str()), (0, "done 2000\n"), "{done:#?}");
    assert_eq!(cannot_be_seen(&done), 2, "{done:#?}");
    let summary = check(&place, "out", false);
    let notes = summary["run"]["notes"].to_string();
    assert!(
        notes.contains("missing: MPI Ranks 1, 2 of the 3 that the launcher started on this node"),
        "{notes}"
    );
    assert_eq!(summary["run"]["mpi"], serde_json::json!({"size": 3, "ranks": [0]}));
    place.assert_clean();

    // In this case all ranks have their own memory: the note that no rank called MPI would be wrong.
    forget_counts(&place);
    let words = ranks(&place, &own_memory(&place), 0);
    let done = run(place.ampere_run("none", &words).env("APPTAINER_CONTAINER", "/image.sif"));
    assert_eq!((done.code, done.stdout.as_str()), (0, "done 2000\n"), "{done:#?}");
    assert_eq!(cannot_be_seen(&done), 3, "{done:#?}");
    assert!(done.stderr.contains("in its container: start that with --bind /dev/shm, or"), "{done:#?}");
    assert!(
        done.stderr
            .contains("nothing was recorded or sampled: no process of the command that can see this run"),
        "{done:#?}"
    );
    place.assert_clean();
}

#[test]
fn collectors_of_one_run_that_cannot_see_each_other_report_it() {
    let place = Place::new();
    if !can_unshare(&place) {
        return;
    }
    // Without `ampere run`, each rank's plugin looks for the node's session, or makes it.
    let how = format!("export LD_PRELOAD='{}'; {}", preloaded().display(), own_memory(&place));
    let words = ranks(&place, &how, 0);
    let done = run(place.command(&words[0]).args(&words[1..]).env("AMPERE_OUTPUT", place.path("bare")));
    assert_eq!((done.code, done.stdout.as_str()), (0, "done 2000\n"), "{done:#?}");
    assert_eq!(cannot_be_seen(&done), 2, "{done:#?}");
    let notes = place.summary("bare")["run"]["notes"].to_string();
    assert!(notes.contains("of the 3 that the launcher started on this node"), "{notes}");
    check(&place, "bare", false);
    place.no_process_left();
}

#[test]
fn ranks_with_a_pid_namespace_each_are_measured_as_others_are() {
    let place = Place::new();
    if !can_unshare(&place) {
        return;
    }
    let preloaded = format!("export LD_PRELOAD='{}'; {PIDS}", preloaded().display());
    for (output, how, first) in [("all", PIDS, 0), ("not-the-first", PIDS, 1), ("bare", &preloaded, 0)] {
        let words = ranks(&place, how, first);
        let mut command = match output {
            "bare" => place.command(&words[0]),
            _ => place.ampere_run(output, &words),
        };
        if output == "bare" {
            command.args(&words[1..]).env("AMPERE_OUTPUT", place.path(output));
        }
        // In its transport over shared memory, MPI would identify ranks by their process IDs, so the ranks communicate by TCP.
        let done = run(command.env("OMPI_MCA_btl", "tcp,self"));
        assert_eq!((done.code, done.stdout.as_str()), (0, "done 2000\n"), "{output}: {done:#?}");
        done.said_nothing();
        let summary = check(&place, output, true);
        assert_every_call_recorded(&place, &summary, RANKS);
        assert!((0..RANKS).all(|rank| counted(&place, &rank.to_string()) == 2000));
        forget_counts(&place);
        place.assert_clean();
    }
}
