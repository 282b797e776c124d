//! Passes on what processes count, such as units of work, as further series of the sampler. The sums go through the sampler's
//! ring, so that they are stored, written to the trace, and recovered like the samples of counters.

use crate::sampling::predecessor::LOG_NAME;
use ampere_model::{Counted, Definition, Device, Quality};
use ampere_ring::LogWriter;
use ampere_ring::work::WorkTable;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time between two readings of the table.
pub(super) const PERIOD: Duration = Duration::from_millis(100);

/// The series of each metric that is counted, and the table from which the sums are read.
pub(super) struct WorkSeries {
    directory: PathBuf,
    table: Option<WorkTable>,
    /// For each metric, the number of its series in the ring, and the value of the series' last sample.
    series: BTreeMap<String, (u32, f64)>,
    /// The number of the next series.
    next: u32,
    log: Option<LogWriter>,
    due: Instant,
}

impl WorkSeries {
    /// Continues the series that these devices of the sampler contain.
    pub fn new(directory: &Path, devices: &[Device]) -> WorkSeries {
        let counted = devices.iter().filter(|device| Counted::of_metric(&device.metric).is_some());
        WorkSeries {
            directory: directory.to_owned(),
            table: None,
            // The value of the last sample is not known. With 0, the first reading makes a sample of each series.
            series: counted.map(|device| (device.metric.clone(), (device.index, 0.0))).collect(),
            next: devices.iter().map(|device| device.index + 1).max().unwrap_or(0),
            log: None,
            due: Instant::now(),
        }
    }

    /// Returns the time of the next reading, once there is something to read.
    pub fn due(&self) -> Option<Instant> {
        self.table.as_ref().map(|_| self.due)
    }

    /// Reads the table if that is due. `define` gets new series, and `sample` the number and units of each that has changed.
    pub fn read(
        &mut self,
        now: Instant,
        is_last: bool,
        mut define: impl FnMut(Device),
        mut sample: impl FnMut(u32, f64),
    ) {
        if now < self.due && !is_last {
            return;
        }
        self.due = now + PERIOD;
        if self.table.is_none() {
            self.table = WorkTable::open(&self.directory).ok().flatten();
        }
        let Some(totals) = self.table.as_ref().map(WorkTable::totals) else { return };
        for (metric, units) in totals {
            if !self.series.contains_key(&metric) {
                let Some(device) = self.define(&metric) else { continue };
                define(device);
            }
            if let Some((number, last)) = self.series.get_mut(&metric).filter(|(_, last)| units > *last) {
                *last = units;
                sample(*number, units);
            }
        }
    }

    /// Writes the definition of a new series. `None` if that fails, because there is no room or no log: the next reading tries
    /// again.
    fn define(&mut self, metric: &str) -> Option<Device> {
        if self.log.is_none() {
            self.log = LogWriter::reopen(&self.directory.join(LOG_NAME)).ok();
        }
        let device = work_series(metric, self.next)?;
        let is_written = self.log.as_mut()?.append(&Definition::Device(device.clone()));
        is_written.then(|| {
            self.series.insert(metric.to_owned(), (self.next, 0.0));
            self.next += 1;
            device
        })
    }
}

/// Returns the definition of the series of a counted metric. It has the type of a device's definition, although it is no device.
fn work_series(metric: &str, index: u32) -> Option<Device> {
    Some(Device {
        index,
        name: Counted::of_metric(metric)?.1.to_owned(),
        metric: metric.to_owned(),
        source: "work".to_owned(),
        quality: Quality::Measured,
        resolution_joules: 0.0,
        kind: String::new(),
        pci: String::new(),
        description: String::new(),
        contains: Vec::new(),
        wraps_at: None,
        baseline_microwatts: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_ring::Session;

    /// Reads the table, and returns the metrics of new series and the samples.
    fn read(series: &mut WorkSeries, is_last: bool) -> (Vec<String>, Vec<(u32, f64)>) {
        let (mut defined, mut samples) = (Vec::new(), Vec::new());
        let define = |device: Device| defined.push(device.metric);
        series.read(Instant::now(), is_last, define, |number, units| samples.push((number, units)));
        (defined, samples)
    }

    #[test]
    fn a_sampler_that_takes_over_continues_the_series_and_counts_no_unit_twice() {
        let place = tempfile::tempdir().unwrap();
        let session = Session::open_or_create_in(place.path()).unwrap();
        drop(LogWriter::create(&place.path().join(LOG_NAME)).unwrap());
        let mut first = WorkSeries::new(place.path(), &[]);
        assert_eq!(read(&mut first, false), (vec![], vec![]));
        assert!(first.due().is_none(), "without work, nobody is woken");
        let table = WorkTable::open_or_create(&session).unwrap();
        let row = table.row(Counted::Work, "steps", true).unwrap();
        row.add(3.0);
        assert_eq!(read(&mut first, true), (vec!["ampere::work::steps".to_owned()], vec![(0, 3.0)]));
        let read_at = Instant::now();
        assert_eq!(read(&mut first, true), (vec![], vec![]), "nothing has changed");
        row.add(1.0);
        // It is not due yet, unless this thread got no CPU for a while.
        assert!(read(&mut first, false) == (vec![], vec![]) || read_at.elapsed() >= PERIOD);
        drop(first);
        let devices = crate::sampling::devices_in(&place.path().join(LOG_NAME));
        let mut next = WorkSeries::new(place.path(), &devices);
        table.row(Counted::Work, "cells", true).unwrap().add(7.0);
        let (defined, samples) = read(&mut next, true);
        assert_eq!(defined, ["ampere::work::cells"]);
        assert_eq!(samples, [(1, 7.0), (0, 4.0)], "the samples are sums since the start");
    }
}
