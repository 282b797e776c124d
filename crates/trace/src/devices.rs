//! The devices of a trace, which are found with their first samples.

use crate::evidence;
use crate::index::number;
use crate::left_out::Shown;
use crate::meters::{Freshness, Meter, Prints};
use crate::metric_recorders::{ReadBy, Recorders};
use crate::metrics::{Found, Metrics, OnNodes};
use crate::places::{Place, nodes_of};
use crate::series::{Key, Series};
use ampere_model::counted::Level;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::topology::{Accelerator, CounterEvidence, metric_number};
use otf2::{Definitions, LocationGroupRef, LocationRef, MetricRef, MetricValue};
use std::collections::HashMap;

/// The devices of a trace, which are found with their first samples.
pub(crate) struct TraceDevices<'a> {
    definitions: &'a Definitions,
    metrics: Metrics,
    /// Evidence by node and metric.
    evidence: HashMap<(String, String), CounterEvidence>,
    /// The names of processes that [`evidence::owners`] returns.
    owners: HashMap<LocationGroupRef, String>,
    recorders: Option<Recorders>,
    /// Series of devices that have fewer joules than the devices that they should contain.
    disproved: Vec<Series>,
    /// The attributor's device of each series; `None` if it has none.
    series: HashMap<Series, Option<usize>>,
    first: HashMap<Key, Series>,
    /// Sources by node and metric, if they are not "trace".
    pub sources: HashMap<(String, String), String>,
    pub found: Vec<Found>,
    /// Whether several series have the same key, so that their samples must be compared first.
    pub is_undecided: bool,
    /// Observations of metrics whose joules may be missing.
    pub shown: HashMap<Series, Shown>,
    pub freshness: Freshness,
    /// The values of each device, by its number, if the trace has several nodes.
    prints: HashMap<usize, Prints>,
    has_nodes: bool,
}

impl<'a> TraceDevices<'a> {
    pub fn new(
        definitions: &'a Definitions,
        metrics: Metrics,
        recorders: Option<Recorders>,
        disproved: Vec<Series>,
    ) -> TraceDevices<'a> {
        TraceDevices {
            definitions,
            metrics,
            evidence: evidence::of_counters(definitions),
            owners: evidence::owners(definitions),
            recorders,
            disproved,
            series: HashMap::new(),
            first: HashMap::new(),
            sources: HashMap::new(),
            found: Vec::new(),
            is_undecided: false,
            shown: HashMap::new(),
            freshness: Freshness::new(definitions),
            prints: HashMap::new(),
            has_nodes: nodes_of(definitions).len() > 1,
        }
    }

    /// Adds the devices that an earlier pass found.
    pub fn add_found(&mut self, mut found: Vec<Found>, attributor: &mut Attributor) {
        found.retain(|found| !self.disproved.contains(&found.series));
        for found in &mut found {
            let device = found.add_to(attributor);
            self.series.insert(found.series, device);
            self.first.entry(found.key()).or_insert(found.series);
        }
        self.found = found;
    }

    /// Returns the power metrics to use on nodes where no energy metric of the same part has risen, and the energy metrics that
    /// they replace.
    pub fn exceptions(&self, attributor: &Attributor) -> OnNodes {
        let left_out = self.series.iter().filter(|(_, device)| device.is_none()).map(|(series, _)| series);
        let rises = |found: &&Found| found.number.is_some_and(|number| attributor.devices[number].rises());
        let (rising, silent): (Vec<&Found>, Vec<&Found>) = self.found.iter().partition(rises);
        self.metrics.find_exceptions(self.definitions, (&rising, &silent), left_out)
    }

    pub fn definitions(&self) -> &'a Definitions {
        self.definitions
    }

    /// Returns the samples in an event: the attributor's number of each device, and its value. Finds devices at their first
    /// sample.
    pub fn samples(
        &mut self,
        location: LocationRef,
        time: u64,
        (metric, values): (MetricRef, &[MetricValue]),
        attributor: &mut Attributor,
    ) -> Vec<(usize, MetricValue)> {
        let definitions = self.definitions;
        let node = || Place::new(definitions, location, metric.instance, "").node;
        self.freshness.read(time, metric, values, node);
        for (member, value) in self.metrics.doubtful_values(metric, values) {
            let series = Series { location, member, instance: metric.instance };
            self.shown.entry(series).or_default().add(number(value));
        }
        let mut samples = Vec::new();
        let values: Vec<_> = self.metrics.values(metric, values).collect();
        for (member, value) in values {
            let series = Series { location, member, instance: metric.instance };
            let device = match self.series.get(&series) {
                Some(known) => *known,
                None => {
                    let device = self.find(series, attributor);
                    self.series.insert(series, device);
                    device
                }
            };
            if let Some(device) = device.filter(|_| self.has_nodes)
                && attributor.devices[device].info.is_by_other_tool
            {
                let is_power = attributor.devices[device].is_power();
                self.prints.entry(device).or_default().add(number(value), is_power);
            }
            samples.extend(device.map(|device| (device, value)));
        }
        samples
    }

    /// Returns the devices of other tools that may be meters of several nodes.
    pub fn meters(&self) -> Vec<Meter> {
        let by_others = self.found.iter().filter(|found| found.recorded.is_by_other_tool);
        let meter = |found: &Found| {
            let counter = found.recorded.counter(&found.device.metric);
            let has_known_part = found.counted.level.is_some();
            Meter::new(&found.device.node, counter, self.prints.get(&found.number?)?, has_known_part)
        };
        by_others.filter_map(meter).collect()
    }

    /// Finds the device of a series at its first sample.
    fn find(&mut self, series: Series, attributor: &mut Attributor) -> Option<usize> {
        let mut found = self.metrics.describe(self.definitions, series)?;
        let key = found.key();
        let of_node = (key.node.clone(), key.metric.clone());
        let evidence = self.evidence.get(&of_node).cloned().unwrap_or_default();
        found.evidence = CounterEvidence { number: found.evidence.number, ..evidence };
        found.device.source = self.sources.get(&of_node).cloned().unwrap_or(found.device.source);
        found.evidence.own = self.own(&found);
        let mut accelerator = self.accelerator(&found, series);
        match &self.recorders {
            Some(recorders) => {
                // A key that was not compared has one series.
                let counters = recorders.of(&key).unwrap_or_default();
                let is_first = |counter: &&ReadBy| counter.series.first() == Some(&series);
                let counter = counters.iter().find(is_first);
                if counter.is_none() && !counters.is_empty() {
                    return None;
                }
                // If streams on several GPUs have recorded this counter, or if one GPU has several counters, it is unknown which
                // GPU this counter is about.
                let is_its = |other: &Series| self.accelerator(&found, *other) == accelerator;
                if !counters.iter().all(|other| match is_first(&other) {
                    true => other.series.iter().all(is_its),
                    false => !other.series.iter().any(is_its),
                }) {
                    accelerator = None;
                }
                if let Some(counter) = counter.filter(|_| counters.len() > 1) {
                    found.recorded.recorder = both(&found.recorded.recorder, &counter.recorder);
                    if found.evidence.own.is_empty() {
                        found.evidence.own = self.owner_names(&counter.users);
                    }
                }
            }
            None if *self.first.entry(key).or_insert(series) != series => {
                self.is_undecided = true;
                return None;
            }
            None => {}
        }
        if self.disproved.contains(&series) {
            return None;
        }
        if let Some(Accelerator { pci, uuid, .. }) = accelerator {
            let kind = "gpu".to_owned();
            found.evidence = CounterEvidence { kind, pci, uuid, ..found.evidence };
        }
        let device = found.add_to(attributor);
        self.found.push(found);
        device
    }

    /// Returns the accelerator that another tool's counter is about, according to the scope of its values. Without a scope, it is
    /// the accelerator of the recorder, but only if the counter's name has no number: one stream may record the counters of all
    /// GPUs.
    fn accelerator(&self, found: &Found, series: Series) -> Option<Accelerator> {
        let may_be_gpu = matches!(found.counted.level, None | Some(Level::Gpu | Level::GpuBoard));
        let has_number = || metric_number(&found.device.metric).or(found.counted.number).is_some();
        let is_stated = series.instance.is_some() || !has_number();
        let accelerator = evidence::accelerator_of(self.definitions, &series);
        accelerator.filter(|_| may_be_gpu && is_stated && found.recorded.is_by_other_tool)
    }

    /// Returns the only processes that can draw from a device, if the trace states them. Ampere's own traces state them in a
    /// property, other traces by the scope of the values, unless that scope is only the recorder.
    fn own(&self, found: &Found) -> Vec<String> {
        let stated = evidence::own(
            self.definitions,
            found.series.location,
            &found.recorded.counter(&found.device.metric),
        );
        stated.unwrap_or_else(|| match found.place.are_others {
            true => self.owner_names(&found.place.users),
            false => Vec::new(),
        })
    }

    fn owner_names(&self, processes: &[LocationGroupRef]) -> Vec<String> {
        let groups = &self.definitions.location_groups;
        let name = |process| self.owners.get(process).or_else(|| Some(&groups.get(*process)?.name)).cloned();
        processes.iter().filter_map(name).collect()
    }
}

/// Joins the names of a part and a recorder to a text such as `package 0, rank 3`.
fn both(part: &str, recorder: &str) -> String {
    if part.is_empty() { recorder.to_owned() } else { format!("{part}, {recorder}") }
}
