//! Tests how devices are assigned to ranks and streams, with the reason given for each link. The result must be the same live,
//! from the run's own trace, and with explicit settings.

use ampere_tests::jobs::Place;
use ampere_tests::runs::{
    assert_same_figures, attribute, compile, list, number, on_path, parse, relative, stencil, succeed, text,
};
use ampere_tests::stand_ins::with_rocm_smi;
use ampere_tests::{artifact, skip_unless, small_trace};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// "device <- consumer: reason" for every link.
fn topology(summary: &Value) -> Vec<String> {
    let word = |link: &Value, key: &str| link[key].as_str().unwrap_or("no GPU").to_owned();
    let links = list(summary, "topology").iter();
    links
        .map(|l| format!("{} <- {}: {}", word(l, "device"), word(l, "consumer"), word(l, "reason")))
        .collect()
}

/// Writes a trace and a configuration file, and returns their paths.
fn prepared(place: &Place, trace_text: &str, settings: &str) -> (PathBuf, String) {
    let trace = small_trace::write(&place.path("made-up"), trace_text);
    let config = place.path("ampere.toml");
    std::fs::write(&config, settings).expect("room");
    (trace, config.to_str().expect("a name").to_owned())
}

/// Checks that the links are as expected, and that a replay has the same figures.
#[track_caller]
fn assert_topology(trace_text: &str, settings: &str, expected: &[&str]) -> Value {
    let place = Place::new();
    let (trace, config) = prepared(&place, trace_text, settings);
    let options = ["--config", &config];
    let offline = attribute(&trace, &options);
    assert_eq!(topology(&offline), expected);
    let mut command = place.command(artifact("ampere"));
    command.arg("replay").arg(&trace).arg("-o").arg(place.path("out")).args(options).args(["--speed", "max"]);
    // The variables of the replay's own environment must not be taken for those of the trace.
    succeed(command.env("ROCR_VISIBLE_DEVICES", "7"));
    let live = place.summary("out");
    assert_eq!(topology(&live), expected, "live");
    assert_same_figures(&live, &offline);
    let again = attribute(&place.path("out/traces.otf2"), &options);
    assert_eq!(topology(&again), expected, "from the replay's own trace");
    assert_same_figures(&again, &offline);
    offline
}

/// Checks that explicit settings for the same assignment have the same figures.
#[track_caller]
fn assert_as_configured(trace_text: &str, found: &Value, settings: &str) {
    let place = Place::new();
    let (trace, config) = prepared(&place, trace_text, settings);
    assert_same_figures(found, &attribute(&trace, &["--config", &config]));
}

/// Returns a [[device]] of rocm_smi with its ranks and streams.
fn device(number: u32, ranks: &str, streams: &str) -> String {
    format!(
        "[[device]]\nname = 'GPU-{number}'\nmetric = 'rocm_smi:::energy_count:device={number}'\nranks = [{ranks}]\n\
         locations = [{streams}]\n"
    )
}

#[test]
fn variables_of_each_rank() {
    let made = "counter 0\ncounter 1\ncounter 2\nmetric cpu_energy\n\
        rank n ROCR_VISIBLE_DEVICES=2\nstream HIP[0:0]\n\
        rank n ROCR_VISIBLE_DEVICES=0,1 HIP_VISIBLE_DEVICES=1\n\
        rank n ROCR_VISIBLE_DEVICES=\n\
        rank n\n";
    let found = assert_topology(
        made,
        "",
        &[
            "GPU-0 <- MPI Rank 3: the ranks' GPUs are not known: shared by all processes of the node",
            "GPU-1 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=0,1 and HIP_VISIBLE_DEVICES=1",
            "GPU-1 <- MPI Rank 3: the ranks' GPUs are not known: shared by all processes of the node",
            "GPU-2 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
            "GPU-2 <- MPI Rank 3: the ranks' GPUs are not known: shared by all processes of the node",
            "GPU-2 <- MPI Rank 0/HIP[0:0]: device 0 in its name, of ROCR_VISIBLE_DEVICES=2",
            "cpu_energy <- MPI Rank 0: not a GPU counter: shared by all processes of the node",
            "cpu_energy <- MPI Rank 1: not a GPU counter: shared by all processes of the node",
            "cpu_energy <- MPI Rank 2: not a GPU counter: shared by all processes of the node",
            "cpu_energy <- MPI Rank 3: not a GPU counter: shared by all processes of the node",
            "no GPU <- MPI Rank 2: ROCR_VISIBLE_DEVICES is empty",
        ],
    );
    let settings = [
        device(0, "3", ""),
        device(1, "1, 3", ""),
        device(2, "0, 3", "'HIP\\[0:0\\]'"),
        "[[device]]\nname = 'cpu_energy'\nmetric = 'cpu_energy'\n".to_owned(),
    ];
    assert_as_configured(made, &found, &settings.concat());
}

/// The second die's counter never changes, which is known only at the end.
#[test]
fn two_dies_with_one_counter() {
    let made = "counter 0\ncounter 1 silent\ncounter 2\ncounter 3 silent\n\
        rank n ROCR_VISIBLE_DEVICES=0\nstream HIP[0:0]\n\
        rank n ROCR_VISIBLE_DEVICES=1\nstream HIP[0:1]\n\
        rank n ROCR_VISIBLE_DEVICES=3\n";
    let odd = "assumed because no odd GPU has a counter";
    let found = assert_topology(
        made,
        "",
        &[
            "GPU-0 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
            "GPU-0 <- MPI Rank 1: its GPU stream HIP[0:1] ran on it",
            "GPU-0 <- MPI Rank 0/HIP[0:0]: device 0 in its name, of ROCR_VISIBLE_DEVICES=0",
            &format!(
                "GPU-0 <- MPI Rank 1/HIP[0:1]: device 0 in its name, of ROCR_VISIBLE_DEVICES=1; second die of the \
                 package that GPU 0 counts, {odd}"
            ),
            &format!(
                "GPU-2 <- MPI Rank 2: ROCR_VISIBLE_DEVICES=3; second die of the package that GPU 2 counts, {odd}"
            ),
        ],
    );
    let settings = [
        device(0, "0, 1", "'HIP\\[0:0\\]', 'HIP\\[0:1\\]'"),
        device(1, "", ""),
        device(2, "2", ""),
        device(3, "", ""),
    ];
    assert_as_configured(made, &found, &settings.concat());
}

/// A counter that starts later than the others changes which device the rank draws from.
#[test]
fn a_counter_that_comes_late() {
    let made = "counter 0\ncounter 2\ncounter 3\nrank n ROCR_VISIBLE_DEVICES=3\n";
    let found = assert_topology(made, "", &["GPU-3 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=3"]);
    assert_as_configured(made, &found, &[device(0, "", ""), device(2, "", ""), device(3, "0", "")].concat());
}

#[test]
fn the_system_tree_shows_which_device() {
    assert_topology(
        "counter 0\ncounter 1\n\
         rank n\nstream stream-7 tree=1\n\
         rank n\nstream HIP[0:3] orphan\n",
        "",
        &[
            "GPU-0 <- MPI Rank 1: the ranks' GPUs are not known: shared by all processes of the node",
            "GPU-0 <- Context of HIP[0:3]/HIP[0:3]: device 0 in its name",
            "GPU-1 <- MPI Rank 0: its GPU stream stream-7 ran on it",
            "GPU-1 <- MPI Rank 1: the ranks' GPUs are not known: shared by all processes of the node",
            "GPU-1 <- MPI Rank 0/stream-7: device 1 in the system tree",
        ],
    );
}

/// Two streams called `HIP[0:0]` may share one GPU, or each process may see only its own GPU, as number 0.
#[test]
fn processes_with_one_gpu_number_are_in_doubt() {
    let made = |tree: [&str; 2]| {
        let [one, other] = tree;
        format!("counter 0\ncounter 1\nrank n\nstream HIP[0:0] {one}\nrank n\nstream HIP[0:0] {other}\n")
    };
    let found = assert_topology(
        &made(["", ""]),
        "",
        &[
            "GPU-0 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
            "GPU-0 <- MPI Rank 1: its GPU stream HIP[0:0] ran on it",
            "GPU-0 <- MPI Rank 0/HIP[0:0]: device 0 in its name",
            "GPU-0 <- MPI Rank 1/HIP[0:0]: device 0 in its name",
        ],
    );
    let missing = "2 processes on n call their GPU 0, and GPU-1 used joules without kernels: whether they share one GPU, or each sees \
         only its own, cannot be told; set ranks = [...] in a [[device]] for each GPU";
    assert_eq!(found["run"]["missing"], serde_json::json!([missing]));
    let apart = |why: [&str; 2]| {
        [
            "GPU-0 <- MPI Rank 0: RANKS".to_owned(),
            format!("GPU-0 <- MPI Rank 0/HIP[0:0]: {}", why[0]),
            "GPU-1 <- MPI Rank 1: RANKS".to_owned(),
            format!("GPU-1 <- MPI Rank 1/HIP[0:0]: {}", why[1]),
        ]
    };
    let check = |tree, settings: &str, why, of_rank: [&str; 2]| {
        let expected = apart(why).map(|line| {
            line.replace("0: RANKS", &format!("0: {}", of_rank[0]))
                .replace("1: RANKS", &format!("1: {}", of_rank[1]))
        });
        let found = assert_topology(&made(tree), settings, &expected.each_ref().map(String::as_str));
        assert_eq!(found["run"]["complete"], true, "{}", found["run"]);
    };
    let ran = "its GPU stream HIP[0:0] ran on it";
    check(["tree=0", "tree=1"], "", ["device 0 in its name", "device 1 in the system tree"], [ran, ran]);
    let settings = [0, 1].map(|gpu| {
        format!("[[device]]\nname = 'GPU-{gpu}'\nmetric = 'rocm_smi:::energy_count:device={gpu}'\nranks = [{gpu}]\n")
    });
    let configured = ["configured: ranks = [0]", "configured: ranks = [1]"];
    check(["", ""], &settings.concat(), configured, configured);
}

/// Nothing shows on which GPU a stream without a number ran, or to which GPU a counter without a number belongs.
#[test]
fn kernels_on_an_unknown_gpu_are_in_doubt() {
    for (made, stream, gpus) in [
        ("counter 0\ncounter 1\nrank n\nstream stream-7\n", "stream-7", "GPU-0, GPU-1"),
        (
            "metric card1_energy\nmetric card2_energy\nrank n\nstream HIP[1:0]\n",
            "HIP[1:0]",
            "card1_energy, card2_energy",
        ),
    ] {
        let place = Place::new();
        let settings = format!(
            "[[device]]\nname = 'GPU'\nmetric = '.*1.*'\nlocations = ['{}']\n",
            stream.replace('[', "\\[")
        );
        let (trace, config) = prepared(&place, made, &settings);
        let found = attribute(&trace, &[]);
        let missing = format!(
            "which GPU ran the kernels of {stream} on n cannot be told: they have none of the joules of {gpus} in the kernels view; \
             set locations = [...] in a [[device]] for each GPU"
        );
        assert_eq!(found["run"]["missing"], serde_json::json!([missing]));
        let configured = attribute(&trace, &["--config", &config]);
        assert!(!configured["run"]["missing"].to_string().contains("which GPU"), "{}", configured["run"]);
        let links = topology(&configured);
        assert!(links.contains(&format!("GPU <- MPI Rank 0/{stream}: configured: locations")), "{links:?}");
    }
}

/// Each counter in the trace has the model and the PCI address of its GPU, like the counters of a live run.
#[test]
fn counters_report_their_model_and_address() {
    assert_topology(
        "counter 0 model=MI250X pci=193\ncounter 2 model=MI250X pci=201\n\
         rank n ROCR_VISIBLE_DEVICES=1\n\
         rank n\nstream HIP[0:0] pci=206\nstream HIP[1:0] pci=193\n",
        "",
        &[
            "GPU-0 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=1; second die of the package that GPU 0 counts",
            "GPU-0 <- MPI Rank 1: its GPU stream HIP[1:0] ran on it",
            "GPU-0 <- MPI Rank 1/HIP[1:0]: PCI address 0000:c1:00.0",
            "GPU-2 <- MPI Rank 1: its GPU stream HIP[0:0] ran on it",
            "GPU-2 <- MPI Rank 1/HIP[0:0]: PCI address 0000:ce:00.0, the second die of the package that is counted at \
             0000:c9:00.0",
        ],
    );
}

/// The trace has the queues that the driver listed for each process.
#[test]
fn queues_of_each_rank() {
    assert_topology(
        "counter 0 pci=193\ncounter 1 pci=201\n\
         rank n ampere::queues=0000:c9:00.0\n\
         rank n ampere::queues=0000:c1:00.0,0000:c9:00.0\n",
        "",
        &[
            "GPU-0 <- MPI Rank 1: the driver reported its queues at PCI address 0000:c1:00.0",
            "GPU-1 <- MPI Rank 0: the driver reported its queues at PCI address 0000:c9:00.0",
            "GPU-1 <- MPI Rank 1: the driver reported its queues at PCI address 0000:c9:00.0",
        ],
    );
}

const RISES: &str = "the second die of a package by its model (MI250X), so the first die's counter should include its energy. But \
     its own counter rises, and is used for its joules";

/// Only samples after the first frames show that the second counter rises.
#[test]
fn a_second_die_whose_own_counter_rises_counts_for_itself() {
    let made = "counter 0 model=MI250X\ncounter 1 model=MI250X\nrank n ROCR_VISIBLE_DEVICES=0\n\
        rank n ROCR_VISIBLE_DEVICES=1\nstream HIP[0:0]\n";
    let found = assert_topology(
        made,
        "",
        &[
            "GPU-0 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=0",
            "GPU-1 <- MPI Rank 1: its GPU stream HIP[0:0] ran on it",
            "GPU-1 <- MPI Rank 1/HIP[0:0]: device 0 in its name, of ROCR_VISIBLE_DEVICES=1",
        ],
    );
    assert_as_configured(made, &found, &[device(0, "0", ""), device(1, "1", "'HIP\\[0:0\\]'")].concat());
    assert_eq!(found["run"]["notes"], Value::from(vec![format!("GPU-1 on n is {RISES}")]));
    // If the second die's counter never rises, the first die's counter includes its energy.
    let made = made.replace("counter 1", "counter 1 silent");
    let second = "second die of the package that GPU 0 counts";
    let found = assert_topology(
        &made,
        "",
        &[
            "GPU-0 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=0",
            "GPU-0 <- MPI Rank 1: its GPU stream HIP[0:0] ran on it",
            &format!(
                "GPU-0 <- MPI Rank 1/HIP[0:0]: device 0 in its name, of ROCR_VISIBLE_DEVICES=1; {second}"
            ),
        ],
    );
    assert_eq!(found["run"]["notes"], Value::from(Vec::<String>::new()));
}

#[test]
fn local_ranks_are_those_of_each_node() {
    let by_local_rank = "[topology]\nby_local_rank = true\n";
    let local = |rank| format!("SLURM_LOCALID={rank}");
    let made = format!(
        "counter 0\ncounter 1\nrank a {}\nrank a {}\nrank b {}\nrank b {}\n",
        local(0),
        local(1),
        local(1),
        local(0)
    );
    let assumed = |local, gpu| format!("assumed: local rank {local} of 2 (SLURM_LOCALID), 2 GPUs, GPU {gpu}");
    let expected = [
        format!("GPU-0 <- MPI Rank 0: {}", assumed(0, 0)),
        format!("GPU-1 <- MPI Rank 1: {}", assumed(1, 1)),
        format!("GPU-0 <- MPI Rank 3: {}", assumed(0, 0)),
        format!("GPU-1 <- MPI Rank 2: {}", assumed(1, 1)),
    ];
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_topology(&made, by_local_rank, &expected);
}

/// Checks the messages of `ampere attribute` about settings on standard error and in the summary.
#[track_caller]
fn assert_notes(trace_text: &str, settings: &str, expected: &[&str]) {
    let place = Place::new();
    let (trace, config) = prepared(&place, trace_text, settings);
    let mut command = Command::new(artifact("ampere"));
    let output = succeed(command.arg("attribute").arg(&trace).arg("--json").arg("--config").arg(&config));
    let is_about_settings = |line: &&str| !line.contains(NOT_CONFIGURED);
    let lines: Vec<String> =
        text(&output.stderr).lines().filter(is_about_settings).map(str::to_owned).collect();
    let wanted: Vec<String> = expected.iter().map(|line| format!("ampere: {line}")).collect();
    assert_eq!(lines, wanted);
    let summary = parse(&output.stdout).expect("JSON");
    let notes: Vec<&str> = list(&summary["run"], "notes").iter().filter_map(Value::as_str).collect();
    assert_eq!(notes.into_iter().filter(is_about_settings).collect::<Vec<_>>(), expected);
    assert_eq!(summary["run"]["complete"], true, "nothing is missing");
    // A live run has these notes once everything is known.
    let mut command = place.command(artifact("ampere"));
    command.arg("replay").arg(&trace).arg("-o").arg(place.path("out")).args(["--speed", "max", "--config"]);
    succeed(command.arg(&config));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let printed = words(&std::fs::read_to_string(place.path("out/summary.txt")).expect("a summary"));
    for line in expected {
        assert_eq!(printed.matches(&words(line)).count(), 1, "{line}: {printed}");
    }
    let summary = place.summary("out");
    let notes = list(&summary["run"], "notes").iter().filter_map(Value::as_str);
    // Another test may hold the port, and during a run joules are not divided by kernels.
    let others = ["port ", "during the run, joules of GPUs were not divided by kernels"];
    let is_other = |note: &&str| others.iter().any(|other| note.starts_with(other));
    let notes = notes.filter(|note| !is_other(note)).filter(is_about_settings);
    assert_eq!(notes.collect::<Vec<_>>(), expected);
}

/// How a note names metrics that look like energy and that no setting makes a device.
const NOT_CONFIGURED: &str = "metrics are left out because they are in no [[device]] of the configuration: ";

#[test]
fn energies_that_no_setting_matches_are_named() {
    let place = Place::new();
    let (trace, config) = prepared(&place, TWO, "[[device]]\nname = 'gpus'\nmetric = '.*device=0'\n");
    let mut command = Command::new(artifact("ampere"));
    let output = succeed(command.arg("attribute").arg(&trace).arg("--json").arg("--config").arg(&config));
    let summary = parse(&output.stdout).expect("JSON");
    let notes = summary["run"]["notes"].to_string();
    let said = format!("{NOT_CONFIGURED}cpu_energy, rocm_smi:::energy_count:device=1");
    assert!(notes.contains(&said), "{notes}");
    assert_eq!(summary["run"]["complete"], true);
}

const TWO: &str = "counter 0\ncounter 1\nmetric cpu_energy\nrank n\nstream HIP[0:0]\nrank n\n";

#[test]
fn questionable_settings_get_a_note() {
    let all = "[[device]]\nname = 'GPU-$1'\nmetric = 'rocm_smi:::energy_count:device=(\\d)'\n";
    assert_notes(TWO, all, &[]);
    assert_notes(
        TWO,
        &format!("[[device]]\nname = 'first'\nmetric = '.*device=0'\n{all}"),
        &[
            "[[device]] \"first\" and \"GPU-$1\" both match rocm_smi:::energy_count:device=0 on n: the first is taken",
        ],
    );
    assert_notes(
        TWO,
        &format!("{all}[[device]]\nname = 'never'\nmetric = '.*device=[01]'\n"),
        &[
            "[[device]] \"GPU-$1\" and \"never\" both match rocm_smi:::energy_count:device=0 on n and 1 more: the first is \
           taken",
        ],
    );
    assert_notes(
        TWO,
        &format!("{all}[[device]]\nname = 'x'\nmetric = 'rocm_smi:::energy_count:device=7'\n"),
        &["[[device]] \"x\": metric = 'rocm_smi:::energy_count:device=7' matches nothing: there are \
           rocm_smi:::energy_count:device=0, rocm_smi:::energy_count:device=1, cpu_energy"],
    );
    assert_notes(
        TWO,
        &format!("{all}[[device]]\nname = 'x'\nnode = 'm\\d'\nmetric = 'cpu_energy'\n"),
        &["[[device]] \"x\": no node matches node = 'm\\d': there is only n"],
    );
    assert_notes(
        TWO,
        "[[device]]\nname = 'GPU'\nmetric = '.*device=\\d'\n",
        &[
            "2 devices on n are named \"GPU\" (rocm_smi:::energy_count:device=0, rocm_smi:::energy_count:device=1): /metrics \
           shows their sum",
        ],
    );
    assert_notes(
        TWO,
        "[[device]]\nname = 'a'\nmetric = '.*device=0'\nranks = [0, 5]\nlocations = ['HIP\\[1:.*', 'HIP.*']\n",
        &[
            "[[device]] \"a\": ranks = [0, 5]: no rank 5 on n: there is 0, 1",
            "[[device]] \"a\": locations = 'HIP\\[1:.*' matches no GPU stream: there is only HIP[0:0]",
        ],
    );
    assert_notes(
        TWO,
        "[[device]]\nname = 'a'\nmetric = '.*device=0'\nranks = [0]\n\
         [[device]]\nname = 'b'\nmetric = '.*device=1'\nranks = [0, 1]\n",
        &["MPI Rank 0 on n is in the ranks of 2 GPUs by configuration: a, b"],
    );
    let cgroups = "counter 0\ncounter 1\nrank n ROCR_VISIBLE_DEVICES=0\nrank n ROCR_VISIBLE_DEVICES=0\n";
    assert_notes(
        cgroups,
        "",
        &[
            "all 2 ranks on n have ROCR_VISIBLE_DEVICES=0 and 2 GPUs have a counter: where each task has its own cgroup, \
           every rank's GPU is number 0; set ranks = [...] in a [[device]] for each GPU then",
        ],
    );
}

#[test]
fn contradictory_settings_are_errors() {
    for (settings, expected) in [
        (
            "[[device]]\nname = 'a'\nmetric = 'e'\n[[device]]\nname = 'b'\nmetric = 'e'\n",
            "device \"b\": metric = 'e' is already assigned to device \"a\"",
        ),
        (
            "[[device]]\nname = 'GPU-$1'\nmetric = 'e'\n",
            "device \"GPU-$1\": name: there is no $1, metric = 'e' has 0 groups",
        ),
    ] {
        let place = Place::new();
        let (trace, config) = prepared(&place, TWO, settings);
        let mut command = place.command(artifact("ampere"));
        let output =
            command.arg("attribute").arg(&trace).arg("--config").arg(&config).output().expect("it runs");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        let said = text(&output.stderr);
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    }
}

/// Returns a run of two ranks, each with the value of a shell expression in ROCR_VISIBLE_DEVICES. Both ranks use one wrapper, as
/// sites provide it.
fn run_with_visible_device(place: &Place, expression: &str) -> Command {
    let script = place.path("choose");
    let choose = format!("#!/bin/sh\nexport ROCR_VISIBLE_DEVICES={expression}\nexec \"$@\"\n");
    std::fs::write(&script, choose).expect("room");
    let script = script.to_str().expect("a name");
    place.ampere_run("out", ["mpirun", "--oversubscribe", "-n", "2", "sh", script, &stencil(), "1"])
}

fn joules_by_rank(summary: &Value) -> BTreeMap<(String, String), f64> {
    let mut all = BTreeMap::new();
    for device in list(summary, "devices") {
        let view = list(device, "views").iter().find(|view| view["view"] == "ranks").expect("the view");
        // Rows without joules caused waiting of ranks that used this device.
        for row in list(view, "callpaths").iter().filter(|row| number(row, "exclusive_joules") > 0.0) {
            let word = |value: &Value| value.as_str().expect("a word").to_owned();
            *all.entry((word(&device["name"]), word(&row["location_group"]))).or_insert(0.0) +=
                number(row, "exclusive_joules");
        }
    }
    all
}

#[test]
fn each_rank_uses_joules_of_its_own_gpu() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let mut command = run_with_visible_device(&place, "$((2 - 2 * OMPI_COMM_WORLD_LOCAL_RANK))");
    succeed(with_rocm_smi(&mut command, "watts=300,0.0001,100;zero=1"));
    let said = std::fs::read_to_string(place.path("out/summary.txt")).expect("a summary");
    assert!(said.contains("device assignment\n  GPU-0 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=0\n"), "{said}");
    let live = place.summary("out");
    let expected =
        ["GPU-0 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=0", "GPU-2 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=2"];
    assert_eq!(topology(&live), expected);
    let joules = joules_by_rank(&live);
    let pairs: Vec<(&str, &str)> = joules.keys().map(|(d, r)| (d.as_str(), r.as_str())).collect();
    assert_eq!(pairs, [("GPU-0", "MPI Rank 1"), ("GPU-2", "MPI Rank 0")]);
    for device in list(&live, "devices") {
        let view = &list(device, "views")[0];
        let all = number(view, "attributed_joules") + number(view, "idle_joules");
        assert!(
            relative(all, number(device, "total_joules")) < 1e-9 && number(view, "attributed_joules") > 50.0
        );
    }
    let offline = attribute(&place.path("out/traces.otf2"), &[]);
    assert_eq!(topology(&offline), expected);
    assert_same_figures(&live, &offline);
}

/// There are two GPUs, each of which has the name of an MI250X and a counter.
#[test]
fn a_rank_on_a_second_die_with_a_rising_counter_uses_joules_of_that_die() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let mut command = run_with_visible_device(&place, "$OMPI_COMM_WORLD_LOCAL_RANK");
    command
        .env("AMPERE_COUNTERS", "amdsmi")
        .env("AMPERE_AMDSMI_LIBRARY", artifact("libstand_in_amd_smi.so"))
        .env("STAND_IN_AMD_SMI_MODEL", "MI250X")
        .env("STAND_IN_AMD_SMI", "watts=300,150");
    succeed(&mut command);
    let live = place.summary("out");
    let expected =
        ["GPU-0 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=0", "GPU-1 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=1"];
    assert_eq!(topology(&live), expected);
    let notes = live["run"]["notes"].to_string();
    assert!(notes.contains("GPU-1 on ") && notes.contains("its own counter rises"), "{notes}");
    let joules = joules_by_rank(&live);
    let pairs: Vec<(&str, &str)> = joules.keys().map(|(d, r)| (d.as_str(), r.as_str())).collect();
    assert_eq!(pairs, [("GPU-0", "MPI Rank 0"), ("GPU-1", "MPI Rank 1")]);
    let offline = attribute(&place.path("out/traces.otf2"), &[]);
    assert_eq!(topology(&offline), expected);
    assert_same_figures(&live, &offline);
}

/// A process learns its rank in MPI_Init, long after main has started.
#[test]
fn a_rank_that_is_known_late_is_attributed_from_the_trace() {
    skip_unless!(on_path("mpirun") && on_path("mpicc"), "no mpirun or no mpicc");
    let place = Place::new();
    let source = "#include <mpi.h>
        #include <time.h>
        static void nap(long ms) { struct timespec t = {0, ms * 1000000}; nanosleep(&t, 0); }
        int main(int argc, char **argv) {
            nap(300);
            MPI_Init(&argc, &argv);
            nap(300);
            MPI_Finalize();
            return 0;
        }";
    let program = compile(&place, &["mpicc", "-O0", "-finstrument-functions"], "late", source);
    let config = place.path("ampere.toml");
    std::fs::write(&config, "[[device]]\nname = 'mine'\nmetric = 'estimate:::energy'\nranks = [1]\n")
        .expect("room");
    let run = |trace: &str, output: &Path| {
        let mut command = place.command(artifact("ampere"));
        command.args(["run", "--config"]).arg(&config).arg("-o").arg(output).env("AMPERE_TRACE", trace);
        succeed(command.args(["--", "mpirun", "--oversubscribe", "-n", "2"]).arg(&program));
        ampere_tests::runs::json(&output.join("summary.json"))
    };
    let (with, without) = (place.path("out"), place.path("without"));
    let live = run("on", &with);
    let notes = live["run"]["notes"].to_string();
    assert!(
        notes.contains("became known only during the run: the figures below were computed again"),
        "{notes}"
    );
    assert_eq!(topology(&live), ["mine <- MPI Rank 1: configured: ranks = [1]"]);
    let offline = attribute(&place.path("out/traces.otf2"), &["--config", config.to_str().expect("a name")]);
    assert_eq!(topology(&offline), topology(&live));
    assert_same_figures(&live, &offline);
    // The joules are attributed from the start, and not only from MPI_Init on.
    let nap =
        list(&list(&list(&live, "devices")[0], "views")[0], "regions").iter().find(|r| r["region"] == "nap");
    let nap = nap.expect("its row");
    assert_eq!(number(nap, "calls"), 2.0);
    assert!(number(nap, "exclusive_joules") > 0.55 * 100.0, "{nap}");
    let notes = run("off", &without)["run"]["notes"].to_string();
    assert!(notes.contains("became known only during the run, and earlier joules"), "{notes}");
}
