//! Jobs of Flux on this machine alone, if Flux's commands are on the PATH: Debian has no packages of it.

use ampere_tests::counting_program::assert_conserved;
use ampere_tests::jobs::{Done, Place, built, have, run};
use ampere_tests::root;

fn flux_is_here() -> bool {
    have(&["flux", "mpicc.openmpi", "mpicc.mpich"])
}

/// Runs a shell script in an instance of Flux with two cores.
fn in_flux(place: &Place, script: &str) -> Done {
    let path = format!("{}:{}", built().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = place.command("flux");
    run(command.args(["start", "sh", "-ec", script]).env("PATH", path))
}

/// Returns the book's batch script, adapted to this machine.
fn batch_script() -> String {
    let page = std::fs::read_to_string(root().join("docs/src/cluster.md")).expect("the page");
    let mut blocks = page.split("```").filter_map(|block| block.strip_prefix("sh\n"));
    let script = blocks.find(|block| block.starts_with("#!/bin/bash\n# flux:")).expect("a script for Flux");
    script.replace(" -N2 -n8 -g1", " -n2").replace(" -t30m", "").replace("$FLUX_ENCLOSING_ID", "job")
}

#[test]
fn a_job_that_is_cancelled_or_out_of_time_leaves_its_results() {
    if !flux_is_here() {
        return;
    }
    let until_measured =
        "until grep -q relax ampere-job/summary.json 2>/dev/null; do sleep 0.1; done; flux cancel $id;";
    for (limit, end, status) in [("", until_measured, 128 + 15), ("-t 8s", "", 128 + 14)] {
        let place = Place::new();
        let source = std::fs::read_to_string(root().join("examples/mpi/stencil.c")).expect("an example");
        let options = ["-O2", "-finstrument-functions", "-lm"];
        let stencil = place.compile("mpicc.openmpi", "stencil", &source, &options);
        place.script("xhpl", &format!("#!/bin/sh\nexec {} 600\n", stencil.display()));
        place.script("job.sh", &batch_script());
        let job = format!(
            "id=$(flux batch {limit} --output=job.log job.sh); {end} flux job wait-event -q $id clean; cat job.log"
        );
        let done = in_flux(&place, &job);
        assert_eq!(done.code, 0, "{done:#?}");
        assert!(done.stdout.contains("\nlook    ampere-job/report.html"), "{done:#?}");
        let summary = place.summary("ampere-job");
        let run = &summary["run"];
        assert!(run.get("running").is_none(), "{run}");
        assert_eq!(run["complete"], false, "{run}");
        assert_eq!(run["command_status"], status, "{run}");
        assert_eq!(run["job"]["scheduler"], "Flux", "{run}");
        assert_eq!(run["mpi"]["ranks"], serde_json::json!([0, 1]), "{run}");
        assert_conserved(&summary);
        place.assert_clean();
    }
}

/// This tests Open MPI and MPICH, with `ampere run` in front of the launcher and behind it.
#[test]
fn ranks_that_flux_starts_are_one_run() {
    if !flux_is_here() {
        return;
    }
    for compiler in ["mpicc.openmpi", "mpicc.mpich"] {
        let place = Place::new();
        let program = place.mpi_program_by(compiler);
        let (launcher, measure) = ("flux run -n2", "ampere run -o out --");
        for words in [[measure, launcher], [launcher, measure]] {
            let done = in_flux(&place, &format!("{} {} 0", words.join(" "), program.display()));
            assert_eq!((done.code, done.stdout.as_str()), (0, "sum 1\n"), "{done:#?}");
            place.no_process_left();
            let summary = place.summary("out");
            assert_eq!(summary["run"]["complete"], true, "{compiler}: {}", summary["run"]);
            assert_eq!(summary["run"]["mpi"], serde_json::json!({"size": 2, "ranks": [0, 1]}));
            assert_conserved(&summary);
            std::fs::remove_dir_all(place.path("out")).expect("its results");
        }
    }
}
