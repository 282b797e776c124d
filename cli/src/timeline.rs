//! `ampere report -f timeline`: prints joules over time, or the calls of one region, from the traces of a run.

use crate::terminal::interrupt::remove_when_interrupted;
use crate::terminal::progress::Progress;
use crate::terminal::words::print;
use crate::write_file::write_to;
use ampere_figures::summary::topmost;
use ampere_model::signature::is_function;
use ampere_report::Choice;
use ampere_report::table::{Table, TableForm};
use ampere_report::timeline::{By, RegionCalls, Series, above, balance, head, table};
use ampere_settings::{Config, listed, parse_duration, suggested};
use ampere_timeline::attributor::ViewKind;
use ampere_timeline::recorder::Recorder;
use ampere_trace::calls::{CallTable, Clock, Span, span_of, unlinked_file};
use ampere_trace::chrome::Part;
use ampere_trace::firefox::{self, Profiler, Recorded};
use ampere_trace::offline::{self, AttributionOptions};
use ampere_trace::timeline::{BINS_MAX, Bins, Kept, RegionSink, Wanted};
use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::PoisonError;
use std::time::Duration;

const BINS: u32 = 100;

#[derive(Args)]
pub struct TimelineArguments {
    /// `timeline`: the number of bins over the run [default: 100]
    #[arg(long, value_name = "N", conflicts_with = "every", value_parser = clap::value_parser!(u32).range(1..))]
    bins: Option<u32>,
    /// `timeline`: bins of this length, 10ms for example
    #[arg(long, value_name = "TIME", visible_alias = "bin-length", value_parser = duration)]
    every: Option<Duration>,
    /// `timeline`: what joules are summed by [default: rank]
    #[arg(long, value_enum)]
    by: Option<By>,
    /// `timeline`: only the time in which a device has at least this many watts, and the joules of that time
    #[arg(long, value_name = "WATTS", conflicts_with_all = ["bins", "every", "region"], value_parser = watts)]
    above: Option<f64>,
    /// `timeline`: the joules of each call of this region, in order, instead of bins; a function's name is enough, without its
    /// arguments
    #[arg(long, value_name = "NAME", conflicts_with_all = ["bins", "every", "by"])]
    region: Option<String>,
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let duration = parse_duration(text)?;
    ensure!(!duration.is_zero(), "use a time longer than 0");
    Ok(duration)
}

fn watts(text: &str) -> anyhow::Result<f64> {
    let watts: f64 = text.trim_end_matches(['W', ' ']).parse()?;
    ensure!(watts.is_finite() && watts >= 0.0, "use a number of watts of 0 or more");
    Ok(watts)
}

impl TimelineArguments {
    /// Returns the first of these options that was given, because it is an error with other formats.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("--bins", self.bins.is_some()),
            ("--every", self.every.is_some()),
            ("--by", self.by.is_some()),
            ("--above", self.above.is_some()),
            ("--region", self.region.is_some()),
        ];
        all.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}

/// The parts of a run, and how to attribute them again.
pub struct Run<'a> {
    pub parts: &'a [Part],
    pub choice: &'a Choice,
    pub config: &'a Config,
}

pub fn report(run: &Run, arguments: &TimelineArguments, output: Option<&Path>) -> anyhow::Result<ExitCode> {
    remove_when_interrupted(output.iter().map(|path| ampere_ring::files::unfinished(path)).collect())
        .context("cannot wait for signals")?;
    let spans = run.parts.iter().map(|part| span_of(&part.trace)).collect::<Result<Vec<_>, _>>()?;
    let (table, head) = match &arguments.region {
        Some(region) => run.calls_of(region, &spans)?,
        None => run.bins(arguments, &spans)?,
    };
    let form = output.map_or(TableForm::Csv, TableForm::of_file);
    match output {
        Some(path) => {
            write_to(path, |file| table.write(form, head, file))?;
        }
        None => print("the timeline", |out| table.write(form, head, out))?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Run<'_> {
    /// Writes a profile for the Firefox Profiler.
    pub fn write_profile(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let spans = self.parts.iter().map(|part| span_of(&part.trace)).collect::<Result<Vec<_>, _>>()?;
        let seconds = spans.iter().map(|span| span.seconds).fold(0.0, f64::max);
        let interval_ms =
            firefox::interval_ms(seconds, self.parts.iter().map(|part| part.summary.run.ranks).sum());
        let kept = Kept::<Vec<Recorded>>::default();
        self.attribute((&begins(&spans), false), (&kept, |kept: &mut Vec<_>| kept), |clock, begin, part| {
            let clock_and_begin = (clock, begin);
            Box::new(Profiler::new(clock_and_begin, interval_ms, self.only(), &part.summary, kept.clone()))
        })?;
        let mut parts = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
        let begin = spans.iter().filter_map(|span| span.begin).min();
        let summary = &self.parts[0].summary;
        firefox::write(&mut parts, summary, (begin, interval_ms), out).context("the report")
    }

    fn bins(
        &self,
        arguments: &TimelineArguments,
        spans: &[Span],
    ) -> anyhow::Result<(Table, Map<String, Value>)> {
        let begins = begins(spans);
        let ends = begins.iter().zip(spans).map(|(begin, span)| begin + span.seconds);
        let length = ends.fold(0.0, f64::max);
        let seconds = match arguments.every {
            Some(every) => every.as_secs_f64(),
            None if arguments.above.is_some() => 1.0,
            None => length / f64::from(arguments.bins.unwrap_or(BINS)),
        };
        ensure!(seconds > 0.0, "the length of the trace is unknown: set the length of bins with --every");
        let bins = if arguments.above.is_some() { 1.0 } else { length / seconds };
        ensure!(bins <= BINS_MAX as f64, "that would be {bins:.0} bins, and at most {BINS_MAX} are allowed");
        let by = arguments.by.unwrap_or_default();
        ensure!(
            !matches!(by, By::Balance | By::Waiting) || arguments.above.is_none(),
            "--above cannot be used with --by {}, which is about the whole time",
            by.as_str()
        );
        ensure!(
            by != By::Waiting || self.only() != Some(ViewKind::Kernels),
            "only ranks wait in MPI: --by waiting cannot be used with --view kernels"
        );
        let kept = Kept::default();
        let waits = by == By::Waiting;
        self.attribute((&begins, waits), (&kept, |kept: &mut Vec<Series>| kept), |clock, begin, part| {
            let devices = match by {
                // Devices that are contained in others are left out, because no joule may be counted twice.
                By::Balance if self.choice.devices.is_empty() => {
                    topmost(&part.summary).map(|device| device.name.clone()).collect()
                }
                _ => self.choice.devices.clone(),
            };
            let wanted = Wanted { devices, only: self.only(), by, seconds, above: arguments.above };
            Box::new(Bins::new(clock, begin, wanted, kept.clone()))
        })?;
        let mut series = kept.lock().unwrap_or_else(PoisonError::into_inner);
        // "GPU-10" comes after "GPU-9", and "(idle)" after the ranks.
        series.sort_by_cached_key(|series| {
            let place = (series.node.clone(), series.device.len(), series.device.clone(), series.view);
            (place, !series.is_attributed(), series.name.len(), series.name.clone())
        });
        if waits && series.is_empty() {
            say!("ampere: no rank has used joules waiting for another one in MPI");
        }
        let by_name = ("by", by.as_str().into());
        if let Some(watts) = arguments.above {
            if series.is_empty() {
                say!("ampere: no device had {watts} W or more between two samples");
            }
            return Ok((above(by, &series), head([by_name, ("above_watts", watts.into())])));
        }
        let head = head([by_name, ("bin_seconds", seconds.into())]);
        let table = match by {
            By::Balance => balance((seconds, length), &series),
            _ => table(by, (seconds, length), &series),
        };
        Ok((table, head))
    }

    fn calls_of(&self, region: &str, spans: &[Span]) -> anyhow::Result<(Table, Map<String, Value>)> {
        let names = self.parts.iter().flat_map(|part| part.summary.region_names());
        let region = find_region(region, &names.collect())?;
        let kept = Kept::<RegionCalls>::default();
        self.attribute(
            (&begins(spans), false),
            (&kept, |kept: &mut RegionCalls| &mut kept.calls),
            |clock, begin, _| {
                let sink = RegionSink::new(region, begin, self.choice.devices.clone(), kept.clone());
                let spill_file = std::env::temp_dir().join(format!(".ampere-calls-{}", std::process::id()));
                Box::new(CallTable::new(
                    Box::new(sink),
                    clock,
                    self.only(),
                    Box::new(move || unlinked_file(&spill_file)),
                ))
            },
        )?;
        let mut calls = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
        calls.sort();
        let statistics = calls.statistics();
        for of in &statistics {
            say!("ampere: {}", calls.line(region, of));
        }
        let statistics = statistics.iter().map(|of| of.json()).collect();
        Ok((calls.table(), head([("region", region.into()), ("statistics", Value::Array(statistics))])))
    }

    fn only(&self) -> Option<ViewKind> {
        let wanted = self.choice.view.as_deref()?;
        ViewKind::BOTH.into_iter().find(|kind| kind.as_str() == wanted)
    }

    /// Attributes the traces of all parts again, with their waits if these are wanted. The recorders add rows to `kept`, and
    /// `rows` returns these rows.
    fn attribute<T, Row>(
        &self,
        (begins, waits): (&[f64], bool),
        (kept, rows): (&Kept<T>, impl Fn(&mut T) -> &mut Vec<Row>),
        recorder: impl Fn(Clock, f64, &Part) -> Box<dyn Recorder>,
    ) -> anyhow::Result<()> {
        for (part, begin) in self.parts.iter().zip(begins) {
            let bar = Progress::default();
            let mut progress = bar.step();
            let of_parts_before = rows(&mut kept.lock().unwrap_or_else(PoisonError::into_inner)).len();
            let make = |clock| -> io::Result<Box<dyn Recorder>> {
                // A trace may be read several times: the rows of the last time count.
                rows(&mut kept.lock().unwrap_or_else(PoisonError::into_inner)).truncate(of_parts_before);
                Ok(recorder(clock, *begin, part))
            };
            let options = AttributionOptions {
                config: self.config,
                only: self.only(),
                waits,
                recorder: Some(Box::new(make)),
                threads: offline::cores(),
                progress: &mut progress,
            };
            let done = offline::attribute_as(&part.trace, options);
            drop(progress);
            bar.end();
            let done = done.with_context(|| format!("cannot attribute {}", part.trace.display()))?;
            done.warnings.iter().for_each(|line| say!("ampere: {line}"));
        }
        Ok(())
    }
}

/// Finds a region by its whole name, or by the name of its function alone.
fn find_region<'a>(wanted: &str, names: &BTreeSet<&'a str>) -> anyhow::Result<&'a str> {
    if let Some(name) = names.get(wanted) {
        return Ok(name);
    }
    let named: Vec<&str> = names.iter().copied().filter(|name| is_function(name, wanted)).collect();
    match named[..] {
        [one] => {
            say!("ampere: the region is {one}");
            Ok(one)
        }
        [] => bail!("no region is named {wanted:?}: {}", suggested(wanted, names.iter().copied())),
        _ => bail!(
            "{} regions are named {wanted:?}: name one of {}",
            named.len(),
            listed(named.iter().copied())
        ),
    }
}

/// Returns each trace's start, in seconds after the earliest start.
fn begins(spans: &[Span]) -> Vec<f64> {
    let first = spans.iter().filter_map(|span| span.begin).min().unwrap_or(0);
    spans.iter().map(|span| span.begin.map_or(0.0, |begin| (begin - first) as f64 / 1e9)).collect()
}
