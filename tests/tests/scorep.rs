//! Under a real Score-P, where there is one on the PATH.

use ampere_tests::runs::{Place, compile, json, list, number, on_path, succeed, text};
use ampere_tests::{artifact, skip_unless};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const RING: &str = r#"
#include <mpi.h>
static double work(int n) { volatile double s = 0; for (int i = 0; i < n; i++) s += 1.0 / (1 + i); return s; }
int main(int c, char **v) {
    int r, n; double x, y = 0;
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Comm_size(MPI_COMM_WORLD, &n);
    x = r;
    for (int i = 0; i < 20; i++) {
        MPI_Sendrecv(&x, 1, MPI_DOUBLE, (r + 1) % n, 0, &y, 1, MPI_DOUBLE, (r + n - 1) % n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#ifdef _OPENMP
#pragma omp parallel num_threads(2)
#endif
        { work(2000000); }
        MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
"#;

/// Enters and leaves per location, by otf2-print.
fn counts(trace: &Path) -> BTreeMap<String, usize> {
    let printed = text(&succeed(Command::new("otf2-print").arg(trace)).stdout);
    let mut counts = BTreeMap::new();
    for line in printed.lines().filter(|l| l.starts_with("ENTER") || l.starts_with("LEAVE")) {
        let mut words = line.split_whitespace();
        let key = format!("{} {}", words.next().unwrap_or_default(), words.next().unwrap_or_default());
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

fn under_score_p(openmp: bool, timer: &str) {
    skip_unless!(on_path("scorep") && on_path("mpirun") && on_path("otf2-print"), "no scorep on the PATH");
    let place = Place::new();
    let mut compiler = vec!["scorep", "mpicc", "-O1", "-g"];
    if openmp {
        compiler.push("-fopenmp");
    }
    let program = compile(&place, &compiler, "ring", RING);
    let theirs = place.directory.path().join("scorep");
    let mut command = place.command("mpirun");
    command
        .args(["--oversubscribe", "-n", "2"])
        .arg(&program)
        .env("SCOREP_SUBSTRATE_PLUGINS", "ampere")
        .env("LD_LIBRARY_PATH", artifact("libscorep_substrate_ampere.so").parent().unwrap())
        .env("SCOREP_TIMER", timer)
        .env("AMPERE_OUTPUT", place.output())
        // Score-P's own trace of the same run, to compare.
        .env("SCOREP_ENABLE_PROFILING", "false")
        .env("SCOREP_ENABLE_TRACING", "true")
        .env("SCOREP_EXPERIMENT_DIRECTORY", &theirs);
    succeed(&mut command);
    assert_eq!(counts(&place.trace()), counts(&theirs.join("traces.otf2")));
    let summary = json(&place.output().join("summary.json"));
    assert_eq!(summary["run"]["host"], "score-p");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    assert_eq!(summary["run"]["ranks"], 2);
    let view = &summary["devices"][0]["views"][0];
    let calls = |region: &str| {
        list(view, "regions").iter().find(|r| r["region"] == region).map(|r| number(r, "calls"))
    };
    assert_eq!(calls("MPI_Allreduce"), Some(40.0));
    assert_eq!(calls("main"), Some(2.0));
    assert!(number(&summary["quality"], "conservation_error_joules") < 1e-6);
    assert!(place.is_clean(), "shared memory is left behind");
}

#[test]
fn an_mpi_program() {
    under_score_p(false, "tsc");
}

#[test]
fn an_mpi_and_openmp_program() {
    under_score_p(true, "tsc");
}

#[test]
fn with_other_timers() {
    under_score_p(false, "gettimeofday");
    under_score_p(false, "clock_gettime");
}
