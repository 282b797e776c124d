//! Writes the attributed power of locations as metrics of their own.

use super::Task;
use crate::power::{NAME, Value};
use crate::spool::Spool;
use ampere_model::{LocationKind, Timestamp};
use ampere_ring::Record;
use otf2::{
    Definitions, MetricBase, MetricClass, MetricClassRef, MetricMember, MetricMode, MetricOccurrence,
    MetricType, MetricValueType, RecorderKind,
};
use std::io;

/// The number of values that are read at a time.
const AT_ONCE: usize = 1024;

/// The power of locations, as it was recorded while their events were attributed.
pub enum Power<'a> {
    /// The trace has no power.
    None,
    /// Power by the locations' numbers in the run's attributor.
    OfRun(&'a [Option<Spool>]),
    /// Power by the locations' numbers in the attributor of the trace, which was attributed again.
    OfTrace(&'a [Option<Spool>]),
}

/// Determines which tasks have a power, and defines its metric: one class for the locations of each kind.
pub(super) fn define<'a>(definitions: &mut Definitions, power: &Power<'a>, tasks: &mut [Task<'a>]) {
    let of = |all: &'a [Option<Spool>], at: usize| all.get(at).and_then(Option::as_ref);
    match power {
        Power::None => return,
        Power::OfRun(all) => tasks
            .iter_mut()
            .for_each(|task| task.power.spool = task.number.and_then(|number| of(all, number.0 as usize))),
        Power::OfTrace(all) => {
            // A reader numbers locations in the order of their references.
            let mut read: Vec<_> =
                tasks.iter_mut().filter(|task| task.kind != LocationKind::Metric).collect();
            read.sort_by_key(|task| task.reference);
            read.into_iter().enumerate().for_each(|(at, task)| task.power.spool = of(all, at));
        }
    }
    let mut member = None;
    for (kind, recorder_kind) in
        [(LocationKind::CpuThread, RecorderKind::Cpu), (LocationKind::Gpu, RecorderKind::Gpu)]
    {
        let mut with_power: Vec<_> =
            tasks.iter_mut().filter(|task| task.kind == kind && task.power.spool.is_some()).collect();
        if with_power.is_empty() {
            continue;
        }
        let member = *member.get_or_insert_with(|| definitions.metric_members.push(metric()));
        let class = definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind,
            recorders: with_power.iter().map(|task| task.reference).collect(),
        });
        with_power.iter_mut().for_each(|task| task.power.class = class);
    }
}

fn metric() -> MetricMember {
    MetricMember {
        name: NAME.to_owned(),
        description: "what ampere attributes to this location's frames: the mean since the value before, of all devices that it draws \
                      from together"
            .to_owned(),
        kind: MetricType::Other,
        mode: MetricMode::AbsoluteLast,
        value_type: MetricValueType::F64,
        base: MetricBase::Decimal,
        exponent: 0,
        unit: "W".to_owned(),
    }
}

/// The place where a location's power is stored, and the class of its metric.
#[derive(Clone, Copy)]
pub(super) struct LocationPower<'a> {
    pub spool: Option<&'a Spool>,
    pub class: MetricClassRef,
}

impl Default for LocationPower<'_> {
    fn default() -> Self {
        LocationPower { spool: None, class: MetricClassRef(0) }
    }
}

/// The values of one location, in order.
pub(super) struct Values<'a> {
    of: LocationPower<'a>,
    /// The number of values that have been read.
    position: u64,
    read: std::vec::IntoIter<Record>,
    pub next: Timestamp,
}

impl<'a> Values<'a> {
    pub fn new(of: LocationPower<'a>) -> io::Result<Values<'a>> {
        let mut values = Values { of, position: 0, read: Vec::new().into_iter(), next: Timestamp::MAX };
        values.read_more()?;
        Ok(values)
    }

    pub fn class(&self) -> MetricClassRef {
        self.of.class
    }

    pub fn take(&mut self) -> io::Result<Option<Value>> {
        let value = self.read.next().as_ref().map(Value::of);
        match self.read.len() {
            0 => self.read_more()?,
            _ => self.look(),
        }
        Ok(value)
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut records = Vec::new();
        if let Some(spool) = self.of.spool {
            spool.read_back(self.position, spool.end(), AT_ONCE, &mut records)?;
        }
        self.position += records.len() as u64;
        self.read = records.into_iter();
        self.look();
        Ok(())
    }

    fn look(&mut self) {
        self.next = self.read.as_slice().first().map_or(Timestamp::MAX, |record| Value::of(record).time);
    }
}
