//! Notes about the samples of a run: unknown functions, and the reasons.

use super::SamplingReport;
use ampere_model::text::plural;
use ampere_stacks::{CutOff, Figures, Unnamed, UnnamedReason};
use std::time::Duration;

/// The maximum number of files that are named in a note.
const FILES_MAX: usize = 3;
/// The smallest part of the samples, in percent, that is worth a note.
const PART_MIN: f64 = 1.0;
/// Fewer samples than this are not worth a note in any run.
const SAMPLES_MIN: u64 = 4;
/// The largest part of the samples and records of switches, in percent, that a complete run can lose.
const LOST_MAX: f64 = 1.0;

/// Returns the notes and losses for the summary. `period` is the CPU time between two samples if none is missing, on average.
pub(super) fn of(figures: &Figures, period: Duration) -> SamplingReport {
    let mut report = SamplingReport { period: period_of(figures, period), ..SamplingReport::default() };
    report.notes.extend(cut_off(figures));
    report.notes.extend(guessed(figures));
    match lost(figures) {
        Some((words, true)) => report.losses.push(words),
        words => report.notes.extend(words.map(|(words, _)| words)),
    }
    let (losses, unnamed) = unnamed(figures);
    report.losses.extend(losses);
    report.notes.extend(unnamed);
    if figures.throttled > 0 {
        report.notes.push(format!(
            "about {} samples of stacks are missing: the kernel limits their rate (/proc/sys/kernel/perf_event_max_sample_rate); \
             standard errors are those of the {} that were taken",
            figures.throttled, figures.samples
        ));
    }
    if figures.later_cpus > 0 {
        report.notes.push(format!(
            "{} CPUs came online during the run: stacks have been sampled there since they were noticed",
            figures.later_cpus
        ));
    }
    if let Some(why) = &figures.unsampled_cpu {
        report.losses.push(format!("stacks are not sampled on a CPU that came online during the run: {why}"));
    }
    report
}

/// Returns the actual CPU time between two samples, if some samples are missing. The lost records are assumed to have
/// had the same proportion of samples as the others.
fn period_of(figures: &Figures, period: Duration) -> Option<Duration> {
    let taken = figures.samples as f64;
    let missing = figures.throttled as f64 + figures.lost as f64 * taken / (taken + figures.switches as f64);
    (figures.samples > 0 && missing > 0.0).then(|| period.mul_f64((taken + missing) / taken))
}

/// Describes the lost records, and whether they are so large a part of all records that the run is incomplete.
fn lost(figures: &Figures) -> Option<(String, bool)> {
    let all = figures.lost + figures.samples + figures.switches;
    let part = 100.0 * figures.lost as f64 / all.max(1) as f64;
    let words = || {
        format!(
            "{part:.1} % of the samples of stacks and records of switches were lost ({} of {all}; limit {LOST_MAX} %), because the \
             collector did not fetch them in time: shares of functions may differ by as much. Leave the collector a core, or run \
             fewer ranks on each core",
            figures.lost
        )
    };
    (figures.lost > 0).then(|| (words(), part > LOST_MAX))
}

fn percent(part: u64, figures: &Figures) -> f64 {
    100.0 * part as f64 / figures.samples.max(1) as f64
}

/// Whether this many samples are worth a note.
pub(super) fn is_notable_part(samples: u64, figures: &Figures) -> bool {
    samples >= SAMPLES_MIN && percent(samples, figures) >= PART_MIN
}

fn base(module: &str) -> &str {
    let name = module.rsplit('/').next().unwrap_or_default();
    if name.is_empty() { "an unknown place" } else { name }
}

fn list(parts: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = parts.collect();
    let shown = all[..all.len().min(FILES_MAX)].join(", ");
    if all.len() > FILES_MAX { format!("{shown}, and others") } else { shown }
}

fn cut_off(figures: &Figures) -> Option<String> {
    let all: u64 = figures.cut_off.iter().map(|cut| cut.samples).sum();
    let of = |CutOff { module, reason, samples }: &CutOff| {
        format!("{samples} in {} ({})", base(module), reason.text())
    };
    is_notable_part(all, figures).then(|| {
        format!(
            "the outer functions of {} ({:.1} %) are not known: {}",
            plural(all, "sample"),
            percent(all, figures),
            list(figures.cut_off.iter().map(of))
        )
    })
}

fn guessed(figures: &Figures) -> Option<String> {
    let all: u64 = figures.guessed.iter().map(|(_, samples)| samples).sum();
    is_notable_part(all, figures).then(|| {
        format!(
            "the outer functions of {} ({:.1} %) are guessed from return addresses on the stack, because functions have \
             no unwind tables: {}",
            plural(all, "sample"),
            percent(all, figures),
            list(figures.guessed.iter().map(|(module, samples)| format!("{samples} in {}", base(module))))
        )
    })
}

/// Returns the loss, if the run is incomplete, and the note about samples whose functions are not known.
fn unnamed(figures: &Figures) -> (Option<String>, Option<String>) {
    let text = |files: Vec<&Unnamed>| {
        let all: u64 = files.iter().map(|of| of.samples).sum();
        let files =
            files.iter().map(|of| format!("{} in {} ({})", of.samples, base(&of.module), of.reason.text()));
        let part = percent(all, figures);
        let samples = plural(all, "sample");
        (all, format!("the functions of {samples} ({part:.1} %) are not known: {}", list(files)))
    };
    let is_notable = |of: &&Unnamed| {
        let are_many = percent(of.samples, figures) >= PART_MIN || figures.unnamed_processes > 0;
        // A few samples outside of all known mappings, or outside of all functions of a file that was read, are normal.
        let is_normal_if_few = matches!(of.reason, UnnamedReason::Unmapped | UnnamedReason::NoFunction);
        !is_normal_if_few || are_many
    };
    let all = figures.unnamed.iter().filter(is_notable);
    let (memory, files) = all.partition(|of| of.reason == UnnamedReason::Memory);
    let (in_files, of_files) = text(files);
    let (in_memory, of_memory) = text(memory);
    let (losses, mut notes) = match figures.unnamed_processes {
        0 => (None, (in_files >= SAMPLES_MIN).then_some(of_files)),
        processes => {
            let which = plural(processes, "process");
            (Some(format!("{of_files}; in {which}, more than 5 % of the samples")), None)
        }
    };
    if is_notable_part(in_memory, figures) {
        notes = Some(notes.map_or(of_memory.clone(), |notes| format!("{notes}; {of_memory}")));
    }
    (losses, notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_stacks::CutReason;

    fn figures() -> Figures {
        let mut figures = Figures::default();
        figures.samples = 1000;
        figures
    }

    #[test]
    fn samples_without_losses_need_no_note() {
        let ended = of(&figures(), Duration::from_millis(1));
        assert_eq!((ended.notes.len(), ended.losses.len(), ended.period), (0, 0, None));
    }

    #[test]
    fn standard_errors_are_those_of_the_samples_that_were_taken() {
        let mut figures = figures();
        (figures.throttled, figures.lost) = (2500, 500);
        let ended = of(&figures, Duration::from_millis(1));
        assert_eq!(ended.losses.len(), 1, "{:?}", ended.losses);
        assert_eq!(ended.period, Some(Duration::from_millis(4)));
        figures.switches = 4000;
        let mostly_switches = of(&figures, Duration::from_millis(1));
        assert_eq!(mostly_switches.period, Some(Duration::from_micros(3600)));
        assert_eq!(
            ended.notes,
            ["about 2500 samples of stacks are missing: the kernel limits their rate \
              (/proc/sys/kernel/perf_event_max_sample_rate); standard errors are those of the 1000 that were taken"]
        );
    }

    #[test]
    fn a_run_that_lost_more_than_a_hundredth_of_its_samples_is_incomplete() {
        let mut figures = figures();
        (figures.switches, figures.lost) = (99_000, 1000);
        let ended = of(&figures, Duration::from_millis(1));
        assert_eq!((ended.losses.len(), ended.notes.len()), (0, 1));
        assert!(ended.notes[0].starts_with(
            "1.0 % of the samples of stacks and records of switches were lost (1000 of 101000; limit 1 %)"
        ));
        figures.lost = 1100;
        let ended = of(&figures, Duration::from_millis(1));
        assert_eq!((ended.losses.len(), ended.notes.len()), (1, 0), "{:?}", ended.notes);
        assert!(ended.losses[0].starts_with("1.1 % of the samples"), "{:?}", ended.losses);
    }

    #[test]
    fn cpus_that_come_later_are_reported_and_one_that_is_not_sampled_is_a_loss() {
        let mut figures = figures();
        figures.later_cpus = 2;
        let ended = of(&figures, Duration::from_millis(1));
        let note =
            "2 CPUs came online during the run: stacks have been sampled there since they were noticed";
        assert_eq!((ended.notes, ended.losses.len()), (vec![note.to_owned()], 0));
        figures.unsampled_cpu = Some("CPU 7: too many files".to_owned());
        let ended = of(&figures, Duration::from_millis(1));
        assert_eq!(
            ended.losses,
            ["stacks are not sampled on a CPU that came online during the run: CPU 7: too many files"]
        );
    }

    #[test]
    fn unknown_functions_are_reported_with_the_file_and_the_reason() {
        let mut figures = figures();
        let module = "/usr/lib/libx.so".into();
        figures.cut_off = vec![CutOff { module, reason: CutReason::NoUnwindTables, samples: 100 }];
        figures.guessed = vec![("/usr/lib/libx.so".into(), 900)];
        figures.unnamed = vec![
            Unnamed { module: "/a/prog".into(), reason: UnnamedReason::Gone, samples: 30 },
            Unnamed { module: "//anon".into(), reason: UnnamedReason::Memory, samples: 20 },
            Unnamed { module: "".into(), reason: UnnamedReason::Unmapped, samples: 10 },
            Unnamed { module: "/lib/libc.so.6".into(), reason: UnnamedReason::NoFunction, samples: 1 },
        ];
        let ended = of(&figures, Duration::from_millis(1));
        assert_eq!(
            ended.notes,
            [
                "the outer functions of 100 samples (10.0 %) are not known: 100 in libx.so (no unwind tables and no frame pointer)",
                "the outer functions of 900 samples (90.0 %) are guessed from return addresses on the stack, because functions have \
                 no unwind tables: 900 in libx.so",
                "the functions of 40 samples (4.0 %) are not known: 30 in prog (removed or replaced before it was read), 10 in an \
                 unknown place (the mapped file is unknown); the functions of 20 samples (2.0 %) are not known: 20 in anon \
                 (made at run time, without names for perf)",
            ]
        );
        assert_eq!(ended.losses.len(), 0);
        figures.unnamed_processes = 1;
        let ended = of(&figures, Duration::from_millis(1));
        assert_eq!((ended.losses.len(), ended.notes.len()), (1, 3), "{:?}", ended.notes);
        assert!(
            ended.losses[0].ends_with("; in 1 process, more than 5 % of the samples"),
            "{:?}",
            ended.losses
        );
    }
}
