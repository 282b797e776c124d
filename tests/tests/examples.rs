//! The HIP examples: built for the CPU and run, alone and measured; and built with hipcc and nvcc, where these are installed.

use ampere_tests::jobs::Place;
use ampere_tests::runs::{list, number, on_path, succeed, text};
use ampere_tests::{root, skip_unless};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const PROGRAMS: [&str; 4] = ["vector_add", "dgemm", "square_wave", "two_kernels"];

/// Builds a target of examples/hip, or examples/cuda, outside the repository. Returns the folder with its programs.
fn build(place: &Place, target: &str, more: &[&str]) -> PathBuf {
    let build = place.path("build");
    let mut command = Command::new("make");
    let folder = if target == "cuda" { "examples/cuda" } else { "examples/hip" };
    command.arg("-C").arg(root().join(folder)).arg(target).args(more);
    // Score-P's wrapper names files in the current directory by the present second, so only one may run at a time.
    command.arg(format!("BUILD={}", build.display())).env_remove("MAKEFLAGS");
    // hipcc leaves files in the temporary directory.
    command.env("TMPDIR", place.path("tmp"));
    succeed(&mut command);
    build.join(target)
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    rises: bool,
    monotonic_ns: i64,
    realtime_ns: i64,
}

fn edges(output: &str) -> Vec<Edge> {
    let lines = output.lines().filter(|line| line.starts_with("edge"));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words.len(), 4, "{line}");
            assert!(["rise", "fall"].contains(&words[1]), "{line}");
            let number = |at: usize| words[at].parse().unwrap();
            Edge { rises: words[1] == "rise", monotonic_ns: number(2), realtime_ns: number(3) }
        })
        .collect()
}

/// Checks that edges alternate. Returns whether they are at the times that were asked for.
#[track_caller]
fn is_punctual_wave(edges: &[Edge], periods: usize, half_ns: i64) -> bool {
    assert_eq!(edges.len(), 2 * periods);
    assert!(edges.iter().enumerate().all(|(at, edge)| edge.rises == (at % 2 == 0)), "{edges:?}");
    // Both clocks show the same wave, to a tenth of a phase. Other tests may disturb one phase.
    let width = |pair: &[Edge]| pair[1].monotonic_ns - pair[0].monotonic_ns;
    let realtime = |pair: &[Edge]| pair[1].realtime_ns - pair[0].realtime_ns;
    let are_same = edges.windows(2).all(|pair| (width(pair) - realtime(pair)).abs() < half_ns / 10);
    let mut widths: Vec<i64> = edges.windows(2).map(width).collect();
    widths.sort_unstable();
    let median = widths[widths.len() / 2];
    let whole = edges[edges.len() - 1].monotonic_ns - edges[0].monotonic_ns;
    let expected = half_ns * (2 * periods as i64 - 1);
    println!("{median} ns, {half_ns} expected; {whole} ns in all, {expected} expected: {edges:?}");
    are_same && (median - half_ns).abs() < half_ns / 5 && (whole - expected).abs() < half_ns
}

#[test]
fn on_the_cpu_each_computes_what_it_should() {
    let place = Place::new();
    let programs = build(&place, "cpu", &[]);
    for program in PROGRAMS {
        let arguments: &[&str] = if program == "square_wave" { &["0.2", "1"] } else { &["0.2"] };
        // Other programs that use the CPUs delay the edges of some runs.
        let is_right = (0..10).any(|_| {
            let output = succeed(Command::new(programs.join(program)).args(arguments));
            let said = text(&output.stdout);
            assert!(said.contains(&format!("{program}: result is right")), "{said}");
            assert_eq!(text(&output.stderr), "");
            match program {
                "square_wave" => is_punctual_wave(&edges(&said), 5, 100_000_000),
                _ => edges(&said).is_empty(),
            }
        });
        assert!(is_right, "{program}");
        for bad in ["0", "-1", "x", "nan", "1e99", ""] {
            let output = Command::new(programs.join(program)).arg(bad).output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{program} {bad}: {said}");
            assert!(said.lines().count() == 1 && said.contains("above 0"), "{said}");
        }
    }
    let mut none = Command::new(programs.join("vector_add"));
    let output = none.env("HIP_CPU_DEVICES", "0").output().unwrap();
    assert!(!output.status.success() && text(&output.stderr).starts_with("no GPU to run on"));
    // One device runs both kernels.
    succeed(Command::new(programs.join("two_kernels")).arg("0.1").env("HIP_CPU_DEVICES", "1"));
}

/// Returns the row of a function. Score-P calls a function in C++ `name(arguments)`, or `void name(arguments)`.
fn region<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let regions = list(&summary["devices"][0]["views"][0], "regions");
    let is_it = |row: &&Value| {
        let signature = row["region"].as_str().unwrap_or_default().split('(').next().unwrap_or_default();
        signature.rsplit(' ').next() == Some(name)
    };
    regions.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {regions:#?}"))
}

/// The seconds spent in a function and in those that it calls.
fn seconds_in(summary: &Value, region: &Value) -> f64 {
    let paths = list(&summary["devices"][0]["views"][0], "callpaths").iter();
    let inside = paths.filter(|row| list(row, "path").contains(region));
    inside.map(|row| number(row, "exclusive_seconds")).sum()
}

#[test]
fn phases_and_kernels_are_regions_with_energy() {
    let place = Place::new();
    let programs = build(&place, "cpu", &[]);
    let expected: [(&str, &[&str], &[&str]); 4] = [
        ("vector_add", &["0.5"], &["copy_in", "add", "vector_add_kernel", "copy_out", "check"]),
        ("dgemm", &["0.5"], &["multiply_on_both", "dgemm_kernel", "wait_for_both"]),
        ("square_wave", &["0.2", "1"], &["busy_phase", "one_burn", "burn", "idle_phase"]),
        ("two_kernels", &["0.5"], &["launch_both", "heavy_kernel", "light_kernel", "wait_for_both"]),
    ];
    for (program, arguments, functions) in expected {
        let path = programs.join(program).display().to_string();
        let mut command: Vec<&str> = vec![&path];
        command.extend(arguments);
        succeed(place.ampere_run("out", &command).env("AMPERE_COUNTERS", "estimate"));
        let summary = place.summary("out");
        for function in functions {
            assert!(number(region(&summary, function), "calls") >= 1.0);
        }
        // Helper functions of the examples are not recorded.
        let regions = list(&summary["devices"][0]["views"][0], "regions");
        let is_helper = |row: &Value| {
            row["region"]
                .as_str()
                .is_some_and(|name| ["hip", "seconds_now", "begin_job"].iter().any(|h| name.starts_with(h)))
        };
        assert!(!regions.iter().any(is_helper), "{regions:#?}");
        match program {
            // It is busy for half the time and idle for half the time, five phases of each.
            "square_wave" => {
                let (busy, idle) = (region(&summary, "busy_phase"), region(&summary, "idle_phase"));
                assert_eq!((number(busy, "calls"), number(idle, "calls")), (5.0, 5.0));
                // A phase takes longer if other programs use the CPUs.
                let watts =
                    |row: &Value| number(row, "inclusive_joules") / seconds_in(&summary, &row["region"]);
                let share = watts(busy) / watts(idle);
                assert!((0.7..1.6).contains(&share), "{busy} {idle}");
            }
            "dgemm" => assert_eq!(
                number(region(&summary, "dgemm_kernel"), "calls"),
                2.0 * number(region(&summary, "multiply_on_both"), "calls")
            ),
            _ => {}
        }
        std::fs::remove_dir_all(place.path("out")).unwrap();
    }
}

#[test]
fn with_mpi_two_ranks_compute_the_right_result() {
    skip_unless!(on_path("mpirun") && on_path("mpicxx"), "no mpirun or no mpicxx");
    let place = Place::new();
    let programs = build(&place, "cpu", &["MPI=1"]);
    for program in PROGRAMS {
        let path = programs.join(program).display().to_string();
        let mut run = vec!["mpirun", "--oversubscribe", "-n", "2", &path, "0.3"];
        if program == "square_wave" {
            run.push("0.6");
        }
        let output = succeed(place.ampere_run("out", &run).env("AMPERE_COUNTERS", "estimate"));
        let said = text(&output.stdout);
        assert!(said.contains(&format!("{program}: 2 ranks on the CPU")), "{said}");
        assert_eq!(said.matches("result is right").count(), 1);
        let summary = place.summary("out");
        assert_eq!(summary["run"]["ranks"], 2);
        assert_eq!(number(region(&summary, "main"), "calls"), 2.0);
        std::fs::remove_dir_all(place.path("out")).unwrap();
    }
}

#[test]
fn under_score_p_the_kernels_have_their_names_too() {
    skip_unless!(on_path("scorep"), "no scorep on the PATH");
    let place = Place::new();
    let programs = build(&place, "scorep-cpu", &[]);
    let path = programs.join("two_kernels").display().to_string();
    succeed(place.ampere_run("out", [&path, "0.3"]).env("AMPERE_COUNTERS", "estimate"));
    let summary = place.summary("out");
    assert_eq!(summary["run"]["host"], "score-p");
    for function in ["heavy_kernel", "light_kernel"] {
        assert!(number(region(&summary, function), "calls") >= 1.0);
    }
}

#[test]
fn hipcc_builds_them_for_a_gpu() {
    skip_unless!(on_path("hipcc"), "no hipcc");
    let place = Place::new();
    let programs = build(&place, "hip", &["ARCH=gfx90a"]);
    for program in PROGRAMS {
        let bytes = std::fs::read(programs.join(program)).unwrap();
        let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(has(b"amdgcn-amd-amdhsa--gfx90a"), "{program} has no code for the GPU");
        assert!(has(b"__cyg_profile_func_enter"), "{program}'s host functions are not instrumented");
    }
    skip_unless!(!std::path::Path::new("/dev/kfd").exists(), "this machine has an AMD GPU");
    assert_no_gpu_is_explained(&programs);
}

#[test]
fn nvcc_builds_them_for_a_gpu() {
    skip_unless!(on_path("nvcc"), "no nvcc");
    let place = Place::new();
    let programs = build(&place, "cuda", &["ARCH=sm_90"]);
    for program in PROGRAMS {
        let bytes = std::fs::read(programs.join(program)).unwrap();
        assert!(bytes.windows(10).any(|window| window == b".nv_fatbin"), "{program} has no code for the GPU");
    }
    skip_unless!(!std::path::Path::new("/dev/nvidiactl").exists(), "this machine has an NVIDIA GPU");
    assert_no_gpu_is_explained(&programs);
}

#[track_caller]
fn assert_no_gpu_is_explained(programs: &std::path::Path) {
    let output = Command::new(programs.join("vector_add")).arg("0.1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.lines().count() == 1 && said.contains("`make cpu` builds the same program"), "{said}");
}
