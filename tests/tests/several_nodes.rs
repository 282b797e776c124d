//! A job on two nodes: launchers pass on what the ranks on the other node need, without options of the user, and the run has one
//! trace. The other node is this machine under another name with a shared memory of its own. A made-up `ssh` reaches it with the
//! environment of a login shell.

use ampere_tests::collector::{announced, events};
use ampere_tests::jobs::{Done, Place, Running, have, kill, run, start, until};
use ampere_tests::runs::{assert_same_figures, attribute, figures, has_python_otf2, may_mount, relative};
use ampere_tests::{artifact, skip_unless};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};

fn assert_both_nodes(place: &Place, done: &Done) {
    assert_eq!((done.code, done.stdout.as_str()), (0, "sum 1\n"), "{done:#?}");
    place.no_process_left();
    let report = run(&mut place.ampere(["report", "out", "-f", "json"]));
    let whole: serde_json::Value = serde_json::from_str(&report.stdout).expect("JSON");
    let run = &whole["run"];
    assert_eq!(run["nodes"].as_array().map(Vec::len), Some(2), "{run}\n{done:#?}");
    assert_eq!(run["mpi"], serde_json::json!({"size": 2, "ranks": [0, 1]}), "{run}");
    assert_eq!(run["complete"], true, "{run}");
    // Only the trace of all nodes shows who waited for whom.
    let of_trace = attribute(&place.path("out/traces.otf2"), &[]);
    let waiting = &place.summary("out")["run"]["waiting"];
    assert!(waiting.is_object(), "{run}");
    assert_eq!(waiting, &of_trace["run"]["waiting"]);
    assert_whole(place);
}

/// Checks that `summary.json` is of all nodes, and that each node's own is in a directory with its name.
fn assert_whole(place: &Place) {
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let whole = place.summary("out");
    let parts = [place.summary(&format!("out/{own}")), place.summary("out/node-b")];
    let joules = |summary: &serde_json::Value| summary["run"]["total_joules"].as_f64().expect("joules");
    let sum: f64 = parts.iter().map(joules).sum();
    assert!(relative(joules(&whole), sum) < 1e-9, "{} and {sum}", joules(&whole));
    let devices = |summary: &serde_json::Value| summary["devices"].as_array().map_or(0, Vec::len);
    assert_eq!(devices(&whole), parts.iter().map(devices).sum::<usize>());
    assert_eq!(whole["run"]["nodes"].as_array().map(Vec::len), Some(2), "{}", whole["run"]);
}

#[test]
fn open_mpis_launcher_passes_on_what_another_node_needs() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    if !have(&["mpirun.openmpi", "mpicc.openmpi", "unshare"]) {
        return;
    }
    let place = Place::new();
    let (ssh, program) = (place.ssh(), place.mpi_program());
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = format!("{own}:1,node-b:1");
    for of_the_user in [&[][..], &["-x", "PATH"], &["-x", "AMPERE_COUNTERS"]] {
        let mut command = place.ampere(["run", "-o", "out", "--", "mpirun.openmpi"]);
        command.args(of_the_user).args(["--mca", "plm", "rsh", "--host", &hosts, "-n", "2"]);
        command.arg("--mca").arg("plm_rsh_agent").arg(&ssh).arg(&program).arg("0");
        assert_both_nodes(&place, &run(&mut command));
        std::fs::remove_dir_all(place.path("out")).expect("its results");
    }
    // Here the user gives a list of variables.
    let mut command = place.ampere(["run", "-o", "out", "--", "mpirun.openmpi"]);
    command.args(["--mca", "plm", "rsh", "--host", &hosts, "-n", "2", "--mca", "plm_rsh_agent"]).arg(&ssh);
    assert_both_nodes(&place, &run(command.arg(&program).arg("0").env("OMPI_MCA_mca_base_env_list", "PATH")));
}

/// On a busy machine, about one in 130 runs of MPICH 4.0 on two nodes never ends, even without ampere. In `MPI_Finalize`, one
/// rank waits for the other to read from its socket, while the other waits in the launcher's barrier. The launcher ends such a
/// run.
const MPICH_ATTEMPTS: usize = 3;

#[test]
fn mpichs_launcher_passes_on_what_another_node_needs() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    if !have(&["mpiexec.hydra", "mpicc.mpich", "unshare"]) {
        return;
    }
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for attempt in 1..=MPICH_ATTEMPTS {
        let place = Place::new();
        let (ssh, program) = (place.ssh(), place.mpi_program_by("mpicc.mpich"));
        let mut command = place.ampere(["run", "-o", "out", "--", "mpiexec.hydra", "-launcher", "ssh"]);
        command.arg("-launcher-exec").arg(&ssh).args(["-hosts", &format!("{own},node-b"), "-n", "2"]);
        let done = run(command.arg(&program).arg("0").env("MPIEXEC_TIMEOUT", "45"));
        if attempt == MPICH_ATTEMPTS || !done.stdout.contains("APPLICATION TIMED OUT") {
            return assert_both_nodes(&place, &done);
        }
        println!("the ranks did not end within 45 s: {done:#?}");
    }
}

/// Each of the two programs continues when the other one has left a function. They enter their functions in different orders.
const TAKES_TURNS: &str = r#"
    #include <fcntl.h>
    #include <time.h>
    #include <unistd.h>
    #define PLAIN __attribute__((no_instrument_function))
    PLAIN static void mark(const char *name) { close(open(name, O_CREAT | O_WRONLY, 0600)); }
    PLAIN static void await(const char *name) { while (access(name, F_OK)) usleep(1000); }
    PLAIN static void spin(void) { clock_t end = clock() + CLOCKS_PER_SEC / 20; while (clock() < end); }
    static void both(void) { spin(); }
    #ifdef SECOND
    static void second_alone(void) { spin(); }
    int main(void) {
        await("1"); second_alone(); mark("2");
        await("3"); both(); mark("4");
        return 0;
    }
    #else
    static void first_alone(void) { spin(); }
    int main(void) {
        await("go"); both(); mark("1");
        await("2"); first_alone(); mark("3");
        await("4");
        return 0;
    }
    #endif
"#;

/// Starts a run of both programs that waits for `go`. Returns it, and the command of the second one.
fn on_two_nodes(place: &Place, policy: &str) -> (Running, String) {
    let options = ["-finstrument-functions", "-DSECOND"];
    let [first, second] =
        [1, 2].map(|node| place.compile("cc", &format!("on{node}"), TAKES_TURNS, &options[..node]));
    let second = second.display().to_string();
    let script = format!("{} & {}; wait", place.on_another_node("node-b", &second), first.display());
    let mut command = place.ampere_run("out", ["sh", "-c", &script]);
    command.env("AMPERE_OUTPUT", place.path("out")).env("AMPERE_COUNTERS", "estimate");
    command.env("AMPERE_POLICY", policy);
    let running = start(command.current_dir(place.path("")));
    until("the other node is measured", || announced(&place.path("out/node-b")).is_some());
    until("this one is", || announced(&place.path("out")).is_some());
    (running, second)
}

/// Prints the node and the function of each leave in the order of the trace, and all events that are out of order.
const LEAVES: &str = r#"
import sys, otf2
with otf2.reader.open(sys.argv[1]) as trace:
    last = 0
    for location, event in trace.events:
        if event.time < last:
            print("out of order:", location.name, event.time)
        last = event.time
        if isinstance(event, otf2.events.Leave):
            print(location.group.system_tree_parent.name, event.region.name)
"#;

fn leaves(place: &Place) -> Vec<String> {
    let done = run(place.command("/usr/bin/python3").args(["-c", LEAVES, "out/traces.otf2"]));
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:#?}");
    done.stdout.lines().map(str::to_owned).collect()
}

/// The policies, and by which part of a device's joules the figures of a node and of the trace of all nodes may differ. Static
/// joules are watts times seconds, and each node has measured the rate of its own clock, for 50 ms or less and perhaps on a busy
/// machine, while the trace has one rate.
const POLICIES: [(&str, f64); 2] = [("time_sliced", 0.0), ("active", 1e-4)];

/// Checks that `ampere attribute` on the trace computes the figures of the nodes' summaries.
fn assert_figures(place: &Place, directories: &[&str], (policy, tolerance): (&str, f64)) {
    let summaries = directories.iter().map(|directory| place.summary(directory));
    let of_nodes: Vec<BTreeMap<String, f64>> = summaries.map(|summary| figures(&summary)).collect();
    let of_trace = figures(&attribute(&place.path("out/traces.otf2"), &["--policy", policy]));
    assert!(of_nodes.iter().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>() == of_trace.keys().collect());
    for of_node in of_nodes {
        let totals = of_node.iter().filter(|(name, _)| name.ends_with(" total"));
        let allowed = tolerance * totals.map(|(_, joules)| *joules).fold(0.0, f64::max);
        for (name, figure) in of_node.iter().filter(|(name, _)| name.contains("joules")) {
            let other = of_trace[name];
            let is_same = relative(*figure, other) < 1e-12 || (figure - other).abs() <= allowed;
            assert!(is_same, "{policy} {name}: {figure} and {other}");
        }
    }
}

#[test]
fn the_nodes_of_a_job_write_one_archive() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    skip_unless!(has_python_otf2(), "no python3-otf2");
    for policy in POLICIES {
        let place = Place::new();
        let (running, _) = on_two_nodes(&place, policy.0);
        place.write("go", "");
        let done = running.wait();
        assert_eq!(done.code, 0, "{done:#?}");
        place.no_process_left();
        let left: Vec<_> =
            std::fs::read_dir(place.path("out/node-b")).expect("its directory").flatten().collect();
        let mut left: Vec<_> =
            left.iter().map(|entry| entry.file_name().into_string().expect("a name")).collect();
        left.sort();
        assert_eq!(left, ["report.html", "summary.json", "summary.txt"], "its trace is in the run's");

        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let expected = [
            format!("{own} both"),
            "node-b second_alone".to_owned(),
            format!("{own} first_alone"),
            "node-b both".to_owned(),
        ];
        let leaves = leaves(&place);
        let functions: Vec<&String> = leaves.iter().filter(|line| !line.ends_with(" main")).collect();
        assert_eq!(functions, expected.iter().collect::<Vec<_>>(), "{leaves:?}");
        assert_eq!(leaves.len(), 6);
        let printed = run(place.command("otf2-print").arg("out/traces.otf2"));
        assert_eq!((printed.code, printed.stderr.as_str()), (0, ""), "{printed:#?}");

        assert_whole(&place);
        assert_figures(&place, &["out"], policy);
        let replayed = run(&mut place.ampere(["replay", "out/traces.otf2", "--speed", "max", "-o", "again"]));
        assert_eq!(replayed.code, 0, "{replayed:#?}");
        assert_same_figures(&place.summary("again"), &attribute(&place.path("out/traces.otf2"), &[]));
        run(&mut place.ampere(["report", "out"])).said_nothing();
    }
}

/// The surviving node's archive is complete, and `ampere report` adds what can be recovered of the killed one.
#[test]
fn a_node_that_is_killed_is_added_later() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    skip_unless!(has_python_otf2(), "no python3-otf2");
    for policy in POLICIES {
        let place = Place::new();
        let (running, second) = on_two_nodes(&place, policy.0);
        let collector = announced(&place.path("out/node-b")).expect("it runs");
        until("its events are read", || events(&place.path("out/node-b")) > 0);
        // While the collector is stopped, it cannot notice that the program has ended, and write the results.
        collector.signal(Signal::STOP);
        for word in ["--supervise", &second] {
            let processes = place.processes().into_iter().filter(|(_, command)| command.contains(word));
            let wanted = processes.filter(|(_, command)| !command.contains("sh -c"));
            wanted.for_each(|(pid, _)| kill(pid));
        }
        collector.kill();
        ["go", "2", "4"].iter().for_each(|mark| drop(place.write(mark, "")));
        let done = running.wait();
        assert_eq!(done.code, 0, "{done:#?}");
        assert!(leaves(&place).len() == 3, "{:?}", leaves(&place));
        assert_figures(&place, &["out"], policy);

        let there = format!("{} report out", artifact("ampere").display());
        let there = place.on_another_node("node-b", &there);
        let report = run(place.command("sh").args(["-c", &there]).current_dir(place.path("")));
        assert_eq!(report.code, 0, "{report:#?}");
        report.said_once(&["out/node-b", "the run was interrupted; its results have now been recovered"]);
        assert!(leaves(&place).iter().any(|line| line == "node-b main"), "{:?}", leaves(&place));
        assert!(!place.path("out/node-b/traces.otf2").exists());
        assert_whole(&place);
        assert_figures(&place, &["out"], policy);
    }
}
