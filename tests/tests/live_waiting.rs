//! The joules that ranks use while they wait for each other in MPI, counted while they run.

use ampere_tests::collector::announced;
use ampere_tests::jobs::{Place, kill, start, until};
use ampere_tests::openmetrics::{self, Labels, Sample};
use ampere_tests::runs::{
    assert_same_figures, attribute, has_python_otf2, number, on_path, relative, succeed,
};
use ampere_tests::stand_ins::with_rocm_smi;
use ampere_tests::{artifact, http, skip_unless};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// In each round, one rank is slow before each kind of operation, including some in a communicator of two ranks. There are 25
/// rounds, and with an argument more, until the file that it names exists.
const ROUNDS: &str = r#"
#include <mpi.h>
#include <time.h>
#include <unistd.h>
static void delay(void) __attribute__((no_instrument_function, noinline));
static void delay(void) { struct timespec t = {0, 20000000}; while (nanosleep(&t, &t)) {} }
void slow_to_send(void) { delay(); }
void slow_to_receive(void) { delay(); }
void slow_to_bcast(void) { delay(); }
void slow_to_reduce(void) { delay(); }
int main(int c, char **v) {
    MPI_Comm world = MPI_COMM_WORLD, pair;
    MPI_Request request;
    int rank, size, number = 0, all[8];
    MPI_Init(&c, &v); MPI_Comm_rank(world, &rank); MPI_Comm_size(world, &size);
    MPI_Comm_split(world, rank < 2 ? 0 : MPI_UNDEFINED, rank, &pair);
    for (int round = 0; round < 25 || number; round++) {
        if (rank == 0) { slow_to_send(); MPI_Send(&number, 1, MPI_INT, 1, 1, world); }
        if (rank == 1) MPI_Recv(all, 1, MPI_INT, 0, 1, world, MPI_STATUS_IGNORE);
        if (rank == 0) { slow_to_receive(); MPI_Recv(all, 1, MPI_INT, 1, 3, pair, MPI_STATUS_IGNORE); }
        if (rank == 1) MPI_Ssend(&number, 1, MPI_INT, 0, 3, pair);
        MPI_Irecv(all, 1, MPI_INT, (rank + size - 1) % size, 5, world, &request);
        MPI_Barrier(world);
        MPI_Send(&number, 1, MPI_INT, (rank + 1) % size, 5, world);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 2) { slow_to_bcast(); number = c > 1 && access(v[1], F_OK); }
        MPI_Bcast(&number, 1, MPI_INT, 2, world);
        if (rank == 1) slow_to_reduce();
        MPI_Reduce(&number, all, 1, MPI_INT, MPI_SUM, 0, world);
    }
    MPI_Finalize();
    return 0;
}
"#;

const COMPILER: &str = "mpicc.openmpi";
const LAUNCHER: &str = "mpirun.openmpi";
const COUNTERS: [&str; 2] =
    ["ampere_waiting_energy_joules_total", "ampere_caused_waiting_energy_joules_total"];

type Scrape = BTreeMap<(String, Labels), f64>;

/// Returns the counters of waiting in a scrape.
fn waiting(body: &str) -> Scrape {
    let samples = openmetrics::parse(body).expect("metrics");
    let is_wanted = |sample: &Sample| COUNTERS.contains(&sample.name.as_str());
    let wanted = samples.into_iter().filter(is_wanted);
    wanted.map(|sample| ((sample.name, sample.labels), sample.value)).collect()
}

/// Returns the sums of a counter by one of its labels.
fn sums(of: &Scrape, counter: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for ((_, labels), joules) in of.iter().filter(|((name, _), _)| name == counter) {
        *sums.entry(labels[label].clone()).or_default() += joules;
    }
    sums
}

/// Returns how often the counters of a scrape differ from those of the scrape before it.
fn changes(scrapes: &[Scrape]) -> usize {
    scrapes.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Scrapes until the collector of a run has ended. No counter may decrease. `each` is called after each scrape.
fn scrapes_of(output: &Path, pause: Duration, mut each: impl FnMut(SocketAddr, &[Scrape])) -> Vec<Scrape> {
    until("it serves", || announced(output).is_some());
    let address = announced(output).expect("it serves").address();
    let mut scrapes = vec![BTreeMap::new()];
    while let Ok(answer) = http::get(address, "/metrics") {
        let next = waiting(&answer.body);
        for (series, joules) in scrapes.last().expect("a scrape") {
            assert!(next.get(series) >= Some(joules), "{series:?}: {joules} J, then {:?}", next.get(series));
        }
        scrapes.push(next);
        each(address, &scrapes);
        std::thread::sleep(pause);
    }
    assert!(changes(&scrapes) >= 3, "it is counted while the ranks run: {scrapes:#?}");
    scrapes
}

/// Returns `ampere run` with `ROUNDS`, to which the caller may add arguments. The figures are in `out`.
fn measured_rounds(place: &Place) -> Command {
    let program = place.compile(COMPILER, "rounds", ROUNDS, &["-finstrument-functions"]);
    let words = [LAUNCHER, "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "3"];
    let mut run = place.ampere_run("out", words);
    with_rocm_smi(run.arg(program), "watts=300");
    run
}

/// Compares the last scrape of a run of `ROUNDS` with a summary.
fn assert_same_waiting(last: &Scrape, summary: &Value) {
    let found = &summary["run"]["waiting"];
    let kinds = sums(last, COUNTERS[0], "kind");
    assert_eq!(kinds.len(), 6 - 1, "{last:#?}");
    for (kind, joules) in &kinds {
        assert!(relative(*joules, number(&found["kinds"], kind)) < 1e-9, "{kind}: {joules} J, {found}");
    }
    let caused: f64 = sums(last, COUNTERS[1], "region").values().sum();
    assert!(relative(caused, number(found, "joules")) < 1e-9, "{caused} J, {found}");
}

#[test]
fn waiting_is_counted_while_ranks_run_and_ends_with_what_their_trace_has() {
    skip_unless!(on_path(COMPILER) && on_path(LAUNCHER), "no {COMPILER} on the PATH");
    let place = Place::new();
    let running = start(measured_rounds(&place).arg("enough").env("AMPERE_LISTEN", "127.0.0.1:0"));
    let mut page = Value::Null;
    let has_sentence = |page: &Value| page["sentences"].to_string().contains(" were used waiting in MPI");
    // After the run, the last figures are served for twice this time.
    let pause = Duration::from_millis(1200);
    let scrapes = scrapes_of(&place.path("out"), pause, |address, scrapes| {
        // The sentences are those of the last summary on the disk. A busy collector may have no page at the moment.
        if !has_sentence(&page) && scrapes.iter().filter(|scrape| !scrape.is_empty()).count() >= 2 {
            let answer = http::get(address, "/page.json").ok();
            page = answer.and_then(|page| serde_json::from_str(&page.body).ok()).unwrap_or_default();
        }
        if changes(scrapes) >= 3 && has_sentence(&page) || scrapes.len() > 100 {
            place.write("enough", "");
        }
    });
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");

    let last = scrapes.last().expect("a scrape");
    let own = place.summary("out");
    let of_trace = attribute(&place.path("out").join("traces.otf2"), &[]);
    [&own, &of_trace].iter().for_each(|summary| assert_same_waiting(last, summary));
    let causes = sums(last, COUNTERS[1], "region");
    for slow in ["slow_to_send", "slow_to_receive", "slow_to_bcast", "slow_to_reduce"] {
        assert!(causes[slow] > 0.5 * 25.0 * 0.02 * 300.0 / 3.0, "{slow}: {causes:#?}");
    }
    assert!(has_sentence(&page), "{}", page["sentences"]);
    for column in ["waited_joules", "caused_waiting_joules"] {
        let functions = &page["tables"]["functions"][column];
        let sum: f64 = functions.as_array().into_iter().flatten().filter_map(Value::as_f64).sum();
        assert!(sum > 0.0, "{column}: {}", page["tables"]["functions"]);
    }
    place.assert_clean();
}

/// The launcher ends the other ranks, in the middle of their calls.
#[test]
fn waiting_until_a_rank_is_killed_is_counted_live_and_in_the_trace() {
    skip_unless!(on_path(COMPILER) && on_path(LAUNCHER), "no {COMPILER} on the PATH");
    let place = Place::new();
    let running = start(measured_rounds(&place).arg("enough").env("AMPERE_LISTEN", "127.0.0.1:0"));
    let program = format!("{} ", place.path("rounds").display());
    let mut is_killed = false;
    let scrapes = scrapes_of(&place.path("out"), Duration::from_millis(1200), |_, scrapes| {
        if changes(scrapes) >= 3 && !is_killed {
            let is_rank = |(_, command): &(u32, String)| command.starts_with(&program);
            kill(place.processes().into_iter().find(is_rank).expect("a rank").0);
            is_killed = true;
        }
    });
    assert_ne!(running.wait().code, 0);
    let own = place.summary("out");
    assert_eq!(own["run"]["complete"], false);
    let of_trace = attribute(&place.path("out").join("traces.otf2"), &[]);
    [&own, &of_trace]
        .iter()
        .for_each(|summary| assert_same_waiting(scrapes.last().expect("a scrape"), summary));
    place.assert_clean();
}

#[test]
fn a_replay_counts_waiting_and_ends_with_what_attribute_finds() {
    skip_unless!(on_path(COMPILER) && on_path(LAUNCHER), "no {COMPILER} on the PATH");
    let place = Place::new();
    succeed(&mut measured_rounds(&place));
    let trace = place.path("out").join("traces.otf2");
    let mut replay = place.command(artifact("ampere"));
    replay.arg("replay").arg(&trace).arg("-o").arg(place.path("again"));
    replay.args(["--speed", "0.2", "--hold", "3", "--listen", "127.0.0.1:0"]);
    let running = start(&mut replay);
    let scrapes = scrapes_of(&place.path("again"), Duration::from_millis(150), |_, _| {});
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let last = scrapes.last().expect("a scrape");
    let of_trace = attribute(&trace, &[]);
    let played = place.summary("again");
    let of_written = attribute(&place.path("again").join("traces.otf2"), &[]);
    [&of_trace, &played, &of_written].iter().for_each(|summary| assert_same_waiting(last, summary));
    place.assert_clean();
}

/// Compares the sum of each location in the trace with the summary in the same directory.
const SUMS: &str = r#"
import collections, json, os, sys
import otf2
run = sys.argv[1]
summary = json.load(open(os.path.join(run, "summary.json")))
last, sums, expected = {}, collections.Counter(), collections.Counter()
with otf2.reader.open(os.path.join(run, "traces.otf2")) as trace:
    for location, event in trace.events:
        if not isinstance(event, otf2.events.Metric) or event.metric.members[0].name != "ampere::waited_energy":
            continue
        member = event.metric.members[0]
        assert (member.unit, member.metric_mode) == ("J", otf2.MetricMode.ACCUMULATED_START), member
        key = location.group.name, location.name
        assert key not in last or (event.time > last[key] and event.value >= sums[key]), (key, event)
        last[key], sums[key] = event.time, event.value
names = summary["names"]
for device in summary["devices"]:
    assert device["metric"] != "ampere::waited_energy", device["metric"]
    for view in device["views"]:
        table = view["callpaths"]
        if view["view"] == "ranks" and "waited_joules" in table:
            for group, location, own in zip(table["location_group"], table["location"], table["waited_joules"]):
                expected[names[group], names[location]] += own or 0
assert len(sums) == 3, sums
for key in expected.keys() | sums.keys():
    # Rows have nine digits.
    assert abs(expected[key] - sums[key]) <= 1e-8 * sums[key], (key, expected[key], sums[key])
"#;

#[test]
fn the_trace_has_what_each_location_has_used_waiting() {
    skip_unless!(on_path(COMPILER) && on_path(LAUNCHER), "no {COMPILER} on the PATH");
    skip_unless!(has_python_otf2(), "no python3-otf2");
    let place = Place::new();
    succeed(&mut measured_rounds(&place));
    succeed(Command::new("/usr/bin/python3").args(["-c", SUMS]).arg(place.path("out")));
    // The metric is not one of the devices.
    let own = place.summary("out");
    let of_trace = attribute(&place.path("out").join("traces.otf2"), &[]);
    assert_same_figures(&own, &of_trace);
    place.assert_clean();
}
