//! Compares `ampere attribute` with two threads and with one, on a trace of two nodes, which are attributed in parallel, and on a
//! trace of one node, whose events one thread decodes while the other one attributes earlier ones.

use crate::trace::{Shape, Walk};
use crate::{Figure, Missing, child, medians};

const RANKS: u64 = 8;
const EVENTS: u64 = 16_000_000;
/// The size of both traces, in bytes, at 12 bytes per event.
const BYTES: u64 = 2 * EVENTS * 12;
const ROUNDS: usize = 5;

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Err(Missing("there is only one CPU".to_owned()).into());
    }
    let directory = child::directory(BYTES)?;
    let mut figures = Vec::new();
    for (nodes, what) in [
        (1, "attribute: wall time per event, one node, two threads"),
        (2, "attribute: wall time per event, two nodes, two threads"),
    ] {
        let place = directory.path().join(format!("{nodes}"));
        std::fs::create_dir(&place)?;
        let shape = Shape { ranks: RANKS, regions: Walk::REGIONS, devices: 2, nodes };
        let written = shape.write(&place, |rank| Walk::new(rank, EVENTS / RANKS))?;
        let per_event = 1e9 / (written.rank_events + written.samples) as f64;
        let [two, one] = medians(ROUNDS, |which| {
            let mut command = child::attribute(&written.anchor);
            let ran = child::run(command.args(["--threads", if which == 0 { "2" } else { "1" }]))?;
            Ok(ran.seconds * per_event)
        })?;
        figures.push(Figure { what, value: two, unit: "ns", yardstick: "one thread", yardstick_value: one });
    }
    Ok(figures)
}
