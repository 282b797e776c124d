//! Ranks whose main thread only waits while other threads work: by main threads alone, their joules tell nothing.

use crate::attributor::Attributor;
use crate::linking::ThreadSeconds;
use ampere_attribution::LocationIndex;
use ampere_model::LocationKind;
use ampere_settings::Locations;

/// Processes whose other threads ran more than their main thread.
struct BusyThreads<'a> {
    /// The location group of the first of them.
    group: &'a str,
    seconds: ThreadSeconds,
    /// By the operating system's count; else by the time in which they had frames open.
    is_cpu_time: bool,
    processes: usize,
}

/// Whether tables begin with the division among all threads, although the settings choose main threads.
pub fn all_threads_lead(attributor: &Attributor) -> bool {
    attributor.config().attribution.locations == Locations::Main && busy_threads(attributor).is_some()
}

/// What users should know about ranks with several threads that have frames.
pub fn note(attributor: &Attributor) -> Option<String> {
    let has_threads_view = attributor.devices.iter().any(|device| device.views.threads.is_some());
    if attributor.config().attribution.locations == Locations::All || !has_threads_view {
        return None;
    }
    let Some(busy) = busy_threads(attributor) else {
        let ran = attributor.locations.iter().enumerate().any(|(at, info)| {
            info.kind == LocationKind::CpuThread
                && !info.main
                && attributor.engine.has_run(LocationIndex(at as u32))
        });
        return ran.then(|| {
            "a rank's joules are attributed to the frames of its main thread; shared among all of its threads they are in \
             other_ranks of summary.json (AMPERE_LOCATIONS=all shows these)"
                .to_owned()
        });
    };
    let more = match busy.processes {
        1 => String::new(),
        many => format!(", and so did those of {} more", many - 1),
    };
    Some(format!(
        "other threads of {} ran more than its main thread ({:.2} s and {:.2} s {}){more}: tables begin with joules that \
         all threads of a rank share; by main threads alone they are in views of summary.json and in /metrics, as the \
         settings say (locations)",
        busy.group,
        busy.seconds.others,
        busy.seconds.main,
        if busy.is_cpu_time { "of CPU time" } else { "in frames" },
    ))
}

fn busy_threads(attributor: &Attributor) -> Option<BusyThreads<'_>> {
    let has_run = |at: &&usize| attributor.engine.has_run(LocationIndex(**at as u32));
    let is_main = |at: &&usize| attributor.locations[**at].main;
    let mut first = None;
    let mut processes = 0;
    for process in attributor.links().processes() {
        let Some(thread) = process.threads.iter().filter(has_run).find(|at| !is_main(at)) else { continue };
        let seconds = process.cpu.unwrap_or_else(|| {
            let sum = |main: bool| {
                let threads = process.threads.iter().filter(|at| is_main(at) == main);
                threads.map(|at| frame_seconds(attributor, *at)).sum()
            };
            ThreadSeconds { main: sum(true), others: sum(false) }
        });
        if seconds.others > seconds.main {
            processes += 1;
            if first.is_none_or(|(before, _, _)| thread < before) {
                first = Some((thread, seconds, process.cpu.is_some()));
            }
        }
    }
    first.map(|(location, seconds, is_cpu_time)| BusyThreads {
        group: &attributor.locations[*location].group,
        seconds,
        is_cpu_time,
        processes,
    })
}

/// How long a location had a frame open.
fn frame_seconds(attributor: &Attributor, location: usize) -> f64 {
    let mut sum = 0u64;
    let add = |_, _, ticks| sum = sum.saturating_add(ticks);
    attributor.engine.each_callpath(LocationIndex(location as u32), add);
    sum as f64 / attributor.ticks_per_second as f64
}
