//! How often the events that are counted in each thread have happened since its last sample.

use ampere_model::CountedEvent;
use rustc_hash::FxHashMap;

/// The values of the events of a group, as the kernel writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupRead<'a> {
    /// The time for which the events were enabled, and the time for which they were counted, in nanoseconds.
    enabled: u64,
    running: u64,
    /// The value of each event and the kernel's identifier of the event. The first event takes the samples.
    events: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(8 * at..8 * at + 8)?.try_into().ok()?))
}

impl<'a> GroupRead<'a> {
    /// Parses the values at the start of these bytes; `None` if there are too few.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<GroupRead<'a>> {
        let length = GroupRead::length(bytes)?;
        Some(GroupRead { enabled: word(bytes, 1)?, running: word(bytes, 2)?, events: bytes.get(24..length)? })
    }

    /// Returns the number of bytes of the values at the start of these bytes.
    pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
        usize::try_from(word(bytes, 0)?).ok()?.checked_mul(16)?.checked_add(24)
    }

    /// Returns the identifier of the event that takes the samples.
    fn leader(&self) -> Option<u64> {
        word(self.events, 1)
    }

    /// Iterates over the values of the other events.
    fn values(&self) -> impl Iterator<Item = u64> {
        (1..self.events.len() / 16).filter_map(|event| word(self.events, 2 * event))
    }
}

/// The counts of events that were closed.
#[derive(Debug, Default)]
pub(crate) struct GroupTotals {
    values: Vec<u64>,
    /// The number of times that the events of a thread could not be opened on a CPU, for example because no counter was left. The
    /// thread is sampled there, but its events are not counted.
    pub(crate) failed_openings: u64,
}

impl GroupTotals {
    pub(crate) fn new(events: usize) -> GroupTotals {
        GroupTotals { values: vec![0; events], failed_openings: 0 }
    }

    pub(crate) fn add(&mut self, read: &GroupRead) {
        for (sum, value) in self.values.iter_mut().zip(read.values()) {
            *sum = sum.saturating_add(value);
        }
    }
}

/// How often each event has happened in a run.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct EventTotals {
    /// For each event, the sum of the counts that samples had.
    pub sampled: Vec<u64>,
    /// For each event, all counts of the threads. It is complete after [`Sampler::finish`](crate::Sampler::finish).
    pub counted: Vec<u64>,
    /// The part of the time in which the processor's counters counted these events, and not those of others.
    pub counting_ratio: f64,
    /// The number of times that the events of a thread could not be opened on a CPU, for example because no counter was left. The
    /// thread was sampled there, but its events were not counted.
    pub failed_openings: u64,
}

/// The maximum number of threads whose last counts are known.
const THREADS_MAX: usize = 1 << 16;

/// The counts of the last sample of each thread, and the sums over all samples.
#[derive(Default)]
pub(crate) struct Counts {
    /// The event that each perf event is a part of, and its factor.
    parts: Vec<(usize, u64)>,
    threads: FxHashMap<u32, Thread>,
    sampled: Vec<u64>,
    /// The counts since the last sample.
    counts: Vec<u64>,
    /// The times between samples of a thread on the same CPU: those for which its events were enabled, and those for which they
    /// were counted, in nanoseconds.
    enabled: u64,
    running: u64,
}

/// The last counts of a thread.
#[derive(Default)]
struct Thread {
    /// The identifier of the event that took the last sample.
    latest: u64,
    /// One entry for each CPU on which it was sampled.
    of_cpus: Vec<Last>,
}

struct Last {
    /// The identifier of the event that takes the samples.
    leader: u64,
    enabled: u64,
    running: u64,
    values: Vec<u64>,
}

impl Counts {
    pub(crate) fn new(events: &[CountedEvent]) -> Counts {
        let numbered = events.iter().enumerate();
        let parts = numbered.flat_map(|(at, event)| event.parts.iter().map(move |part| (at, part.factor)));
        let zeros = vec![0; events.len()];
        Counts { parts: parts.collect(), sampled: zeros.clone(), counts: zeros, ..Counts::default() }
    }

    /// Whether samples have counts.
    pub(crate) fn are_read(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Returns how often each event has happened in a thread since its last sample on the same CPU. Counts on other CPUs come
    /// with the next sample there.
    pub(crate) fn since_last(&mut self, thread: u32, read: &GroupRead) -> &[u64] {
        self.counts.fill(0);
        let Some(leader) = read.leader() else { return &self.counts };
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&thread) {
            return &self.counts;
        }
        let Thread { latest, of_cpus } = self.threads.entry(thread).or_default();
        let at = of_cpus.iter().position(|last| last.leader == leader).unwrap_or_else(|| {
            of_cpus.push(Last { leader, enabled: 0, running: 0, values: vec![0; self.parts.len()] });
            of_cpus.len() - 1
        });
        let last = &mut of_cpus[at];
        // While a thread is on another CPU, its events on this CPU are enabled but do not run.
        if std::mem::replace(latest, leader) == leader {
            self.enabled += read.enabled.saturating_sub(last.enabled);
            self.running += read.running.saturating_sub(last.running);
        }
        (last.enabled, last.running) = (read.enabled, read.running);
        for ((value, last), (event, factor)) in read.values().zip(&mut last.values).zip(&self.parts) {
            // A lower value is that of another thread with the same ID.
            let rise = value.checked_sub(*last).unwrap_or(value).saturating_mul(*factor);
            *last = value;
            self.counts[*event] = self.counts[*event].saturating_add(rise);
        }
        for (sum, count) in self.sampled.iter_mut().zip(&self.counts) {
            *sum = sum.saturating_add(*count);
        }
        &self.counts
    }

    pub(crate) fn end_thread(&mut self, thread: u32) {
        self.threads.remove(&thread);
    }

    pub(crate) fn totals(&self, closed: &GroupTotals) -> EventTotals {
        let mut counted = vec![0_u64; self.sampled.len()];
        for (value, (event, factor)) in closed.values.iter().zip(&self.parts) {
            counted[*event] = counted[*event].saturating_add(value.saturating_mul(*factor));
        }
        let counting_ratio = if self.enabled > 0 { self.running as f64 / self.enabled as f64 } else { 1.0 };
        EventTotals {
            sampled: self.sampled.clone(),
            counted,
            counting_ratio,
            failed_openings: closed.failed_openings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(leader: u64, values: &[u64]) -> Vec<u8> {
        bytes_of_times(leader, (1000, 900), values)
    }

    fn bytes_of_times(leader: u64, (enabled, running): (u64, u64), values: &[u64]) -> Vec<u8> {
        let mut words = vec![values.len() as u64 + 1, enabled, running, 5, leader];
        words.extend(values.iter().flat_map(|value| [*value, 99]));
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn counts_since_the_last_sample_are_those_of_each_thread_and_cpu() {
        let events = ["a=1:2", "b=4:1*1+4:2*10"].map(|text| CountedEvent::parse(text).unwrap());
        let mut counts = Counts::new(&events);
        let mut since = |thread, leader, values: &[u64]| {
            counts.since_last(thread, &GroupRead::parse(&bytes(leader, values)).unwrap()).to_vec()
        };
        assert_eq!(since(1, 7, &[3, 2, 1]), [3, 12]);
        assert_eq!(since(1, 7, &[4, 2, 2]), [1, 10]);
        assert_eq!(since(2, 7, &[5, 0, 0]), [5, 0], "another thread");
        assert_eq!(since(1, 8, &[6, 0, 0]), [6, 0], "another CPU");
        assert_eq!(since(1, 7, &[2, 2, 2]), [2, 0], "another thread with the same number");
        assert_eq!(since(1, 7, &[]), [0, 0]);
        counts.end_thread(1);
        let mut closed = GroupTotals::new(3);
        closed.add(&GroupRead::parse(&bytes(7, &[20, 2, 3])).unwrap());
        let totals = counts.totals(&closed);
        assert_eq!(
            (totals.sampled, totals.counted, totals.counting_ratio),
            (vec![17, 22], vec![20, 32], 1.0)
        );
    }

    #[test]
    fn the_part_of_the_time_with_counters_is_known_from_samples_on_one_cpu() {
        let mut counts = Counts::new(&[CountedEvent::parse("a=1:2").unwrap()]);
        let samples = [(7, 100, 100), (7, 300, 250), (8, 1000, 50), (7, 900, 300), (7, 1000, 350)];
        for (leader, enabled, running) in samples {
            let bytes = bytes_of_times(leader, (enabled, running), &[0]);
            counts.since_last(1, &GroupRead::parse(&bytes).unwrap());
        }
        assert_eq!(counts.totals(&GroupTotals::new(1)).counting_ratio, 200.0 / 300.0);
    }

    #[test]
    fn damaged_values_are_refused() {
        let whole = bytes(7, &[1, 2]);
        for cut in 0..whole.len() {
            assert_eq!(GroupRead::parse(&whole[..cut]), None, "{cut}");
        }
        for count in [u64::MAX, u64::MAX / 16, 4] {
            let damaged = [&count.to_ne_bytes(), &whole[8..]].concat();
            assert_eq!(GroupRead::parse(&damaged), None, "{count}");
        }
    }
}
