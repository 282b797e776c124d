//! Messages, collectives and requests: the number of each kind is that in Score-P's own trace of the same run.

use super::*;
use ampere_tests::root;
use ampere_tests::runs::{Frames, has_python_otf2, may_mount, parse, relative, waits};

const EXCHANGE: &str = r#"
#include <mpi.h>
#include <stdio.h>
static double work(int n) { volatile double s = 0; for (int i = 0; i < n; i++) s += 1.0 / (1 + i); return s; }
int main(int c, char **v) {
    int rank, size, flag; double out[8] = {0}, in[64];
    MPI_Comm half, copy, self;
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_dup(half, &copy);
    MPI_Comm_dup(MPI_COMM_SELF, &self);
    for (int i = 0; i < 5; i++) {
        if (rank == 0) MPI_Send(out, 3 + i, MPI_DOUBLE, 1, 40 + i, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(in, 64, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, i % 2 ? &status : MPI_STATUS_IGNORE);
        MPI_Sendrecv(out, 1, MPI_DOUBLE, next, 7, in, 1, MPI_DOUBLE, before, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Irecv(in, 8, MPI_DOUBLE, before, 9, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, 8, MPI_DOUBLE, next, 9, MPI_COMM_WORLD, &requests[1]);
        MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
        work(200000);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Bcast(out, 8, MPI_DOUBLE, 2, MPI_COMM_WORLD);
        MPI_Allreduce(out, in, 8, MPI_DOUBLE, MPI_SUM, half);
        MPI_Gather(out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, 1, copy);
        MPI_Alltoall(out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, MPI_COMM_WORLD);
        MPI_Reduce_scatter_block(out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Scan(out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Barrier(self);
        MPI_Iallreduce(out, in, 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    }
    MPI_Irecv(in, 1, MPI_DOUBLE, before, 99, MPI_COMM_WORLD, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Comm_free(&copy);
#ifdef _OPENMP
#pragma omp parallel num_threads(2)
    { work(200000); }
#endif
    MPI_Finalize();
    return 0;
}
"#;

/// Events that ampere's trace leaves out, as the book explains.
const LEFT_OUT: [&str; 3] = ["THREAD_TEAM_BEGIN", "THREAD_TEAM_END", "METRIC"];

/// Returns the events by kind, location, peer, tag, bytes, and so on, without their times and references, from lines of
/// otf2-print.
fn events(trace: &Path) -> BTreeMap<String, usize> {
    let printed = text(&succeed(Command::new("otf2-print").arg(trace)).stdout);
    let mut events = BTreeMap::new();
    for line in printed.lines().skip_while(|line| !line.starts_with("---")).skip(1) {
        let mut words = line.split_whitespace();
        let (Some(kind), Some(location)) = (words.next(), words.next()) else { continue };
        if LEFT_OUT.contains(&kind) || !location.chars().all(|digit| digit.is_ascii_digit()) {
            continue;
        }
        // The strings of a program's name and arguments have reference numbers, which differ between the two traces.
        let is_number = |word: &&str| kind.starts_with("PROGRAM") && word.starts_with('<');
        let what: Vec<&str> = words.skip(1).filter(|word| !is_number(word)).collect();
        *events.entry(format!("{location} {kind} {}", without_names(&what.join(" ")))).or_insert(0) += 1;
    }
    events
}

/// Removes the fields with communicators and regions, whose names and references differ between the two traces.
fn without_names(what: &str) -> String {
    let mut kept = String::new();
    for field in what.split(", ") {
        let named = field.starts_with("Communicator:") || field.starts_with("Region:");
        if !named {
            kept += field;
            kept += ", ";
        }
    }
    kept
}

fn messages_are_those_of_score_p(openmp: bool) {
    skip_unless!(on_path("scorep") && on_path("mpirun") && on_path("otf2-print"), "no scorep on the PATH");
    let place = Place::new();
    let mut compiler = vec!["scorep", "mpicc", "-O1"];
    if openmp {
        compiler.push("-fopenmp");
    }
    let program = compile(&place, &compiler, "exchange", EXCHANGE);
    let theirs = place.path("scorep");
    let mut command = place.command("mpirun");
    command
        .args(["--oversubscribe", "-n", "4"])
        .arg(&program)
        .env("SCOREP_SUBSTRATE_PLUGINS", "ampere")
        .env("LD_LIBRARY_PATH", artifact("libscorep_substrate_ampere.so").parent().unwrap())
        .env("AMPERE_OUTPUT", place.path("out"))
        .env("SCOREP_ENABLE_PROFILING", "false")
        .env("SCOREP_ENABLE_TRACING", "true")
        .env("SCOREP_EXPERIMENT_DIRECTORY", &theirs);
    succeed(&mut command);
    assert_same_events(&place.path("out/traces.otf2"), &theirs.join("traces.otf2"));
    place.assert_clean();
}

/// One rank is late before each kind of operation. Both traces have the same waits, of the same functions.
#[test]
fn waiting_is_that_in_score_ps_own_trace() {
    skip_unless!(on_path("scorep") && on_path("mpirun"), "no scorep on the PATH");
    let place = Place::new();
    let source = include_str!("../../programs/mpi_delays.c");
    let program = compile(&place, &["scorep", "mpicc", "-O1"], "delays", source);
    let mut command = place.command("mpirun");
    command.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "3"]).arg(program);
    let trace = ask_for_metrics(&mut command, &place, "rocm_smi:::*");
    simulate(&mut command, "watts=300");
    // Score-P's trace has no estimate.
    succeed(command.env("AMPERE_COUNTERS", "rocm_smi").env("SCOREP_SUBSTRATE_PLUGINS", "ampere"));
    let [ours, theirs] =
        [place.path("out/traces.otf2"), trace].map(|trace| attribute(&trace, &["--policy", "time_sliced"]));
    let [own, expected] = [&ours, &theirs].map(|summary| &summary["run"]["waiting"]);
    for key in ["matched_messages", "unmatched_messages"] {
        assert_eq!(own[key], expected[key], "{key}: {own}\n{expected}");
    }
    let kinds = own["kinds"].as_object().expect("kinds");
    for (kind, joules) in kinds {
        let (joules, expected) = (joules.as_f64().expect("joules"), number(&expected["kinds"], kind));
        assert!(joules > 10.0 && relative(joules, expected) < 0.01, "{kind}: {joules} J, not {expected} J");
    }
    let theirs = waits(&theirs, Frames::All);
    let mut causes = waits(&ours, Frames::All);
    // Score-P passes on no events from which the waits for windows or for neighbours follow.
    let unknown = [
        "slow_to_fence",
        "slow_to_post",
        "slow_to_complete",
        "slow_neighbour",
        "slow_in_graph",
        "slow_in_old_graph",
        "slow_to_exchange",
        "slow_to_restart",
    ];
    let is_unknown = |name: &str| unknown.contains(&name);
    causes.retain(|(_, function), _| function.starts_with("slow_") && !is_unknown(function));
    assert_eq!(causes.len(), 14, "{causes:?}");
    for (of, [.., caused]) in causes {
        let expected = theirs[&of][2];
        assert!(caused > 10.0 && relative(caused, expected) < 0.01, "{of:?}: {caused} J, not {expected} J");
    }
    place.assert_clean();
}

fn assert_same_events(ours: &Path, theirs: &Path) {
    let (counted, expected) = (events(ours), events(theirs));
    let differ: Vec<_> = expected
        .keys()
        .chain(counted.keys())
        .filter(|event| counted.get(*event) != expected.get(*event))
        .map(|event| format!("{event}: {:?}, not {:?}", counted.get(event), expected.get(event)))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    let of_kind = |kind: &str| -> usize {
        counted.iter().filter(|(event, _)| event.contains(kind)).map(|(_, count)| count).sum()
    };
    assert_eq!((of_kind(" MPI_SEND "), of_kind(" MPI_ISEND ")), (5 + 20, 20));
    assert!(of_kind(" MPI_COLLECTIVE_END ") > 7 * 20);
}

/// Score-P collects the events of all nodes in one archive, and ampere joins those of the nodes.
#[test]
fn messages_between_nodes() {
    skip_unless!(on_path("scorep") && on_path("mpirun") && on_path("otf2-print"), "no scorep on the PATH");
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    let place = Place::new();
    let program = compile(&place, &["scorep", "mpicc", "-O1"], "exchange", EXCHANGE);
    let theirs = place.path("scorep");
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut command = place.ampere(["run", "-o", "out", "--", "mpirun", "--mca", "plm", "rsh", "-n", "4"]);
    command.arg("--host").arg(format!("{own}:2,node-b:2")).args(["--mca", "plm_rsh_agent"]).arg(place.ssh());
    let variables = [
        ("SCOREP_ENABLE_PROFILING", "false".into()),
        ("SCOREP_ENABLE_TRACING", "true".into()),
        ("SCOREP_EXPERIMENT_DIRECTORY", theirs.clone().into_os_string()),
    ];
    for (name, value) in variables {
        command.args(["-x", name]).env(name, value);
    }
    succeed(command.arg(&program));
    place.no_process_left();
    succeed(&mut place.ampere(["report", "out"]));
    assert_same_events(&place.path("out/traces.otf2"), &theirs.join("traces.otf2"));
}

#[test]
fn messages_collectives_and_requests() {
    messages_are_those_of_score_p(false);
}

#[test]
fn messages_beside_threads() {
    messages_are_those_of_score_p(true);
}

/// The messages, requests and collectives of a program without Score-P are those that Score-P records of it.
#[test]
fn a_program_without_score_p_has_the_same_messages() {
    skip_unless!(on_path("scorep") && on_path("mpirun") && has_python_otf2(), "no scorep on the PATH");
    let place = Place::new();
    let source = std::fs::read_to_string(root().join("tests/programs/mpi_requests.c")).unwrap();
    // Score-P does not record messages that MPI_Mprobe has found.
    let options = ["mpicc", "-O1", "-w", "-DWITHOUT_MATCHED_PROBES"];
    let plain = compile(&place, &options, "plain", &source);
    let with_score_p = compile(&place, &[&["scorep"], &options[..]].concat(), "with_score_p", &source);
    let (ours, theirs) = (place.path("out"), place.path("scorep"));
    let launcher = ["mpirun", "--oversubscribe", "-n", "4"];
    succeed(place.ampere(["run", "-o"]).arg(&ours).arg("--").args(launcher).arg(plain));
    let mut command = place.command("mpirun");
    command.args(&launcher[1..]).arg(with_score_p).env("SCOREP_ENABLE_PROFILING", "false");
    command.env("SCOREP_ENABLE_TRACING", "true").env("SCOREP_EXPERIMENT_DIRECTORY", &theirs);
    succeed(&mut command);
    let [ours, theirs] = [ours, theirs].map(|of| {
        let read = root().join("tests/programs/read_messages.py");
        let read = succeed(Command::new("/usr/bin/python3").arg(read).arg(of.join("traces.otf2")));
        parse(read.stdout).unwrap()
    });
    assert_eq!(ours["messages"], theirs["messages"]);
    assert_eq!(ours["received"], theirs["received"]);
    let mut collectives = theirs["collectives"].clone();
    // In Score-P's trace, MPI_Init is a collective.
    let is_init = |what: &String| what.starts_with("CREATE_HANDLE");
    let map = collectives.as_object_mut().unwrap();
    let of_init: Vec<String> = map.keys().filter(|what| is_init(what)).cloned().collect();
    assert!(of_init.len() == 4 && of_init.iter().all(|what| map.remove(what) == Some(1.into())));
    assert_eq!(ours["collectives"], collectives);
    for what in ["MpiSend", "MpiRecv", "MpiIsend", "MpiIrecv", "MpiIrecvRequest", "MpiRequestCancelled"] {
        assert_eq!(ours["counts"][what], theirs["counts"][what], "{what}");
    }
}
