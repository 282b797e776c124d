//! Tests the energy that ranks use while they wait for each other in MPI, and which ranks caused the waits. Random traces are
//! compared with a slow and readable program that shares no code with ampere. Other programs have known delays.

use ampere_tests::jobs::Place;
use ampere_tests::random::setting;
use ampere_tests::runs::{
    Frames, assert_same_figures, attribute, has_python_otf2, list, may_sample, number, on_path, oracle,
    relative, succeed, text, waits,
};
use ampere_tests::stand_ins::with_rocm_smi;
use ampere_tests::{artifact, browser, skip_unless};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

fn reference(name: &str) -> PathBuf {
    oracle().with_file_name(name)
}

/// 100 traces; `AMPERE_ORACLE_TRACES=1000` makes more, `AMPERE_ORACLE_SEED=...` others.
#[test]
fn random_traces_have_the_waits_that_the_reference_finds() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    let (traces, seed) = (setting("AMPERE_ORACLE_TRACES", 100), setting("AMPERE_ORACLE_SEED", 1));
    let mut compare = Command::new("/usr/bin/python3");
    compare.arg("-B").arg(reference("waiting_compare.py")).arg(artifact("ampere"));
    let output = succeed(compare.args([seed.to_string(), traces.to_string()]));
    println!("{}", text(&output.stdout));
}

#[test]
fn the_reference_agrees_with_figures_that_were_computed_by_hand() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    succeed(Command::new("/usr/bin/python3").arg("-B").arg(reference("waiting_tests.py")).arg("50"));
}

/// One rank is slow before each kind of operation, and the others wait for it.
const DELAYS: &str = include_str!("../programs/mpi_delays.c");

/// `MPI` and the types of handles are defined for each interface.
const DELAYS_IN_FORTRAN: &str = "
program delays
  MPI
  integer :: rank, error, number = 0, total, sent(2) = 0, received(2)
  COMM :: line, graph
  REQUEST :: request
  logical :: is_periodic(1) = .false.
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [3], is_periodic, .false., line, error)
  call MPI_Graph_create(MPI_COMM_WORLD, 3, [1, 3, 4], [1, 0, 2, 1], .false., graph, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 0) then
    call slow_to_send
    call MPI_Send(number, 1, MPI_INTEGER, 1, 1, MPI_COMM_WORLD, error)
  else if (rank == 1) then
    call MPI_Recv(number, 1, MPI_INTEGER, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  end if
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 2) call slow_to_allreduce
  call MPI_Allreduce(number, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 2) call slow_neighbour
  call MPI_Neighbor_allgather(number, 1, MPI_INTEGER, received, 1, MPI_INTEGER, line, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 2) call slow_to_exchange
  call MPI_Ineighbor_allgather(number, 1, MPI_INTEGER, received, 1, MPI_INTEGER, line, request, error)
  call MPI_Wait(request, MPI_STATUS_IGNORE, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 1) call slow_in_graph
  call MPI_Neighbor_alltoall(sent, 1, MPI_INTEGER, received, 1, MPI_INTEGER, graph, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Finalize(error)
end program
subroutine slow_to_send
  call sleep(1)
end subroutine
subroutine slow_to_allreduce
  call sleep(1)
end subroutine
subroutine slow_neighbour
  call sleep(1)
end subroutine
subroutine slow_to_exchange
  call sleep(1)
end subroutine
subroutine slow_in_graph
  call sleep(1)
end subroutine
";

const WORK_IN_FORTRAN: &str = "
subroutine work_for_a_second
  integer(8) :: begun, now, rate
  call system_clock(begun, rate)
  do
    call system_clock(now)
    if (now - begun >= rate) exit
  end do
end subroutine
";

/// What replaces the placeholders MPI, COMM and REQUEST; in the old interfaces, handles are integers.
const INTERFACES: [[&str; 3]; 3] = [
    ["MPI=use mpi", "COMM=integer", "REQUEST=integer"],
    ["MPI=include 'mpif.h'", "COMM=integer", "REQUEST=integer"],
    ["MPI=use mpi_f08", "COMM=type(MPI_Comm)", "REQUEST=type(MPI_Request)"],
];

const RANKS: usize = 3;
const WATTS: f64 = 300.0;
/// The shortest delay, in seconds.
const DELAY: f64 = 0.4;

/// The rank that is slow before each operation, and the function that it executes then.
const SLOW: [(usize, &str); 22] = [
    (0, "slow_to_send"),
    (0, "slow_to_receive"),
    (2, "slow_to_barrier"),
    (1, "slow_to_allreduce"),
    (2, "slow_to_bcast"),
    (1, "slow_to_reduce"),
    (0, "slow_in_chain"),
    (1, "slow_in_ring"),
    (0, "slow_master"),
    (2, "slow_to_be_found"),
    (0, "slow_in_part"),
    (1, "slow_to_start"),
    (1, "slow_to_fence"),
    (0, "slow_to_post"),
    (1, "slow_to_complete"),
    (2, "slow_neighbour"),
    (0, "slow_in_graph"),
    (1, "slow_in_old_graph"),
    (2, "slow_to_exchange"),
    (0, "slow_to_restart"),
    (2, "slow_to_allgatherv"),
    (0, "slow_to_alltoallw"),
];
const SLOW_IN_FORTRAN: [(usize, &str); 5] = [
    (0, "slow_to_send"),
    (2, "slow_to_allreduce"),
    (2, "slow_neighbour"),
    (2, "slow_to_exchange"),
    (1, "slow_in_graph"),
];
/// On a busy machine a rank may leave a barrier so late that it waits for less than the delay. Then the program runs again.
const RUNS_MAX: usize = 6;

/// Number of messages in the trace. 18 of them are the data of collectives among neighbours, and six are from MPI_Win_post to
/// MPI_Win_start and from MPI_Win_complete to MPI_Win_wait.
const MESSAGES: f64 = 34.0;
/// 12 of these messages are the data of collectives among neighbours.
const MESSAGES_IN_FORTRAN: f64 = 13.0;
const KINDS: [&str; 6] = ["late sender", "late receiver", "barrier", "n-to-n", "1-to-n", "n-to-1"];

/// The compiler's options, which decide how the functions of a program are known.
const INSTRUMENTED: &[&str] = &["-finstrument-functions"];
const SAMPLED: &[&str] = &["-DBUSY", "-O0"];

/// A name, and the words of a command whose next argument is the number of ranks.
type Mpi = (&'static str, &'static [&'static str]);
const OPEN_MPI: Mpi =
    ("openmpi", &["mpirun.openmpi", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n"]);
const MPICH: Mpi = ("mpich", &["mpirun.mpich", "-n"]);

#[test]
fn delays_of_each_kind_cause_the_joules_that_others_use_waiting_for_them() {
    delays_cause_waiting(OPEN_MPI, ("mpicc", "delays.c", DELAYS), &SLOW, INSTRUMENTED);
}

/// The functions are known by samples of stacks, the first of which may come late if the rank has no CPU.
#[test]
fn delays_in_functions_that_are_only_sampled_cause_waiting() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let busy = DELAYS_IN_FORTRAN.replace("call sleep(1)", "call work_for_a_second");
    let fortran = in_fortran(&(busy + WORK_IN_FORTRAN), INTERFACES[0]);
    for mpi in [OPEN_MPI, MPICH] {
        delays_cause_waiting(mpi, ("mpicc", "delays.c", DELAYS), &SLOW, SAMPLED);
        delays_cause_waiting(mpi, ("mpif90", "delays.f90", &fortran), &SLOW_IN_FORTRAN, SAMPLED);
    }
}

#[test]
fn delays_of_each_kind_cause_waiting_under_mpich() {
    delays_cause_waiting(MPICH, ("mpicc", "delays.c", DELAYS), &SLOW, INSTRUMENTED);
}

#[test]
fn delays_of_a_program_in_fortran_cause_waiting() {
    for (mpi, interface) in [OPEN_MPI, MPICH].into_iter().flat_map(|mpi| INTERFACES.map(|of| (mpi, of))) {
        let source = in_fortran(DELAYS_IN_FORTRAN, interface);
        delays_cause_waiting(mpi, ("mpif90", "delays.f90", &source), &SLOW_IN_FORTRAN, INSTRUMENTED);
    }
}

/// Returns the program for this interface.
fn in_fortran(source: &str, interface: [&str; 3]) -> String {
    let names = interface.iter().filter_map(|of| of.split_once('='));
    names.fold(source.to_owned(), |source, (name, meaning)| {
        source.replace(&format!("  {name}"), &format!("  {meaning}"))
    })
}

/// The groups are ranks 0 and 1, and rank 2.
const DELAYS_BETWEEN_GROUPS: &str = "
#include <mpi.h>
#include <time.h>
#define QUIET __attribute__((no_instrument_function, noinline))
QUIET static void nap(long ms) { struct timespec t = {0, ms * 1000000}; while (nanosleep(&t, &t)) {} }
void slow_to_send(void) { nap(400); }
void slow_to_barrier(void) { nap(400); }
void slow_to_allreduce(void) { nap(400); }
void slow_root(void) { nap(400); }
void slow_to_reduce(void) { nap(400); }
static int rank, number, all[8];
QUIET static void together(void) { MPI_Barrier(MPI_COMM_WORLD); }
QUIET static void late(int who, void (*slow)(void)) { together(); if (rank == who) { nap(50); slow(); } }
int main(int c, char **v) {
    MPI_Comm half, between;
    MPI_Init(&c, &v);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 2 ? 0 : 2, 1, &between);
    int nobody = MPI_PROC_NULL;
    late(2, slow_to_send);
    if (rank == 2) MPI_Send(&number, 1, MPI_INT, 1, 1, between);
    if (rank == 1) MPI_Recv(&number, 1, MPI_INT, 0, 1, between, MPI_STATUS_IGNORE);
    late(1, slow_to_barrier);
    MPI_Barrier(between);
    late(2, slow_to_allreduce);
    MPI_Allreduce(&number, all, 1, MPI_INT, MPI_SUM, between);
    late(0, slow_root);
    MPI_Bcast(&number, 1, MPI_INT, rank == 0 ? MPI_ROOT : rank == 1 ? nobody : 0, between);
    late(0, slow_to_reduce);
    MPI_Reduce(&number, all, 1, MPI_INT, MPI_SUM, rank == 2 ? MPI_ROOT : 0, between);
    together();
    return MPI_Finalize();
}
";

#[test]
fn delays_between_groups_cause_waiting() {
    let slow = [
        (2, "slow_to_send"),
        (1, "slow_to_barrier"),
        (2, "slow_to_allreduce"),
        (0, "slow_root"),
        (0, "slow_to_reduce"),
    ];
    for mpi in [OPEN_MPI, MPICH] {
        delays_cause_waiting(mpi, ("mpicc", "groups.c", DELAYS_BETWEEN_GROUPS), &slow, INSTRUMENTED);
    }
}

/// Each delay is waited for by all other ranks, each of which is charged a third of the device.
fn delays_cause_waiting(
    (mpi, launch): Mpi,
    (compiler, file, source): (&str, &str, &str),
    slow: &[(usize, &str)],
    options: &[&str],
) {
    let (compiler, launcher) = (format!("{compiler}.{mpi}"), launch[0]);
    skip_unless!(on_path(&compiler) && on_path(launcher), "no {compiler} on the PATH");
    let place = Place::new();
    let program = place.path("delays");
    let mut compile = place.command(&compiler);
    succeed(compile.arg("-O1").args(options).arg("-o").arg(&program).arg(place.write(file, source)));
    let is_sampled = options == SAMPLED;
    let mut unseen: Vec<(usize, &str)> = slow.to_vec();
    let (messages, kinds) = match file {
        "delays.f90" => (MESSAGES_IN_FORTRAN, &["late sender", "n-to-n"][..]),
        "groups.c" => (1.0, &["late sender", "barrier", "n-to-n", "1-to-n", "n-to-1"][..]),
        _ => (MESSAGES, &KINDS[..]),
    };
    let mut unseen_kinds: Vec<&str> = kinds.to_vec();
    for number in 0..RUNS_MAX {
        let output = format!("out{number}");
        let mut run = place.ampere_run(&output, launch.iter().copied());
        run.arg(RANKS.to_string()).arg(&program);
        if is_sampled {
            run.env("AMPERE_SAMPLE", "1ms");
        }
        succeed(with_rocm_smi(&mut run, &format!("watts={WATTS}")));
        let trace = place.path(&output).join("traces.otf2");
        let summary = attribute(&trace, &["--policy", "time_sliced"]);
        check_sums(&summary, messages);
        unseen_kinds.retain(|kind| joules_of_kind(&summary, kind) < 0.5 * DELAY * WATTS / RANKS as f64);
        let rows = waits(&summary, Frames::All);
        unseen.retain(|(rank, function)| {
            let key = |suffix| (format!("MPI Rank {rank}"), format!("{function}{suffix}"));
            let row = rows.get(&key("")).or_else(|| rows.get(&key("_")));
            assert!(row.is_some() || is_sampled, "{function} has no row");
            !row.is_some_and(|row| was_seen(function, *row, is_sampled))
        });
        if unseen.is_empty() && unseen_kinds.is_empty() {
            break;
        }
    }
    assert!(unseen.is_empty(), "in {RUNS_MAX} runs, others waited for less than the delay of {unseen:?}");
    assert!(
        unseen_kinds.is_empty(),
        "in {RUNS_MAX} runs, others waited for less than half of {unseen_kinds:?}"
    );
    place.assert_clean();
}

/// Checks the row of a function that is slow: its seconds, the joules that it used waiting, and those that others used waiting
/// for it. Returns whether the whole delay was seen, and others waited for all of it.
fn was_seen(function: &str, [seconds, waited, caused]: [f64; 3], is_sampled: bool) -> bool {
    let is_whole = seconds > 0.9 * DELAY;
    assert!((is_whole || is_sampled) && waited == 0.0, "{function}: {seconds} s, {waited} J");
    let joules = (RANKS - 1) as f64 * seconds * WATTS / RANKS as f64;
    assert!(caused < 1.02 * joules, "{function} caused {caused} J, and at most {joules} J are possible");
    println!("{function} caused {caused} J of {joules} J");
    is_whole && relative(caused, joules) <= 0.02
}

const MESSAGES_IN_RING: f64 = 600.0;
const RING: &str = "
#include <mpi.h>
#include <unistd.h>
int main(int c, char **v) {
    int rank, size, number = 0;
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 200; i++) {
        if (rank == 0 && i % 10 == 0) usleep(2000);
        if (rank == 0) MPI_Send(&number, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(&number, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank > 0) MPI_Send(&number, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
    }
    return MPI_Finalize();
}
";

/// Messages of a rank whose events end early, or are lost, are unmatched. They are counted, and nobody waits for them.
#[test]
fn messages_with_a_rank_whose_events_are_lost_are_counted_and_waiting_is_a_lower_bound() {
    let (compiler, (_, launch)) = ("mpicc.openmpi", OPEN_MPI);
    skip_unless!(on_path(compiler) && on_path(launch[0]), "no {compiler} on the PATH");
    let place = Place::new();
    let program = place.compile(compiler, "ring", RING, INSTRUMENTED);
    let mut run = place.ampere_run("out", launch.iter().copied());
    succeed(with_rocm_smi(run.arg(RANKS.to_string()).arg(&program), &format!("watts={WATTS}")));
    let [trace, events] = ["out/traces.otf2", "out/traces/1.evt"].map(|file| place.path(file));
    let whole = attribute(&trace, &[]);
    check_sums(&whole, MESSAGES_IN_RING);
    let messages =
        |of: &Value| ["matched_messages", "unmatched_messages"].map(|key| number(&of["run"]["waiting"], key));
    let joules = |of: &Value| number(&of["run"]["waiting"], "joules");

    let file = std::fs::OpenOptions::new().write(true).open(&events).expect("a file of events");
    file.set_len(file.metadata().expect("metadata").len() * 6 / 10).expect("a shorter file");
    let cut = attribute(&trace, &[]);
    let [matched, unmatched] = messages(&cut);
    assert!(unmatched > 0.0 && matched >= MESSAGES_IN_RING / 3.0, "{matched} and {unmatched}");
    assert_eq!(matched + unmatched, MESSAGES_IN_RING);
    assert!(joules(&cut) < joules(&whole), "{cut}");
    let mut shown = place.ampere(["attribute", "out/traces.otf2", "-o", "again"]);
    let shown = text(&succeed(shown.current_dir(place.path(""))).stdout);
    assert!(shown.contains("% of the messages are unmatched: waiting is a lower bound"), "{shown}");

    std::fs::remove_file(&events).expect("it was there");
    let lost = attribute(&trace, &[]);
    assert_eq!(messages(&lost), [MESSAGES_IN_RING / 3.0, MESSAGES_IN_RING * 2.0 / 3.0]);
    assert!(joules(&lost) < joules(&whole), "{lost}");
    place.assert_clean();
}

/// The results of a run have what `ampere attribute` finds in its trace, and show it.
#[test]
fn a_run_finds_at_its_end_what_ranks_used_waiting() {
    let (compiler, (_, launch)) = ("mpicc.openmpi", OPEN_MPI);
    skip_unless!(on_path(compiler) && on_path(launch[0]), "no {compiler} on the PATH");
    let place = Place::new();
    let program = place.compile(compiler, "delays", DELAYS, &["-finstrument-functions"]);
    for is_wanted in [true, false] {
        let output = format!("waits-{is_wanted}");
        let mut run = place.ampere_run(&output, launch.iter().copied());
        run.arg(RANKS.to_string()).arg(&program);
        if !is_wanted {
            run.env("AMPERE_WAITS", "off");
        }
        let done = succeed(with_rocm_smi(&mut run, &format!("watts={WATTS}")));
        let (own, directory) = (place.summary(&output), place.path(&output));
        let of_trace = attribute(&directory.join("traces.otf2"), &[]);
        assert_same_figures(&own, &of_trace);
        let is_in = |shown: &str| {
            let on_one_line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            // Most functions of the program sleep. On a busy machine, main may be the first cause.
            let causes = ["was caused by ", "the late rank was not on a CPU: it slept, or lacked a CPU"];
            on_one_line.contains("were used waiting in MPI")
                && causes.iter().any(|words| on_one_line.contains(words))
        };
        let printed = text(&done.stderr);
        let table = std::fs::read_to_string(directory.join("summary.txt")).expect("a summary");
        assert_eq!((is_in(&printed), is_in(&table)), (is_wanted, is_wanted), "{printed}\n{table}");
        assert_eq!(table.contains("what ranks waited for"), is_wanted, "{table}");
        let page = std::fs::read_to_string(directory.join("report.html")).expect("a page");
        assert_eq!(page.contains(") were used waiting in MPI"), is_wanted);
        if is_wanted {
            check_sums(&own, MESSAGES);
            let notes = own["run"]["notes"].to_string();
            assert!(!notes.contains("the trace lacks"), "{notes}");
            assert_eq!(own["run"]["waiting"], of_trace["run"]["waiting"]);
            assert_eq!(waits(&own, Frames::Own), waits(&of_trace, Frames::Own));
            check_page(&place, &output, &own["run"]["waiting"]);
            check_times(&place, &output, &own["run"]["waiting"]);
            let mut replay = place.command(artifact("ampere"));
            replay.arg("replay").arg(directory.join("traces.otf2")).args(["--speed", "max"]);
            succeed(replay.args(["--listen", "off", "-o"]).arg(place.path("again")));
            let again = place.summary("again");
            assert_eq!(again["run"]["waiting"], of_trace["run"]["waiting"]);
            assert_eq!(waits(&again, Frames::Own), waits(&of_trace, Frames::Own));
        } else {
            assert_eq!(own["run"]["waiting"], Value::Null);
        }
        place.assert_clean();
    }
}

/// Waiting is computed from the trace, which does not contain the estimate's watts; the summary must keep them.
#[test]
fn a_run_with_waiting_has_the_watts_of_its_estimate() {
    let (compiler, (_, launch)) = ("mpicc.openmpi", OPEN_MPI);
    skip_unless!(on_path(compiler) && on_path(launch[0]), "no {compiler} on the PATH");
    let place = Place::new();
    let program = place.compile(compiler, "delays", DELAYS, &["-finstrument-functions"]);
    let mut run = place.ampere_run("out", launch.iter().copied());
    run.arg(RANKS.to_string()).arg(&program).env("AMPERE_COUNTERS", "estimate");
    run.env("AMPERE_ESTIMATE_IDLE_WATTS", "50").env("AMPERE_ESTIMATE_WATTS_PER_CORE", "7");
    let done = succeed(&mut run);
    let summary = place.summary("out");
    assert_ne!(summary["run"]["waiting"], Value::Null);
    assert_eq!(
        summary["devices"][0]["estimate"],
        serde_json::json!({ "idle_watts": 50.0, "watts_per_core": 7.0 })
    );
    assert!(!text(&done.stderr).contains("set this node's watts"), "{}", text(&done.stderr));
    place.assert_clean();
}

/// Checks that the page shows the columns, the colour and the heat map, and that nothing is cut.
fn check_page(place: &Place, output: &str, waiting: &Value) {
    let pairs = &waiting["pairs"];
    assert_eq!(pairs["ranks"], Value::from(vec![1; RANKS]), "{pairs}");
    let pair = |waiting: usize, cause: usize| {
        let places = list(pairs, "waiting").iter().zip(list(pairs, "cause"));
        let mut all = places.zip(list(pairs, "joules"));
        all.find(|(of, _)| *of == (&waiting.into(), &cause.into())).and_then(|(_, joules)| joules.as_f64())
    };
    let all: f64 = list(pairs, "joules").iter().filter_map(Value::as_f64).sum();
    assert!(relative(all, number(waiting, "joules")) < 1e-8, "{waiting}");
    assert!(
        pair(1, 0) > pair(0, 0) && pair(2, 1) > pair(0, 0),
        "ranks 0 and 1 are late before operations of others: {pairs}"
    );
    if !browser::is_there() {
        return;
    }
    let url = format!("file://{}", place.path(output).join("report.html").display());
    for width in [400, 1200, 1600, 1900, 2500] {
        let shown = browser::shown(place, &url, width, None);
        let heads = shown["function_heads"].to_string();
        assert!(heads.contains("\"waited J\",\"caused J\""), "{heads}");
        assert_eq!(shown["recoloured"], true);
        let [label, whole] = [0, 1].map(|at| shown["waits"][at].as_str().unwrap_or_default());
        assert!(label.starts_with("Joules that 3 ranks or groups of ranks used waiting"), "{label}");
        assert!(whole.contains(" J were used waiting in MPI. "), "{whole}");
        let cell = shown["cell"].as_str().unwrap_or_default();
        assert!(
            cell.starts_with("rank 0 waited for rank 1:") && cell.ends_with(" % of all waiting"),
            "{cell}"
        );
    }
}

/// Checks that `--by waiting` has the joules of each kind, and that the delay of 0.4 s before the broadcast is in several bins.
fn check_times(place: &Place, output: &str, waiting: &Value) {
    let file = place.path("waits.json");
    let mut report =
        place.ampere(["report", output, "-f", "timeline", "--by", "waiting", "--every", "100ms"]);
    succeed(report.arg("-o").arg(&file).current_dir(place.path("")));
    let table: Value = serde_json::from_slice(&std::fs::read(file).expect("a table")).expect("JSON");
    let mut kinds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in list(&table, "rows") {
        assert_eq!(row["view"], "ranks");
        let kind = row["waiting"].as_str().expect("a kind").to_owned();
        kinds.entry(kind).or_default().push(number(row, "joules"));
    }
    for (kind, bins) in &kinds {
        let sum: f64 = bins.iter().sum();
        assert!(relative(sum, number(&waiting["kinds"], kind)) < 1e-8, "{kind}: {bins:?} {waiting}");
    }
    assert_eq!(kinds.len(), 6, "{table}");
    // A rank that waits is charged a third of the device. On a busy machine, ranks wait for less or more than the delay.
    let bins = kinds["1-to-n"].iter().filter(|joules| **joules > 0.0).count();
    let seconds = number(&waiting["kinds"], "1-to-n") / (WATTS / RANKS as f64);
    let [least, most] = [seconds / (RANKS - 1) as f64, seconds].map(|seconds| seconds / 0.1);
    assert!((least..=most + 2.0).contains(&(bins as f64)), "{kinds:?}");
}

fn joules_of_kind(summary: &Value, kind: &str) -> f64 {
    summary["run"]["waiting"]["kinds"][kind].as_f64().unwrap_or_default()
}

/// Checks that as much was caused as was used waiting, that only MPI functions waited, and that each message was matched.
fn check_sums(summary: &Value, messages: f64) {
    let (rows, waiting) = (waits(summary, Frames::Own), &summary["run"]["waiting"]);
    let [waited, caused] = [1, 2].map(|at| rows.values().map(|row| row[at]).sum::<f64>());
    assert!(relative(waited, caused) < 1e-8, "{waited} J are not {caused} J");
    assert!(relative(waited, number(waiting, "joules")) < 1e-8, "{waiting}");
    assert_eq!((number(waiting, "matched_messages"), number(waiting, "unmatched_messages")), (messages, 0.0));
    for ((rank, function), [_, waited, _]) in &rows {
        assert!(function.starts_with("MPI_") || *waited == 0.0, "{function} on {rank} waited");
    }
}
