//! Jobs of a batch system that are cancelled, exceed their time limit, or end: with Slurm, on this machine alone. This is a part
//! of `make test-long`.

mod cluster;

use ampere_tests::counting_program::{assert_conserved, assert_trace_readable};
use ampere_tests::jobs::{Place, have, run, until};
use ampere_tests::root;
use ampere_tests::runs::may_sample;
use cluster::{Cluster, Tracking};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// More seconds than any of these jobs is allowed to run.
const SECONDS: &str = "600";

/// Returns the batch scripts of the book, in its order.
fn scripts_of_the_book() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/src/cluster.md")).expect("the page");
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    blocks.filter(|block| block.starts_with("#!/bin/bash\n#SBATCH")).map(str::to_owned).collect()
}

/// Returns a place with the program `xhpl`, which runs until it is ended.
fn place_with_program(compiler: &str) -> Place {
    let place = Place::new();
    let source = std::fs::read_to_string(root().join("examples/mpi/stencil.c")).expect("an example");
    let stencil = place.compile(compiler, "stencil", &source, &["-O2", "-lm"]);
    place.script("xhpl", &format!("#!/bin/sh\nexec {} {SECONDS}\n", stencil.display()));
    place
}

struct Job {
    place: Place,
    number: String,
}

impl Job {
    /// Submits a script and waits until ranks are measured.
    fn start(cluster: &Cluster, script: &str) -> Job {
        let place = place_with_program("mpicc.openmpi");
        // The nodes and GPUs that the book asks for are not here.
        let lines = script.lines().map(|line| match line.strip_prefix("#SBATCH --nodes=") {
            Some(_) => "#SBATCH --ntasks=2",
            None => line,
        });
        let text = lines.collect::<Vec<_>>().join("\n") + "\n";
        assert!(text.contains("--ntasks=2"), "{text}");
        let number = cluster.submit(&place, &place.script("job.sh", &text));
        let job = Job { place, number };
        let ranks = serde_json::json!([0, 1]);
        until("figures are on disk", || job.summary().is_some_and(|s| s["run"]["mpi"]["ranks"] == ranks));
        job
    }

    fn output(&self) -> String {
        format!("ampere-{}-0", self.number)
    }

    fn summary(&self) -> Option<Value> {
        let text = std::fs::read(self.place.path(self.output()).join("summary.json")).ok()?;
        Some(serde_json::from_slice(&text).expect("whole or not there"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path(format!("job-{}.log", self.number))).unwrap_or_default()
    }

    /// Checks that the results are complete without any further command.
    fn assert_has_results(&self) -> Value {
        let summary = self.summary().expect("a summary");
        assert!(summary["run"].get("running").is_none(), "{}\n{}", summary["run"], self.log());
        assert_eq!(summary["run"]["complete"], false, "{}", summary["run"]);
        assert_eq!(summary["run"]["job"]["id"], self.number.as_str());
        assert_eq!(summary["run"]["mpi"]["ranks"], serde_json::json!([0, 1]));
        assert_conserved(&summary);
        let traced = assert_trace_readable(&self.place, &self.output());
        assert_eq!(traced["devices"][0]["total_joules"], summary["devices"][0]["total_joules"]);
        summary
    }

    /// Slurm killed all processes at once: the figures of the last seconds are missing until a user asks for a report.
    fn assert_report_finishes(&self) {
        let before = self.summary().expect("a summary");
        assert_eq!(before["run"]["running"], true, "{}\n{}", before["run"], self.log());
        assert!(before["run"]["total_joules"].as_f64() > Some(0.0), "{}", before["run"]);
        let report = run(self.place.ampere(["report"]).arg(self.output()));
        assert_eq!(report.code, 0, "{report:#?}");
        report.said_once(&["the run was interrupted; its results have now been recovered from its records"]);
        assert!(report.stdout.contains("2 ranks on") && report.stdout.contains("INCOMPLETE"), "{report:#?}");
        let after = self.assert_has_results();
        let seconds = |summary: &Value| summary["run"]["seconds"].as_f64().expect("a time");
        assert!(seconds(&after) >= seconds(&before), "{} {}", before["run"], after["run"]);
        let again = run(self.place.ampere(["report"]).arg(self.output()));
        again.said_nothing();
        assert_eq!(again.stdout, report.stdout);
    }
}

/// The simplest batch script. When its shell dies of SIGTERM, Slurm kills all other processes.
const WITH_A_SHELL: &str =
    "#!/bin/bash\n#SBATCH --nodes=1\nampere run -o ampere-$SLURM_JOB_ID-0 -- srun ./xhpl\n";
const AFTER_THE_LAUNCHER: &str =
    "#!/bin/bash\n#SBATCH --nodes=1\nsrun ampere run -o ampere-$SLURM_JOB_ID-0 -- ./xhpl\n";
const WITH_MPIRUN: &str =
    "#!/bin/bash\n#SBATCH --nodes=1\nexec ampere run -o ampere-$SLURM_JOB_ID-0 -- mpirun ./xhpl\n";

fn jobs_that_are_ended(tracking: Tracking) {
    if !have(&["mpicc.openmpi", "mpirun"]) {
        return;
    }
    let Some(cluster) = Cluster::start(tracking) else { return };
    let scripts = scripts_of_the_book();
    assert_eq!(scripts.len(), 2, "one with exec, one with --signal: {scripts:#?}");
    // This takes more than a minute, so the other jobs run in the meantime.
    let limited = |script: &str| script.replacen("#!/bin/bash\n", "#!/bin/bash\n#SBATCH --time=1\n", 1);
    let out_of_time = Job::start(&cluster, &limited(&scripts[0].replace("#SBATCH --time=", "# ")));
    let out_of_time_with_a_shell = Job::start(&cluster, &limited(WITH_A_SHELL));

    for script in [&scripts[0], &scripts[1], WITH_MPIRUN] {
        let job = Job::start(&cluster, script);
        // This is what Slurm does by itself for a script with --signal, before the time is up.
        let is_signalled = script.contains("--signal=TERM@60");
        let options: &[&str] = if is_signalled { &["--signal=TERM"] } else { &[] };
        cluster.cancel(&job.number, options);
        let summary = job.assert_has_results();
        assert!(summary["run"]["command_status"].as_i64() > Some(0), "{}\n{}", summary["run"], job.log());
        let look = format!("\nlook    {}/report.html", job.output());
        assert!(job.log().contains(&look), "{}", job.log());
        assert_eq!(job.log().contains("cp: "), is_signalled, "the script continues: {}", job.log());
    }
    for script in [WITH_A_SHELL, AFTER_THE_LAUNCHER] {
        let job = Job::start(&cluster, script);
        cluster.cancel(&job.number, &[]);
        if tracking == Tracking::Parents {
            // The collector is not a child of the shell any more: it survives for as long as it needs.
            job.place.no_process_left();
        }
        match job.summary().expect("a summary")["run"].get("running") {
            Some(_) => job.assert_report_finishes(),
            None => drop(job.assert_has_results()),
        }
        if script == WITH_A_SHELL && tracking == Tracking::ControlGroups {
            assert!(
                !job.log().contains("\nlook    "),
                "`ampere run` was killed with the shell: {}",
                job.log()
            );
        }
    }
    cluster.until_over(&out_of_time.number);
    assert!(out_of_time.log().contains("DUE TO TIME LIMIT"), "{}", out_of_time.log());
    out_of_time.assert_has_results();
    cluster.until_over(&out_of_time_with_a_shell.number);
    if tracking == Tracking::ControlGroups {
        // Slurm kills all processes of the job once its shell has died; the collector may have been faster.
        match out_of_time_with_a_shell.summary().expect("a summary")["run"].get("running") {
            Some(_) => out_of_time_with_a_shell.assert_report_finishes(),
            None => drop(out_of_time_with_a_shell.assert_has_results()),
        }
    }
}

#[test]
fn a_job_that_is_cancelled_or_out_of_time_leaves_its_results_if_control_groups_are_killed() {
    jobs_that_are_ended(Tracking::ControlGroups);
}

#[test]
fn a_job_that_is_cancelled_or_out_of_time_leaves_its_results_if_children_are_killed() {
    jobs_that_are_ended(Tracking::Parents);
}

/// Either `ampere run` starts `srun`, or `srun` starts `ampere run`: slurmd starts the ranks.
#[test]
fn ranks_that_srun_starts_have_sampled_functions_around_their_exact_mpi_calls() {
    if !have(&["mpicc.openmpi"]) {
        return;
    }
    if !may_sample() {
        println!("skipped: perf_event_open is not allowed here");
        return;
    }
    let Some(cluster) = Cluster::start(Tracking::ControlGroups) else { return };
    let place = Place::new();
    let source = std::fs::read_to_string(root().join("examples/mpi/stencil.c")).expect("an example");
    let program = place.compile("mpicc.openmpi", "stencil", &source, &["-O2", "-fno-inline", "-lm"]);
    let (launcher, measure) = (["srun", "--mpi=pmix"], ["ampere", "run", "-o", "out", "--"]);
    for words in [[&measure[..], &launcher[..]], [&launcher[..], &measure[..]]] {
        let mut command = cluster.command(&place, "salloc");
        command.args(["--quiet", "--ntasks=2"]).args(words.concat()).arg(&program).arg("2");
        let done = run(command.env("AMPERE_COUNTERS", "estimate").env_remove("AMPERE_SAMPLE"));
        assert_eq!(done.code, 0, "{done:#?}");
        place.no_process_left();
        let summary = place.summary("out");
        assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
        let rows = summary["devices"][0]["views"][0]["callpaths"].as_array().expect("rows");
        let name = |frame: &Value| frame.as_str().expect("a name").to_owned();
        let path = |row: &Value| {
            [&row["location_group"]]
                .into_iter()
                .chain(row["path"].as_array().expect("a path"))
                .map(name)
                .collect()
        };
        let paths: Vec<Vec<String>> = rows.iter().map(path).collect();
        for (rank, last) in [(0, "relax_block"), (0, "MPI_Sendrecv"), (1, "relax_block"), (1, "MPI_Sendrecv")]
        {
            let begin = [&format!("MPI Rank {rank}"), "stencil", "main"];
            let has = paths.iter().any(|path| {
                path.starts_with(&begin.map(str::to_owned)) && path.last().is_some_and(|name| name == last)
            });
            assert!(has, "{words:?}: no {last} of rank {rank} among {paths:#?}\n{}", summary["run"]);
        }
        std::fs::remove_dir_all(place.path("out")).expect("its results");
    }
}

/// With control groups, the collector is killed with the last process: a report finishes the run.
#[test]
fn programs_that_srun_starts_without_mpi_are_one_run() {
    if !may_sample() {
        println!("skipped: perf_event_open is not allowed here");
        return;
    }
    for tracking in [Tracking::Parents, Tracking::ControlGroups] {
        let Some(cluster) = Cluster::start(tracking) else { continue };
        let place = Place::new();
        std::fs::write(place.path("zeros"), vec![0; 200 << 20]).expect("a file");
        let mut command = cluster.command(&place, "salloc");
        command.args([
            "--quiet",
            "--ntasks=2",
            "srun",
            "ampere",
            "run",
            "-o",
            "out",
            "--",
            "gzip",
            "-c",
            "zeros",
        ]);
        let done = run(command.env("AMPERE_COUNTERS", "estimate").env_remove("AMPERE_SAMPLE"));
        assert_eq!(done.code, 0, "{}", done.stderr);
        place.no_process_left();
        let report = run(place.ampere(["report"]).arg("out"));
        assert_eq!(report.code, 0, "{report:#?}");
        let summary = place.summary("out");
        // With control groups, Slurm may kill the collector before the results are complete.
        let is_whole = summary["run"]["complete"] == true;
        assert!(is_whole || tracking == Tracking::ControlGroups, "{}", summary["run"]);
        let notes = summary["run"]["notes"].as_array().expect("notes");
        let is_cut_off = notes.iter().any(|note| {
            note.as_str().is_some_and(|note| note.contains("recovered from the remaining records"))
        });
        assert!(is_whole != is_cut_off, "{}", summary["run"]);
        assert_eq!(summary["run"]["command"], serde_json::json!(["gzip", "-c", "zeros"]));
        assert_conserved(&summary);
        let rows = summary["devices"][0]["views"][0]["callpaths"].as_array().expect("rows");
        let groups: BTreeSet<&str> = rows.iter().filter_map(|row| row["location_group"].as_str()).collect();
        assert_eq!(groups.iter().filter(|group| group.ends_with(" (gzip)")).count(), 2, "{groups:?}");
    }
}

/// This tests Open MPI with PMIx and MPICH with PMI-2, where `ampere run` starts the launcher, and where the launcher starts
/// `ampere run`.
#[test]
fn ranks_that_srun_starts_are_one_run() {
    let compilers = [("mpicc.openmpi", "--mpi=pmix"), ("mpicc.mpich", "--mpi=pmi2")];
    if !have(&compilers.map(|(compiler, _)| compiler)) {
        return;
    }
    let Some(cluster) = Cluster::start(Tracking::ControlGroups) else { return };
    for (compiler, interface) in compilers {
        let place = Place::new();
        let program: PathBuf = place.mpi_program_by(compiler);
        let (launcher, measure) = (["srun", interface], ["ampere", "run", "-o", "out", "--"]);
        for words in [[&measure[..], &launcher[..]], [&launcher[..], &measure[..]]] {
            let mut command = cluster.command(&place, "salloc");
            let done =
                run(command.args(["--quiet", "--ntasks=2"]).args(words.concat()).arg(&program).arg("0"));
            assert_eq!((done.code, done.stdout.as_str()), (0, "sum 1\n"), "{done:#?}");
            place.no_process_left();
            let summary = place.summary("out");
            assert_eq!(summary["run"]["complete"], true, "{compiler}: {}", summary["run"]);
            assert_eq!(summary["run"]["mpi"], serde_json::json!({"size": 2, "ranks": [0, 1]}));
            assert_eq!(summary["run"]["job"]["scheduler"], "Slurm");
            assert_conserved(&summary);
            std::fs::remove_dir_all(place.path("out")).expect("its results");
        }
    }
}

/// Slurm passes the script's `--export=NONE` to `srun`: its ranks get what measuring needs, and no more.
#[test]
fn ranks_of_a_job_with_a_clean_environment_are_measured() {
    if !have(&["mpicc.openmpi"]) {
        return;
    }
    let Some(cluster) = Cluster::start(Tracking::ControlGroups) else { return };
    let place = Place::new();
    let program = place.mpi_program_by("mpicc.openmpi");
    let rank = format!("#!/bin/sh\necho \"own ${{OWN-unset}}\"\nexec {} 0\n", program.display());
    let rank = place.script("rank.sh", &rank);
    let mut script = "#!/bin/bash\n#SBATCH --ntasks=2\n#SBATCH --export=NONE\nexport OWN=x\n".to_owned();
    for (name, value) in cluster.command(&place, "sh").get_envs() {
        if let Some(value) = value {
            script += &format!("export {}='{}'\n", name.display(), value.display());
        }
    }
    script += &format!("exec ampere run --require -o out -- srun --mpi=pmix {}\n", rank.display());
    let job = cluster.submit(&place, &place.script("job.sh", &script));
    cluster.until_over(&job);
    place.no_process_left();
    let log = std::fs::read_to_string(place.path(format!("job-{job}.log"))).expect("the job's output");
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], true, "{}\n{log}", summary["run"]);
    assert_eq!(summary["run"]["mpi"]["ranks"], serde_json::json!([0, 1]), "{log}");
    assert_eq!(log.matches("own unset\n").count(), 2, "{log}");
}
