//! `ampere calibrate`: measures how often the node's counters move, how far they lag, and how noisy they are.
//!
//! ```text
//! load.rs      the square wave: ampere's own threads, or a command that prints its edges      wave.rs    the edges
//! sample.rs    reads the counters during the load
//! estimate.rs  edges and movements -> delay, levels, noise; pure
//! report.rs    the table and the JSON                  settings.rs the delays, for a file of settings
//! ```

mod estimate;
mod load;
mod report;
mod sample;
mod settings;
mod wave;

use crate::terminal::progress::StatusLine;
use crate::terminal::words::{given, path_parser, print};
use crate::{installation, run};
use ampere_figures::clock_text::rfc3339;
use ampere_settings::{Config, parse_duration};
use ampere_signal_safety::asked_to_end;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use clap::error::ErrorKind;
use estimate::Verdict;
use report::{Found, Load, Report};
use sample::Sampling;
use settings::Setting;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wave::{Edge, PERIODS_MIN, Wave};

#[derive(Args)]
pub struct CalibrateArguments {
    /// Busy for half of this time, idle for the other half
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration, conflicts_with = "command")]
    period: Duration,
    /// Duration of the load, at least four periods
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration, conflicts_with = "command")]
    duration: Duration,
    /// A file with the settings of the counters, such as ampere.toml
    #[arg(long, env = "AMPERE_CONFIG", value_parser = path_parser())]
    config: Option<PathBuf>,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
    /// A command that is alternately busy and idle, and prints a line for each edge as examples/hip/square_wave does
    /// [default: threads of ampere, on all cores that it may use]
    #[arg(last = true)]
    command: Vec<OsString>,
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let time = parse_duration(text)?;
    anyhow::ensure!(time >= PERIOD_MIN, "{text:?} is too short: {PERIOD_MIN:?} or more");
    Ok(time)
}

/// The shortest period. Its phases of 5 ms are still longer than a thread takes to wake up.
const PERIOD_MIN: Duration = Duration::from_millis(10);
/// How long the counters are still read after the load, because the last movement that belongs to it may come late.
const AFTERWARDS: Duration = Duration::from_millis(250);

pub fn calibrate(arguments: CalibrateArguments) -> anyhow::Result<ExitCode> {
    check_usage(&arguments);
    let config = Config::load(given(&arguments.config))?;
    run::check_counters(&config)?;
    let program = arguments.command.first().map(|program| installation::program(program)).transpose();
    let program = program.map_err(|why| anyhow!("{why}"))?; // drops the exit statuses 126 and 127, which only ampere run uses
    let opened = ampere_counters::open_sources(&config.sources);
    for note in &opened.notes {
        say!("ampere: {note}");
    }
    let counters: usize = opened.sources.iter().map(|source| source.devices().len()).sum();
    if counters == 0 {
        bail!("there is no counter to calibrate: {}", why_none(&opened.absent));
    }
    let stop = asked_to_end();
    let sampling = Sampling::start(opened.sources, config.sampler.period)
        .context("cannot start reading the counters")?;
    let begun = SystemTime::now();
    let (load, edges) = match &program {
        Some(program) => of_command(program, &arguments.command, counters, stop)?,
        None => of_threads(&arguments, counters, stop)?,
    };
    std::thread::sleep(AFTERWARDS);
    let counters = sampling.stop()?;
    let wave = Wave::new(&edges).map_err(|why| anyhow::anyhow!("{}: {why}", name(&load)))?;
    check_clock(&wave, &counters, &load)?;
    let found: Vec<Found> = counters
        .into_iter()
        .map(|counter| {
            let estimate = estimate::estimate(&counter.movements, &wave, counter.period.as_secs_f64());
            Found { counter, estimate }
        })
        .collect();
    let date = rfc3339(begun.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64);
    let node = ampere_ring::process::node_name();
    let report = Report { node: &node, date: &date, load: &load, wave: &wave, found: &found };
    let settings = settings_of(&report);
    let text = if arguments.json {
        format!("{:#}\n", report.json(&settings))
    } else if settings.is_empty() {
        report.text()
    } else {
        format!("{}\nfor ampere.toml:\n\n{}", report.text(), settings::sections(&settings))
    };
    print("what was found", |out| out.write_all(text.as_bytes()))?;
    if settings.is_empty() {
        bail!("no counter's delay could be found");
    }
    Ok(ExitCode::SUCCESS)
}

/// Exits with status 2 if the load would be too long, or too short for its period.
fn check_usage(arguments: &CalibrateArguments) {
    let wrong = |why: String| clap::Error::raw(ErrorKind::ValueValidation, format!("{why}\n")).exit();
    if !arguments.command.is_empty() {
        return;
    }
    let (period, duration) = (arguments.period, arguments.duration);
    if duration > load::LOAD_MAX {
        wrong(format!("a duration of {duration:?} is too long: {:?} at most", load::LOAD_MAX));
    }
    if duration < period * PERIODS_MIN as u32 {
        wrong(format!(
            "a duration of {duration:?} is less than {PERIODS_MIN} periods of {period:?}: set a longer duration or a shorter period"
        ));
    }
}

fn why_none(absent: &[String]) -> String {
    if absent.is_empty() {
        "AMPERE_COUNTERS names no counter of this node".to_owned()
    } else {
        absent.join("; ")
    }
}

fn of_threads(
    arguments: &CalibrateArguments,
    counters: usize,
    stop: &AtomicBool,
) -> anyhow::Result<(Load, Vec<Edge>)> {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let periods = (arguments.duration.as_secs_f64() / arguments.period.as_secs_f64()).round() as usize;
    let total = arguments.period * periods as u32;
    let line = StatusLine::default();
    if line.is_hidden() {
        say!("ampere: {threads} threads alternately spin and sleep for {total:.0?}; {}", reading(counters));
    }
    let edges = load::spin(arguments.period, periods, threads, stop, |passed| {
        let passed = passed.min(total).as_secs_f64();
        line.write(Some(passed / total.as_secs_f64()), || {
            format!("{passed:.0} of {:.0} s, {}", total.as_secs_f64(), reading(counters))
        });
    });
    drop(line);
    Ok((Load { threads, command: Vec::new() }, edges?))
}

fn of_command(
    program: &std::path::Path,
    command: &[OsString],
    counters: usize,
    stop: &AtomicBool,
) -> anyhow::Result<(Load, Vec<Edge>)> {
    let line = StatusLine::default();
    if line.is_hidden() {
        say!("ampere: {}", reading(counters));
    }
    let edges = load::run(program, command, stop, |edges| {
        line.write(None, || {
            format!("{:.0} s, {}, {edges} edges so far", line.elapsed().as_secs_f64(), reading(counters))
        });
    });
    drop(line);
    let command = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok((Load { threads: 0, command }, edges?))
}

fn reading(counters: usize) -> String {
    if counters == 1 { "reading 1 counter".to_owned() } else { format!("reading {counters} counters") }
}

fn name(load: &Load) -> &str {
    load.command.first().map_or("the load", String::as_str)
}

/// Refuses edges whose times are from another clock or another machine: the last edge is in the future, or before the first
/// reading.
fn check_clock(wave: &Wave, counters: &[sample::Counter], load: &Load) -> anyhow::Result<()> {
    let now = load::monotonic_ns();
    let first = counters.iter().filter_map(|counter| counter.movements.first()).map(|(at, _)| *at).min();
    let end = wave.origin_ns.saturating_add((wave.end() * 1e9) as u64);
    if end > now || first.is_some_and(|first| end < first) {
        bail!(
            "{}: the times of its edges are not CLOCK_MONOTONIC of this machine during the load",
            name(load)
        );
    }
    Ok(())
}

fn settings_of(report: &Report) -> Vec<Setting> {
    let load = if report.load.command.is_empty() { "CPU" } else { name(report.load) };
    let responding = report.found.iter().filter(|found| found.estimate.verdict == Verdict::Responds);
    let settings = responding.filter_map(|found| {
        let response = found.estimate.response.as_ref()?;
        let device = &found.counter.device;
        Some(Setting {
            name: device.name.clone(),
            metric: device.metric.clone(),
            delay: response.delay_to_set(),
            idle_watts: response.idle,
            // A file name can contain anything, for example a line break.
            how: format!(
                "{}, on {}: an estimate, {} by {} periods of {} ({})",
                &report.date[..10],
                report.node,
                report::delay(response),
                report.wave.periods(),
                report::time(report.wave.period),
                load.replace(char::is_control, "?"),
            ),
        })
    });
    settings.collect()
}
