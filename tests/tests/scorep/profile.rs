//! Comparison with Score-P's own profile of the same run, as printed by its Cube tools.

use ampere_tests::jobs::Place;
use ampere_tests::runs::{assert_same_figures, attribute, list, number, on_path, succeed, text};
use ampere_tests::{artifact, root, skip_unless};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Unwinding without sampling, which Score-P would otherwise turn on.
const UNWINDING: &[(&str, &str)] = &[("SCOREP_ENABLE_UNWINDING", "true"), ("SCOREP_SAMPLING_EVENTS", "")];
const SAMPLING: &[(&str, &str)] =
    &[("SCOREP_ENABLE_UNWINDING", "true"), ("SCOREP_SAMPLING_EVENTS", "timer@2000")];

/// Calls and exclusive seconds by region.
type Regions = BTreeMap<String, (f64, f64)>;

/// Returns the regions in a summary, over all views of the only device.
pub fn regions(summary: &Value) -> Regions {
    let mut regions = Regions::new();
    for row in list(&list(summary, "devices")[0], "views").iter().flat_map(|view| list(view, "regions")) {
        let name = row["region"].as_str().expect("a name").to_owned();
        let region = regions.entry(name).or_default();
        region.0 += number(row, "calls");
        region.1 += number(row, "exclusive_seconds");
    }
    regions
}

/// Returns the regions in Score-P's profile.
fn profile(experiment: &Path) -> Regions {
    let mut dump = Command::new("cube_dump");
    dump.args(["-m", "visits,time", "-x", "excl", "-z", "excl", "-t", "aggr", "-c", "all", "-s", "human"]);
    let dumped = text(&succeed(dump.arg(experiment.join("profile.cubex"))).stdout);
    let mut regions = Regions::new();
    let mut is_time = false;
    let mut in_tasks = false;
    for line in dumped.lines() {
        if let Some(metric) = line.strip_prefix("Print out the data of the metric ") {
            is_time = metric == "time";
        }
        let Some((name, rest)) = line.rsplit_once("(id=") else { continue };
        let value: f64 =
            rest.split_whitespace().nth(1).and_then(|value| value.parse().ok()).expect("a value");
        // Tasks have trees of their own, which come before those of the threads. The time of a task is listed again in the thread
        // that ran it.
        in_tasks = (in_tasks || name == "TASKS") && name != "main";
        if name.starts_with("!$omp task ") && !in_tasks {
            continue;
        }
        let region = regions.entry(name.to_owned()).or_default();
        if is_time { region.1 += value } else { region.0 += value }
    }
    // Some nodes of the tree are not calls.
    regions.retain(|_, (calls, _)| *calls > 0.0);
    regions
}

/// Merges the regions in which a thread waits. When a thread has ended a task and has no other one yet, ampere has it in the
/// `taskwait` in which it started the task, and Score-P's profile in the team's barrier. If there are tasks, both are taken as
/// one region.
fn waiting_in_one(regions: &Regions) -> Regions {
    let has_tasks = regions.keys().any(|name| name.starts_with("!$omp task "));
    let waits =
        |name: &str| name.starts_with("!$omp taskwait ") || name.starts_with("!$omp implicit barrier ");
    let mut changed = Regions::new();
    for (name, (calls, seconds)) in regions {
        let name = if has_tasks && waits(name) { "waiting" } else { name };
        let region = changed.entry(name.to_owned()).or_default();
        (region.0, region.1) = (region.0 + calls, region.1 + seconds);
    }
    changed
}

/// Compares the regions except those in `left_out`: in Score-P's profile one region has all that the program does outside `main`,
/// which a substrate plugin does not see.
#[track_caller]
pub fn assert_agrees(ours: &Regions, experiment: &Path, left_out: &[&str]) {
    let mut theirs = profile(experiment);
    theirs.retain(|name, _| !left_out.contains(&name.as_str()));
    assert!(theirs.len() > 5, "{theirs:?}");
    let (ours, theirs) = (&waiting_in_one(ours), &waiting_in_one(&theirs));
    let names = |regions: &Regions| regions.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(ours), names(theirs));
    for (name, (calls, seconds)) in theirs {
        assert_eq!(ours[name].0, *calls, "calls of {name}");
        let off = (ours[name].1 - seconds).abs();
        assert!(off < 1e-4 + 1e-3 * seconds, "{name}: {} s, {seconds} s in the profile", ours[name].1);
    }
}

/// Returns the hot spots with their shares of the time, hottest first.
fn hottest(regions: &Regions) -> Vec<(&str, f64)> {
    let all: f64 = regions.values().map(|(_, seconds)| seconds).sum();
    let mut shares: Vec<_> = regions.iter().map(|(name, (_, s))| (name.as_str(), s / all)).collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    shares
}

fn is_everything_here() -> bool {
    ["scorep", "cube_dump", "mpicc", "mpirun", "otf2-print"].into_iter().all(on_path)
}

/// Whether Score-P was built with libunwind: otherwise it ignores the settings of these tests.
fn can_sample() -> bool {
    let printed = Command::new("scorep-info").arg("config-summary").output();
    printed.is_ok_and(|printed| {
        let printed = text(&printed.stdout);
        printed.lines().any(|line| line.trim_start().starts_with("Sampling support:") && line.contains("yes"))
    })
}

/// Runs two ranks under Score-P with its profile. Returns the profile's path.
pub fn under_profile(place: &Place, program: &Path, environment: &[(&str, &str)]) -> PathBuf {
    let experiment = place.path("scorep");
    let mut command = place.command("mpirun");
    command.args(["--oversubscribe", "-n", "2"]).arg(program).envs(environment.iter().copied());
    command.envs(measured(place, &experiment)).env("OPENBLAS_NUM_THREADS", "1");
    command.env("AMPERE_CONFIG", settings(place));
    succeed(&mut command);
    experiment
}

/// Settings with which every thread is in the table, as in the profile.
fn settings(place: &Place) -> PathBuf {
    let file = place.path("ampere.toml");
    std::fs::write(&file, "[attribution]\nlocations = \"all\"\n").expect("room for the settings");
    file
}

/// Returns the variables for a run with the plugin, and with Score-P's profile and trace.
pub fn measured(place: &Place, experiment: &Path) -> [(&'static str, PathBuf); 7] {
    [
        ("SCOREP_SUBSTRATE_PLUGINS", "ampere".into()),
        ("SCOREP_ENABLE_PROFILING", "true".into()),
        ("SCOREP_ENABLE_TRACING", "true".into()),
        ("SCOREP_TOTAL_MEMORY", "100M".into()),
        ("SCOREP_EXPERIMENT_DIRECTORY", experiment.to_owned()),
        (
            "LD_LIBRARY_PATH",
            artifact("libscorep_substrate_ampere.so").parent().expect("a directory").to_owned(),
        ),
        ("AMPERE_OUTPUT", place.path("out")),
    ]
}

fn agrees(options: &[&str], environment: &[(&str, &str)], expected: &[&str]) {
    skip_unless!(is_everything_here(), "no scorep with its tools on the PATH");
    let place = Place::new();
    let program = place.path("profiled");
    let mut compiler = Command::new("scorep");
    compiler.args(["--user", "mpicc", "-O1", "-g"]).args(options).current_dir(place.directory());
    succeed(compiler.arg(root().join("tests/programs/profiled.c")).arg("-o").arg(&program));
    let experiment = under_profile(&place, &program, environment);
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    let ours = regions(&summary);
    assert_agrees(&ours, &experiment, &["profiled"]);
    for region in expected {
        assert!(ours.contains_key(*region), "{region} in {ours:?}");
    }
    for key in ["dropped_records", "suppressed_calls", "repaired_events", "damaged_records"] {
        assert_eq!(summary["quality"][key], 0, "{key}");
    }
    let config = settings(&place).display().to_string();
    assert_same_figures(&summary, &attribute(&place.path("out/traces.otf2"), &["--config", &config]));
    // Score-P's own trace has calling contexts where ampere's has enters and leaves. It lacks the times at which recording is
    // off, and the ends of frames that only unwinding has found when a thread leaves its team.
    let has_threads = options.contains(&"-fopenmp");
    if !ours.contains_key("MEASUREMENT OFF") && (environment.is_empty() || !has_threads) {
        std::fs::write(&config, "[attribution]\nlocations = \"all\"\ntime = true\n").expect("room");
        let theirs = attribute(&experiment.join("traces.otf2"), &["--config", &config]);
        let mut theirs = regions(&theirs);
        theirs.remove("main"); // it never ends in the trace
        assert_agrees(&theirs, &experiment, &["profiled", "main"]);
    }
    let switched = |trace: &Path| {
        let printed = text(&succeed(Command::new("otf2-print").arg(trace)).stdout);
        let of = |line: &&str| line.starts_with("MEASUREMENT_ON_OFF") || line.starts_with("PROGRAM_");
        let words = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let what: Vec<&str> = words[3..].iter().copied().filter(|word| !word.starts_with('<')).collect();
            format!("{} of {}: {}", words[0], words[1], what.join(" "))
        };
        let mut all: Vec<String> = printed.lines().filter(of).map(words).collect();
        all.sort();
        all
    };
    let (ours_switched, theirs) =
        (switched(&place.path("out/traces.otf2")), switched(&experiment.join("traces.otf2")));
    assert!(ours_switched.len() >= 4 && ours_switched == theirs, "{ours_switched:?}, not {theirs:?}");
    let counts = crate::counts(&place.path("out/traces.otf2"));
    let of = |kind: &str| -> usize {
        counts.iter().filter(|(key, _)| key.starts_with(kind)).map(|(_, count)| count).sum()
    };
    assert!(of("ENTER") > 100 && of("ENTER") == of("LEAVE"), "{counts:?}");
    place.assert_clean();
}

#[test]
fn instrumentation_agrees_with_score_ps_profile() {
    agrees(&[], &[], &["main", "deep", "spin", "marked", "MPI_Barrier"]);
    agrees(&["-DSWITCHED"], &[], &["main", "MEASUREMENT OFF", "marked"]);
}

#[test]
fn unwinding_agrees_with_score_ps_profile() {
    skip_unless!(can_sample(), "no scorep that unwinds");
    agrees(&[], UNWINDING, &["main", "between", "marked", "MPI_Barrier"]);
}

#[test]
fn sampling_agrees_with_score_ps_profile() {
    skip_unless!(can_sample(), "no scorep that unwinds");
    agrees(&[], SAMPLING, &["main", "spin", "marked", "MPI_Barrier"]);
}

#[test]
fn openmp_agrees_with_score_ps_profile() {
    agrees(&["-fopenmp", "-DTASKS"], &[], &["main", "spin", "fibonacci"]);
    skip_unless!(can_sample(), "no scorep that unwinds; without unwinding it agrees");
    // Score-P's profile crashes a program with tasks and unwinding, so this one has no tasks.
    agrees(&["-fopenmp"], UNWINDING, &["main", "between", "marked"]);
    agrees(&["-fopenmp"], SAMPLING, &["main", "spin", "marked"]);
}

/// This runs HPL, whose kernels are only found by samples.
#[test]
fn hot_spots_of_hpl_when_sampled_are_those_of_score_ps_profile() {
    skip_unless!(is_everything_here(), "no scorep with its tools on the PATH");
    let directory = artifact("ampere").with_file_name("bench-hpl");
    let script = root().join("scripts/bench-hpl");
    skip_unless!(can_sample(), "no scorep that unwinds");
    let source = Command::new(&script).arg(&directory).output().expect("the script");
    skip_unless!(source.status.success(), "HPL's source is not available");
    succeed(Command::new(script).arg(&directory).args(["sampled", "scorep", "--nocompiler", "mpicc"]));
    let place = Place::new();
    let input = "HPL\ntest\nHPL.out\n6\n1\n3000\n1\n80\n0\n1\n1\n2\n16.0\n1\n2\n1\n4\n1\n2\n1\n1\n1\n1\n1\n0\n2\n64\n0\n0\n1\n8\n";
    std::fs::write(place.path("hpccinf.txt"), input).expect("room for the input");
    let experiment = under_profile(&place, &directory.join("sampled/xhpl"), SAMPLING);
    let (ours, mut theirs) = (regions(&place.summary("out")), profile(&experiment));
    theirs.remove("xhpl");
    let (our_shares, their_shares) = (hottest(&ours), hottest(&theirs));
    println!("{our_shares:.3?}\n{their_shares:.3?}");
    for ((ours, our_share), (theirs, their_share)) in our_shares.iter().zip(&their_shares).take(5) {
        assert_eq!(ours, theirs, "{our_shares:?}, in the profile {their_shares:?}");
        assert!((our_share - their_share).abs() < 0.02, "{ours}: {our_share}, {their_share}");
    }
    assert!(ours.keys().any(|name| name.starts_with("dgemm_kernel")), "{our_shares:?}");
    assert_agrees(&ours, &experiment, &["xhpl"]);
}
