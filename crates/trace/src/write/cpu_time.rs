//! Writes the CPU time of each location as a metric. The records of a location's CPU time are among its own records, or in the
//! spool of another location.

use super::{CpuTimeOf, Task, TracedRun};
use crate::index::CPU_TIME;
use crate::spool::Spool;
use ampere_model::Timestamp;
use ampere_ring::cpu_time::{CpuOfRing, CpuTotal};
use ampere_ring::decoder::{Decoder, Event};
use otf2::{
    Definitions, LocationRef, MetricBase, MetricClass, MetricClassRef, MetricMember, MetricMode,
    MetricOccurrence, MetricType, MetricValueType, RecorderKind,
};
use std::collections::{HashMap, VecDeque};
use std::io;

/// The number of records that are read at a time.
const AT_ONCE: usize = 1024;

/// Determines which tasks have CPU time, and defines its metric.
pub(super) fn define<'a>(
    definitions: &mut Definitions,
    run: &TracedRun<'a>,
    numbers: &[u32],
    tasks: &mut [Task<'a>],
) {
    let mut spools = HashMap::<LocationRef, Vec<&Spool>>::new();
    let mut have_own = Vec::new();
    for (at, process) in run.processes.iter().enumerate() {
        for location in &process.locations {
            match location.cpu_time_of {
                Some(CpuTimeOf::Location(of, id)) => {
                    let reference = super::reference(id, numbers[of]);
                    spools.entry(reference).or_default().extend(location.spool);
                }
                Some(CpuTimeOf::Itself | CpuTimeOf::OtherThreads(_)) => {
                    have_own.push(super::reference(location.definition.id, numbers[at]));
                }
                None => {}
            }
        }
    }
    let mut with_cpu_time = Vec::new();
    for task in tasks.iter_mut() {
        task.cpu_time.spools = spools.remove(&task.reference).unwrap_or_default();
        if !task.cpu_time.spools.is_empty() || have_own.contains(&task.reference) {
            with_cpu_time.push(task);
        }
    }
    // A metric without any point still shows that the run knew when its threads were on a CPU.
    if with_cpu_time.is_empty() && !run.knows_cpu_times {
        return;
    }
    let member = definitions.metric_members.push(MetricMember {
        name: CPU_TIME.to_owned(),
        description: "the CPU time of this location: its slope is 1 while the thread runs, and 0 otherwise; if the thread is switched \
                      more than 2000 times a second, a point stands for a millisecond"
            .to_owned(),
        kind: MetricType::Other,
        mode: MetricMode::AccumulatedStart,
        value_type: MetricValueType::U64,
        base: MetricBase::Decimal,
        exponent: -9,
        unit: "s".to_owned(),
    });
    let class = definitions.add_metric_class(MetricClass {
        members: vec![member],
        occurrence: MetricOccurrence::Asynchronous,
        recorder_kind: RecorderKind::Cpu,
        recorders: with_cpu_time.iter().map(|task| task.reference).collect(),
    });
    with_cpu_time.into_iter().for_each(|task| task.cpu_time.class = Some(class));
}

/// The places where the CPU time of a location is stored in addition to its own records, and the class of its metric.
#[derive(Clone, Default)]
pub(super) struct LocationCpuTime<'a> {
    pub spools: Vec<&'a Spool>,
    pub class: Option<MetricClassRef>,
}

/// Records of CPU time in a spool.
struct Source<'a> {
    spool: &'a Spool,
    /// The number of records that have been read.
    position: u64,
    decoder: Decoder,
    events: VecDeque<(Timestamp, u32, u64)>,
    last: CpuOfRing,
}

/// The points of one location, in order.
pub(super) struct Points<'a> {
    sources: Vec<Source<'a>>,
    total: CpuTotal,
    /// The last record among the location's own.
    own: CpuOfRing,
    points: VecDeque<(Timestamp, u64)>,
    /// The time of the next point.
    pub next: Timestamp,
    pub class: Option<MetricClassRef>,
}

impl<'a> Points<'a> {
    pub fn new(of: &LocationCpuTime<'a>) -> io::Result<Points<'a>> {
        let source = |spool: &&'a Spool| Source {
            spool,
            position: 0,
            decoder: Decoder::default(),
            events: VecDeque::new(),
            last: CpuOfRing::default(),
        };
        let mut points = Points {
            sources: of.spools.iter().map(source).collect(),
            total: CpuTotal::default(),
            own: CpuOfRing::default(),
            points: VecDeque::new(),
            next: Timestamp::MAX,
            class: of.class,
        };
        points.read_more()?;
        Ok(points)
    }

    /// Returns the next point, if there is one.
    pub fn take(&mut self) -> io::Result<Option<(Timestamp, u64)>> {
        let point = self.points.pop_front();
        self.read_more()?;
        Ok(point)
    }

    /// Adds one of the location's own records.
    pub fn add_own(&mut self, record: (Timestamp, u32, u64)) {
        self.total.add(&mut self.own, record, |time, ns| self.points.push_back((time, ns)));
        self.next = self.points.front().map_or(Timestamp::MAX, |(time, _)| *time);
    }

    fn read_more(&mut self) -> io::Result<()> {
        while self.points.is_empty() {
            self.sources.iter_mut().try_for_each(Source::read_more)?;
            let first = |source: &&mut Source| source.events.front().map(|(time, ..)| *time);
            let with_events = self.sources.iter_mut().filter(|source| !source.events.is_empty());
            let Some(source) = with_events.min_by_key(first) else { break };
            if let Some(record) = source.events.pop_front() {
                self.total.add(&mut source.last, record, |time, ns| self.points.push_back((time, ns)));
            }
        }
        self.next = self.points.front().map_or(Timestamp::MAX, |(time, _)| *time);
        Ok(())
    }
}

impl Source<'_> {
    fn read_more(&mut self) -> io::Result<()> {
        while self.events.is_empty() && self.position < self.spool.end() {
            let mut records = Vec::new();
            self.spool.read_back(self.position, self.spool.end(), AT_ONCE, &mut records)?;
            if records.is_empty() {
                break;
            }
            self.position += records.len() as u64;
            let events = &mut self.events;
            self.decoder.decode_all(&records, &mut |event| {
                if let Event::CpuTime(time, rose_ticks, ns) = event {
                    events.push_back((time, rose_ticks, ns));
                }
            });
        }
        Ok(())
    }
}
