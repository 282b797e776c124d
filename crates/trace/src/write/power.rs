//! Writes the attributed power of locations, and the energy that they used while they waited, as metrics of their own.

use super::Task;
use crate::power::{NAME, Recorded};
use crate::spool::Spool;
use crate::waited_energy;
use ampere_model::{LocationKind, Timestamp};
use ampere_ring::Record;
use otf2::{
    Definitions, MetricBase, MetricClass, MetricClassRef, MetricMember, MetricMode, MetricOccurrence,
    MetricType, MetricValueType, RecorderKind,
};
use std::io;

/// The number of values that are read at a time.
const AT_ONCE: usize = 1024;

/// The power of locations and the energy of their waits, as recorded while their events were attributed.
pub enum Power<'a> {
    /// The trace has neither.
    None,
    /// Values by the locations' numbers in the run's attributor.
    OfRun(&'a Recorded),
    /// Values by the locations' numbers in the attributor of the trace, which was attributed again.
    OfTrace(&'a Recorded),
}

/// Determines which tasks have values, and defines their metrics: one class for the locations of each kind.
pub(super) fn define<'a>(definitions: &mut Definitions, power: &Power<'a>, tasks: &mut [Task<'a>]) {
    let of = |all: &'a [Option<Spool>], at: usize| all.get(at).and_then(Option::as_ref);
    let set = |task: &mut Task<'a>, all: &'a Recorded, at: usize| {
        (task.power.spool, task.waited.spool) = (of(&all.power, at), of(&all.waited, at));
    };
    match power {
        Power::None => return,
        Power::OfRun(all) => tasks.iter_mut().for_each(|task| {
            if let Some(number) = task.number {
                set(task, all, number.0 as usize);
            }
        }),
        Power::OfTrace(all) => {
            // A reader numbers locations in the order of their references.
            let mut read: Vec<_> =
                tasks.iter_mut().filter(|task| task.kind != LocationKind::Metric).collect();
            read.sort_by_key(|task| task.reference);
            read.into_iter().enumerate().for_each(|(at, task)| set(task, all, at));
        }
    }
    define_one(definitions, tasks, power_metric(), |task| &mut task.power);
    define_one(definitions, tasks, waited_metric(), |task| &mut task.waited);
}

fn define_one<'a>(
    definitions: &mut Definitions,
    tasks: &mut [Task<'a>],
    metric: MetricMember,
    values: for<'t> fn(&'t mut Task<'a>) -> &'t mut LocationValues<'a>,
) {
    let mut member = None;
    for (kind, recorder_kind) in
        [(LocationKind::CpuThread, RecorderKind::Cpu), (LocationKind::Gpu, RecorderKind::Gpu)]
    {
        let mut with_values: Vec<&mut Task<'a>> = Vec::new();
        for task in tasks.iter_mut().filter(|task| task.kind == kind) {
            if values(task).spool.is_some() {
                with_values.push(task);
            }
        }
        if with_values.is_empty() {
            continue;
        }
        let member = *member.get_or_insert_with(|| definitions.metric_members.push(metric.clone()));
        let class = definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind,
            recorders: with_values.iter().map(|task| task.reference).collect(),
        });
        with_values.iter_mut().for_each(|task| values(task).class = class);
    }
}

fn power_metric() -> MetricMember {
    MetricMember {
        name: NAME.to_owned(),
        description: "the power that ampere attributes to this location's frames: the mean since the previous value, summed over \
                      all devices that the location draws from"
            .to_owned(),
        mode: MetricMode::AbsoluteLast,
        unit: "W".to_owned(),
        ..metric()
    }
}

fn waited_metric() -> MetricMember {
    MetricMember {
        name: waited_energy::NAME.to_owned(),
        description: "the energy that this location has used while waiting for other ranks in MPI, summed over all devices that it \
                      draws from. It rises from the start to the end of each wait; short waits that follow each other share a value"
            .to_owned(),
        mode: MetricMode::AccumulatedStart,
        unit: "J".to_owned(),
        ..metric()
    }
}

fn metric() -> MetricMember {
    MetricMember {
        name: String::new(),
        description: String::new(),
        kind: MetricType::Other,
        mode: MetricMode::AbsoluteLast,
        value_type: MetricValueType::F64,
        base: MetricBase::Decimal,
        exponent: 0,
        unit: String::new(),
    }
}

/// Where the values of one metric of a location are stored, and the class of the metric.
#[derive(Clone, Copy)]
pub(super) struct LocationValues<'a> {
    pub spool: Option<&'a Spool>,
    pub class: MetricClassRef,
}

impl Default for LocationValues<'_> {
    fn default() -> Self {
        LocationValues { spool: None, class: MetricClassRef(0) }
    }
}

/// The values of one location, in order.
pub(super) struct Values<'a> {
    of: LocationValues<'a>,
    /// The number of values that have been read.
    position: u64,
    read: std::vec::IntoIter<Record>,
    /// The time of the next value; [`Timestamp::MAX`] after the last one.
    pub next: Timestamp,
}

impl<'a> Values<'a> {
    pub fn new(of: LocationValues<'a>) -> io::Result<Values<'a>> {
        let mut values = Values { of, position: 0, read: Vec::new().into_iter(), next: Timestamp::MAX };
        values.read_more()?;
        Ok(values)
    }

    pub fn class(&self) -> MetricClassRef {
        self.of.class
    }

    /// Returns the next value and its time, if there is one.
    pub fn take(&mut self) -> io::Result<Option<(Timestamp, f64)>> {
        let value = self.read.next().map(|record| record.words());
        match self.read.len() {
            0 => self.read_more()?,
            _ => self.update_next(),
        }
        Ok(value.map(|[time, bits]| (time, f64::from_bits(bits))))
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut records = Vec::new();
        if let Some(spool) = self.of.spool {
            spool.read_back(self.position, spool.end(), AT_ONCE, &mut records)?;
        }
        self.position += records.len() as u64;
        self.read = records.into_iter();
        self.update_next();
        Ok(())
    }

    fn update_next(&mut self) {
        self.next = self.read.as_slice().first().map_or(Timestamp::MAX, |record| record.words()[0]);
    }
}
