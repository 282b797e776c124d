//! `make bench`: one table, each figure beside its yardstick, medians of runs that alternate with the yardstick's.
//! The same as JSON in `target/bench.json`. With arguments: only the groups of those names ("engine"). A group that cannot
//! run on this machine says why.

mod bare;
mod child;
mod collector;
mod engine;
mod events;
mod hosts;
mod latency;
mod load;
mod long;
mod metrics;
mod offline;
mod oracle;
mod ring;
mod sampler;
mod trace;

use std::time::Instant;

/// One line of the table.
pub struct Figure {
    pub what: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub yardstick: &'static str,
    pub yardstick_value: f64,
}

fn main() {
    type Bench = fn() -> Result<Vec<Figure>, String>;
    if let [_, child, library] = &std::env::args().collect::<Vec<_>>()[..]
        && child == sampler::CHILD
    {
        return sampler::child(library);
    }
    if std::env::args().nth(1).is_some_and(|first| first == events::CHILD) {
        return events::child();
    }
    match std::env::args().nth(1).as_deref() {
        Some(events::SAMPLED_CHILD) => return events::sampled_child(),
        Some(events::RECORDED_CHILD) => return events::recorded_child(),
        Some(latency::CHILD) => return latency::child(),
        _ => {}
    }
    let benches: [(&str, Bench); 14] = [
        ("ring", ring::figures),
        ("event path", events::figures),
        ("Score-P", hosts::score_p),
        ("HPL", hosts::hpl_embedded),
        ("engine", engine::figures),
        ("offline", offline::figures),
        ("collector", collector::figures),
        ("locations", collector::many_locations),
        ("idle", collector::idle),
        ("metrics", metrics::figures),
        ("sampler", sampler::figures),
        ("latency", latency::figures),
        ("long trace", long::figures),
        ("oracle", oracle::figures),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.first().is_some_and(|first| first == bare::COMMAND) {
        return bare::main(&wanted[1..]);
    }
    if wanted.first().is_some_and(|first| first == bare::WRITE_COMMAND) {
        return bare::write_main(&wanted[1..]);
    }
    if let [command, processes, threads, seconds] = &wanted[..]
        && command == collector::LOAD_COMMAND
    {
        return collector::load(processes, threads, seconds);
    }
    let mut json = Vec::new();
    println!("{:<58} {:>10} {:<9} {:>10}  yardstick", "figure", "measured", "", "yardstick");
    for (name, bench) in
        benches.into_iter().filter(|(n, _)| wanted.is_empty() || wanted.iter().any(|w| w == n))
    {
        eprintln!("... {name}");
        let figures = match bench() {
            Ok(figures) => figures,
            Err(why) => {
                println!("{name:<58} skipped: {why}");
                json.push(serde_json::json!({"figure": name, "skipped": why}));
                continue;
            }
        };
        for f in figures {
            println!(
                "{:<58} {:>10.2} {:<9} {:>10.2}  {}",
                f.what, f.value, f.unit, f.yardstick_value, f.yardstick
            );
            json.push(serde_json::json!({"figure": f.what, "value": f.value, "unit": f.unit,
                                         "yardstick": f.yardstick, "yardstick_value": f.yardstick_value}));
        }
    }
    if !wanted.is_empty() {
        return; // the file is for whole runs
    }
    let path = std::path::Path::new("target/bench.json");
    if let Err(error) = std::fs::write(path, serde_json::to_string_pretty(&json).unwrap_or_default() + "\n") {
        eprintln!("cannot write {}: {error}", path.display());
    }
}

/// Medians of two things timed in turn, in nanoseconds per step.
pub fn alternate(steps: u64, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> (f64, f64) {
    const ROUNDS: usize = 7;
    let time = |work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        begun.elapsed().as_nanos() as f64 / steps as f64
    };
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        a.push(time(&mut ours));
        b.push(time(&mut theirs));
    }
    (median(a), median(b))
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
