//! Collects what the sampler passes on.

use ampere_stacks::{FunctionId, Sink};

/// The data that the sampler has passed on, sorted by time.
#[derive(Default)]
pub(super) struct Fetched {
    pub events: Vec<Event>,
    /// The start of the next sample's interval on a CPU.
    runs_since: Option<u64>,
    /// The counts of events that the next sample has.
    counts: Vec<u64>,
}

pub(super) enum Event {
    Sample(u32, Sample),
    /// The process, and the path or name of its program.
    Started(u32, String),
    /// The process, and its parent.
    Forked(u32, u32),
    /// The process and thread, and the start and end of an interval on a CPU.
    Ran(u32, u32, u64, u64),
    /// Like `Ran`, without the time for which the thread waited for a CPU.
    OnCpu(u32, u32, u64, u64),
    Lost,
    /// The process, and its thread that has ended; `None` if all threads have ended.
    Ended(u32, Option<u32>),
}

pub(super) struct Sample {
    pub thread: u32,
    pub time: u64,
    /// The time from which the thread has been on a CPU or waiting for one.
    pub runs_since: Option<u64>,
    /// The functions, the outermost first.
    pub stack: Vec<FunctionId>,
    /// Whether functions outside of these are not known.
    pub is_cut_off: bool,
    /// How often each event has happened since the last sample; empty if none is counted.
    pub counts: Vec<u64>,
}

impl Sink for Fetched {
    fn sample(&mut self, process: u32, thread: u32, time_ns: u64, frames: &[FunctionId], is_cut_off: bool) {
        let runs_since = self.runs_since.take();
        let counts = std::mem::take(&mut self.counts);
        let sample = Sample { thread, time: time_ns, runs_since, stack: frames.to_vec(), is_cut_off, counts };
        self.events.push(Event::Sample(process, sample));
    }

    fn sample_runs_since(&mut self, since_ns: u64) {
        self.runs_since = Some(since_ns);
    }

    fn sample_counts(&mut self, counts: &[u64]) {
        self.counts = counts.to_vec();
    }

    fn started(&mut self, process: u32, _time_ns: u64, name: Option<&str>) {
        self.events.push(Event::Started(process, name.unwrap_or_default().to_owned()));
    }

    fn forked(&mut self, process: u32, parent: u32) {
        self.events.push(Event::Forked(process, parent));
    }

    fn ran(&mut self, process: u32, thread: u32, from_ns: u64, until_ns: u64) {
        self.events.push(Event::Ran(process, thread, from_ns, until_ns));
    }

    fn on_cpu(&mut self, process: u32, thread: u32, from_ns: u64, until_ns: u64) {
        self.events.push(Event::OnCpu(process, thread, from_ns, until_ns));
    }

    fn lost(&mut self) {
        self.events.push(Event::Lost);
    }

    fn ended(&mut self, process: u32, thread: Option<u32>, _time_ns: u64) {
        self.events.push(Event::Ended(process, thread));
    }
}
