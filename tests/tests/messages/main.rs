//! Messages and collectives of an unmodified MPI program in ampere's trace, as python3-otf2 reads them.

mod groups;
mod neighbours;
mod requests;
mod windows;

use ampere_tests::jobs::Place;
use ampere_tests::runs::{
    attribute, compile, has_python_otf2, json, may_mount, number, on_path, parse, succeed,
};
use ampere_tests::skip_unless;
use serde_json::json;
use std::path::Path;
use std::process::Command;

const EXCHANGE: &str = r#"
#include <mpi.h>
int main(int c, char **v) {
    int rank, size, counts[4] = {1, 2, 3, 4}, places[4] = {0, 1, 3, 6};
    double out[16] = {0}, in[64];
    MPI_Comm half;
    MPI_Status status;
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < 10; i++) {
        if (rank == 0) MPI_Send(out, 3 + i, MPI_DOUBLE, 1, 40 + i, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(in, 64, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, i % 2 ? &status : MPI_STATUS_IGNORE);
        if (rank == 1 && i % 2 && (status.MPI_SOURCE != 0 || status.MPI_TAG != 40 + i)) MPI_Abort(MPI_COMM_WORLD, 3);
        MPI_Sendrecv(out, 1, MPI_INT, next, 7, in, 1, MPI_INT, before, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(out, 1, MPI_INT, rank ? MPI_PROC_NULL : 3, 8, in, 1, MPI_INT, rank == 3 ? 0 : MPI_PROC_NULL, 8, MPI_COMM_WORLD, &status);
        if (rank < 2) MPI_Ssend(out, 2, MPI_CHAR, 0, 9, half);
        else MPI_Recv(in, 2, MPI_CHAR, 1, 9, half, MPI_STATUS_IGNORE);
        MPI_Bcast(out, 8, MPI_DOUBLE, 2, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, in, 8, MPI_DOUBLE, MPI_SUM, half);
        MPI_Gatherv(out, rank + 1, MPI_INT, in, counts, places, MPI_INT, 1, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_SELF);
    }
    MPI_Comm_free(&half);
    /* Its handle may be the former one of half. */
    MPI_Comm_dup(MPI_COMM_WORLD, &half);
    MPI_Barrier(half);
    MPI_Finalize();
    return 0;
}
"#;

/// Lists messages by sender and receiver, and collectives by their operation. Checks that each event lies in its MPI call, and
/// that messages between two ranks are received in the order of sending. No message may be received before it was sent, but the
/// clocks may differ by the given number of seconds.
const READ: &str = r#"
import collections, json, otf2, sys
E = otf2.events
sent, received = collections.defaultdict(list), collections.defaultdict(list)
collectives, stacks, last, begun = collections.Counter(), collections.defaultdict(list), {}, set()
with otf2.reader.open(sys.argv[1]) as trace:
    apart = float(sys.argv[2]) * trace.timer_resolution
    def members(comm, rank):
        group = comm.group
        if group.group_type == otf2.GroupType.COMM_SELF: return [rank]
        return [int(location.group.name.split()[-1]) for location in group.members]
    for location, event in trace.events:
        if isinstance(event, E.Metric): continue
        rank, stack = int(location.group.name.split()[-1]), stacks[location]
        assert event.time >= last.get(location, 0)
        last[location] = event.time
        if isinstance(event, E.Enter): stack.append(event.region.name)
        elif isinstance(event, E.Leave): assert stack.pop() == event.region.name
        elif isinstance(event, E.MpiSend):
            assert stack[-1] in ('MPI_Send', 'MPI_Ssend', 'MPI_Sendrecv'), stack
            key = (rank, members(event.communicator, rank)[event.receiver])
            sent[key].append((event.msg_tag, event.msg_length, event.time))
        elif isinstance(event, E.MpiRecv):
            assert stack[-1] in ('MPI_Recv', 'MPI_Sendrecv'), stack
            key = (members(event.communicator, rank)[event.sender], rank)
            received[key].append((event.msg_tag, event.msg_length, event.time))
        elif isinstance(event, E.MpiCollectiveBegin): begun.add(location)
        elif isinstance(event, E.MpiCollectiveEnd):
            begun.remove(location)
            root = '' if event.root == 0xffffffff else f' {event.root}'
            what = str(event.collective_op).split('.')[-1] + root + f' {members(event.communicator, rank)}'
            collectives[f'{stack[-1]} {what} {event.size_sent} {event.size_received} on {rank}'] += 1
        else: raise Exception(event)
assert not begun and not any(stacks.values())
assert sent.keys() == received.keys(), (sent.keys(), received.keys())
for key in sent:
    assert [m[:2] for m in sent[key]] == [m[:2] for m in received[key]], key
    assert all(s[2] < r[2] + apart for s, r in zip(sent[key], received[key])), key
sizes = {f'{a} to {b}': [sorted(set((m[0], m[1]) for m in all)), len(all)] for (a, b), all in sent.items()}
print(json.dumps({'messages': sizes, 'collectives': collectives}))
"#;

fn messages_of(mpi: (&str, &[&str])) {
    let (compiler, launcher) = mpi;
    skip_unless!(has_python_otf2(), "no python3-otf2");
    skip_unless!(on_path(compiler) && on_path(launcher[0]), "no {compiler} on the PATH");
    let place = Place::new();
    let program = compile(&place, &[compiler, "-O1"], "exchange", EXCHANGE);
    let output = place.path("out");
    let mut run = place.ampere(["run", "-o"]);
    succeed(run.arg(&output).arg("--").args(launcher).args(["-n", "4"]).arg(program));
    let trace = output.join("traces.otf2");
    check(&trace, "0");
    let summary = json(&output.join("summary.json"));
    assert_eq!(
        (number(&summary["quality"], "dropped_records"), &summary["run"]["complete"]),
        (0.0, &json!(true))
    );
    // The figures are computed from the same events.
    let again = attribute(&trace, &[]);
    assert_eq!(again["devices"][0]["total_joules"], summary["devices"][0]["total_joules"]);
    place.assert_clean();
}

/// Checks the trace of the program. `apart` is the number of seconds by which clocks may differ.
fn check(trace: &Path, apart: &str) {
    let read = succeed(Command::new("/usr/bin/python3").args(["-c", READ]).arg(trace).arg(apart));
    let read = parse(read.stdout).unwrap();
    // For each pair of ranks: the (tag, bytes) pairs, then the number of messages. In the communicator `half`, ranks are in
    // reverse order: 3, 1 and 2, 0.
    let long: Vec<_> = (0..10).map(|i| json!([40 + i, 8 * (3 + i)])).collect();
    let first = [json!([7, 4])].into_iter().chain(long).collect::<Vec<_>>();
    let expected = json!({
        "0 to 1": [first, 20],
        "1 to 2": [[[7, 4]], 10],
        "2 to 3": [[[7, 4]], 10],
        "3 to 0": [[[7, 4]], 10],
        "0 to 3": [[[8, 4]], 10],
        "0 to 2": [[[9, 2]], 10],
        "1 to 3": [[[9, 2]], 10],
    });
    assert_eq!(read["messages"], expected);
    let mut collectives = serde_json::Map::new();
    for rank in 0..4 {
        let half = if rank % 2 == 0 { "[2, 0]" } else { "[3, 1]" };
        let (given, all) = (if rank == 2 { 4 * 64 } else { 0 }, "[0, 1, 2, 3]");
        let gathered = if rank == 1 { 40 } else { 0 };
        let mut expect = |what: String, count| collectives.insert(format!("{what} on {rank}"), json!(count));
        expect(format!("MPI_Bcast BCAST 2 {all} {given} 64"), 10);
        expect(format!("MPI_Allreduce ALLREDUCE {half} 64 64"), 10);
        expect(format!("MPI_Gatherv GATHERV 1 {all} {} {gathered}", 4 * (rank + 1)), 10);
        expect(format!("MPI_Barrier BARRIER [{rank}] 0 0"), 10);
        expect(format!("MPI_Barrier BARRIER {all} 0 0"), 1);
        expect(format!("MPI_Comm_split CREATE_HANDLE {all} 0 0"), 1);
        expect(format!("MPI_Comm_dup CREATE_HANDLE {all} 0 0"), 1);
        expect(format!("MPI_Finalize DESTROY_HANDLE {all} 0 0"), 1);
    }
    assert_eq!(read["collectives"].as_object(), Some(&collectives));
}

#[test]
fn messages_and_collectives_under_open_mpi() {
    messages_of(("mpicc.openmpi", &["mpirun.openmpi", "--oversubscribe"]));
}

#[test]
fn messages_and_collectives_under_mpich() {
    messages_of(("mpicc.mpich", &["mpirun.mpich"]));
}

/// Two ranks are on another node. The common archive has the same events as one from a single node.
#[test]
fn messages_and_collectives_of_two_nodes() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    skip_unless!(has_python_otf2(), "no python3-otf2");
    skip_unless!(on_path("mpicc.openmpi"), "no mpicc.openmpi on the PATH");
    let place = Place::new();
    let program = compile(&place, &["mpicc.openmpi", "-O1"], "exchange", EXCHANGE);
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut run =
        place.ampere(["run", "-o", "out", "--", "mpirun.openmpi", "--mca", "plm", "rsh", "-n", "4"]);
    run.arg("--host").arg(format!("{own}:2,node-b:2"));
    run.args(["--mca", "plm_rsh_agent"]).arg(place.ssh()).arg(program);
    succeed(&mut run);
    place.no_process_left();
    succeed(&mut place.ampere(["report", "out"]));
    check(&place.path("out/traces.otf2"), "1e-3");
    let printed = succeed(Command::new("otf2-print").arg("-G").arg(place.path("out/traces.otf2")));
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(
        printed.contains("4 Members: 0 (\"Master thread\" <0>), 1 (") && !printed.contains("INVALID"),
        "{printed}"
    );
}

/// Without a trace, nothing is recorded that only a trace would have.
#[test]
fn without_a_trace_there_are_no_messages() {
    skip_unless!(on_path("mpicc.openmpi"), "no mpicc.openmpi on the PATH");
    let place = Place::new();
    let program = compile(&place, &["mpicc.openmpi", "-O1"], "exchange", EXCHANGE);
    let output = place.path("out");
    let mut run = place.ampere(["run", "-o"]);
    run.arg(&output).arg("--").args(["mpirun.openmpi", "--oversubscribe", "-n", "4"]).arg(program);
    succeed(run.env("AMPERE_TRACE", "off"));
    let summary = json(&output.join("summary.json"));
    assert_eq!(summary["run"]["complete"], true);
    assert!(!output.join("traces.otf2").exists());
}
