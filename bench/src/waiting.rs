//! Measures what it costs to find who waits for whom in MPI.

use crate::hosts::need;
use crate::offline::cpu_nanoseconds;
use crate::start::nanoseconds;
use crate::trace::{Event, Shape, WORLD};
use crate::{Figure, child, collector, least, medians};
use ampere_settings::Config;
use ampere_trace::offline::{AttributionOptions, attribute_as};
use otf2::{Communication, Message};
use std::process::Command;
use std::time::Duration;

const ROUNDS: usize = 9;
const SEND: u32 = 0;
const RECEIVE: u32 = 1;
const FEW_RANKS: u64 = 4;
const MANY_RANKS: u64 = 1000;
/// The number of messages in each trace.
const MESSAGES: u64 = 1_000_000;
/// The number of messages that each rank of a running job sends in a second.
const LIVE_RATE: f64 = 10_000.0;
const LIVE_TIME: Duration = Duration::from_secs(4);

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let ([live, live_without], ranks) = collector::exchange(LIVE_RATE, LIVE_TIME)?;
    let [with, without] = attribution(FEW_RANKS)?;
    let [many, many_without] = attribution(MANY_RANKS)?;
    let percent = |nanoseconds: f64| nanoseconds * LIVE_RATE * ranks * 100.0 * 1e-9;
    let mut figures = vec![
        Figure::new(
            "waiting: attribute, CPU per message, 4 ranks that only send and receive",
            with / MESSAGES as f64,
            "ns",
            "without waits; target: 1.3 x",
            without / MESSAGES as f64,
        ),
        Figure::new(
            "waiting: the end of a job of 1,000 ranks with 1,000 messages each, CPU",
            many * 1e-9,
            "s",
            "at most",
            2.0,
        ),
        Figure::new(
            "waiting: attribute without waits, the same ranks, CPU",
            many_without * 1e-9,
            "s",
            "with waits",
            many * 1e-9,
        ),
        Figure::new(
            "waiting: CPU time that it adds during a run of 8 ranks with 10,000 messages a second each",
            percent(live - live_without),
            "% of core",
            "the collector without; target: 1 %",
            percent(live_without),
        ),
    ];
    need("mpicc")?;
    let [send, call] = [added("mpi_sends")?, added("mpi_calls")?];
    figures.push(Figure::new(
        "waiting: time that ampere adds to an MPI_Send of 8 bytes",
        send,
        "ns",
        "to MPI_Comm_rank",
        call,
    ));
    Ok(figures)
}

/// Returns the CPU time of attributing a trace with waits, and without them.
fn attribution(ranks: u64) -> anyhow::Result<[f64; 2]> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let shape = Shape { ranks, regions: 2, devices: 1, nodes: 1 };
    let trace = shape.write(directory.path(), |rank| messages(rank, ranks))?.anchor;
    let config = Config::default();
    medians(ROUNDS, |which| {
        let begun = cpu_nanoseconds();
        let waits = which == 0;
        let progress = &mut |_, _| {};
        let how =
            AttributionOptions { config: &config, only: None, waits, recorder: None, threads: 1, progress };
        let waiting = attribute_as(&trace, how)?.summary.run.waiting;
        assert_eq!(waiting.map(|waiting| waiting.matched_messages), waits.then_some(MESSAGES));
        Ok(cpu_nanoseconds() - begun)
    })
}

/// Each rank sends to the next one and receives from the one before. Ranks take turns in being late.
fn messages(rank: u64, ranks: u64) -> impl Iterator<Item = Event> {
    (0..MESSAGES / ranks).flat_map(move |step| {
        let message = |peer: u64| Message { peer: peer as u32, comm: WORLD, tag: 0, bytes: 8 };
        let late = if step % ranks == rank { 900 } else { rank % 100 };
        let [start, end] = [step * 10_000, step * 10_000 + 9_000].map(|time| time + late);
        [
            Event::Enter(start, SEND),
            Event::Communicate(start + 1, Communication::MpiSend(message((rank + 1) % ranks))),
            Event::Leave(start + 500, SEND),
            Event::Enter(start + 600, RECEIVE),
            Event::Communicate(end - 1, Communication::MpiRecv(message((rank + ranks - 1) % ranks))),
            Event::Leave(end, RECEIVE),
        ]
    })
}

/// Returns the nanoseconds that ampere adds to the MPI call of a program.
fn added(program: &str) -> anyhow::Result<f64> {
    let place = tempfile::tempdir()?;
    let source = least::source(&format!("{program}.c"));
    let program = place.path().join(program);
    child::run(Command::new("mpicc").arg("-O2").arg("-o").arg(&program).arg(source))?;
    let [with, without] = medians(ROUNDS, |which| match which {
        0 => nanoseconds(&mut child::ampere_run(place.path(), &program)),
        _ => nanoseconds(Command::new(&program).current_dir(place.path())),
    })?;
    Ok(with - without)
}
