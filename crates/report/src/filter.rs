//! Makes a Score-P filter file, which `ampere run --filter` also accepts. It excludes functions that are called often and use
//! almost no energy, because measuring a call of them costs a large part of the call itself.

use crate::over_devices;
use ampere_figures::summary::topmost;
use ampere_figures::summary::{Device, Run, Summary, View};
use ampere_model::filter::pattern_of;
use ampere_model::fortran::symbols_of;
use ampere_model::order::largest_first;
use ampere_model::regions::is_mpi;
use ampere_model::text::{joules, printable};
use std::fmt::Write;

/// The minimum number of calls per second and rank. Fewer calls cost less than a thousandth of the time.
const CALLS_PER_SECOND_MIN: f64 = 10_000.0;
/// The maximum time of a call itself, without the calls that it makes: 13 to 25 times the cost of measuring it.
const SECONDS_PER_CALL_MAX: f64 = 1e-6;
/// The cost of measuring a call with the embedded host and with Score-P, which `make bench` measures for an empty function.
const COST_EMBEDDED: f64 = 40e-9;
const COST_SCORE_P: f64 = 75e-9;
/// The bytes of an enter or a leave in a trace.
const BYTES_PER_EVENT: f64 = 12.0;
/// If measuring takes more than this fraction of the ranks' time, a sentence reports it.
const MEASURING_SHARE_MAX: f64 = 0.05;

/// A function of the ranks, over all devices.
struct Function<'a> {
    name: &'a str,
    calls: f64,
    seconds: f64,
    joules: f64,
}

/// Returns the text of the file. If there are no such functions, it excludes nothing.
pub fn render(summary: &Summary) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(summary, &mut out);
    out
}

fn write(summary: &Summary, out: &mut String) -> std::fmt::Result {
    let run = &summary.run;
    let all = functions(summary);
    let rank_seconds = run.seconds * f64::from(run.ranks.max(1));
    let is_tiny = |function: &&Function| {
        can_be_filtered(function.name)
            && function.calls > CALLS_PER_SECOND_MIN * rank_seconds
            && function.seconds < SECONDS_PER_CALL_MAX * function.calls
    };
    let tiny: Vec<&Function> = all.iter().filter(is_tiny).collect();
    let of = if run.command.is_empty() { &run.id } else { &run.command.join(" ") };
    writeln!(out, "# Made from the figures of: {}", printable(of))?;
    writeln!(
        out,
        "# Functions that are called more than {CALLS_PER_SECOND_MIN} times per second and rank, and take less than {:.0} us \
         per call, without the functions that they call",
        1e6 * SECONDS_PER_CALL_MAX
    )?;
    if tiny.is_empty() {
        writeln!(out, "# There are none.")?;
    } else {
        writeln!(out, "# {}", savings(&tiny, &all, run))?;
    }
    writeln!(out, "SCOREP_REGION_NAMES_BEGIN")?;
    for function in tiny {
        writeln!(
            out,
            "  # {:.0} calls, {:.0} ns and {} J each",
            function.calls,
            1e9 * function.seconds / function.calls,
            small(function.joules / function.calls)
        )?;
        let symbols = symbols_of(function.name).into_iter().map(|symbol| format!(" {symbol}"));
        writeln!(out, "  EXCLUDE {}{}", pattern_of(function.name), symbols.collect::<String>())?;
    }
    writeln!(out, "SCOREP_REGION_NAMES_END")
}

/// Describes the savings in the next run, estimated from the figures of this run.
fn savings(tiny: &[&Function], all: &[Function], run: &Run) -> String {
    let calls: f64 = tiny.iter().map(|function| function.calls).sum();
    let whole: f64 = all.iter().map(|function| function.calls).sum();
    let spent: f64 = tiny.iter().map(|function| function.joules).sum();
    format!(
        "With this filter, the next run records {:.1} % fewer calls. This saves about {:.1} s of the ranks' time, at {:.0} ns per call, and up to \
         {:.1} MB of trace. The {} J of these functions are then attributed to their callers",
        100.0 * calls / whole,
        calls * cost(run),
        1e9 * cost(run),
        2e-6 * BYTES_PER_EVENT * calls,
        joules(spent)
    )
}

fn cost(run: &Run) -> f64 {
    if run.host == "score-p" { COST_SCORE_P } else { COST_EMBEDDED }
}

/// Formats a number with an exponent, because a call uses only a small fraction of a joule.
fn small(joules: f64) -> String {
    format!("{joules:.1e}")
}

/// Returns the functions, those with the most calls first.
fn functions(summary: &Summary) -> Vec<Function<'_>> {
    let shown = topmost(summary).flat_map(|device| device.shown().map(move |view| (device, view)));
    let views: Vec<(&Device, &View)> = shown.filter(|(_, view)| view.view == "ranks").collect();
    let (regions, _) = over_devices::sums(summary, &views);
    let function = |(name, sum): (_, over_devices::Sum)| Function {
        name,
        calls: sum.calls,
        seconds: sum.seconds,
        joules: sum.joules,
    };
    let mut functions: Vec<Function> = regions.into_iter().map(function).collect();
    largest_first(&mut functions, |function| function.calls);
    functions
}

/// Whether a filter can exclude this function. Filters apply to functions that the compiler has instrumented, but not to MPI
/// functions or OpenMP regions.
fn can_be_filtered(name: &str) -> bool {
    !is_mpi(name) && !name.starts_with("!$") && name != "main"
}

/// Returns a sentence if much of a run's time is spent measuring.
pub fn much_measuring(summary: &Summary) -> Option<String> {
    let Summary { run, quality, .. } = summary;
    let calls = quality.records.events as f64 / 2.0 + quality.records.coalesced_calls as f64;
    let rank_seconds = run.seconds * f64::from(run.ranks.max(1));
    let part = calls * cost(run) / rank_seconds;
    (rank_seconds > 0.0 && part > MEASURING_SHARE_MAX).then(|| {
        let (ours, others): (Vec<Function>, Vec<Function>) =
            functions(summary).into_iter().partition(|function| can_be_filtered(function.name));
        let sum = |functions: &[Function]| functions.iter().map(|function| function.calls).sum::<f64>();
        let advice = if sum(&ours) > sum(&others) {
            "ampere report -f scorep-filter makes a filter"
        } else {
            "most of these calls, such as those of MPI, cannot be filtered"
        };
        format!(
            "measuring {:.1} million calls takes {:.0} % of the time: {advice}",
            1e-6 * calls,
            (100.0 * part).min(100.0)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::summary;

    #[test]
    fn a_filter_is_advised_where_it_can_leave_functions_out() {
        let said = |rename: &dyn Fn(&str) -> String| {
            let mut summary = summary();
            summary.run.seconds = 1.0;
            summary.quality.records.events = 100_000_000;
            summary.names.iter_mut().for_each(|name| *name = rename(name).into());
            much_measuring(&summary).unwrap()
        };
        assert!(said(&|name| format!("f_{name}")).ends_with("makes a filter"));
        assert!(
            said(&|_| "MPI_Test".to_owned())
                .ends_with("most of these calls, such as those of MPI, cannot be filtered")
        );
    }
}
