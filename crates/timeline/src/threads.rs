//! Ranks whose main thread only waits while other threads work: the joules of their main threads alone would be misleading.

use crate::attributor::Attributor;
use crate::linking::ThreadSeconds;
use ampere_attribution::LocationIndex;
use ampere_model::LocationKind;
use ampere_settings::Locations;
use serde::{Deserialize, Serialize};

/// Processes whose other threads ran more than their main thread.
struct BusyThreads<'a> {
    /// The location group of the first of these processes.
    group: &'a str,
    seconds: ThreadSeconds,
    /// Whether the seconds are CPU time as the operating system counts it; otherwise the time in which frames were open.
    is_cpu_time: bool,
    processes: usize,
}

/// Whether tables start with the division among all threads, although the settings choose main threads.
pub fn all_threads_lead(attributor: &Attributor) -> bool {
    attributor.config().attribution.locations == Locations::Main && busy_threads(attributor).is_some()
}

/// The work of threads other than main threads, if joules are divided among main threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum OtherThreads {
    /// No other thread had a frame, or they share the joules.
    #[default]
    None,
    /// Some other threads had frames.
    Ran,
    /// In `processes` processes other threads ran longer than the main thread.
    Busy {
        /// The location group of the first of these processes.
        group: String,
        /// The seconds of its main thread.
        main: f64,
        /// The seconds of its other threads.
        others: f64,
        /// Whether the seconds are CPU time as the operating system counts it; otherwise the time in which frames were open.
        is_cpu_time: bool,
        processes: usize,
    },
}

impl OtherThreads {
    pub fn of(attributor: &Attributor) -> OtherThreads {
        let has_threads_view = attributor.devices.iter().any(|device| device.views.threads.is_some());
        if attributor.config().attribution.locations == Locations::All || !has_threads_view {
            return OtherThreads::None;
        }
        if let Some(busy) = busy_threads(attributor) {
            let BusyThreads { group, seconds: ThreadSeconds { main, others }, is_cpu_time, processes } = busy;
            return OtherThreads::Busy { group: group.to_owned(), main, others, is_cpu_time, processes };
        }
        let ran = attributor.locations.iter().enumerate().any(|(at, info)| {
            info.kind == LocationKind::CpuThread
                && !info.main
                && attributor.engine.has_run(LocationIndex(at as u32))
        });
        if ran { OtherThreads::Ran } else { OtherThreads::None }
    }

    /// Adds the threads of another node. `place` returns the index of a location group in the order of all groups.
    pub fn with(self, more: OtherThreads, place: impl Fn(&str) -> usize) -> OtherThreads {
        use OtherThreads::{Busy, None};
        match (self, more) {
            (
                Busy { group, main, others, is_cpu_time, processes },
                Busy {
                    group: group2,
                    main: main2,
                    others: others2,
                    is_cpu_time: is_cpu_time2,
                    processes: processes2,
                },
            ) => {
                let processes = processes + processes2;
                match place(&group) <= place(&group2) {
                    true => Busy { group, main, others, is_cpu_time, processes },
                    false => Busy {
                        group: group2,
                        main: main2,
                        others: others2,
                        is_cpu_time: is_cpu_time2,
                        processes,
                    },
                }
            }
            (busy @ Busy { .. }, _) | (_, busy @ Busy { .. }) => busy,
            (None, one) | (one, _) => one,
        }
    }

    pub fn note(&self) -> Option<String> {
        match self {
            OtherThreads::None => None,
            OtherThreads::Ran => Some(
                "a rank's joules are attributed to the frames of its main thread; shared among all of its threads they are in \
                 other_ranks of summary.json (AMPERE_LOCATIONS=all shows these)"
                    .to_owned(),
            ),
            OtherThreads::Busy { group, main, others, is_cpu_time, processes } => {
                let more = match processes {
                    1 => String::new(),
                    many => format!(", and so did those of {} more", many - 1),
                };
                Some(format!(
                    "other threads of {group} ran more than its main thread ({others:.2} s and {main:.2} s {}){more}: tables begin \
                     with joules that all threads of a rank share; by main threads alone they are in views of summary.json and in \
                     /metrics, as the settings say (locations)",
                    if *is_cpu_time { "of CPU time" } else { "in frames" },
                ))
            }
        }
    }
}

fn busy_threads(attributor: &Attributor) -> Option<BusyThreads<'_>> {
    let has_run = |at: &&usize| attributor.engine.has_run(LocationIndex(**at as u32));
    let is_main = |at: &&usize| attributor.locations[**at].main;
    // The joules of a node without a device are not divided.
    let is_measured = |at: &&usize| {
        let node = &attributor.locations[**at].node;
        attributor.devices.iter().any(|device| device.views.threads.is_some() && device.info.node == *node)
    };
    let mut first = None;
    let mut processes = 0;
    for process in attributor.links().processes() {
        let Some(thread) = process.threads.iter().filter(has_run).find(|at| !is_main(at) && is_measured(at))
        else {
            continue;
        };
        let seconds = process.cpu.unwrap_or_else(|| {
            let sum = |main: bool| {
                let threads = process.threads.iter().filter(|at| is_main(at) == main);
                threads.map(|at| attributor.seconds_in_frames(LocationIndex(*at as u32))).sum()
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
