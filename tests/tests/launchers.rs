//! A launcher starts `ampere run` once for each rank, with the variables of that launcher. This is one run, whose joules are
//! counted once.

use ampere_tests::jobs::{Place, is_root, run, start};
use ampere_tests::runs::{list, may_mount};
use ampere_tests::skip_unless;
use serde_json::Value;
use std::process::Command;

/// The program works for three seconds, and until as many processes as its argument says have started.
const PROGRAM: &str = "
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) void works(size_t count) {
    char name[32];
    snprintf(name, sizeof name, \"started.%d\", (int)getpid());
    close(open(name, O_CREAT | O_WRONLY, 0600));
    for (time_t end = time(0) + 3;; usleep(1000)) {
        glob_t all = {0};
        glob(\"started.*\", 0, NULL, &all);
        size_t found = all.gl_pathc;
        globfree(&all);
        if (found >= count && time(0) >= end) return;
    }
}
int main(int count, char **words) { works(count > 1 ? atoi(words[1]) : 1); return 0; }
";

type Variables = &'static [(&'static str, &'static str)];

/// The name of the launcher, the variables that both ranks have, and those of each rank.
const LAUNCHERS: &[(&str, Variables, [Variables; 2])] = &[
    (
        "MVAPICH2",
        &[("MV2_COMM_WORLD_SIZE", "2"), ("MV2_COMM_WORLD_LOCAL_SIZE", "2")],
        [
            &[("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_LOCAL_RANK", "0")],
            &[("MV2_COMM_WORLD_RANK", "1"), ("MV2_COMM_WORLD_LOCAL_RANK", "1")],
        ],
    ),
    ("PMIx", &[("PMIX_NAMESPACE", "job-7")], [&[("PMIX_RANK", "0")], &[("PMIX_RANK", "1")]]),
    ("PMIx without a namespace", &[], [&[("PMIX_RANK", "0")], &[("PMIX_RANK", "1")]]),
    (
        "PALS",
        &[("PALS_APID", "5f2c"), ("PALS_LOCAL_SIZE", "2")],
        [
            &[("PALS_RANKID", "0"), ("PALS_LOCAL_RANKID", "0")],
            &[("PALS_RANKID", "1"), ("PALS_LOCAL_RANKID", "1")],
        ],
    ),
    ("ALPS", &[("ALPS_APP_ID", "99")], [&[("ALPS_APP_PE", "0")], &[("ALPS_APP_PE", "1")]]),
    (
        "JSM",
        &[("JSM_NAMESPACE_SIZE", "2"), ("JSM_NAMESPACE_LOCAL_SIZE", "2")],
        [
            &[("JSM_NAMESPACE_RANK", "0"), ("JSM_NAMESPACE_LOCAL_RANK", "0")],
            &[("JSM_NAMESPACE_RANK", "1"), ("JSM_NAMESPACE_LOCAL_RANK", "1")],
        ],
    ),
    (
        "Slurm, two components of one task",
        &[
            ("SLURM_HET_SIZE", "2"),
            ("SLURM_JOB_ID_HET_GROUP_0", "41"),
            ("SLURM_JOB_ID_HET_GROUP_1", "42"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "1"),
        ],
        [&[("SLURM_JOB_ID", "41"), ("SLURM_PROCID", "0")], &[("SLURM_JOB_ID", "42"), ("SLURM_PROCID", "1")]],
    ),
    // In this case the variables of the launcher that started the script are still set.
    (
        "srun in a script of mpirun",
        &[
            ("OMPI_COMM_WORLD_SIZE", "1"),
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "3"),
            ("SLURM_STEP_NUM_TASKS", "2"),
        ],
        [&[("SLURM_PROCID", "0")], &[("SLURM_PROCID", "1")]],
    ),
    (
        "mpiexec in a script of srun",
        &[
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "3"),
            ("SLURM_STEP_NUM_TASKS", "1"),
            ("SLURM_PROCID", "0"),
            ("PMI_SIZE", "2"),
        ],
        [&[("PMI_RANK", "0")], &[("PMI_RANK", "1")]],
    ),
    (
        "MVAPICH 3",
        &[("MVP_COMM_WORLD_SIZE", "2"), ("MVP_COMM_WORLD_LOCAL_SIZE", "2")],
        [&[("MVP_COMM_WORLD_RANK", "0")], &[("MVP_COMM_WORLD_RANK", "1")]],
    ),
    (
        "Flux",
        &[("FLUX_JOB_ID", "f12"), ("FLUX_JOB_SIZE", "2"), ("FLUX_URI", "local:///run/flux")],
        [&[("FLUX_TASK_RANK", "0")], &[("FLUX_TASK_RANK", "1")]],
    ),
    ("MPT", &[], [&[("MPT_MPI_RANK", "0")], &[("MPT_MPI_RANK", "1")]]),
    ("MPICH", &[("PMI_SIZE", "2")], [&[("PMI_RANK", "0")], &[("PMI_RANK", "1")]]),
    (
        "torchrun",
        &[("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")],
        [&[("RANK", "0"), ("LOCAL_RANK", "0")], &[("RANK", "1"), ("LOCAL_RANK", "1")]],
    ),
];

fn ranks(
    place: &Place,
    command: impl Fn() -> Command,
    (name, both, each): &(&str, Variables, [Variables; 2]),
) {
    let running = each.map(|own| start(command().envs(both.iter().copied()).envs(own.iter().copied())));
    for rank in running {
        let done = rank.wait();
        assert_eq!(done.code, 0, "{name}: {done:#?}");
    }
    let results = std::fs::read_dir(place.directory()).expect("the place");
    let results: Vec<_> = results
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("summary.json").exists())
        .collect();
    assert_eq!(results.len(), 1, "{name}: {results:?}");
    let summary: Value = ampere_tests::runs::json(&results[0].join("summary.json"));
    assert_eq!(processes(&summary), 2, "{name}: {summary:#}");
}

/// Returns the number of processes with a row for their function.
fn processes(summary: &Value) -> usize {
    let view = &list(&summary["devices"][0], "views")[0];
    list(view, "callpaths").iter().filter(|row| row["path"] == serde_json::json!(["main", "works"])).count()
}

#[test]
fn the_ranks_of_each_launcher_are_one_run() {
    for launcher in LAUNCHERS {
        let place = Place::new();
        let program = place.compile("cc", "program", PROGRAM, &["-finstrument-functions"]);
        let command = || place.ampere_run("out", [program.as_os_str(), "2".as_ref()]);
        ranks(&place, command, launcher);
    }
}

/// A launcher that sets no job id starts each rank with a script.
#[test]
fn ranks_that_a_script_starts_separately_are_one_run() {
    let place = Place::new();
    let program = place.compile("cc", "program", PROGRAM, &["-finstrument-functions"]);
    let ampere = ampere_tests::jobs::built().join("ampere");
    let script = place.script(
        "rank",
        &format!("#!/bin/sh\n{} run -o out -- {} 2\nexit $?\n", ampere.display(), program.display()),
    );
    let command = || place.command(&script);
    ranks(&place, command, LAUNCHERS.iter().find(|launcher| launcher.0 == "MPT").expect("a launcher"));
}

#[test]
fn the_only_task_is_measured_as_without_a_launcher() {
    for (size, rank) in [("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"), ("WORLD_SIZE", "RANK")] {
        let place = Place::new();
        let mut command = place.ampere_run("out", ["true"]);
        let done = run(command.env(size, "1").env(rank, "0").env("LOCAL_RANK", "0"));
        assert!(!done.stderr.contains("once for each rank"), "{done:#?}");
    }
}

/// Without variables, a launcher can only be recognised because one parent starts the same command several times at once.
#[test]
fn runs_of_an_unknown_launcher_are_not_complete() {
    let place = Place::new();
    let program = place.compile("cc", "program", PROGRAM, &["-finstrument-functions"]);
    let running = [0, 1].map(|rank| {
        let mut command = place.ampere(["run", "--"]);
        start(command.arg(&program).arg("2").env("UNKNOWN_LAUNCHER_RANK", rank.to_string()))
    });
    for run in running {
        assert_eq!(run.wait().code, 0);
    }
    let results: Vec<_> = std::fs::read_dir(place.directory())
        .expect("the place")
        .flatten()
        .map(|entry| entry.path().join("summary.json"))
        .filter(|path| path.exists())
        .collect();
    assert_eq!(results.len(), 2);
    for result in results {
        let summary = ampere_tests::runs::json(&result);
        let notes = summary["run"]["notes"].to_string();
        assert!(notes.contains("the same ampere run was started several times at once"), "{notes}");
        assert_eq!(summary["run"]["complete"], false);
    }
}

/// Nodes of clouds and of containers often have the same name.
#[test]
fn nodes_with_the_same_name_are_separate_nodes_of_the_run() {
    skip_unless!(is_root(), "needs root");
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    for (nodes, name) in [(&["one", "two"][..], "same"), (&["one", "two", "three"], "same-0a1b2c3d")] {
        let place = Place::new();
        let program = place.compile("cc", "program", PROGRAM, &["-finstrument-functions"]);
        let ampere = ampere_tests::jobs::built().join("ampere");
        let running: Vec<_> = (nodes.iter().enumerate())
            .map(|(rank, node)| {
                let words =
                    format!("{} run -o out -- {} {}", ampere.display(), program.display(), nodes.len());
                // This command runs with the boot ID and the memory of the other node, and with the same name.
                let shell = place.on_another_node(node, &words);
                let shell = shell.replace(&format!("hostname {node}"), &format!("hostname {name}"));
                let mut command = place.command("sh");
                command.args(["-c", &shell]).env("SLURM_JOB_ID", "9").env("SLURM_STEP_ID", "0");
                command.env("SLURM_STEP_NUM_TASKS", nodes.len().to_string());
                start(command.env("SLURM_PROCID", rank.to_string()))
            })
            .collect();
        running.into_iter().for_each(|rank| assert_eq!(rank.wait().code, 0));
        let done = run(&mut place.ampere(["report", "out", "--format", "json"]));
        let summary: Value = ampere_tests::runs::parse(&done.stdout).expect("JSON");
        let found: Vec<&str> = list(&summary["run"], "nodes").iter().filter_map(Value::as_str).collect();
        assert_eq!(found.len(), nodes.len(), "{found:?} {done:#?}");
        assert!(found.iter().all(|node| node.starts_with(name)), "{found:?}");
        assert_eq!(processes(&summary), 1, "the first node's own");
        let of_nodes = list(&summary, "devices").iter().filter(|device| device["unit"] == "J");
        assert_eq!(of_nodes.count(), nodes.len());
    }
}

/// In a time namespace of its own, a process has other start times than the collector sees.
#[test]
fn a_process_in_a_time_namespace_is_known() {
    skip_unless!(is_root(), "needs root");
    for how in [&["--boottime", "1000"][..], &["--boottime", "-20", "--monotonic", "500"]] {
        let place = Place::new();
        let program = place.compile("cc", "program", PROGRAM, &["-finstrument-functions"]);
        let mut words = vec!["unshare".as_ref(), "--time".as_ref()];
        words.extend(how.iter().map(|word| word.as_ref() as &std::ffi::OsStr));
        words.push(program.as_os_str());
        let probe = std::process::Command::new("unshare").args(["--time", "true"]).status();
        skip_unless!(probe.is_ok_and(|status| status.success()), "no time namespaces");
        let done = run(&mut place.ampere_run("out", words));
        assert_eq!(done.code, 0, "{done:#?}");
        let summary = place.summary("out");
        assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]["notes"]);
        let view = &list(&summary["devices"][0], "views")[0];
        let works = list(view, "regions").iter().find(|row| row["region"] == "works").expect("a row");
        assert!(works["exclusive_seconds"].as_f64() > Some(1.9), "{works}");
    }
}
