//! A snapshot as OpenMetrics, by prometheus-client. All of a scrape comes from one snapshot, so its sums are consistent.

use crate::serving::snapshot::{DeviceFigures, RankFigures, Snapshot};
use ampere_counters::Quantity;
use ampere_report::summary::NodeCpu;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A line of the body, for its first allocation.
const TYPICAL_SERIES_BYTES: usize = 128;

/// The latest snapshot: written by the collector's loop, read by whoever asks.
#[derive(Clone, Debug)]
pub struct Latest(Arc<Mutex<Arc<Snapshot>>>, Arc<AtomicBool>);

impl Default for Latest {
    /// Every series has a node, also those that are there before the first process is.
    fn default() -> Latest {
        Latest(Arc::new(Mutex::new(Arc::new(Snapshot::of_this_node()))), Arc::default())
    }
}

impl Latest {
    pub fn set(&self, snapshot: Snapshot) {
        if snapshot.node.is_empty() {
            return; // a run without any event: it knows no more than what is here
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    /// Whether somebody has, since this was last called.
    pub fn was_asked(&self) -> bool {
        self.1.swap(false, Ordering::Relaxed)
    }

    pub fn get(&self) -> Arc<Snapshot> {
        self.1.store(true, Ordering::Relaxed);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Encodes a snapshot.
pub fn encode(snapshot: Arc<Snapshot>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    let series = snapshot.region_energy.len() + snapshot.kernel_energy.len() + 2 * snapshot.region_time.len();
    let mut body = String::with_capacity(TYPICAL_SERIES_BYTES * series + (16 << 10));
    registry.register_collector(Box::new(Scrape { ranks: snapshot.distinct_ranks(), snapshot }));
    text::encode(&mut body, &registry)?;
    Ok(body)
}

#[derive(Debug)]
struct Scrape {
    snapshot: Arc<Snapshot>,
    ranks: Vec<RankFigures>,
}

type Labels<'a> = Vec<(&'static str, &'a str)>;
/// Name, help and series of a family without a unit.
type Plain<'a> = (&'static str, &'static str, Vec<(Labels<'a>, f64)>);

/// One family: name (without unit and `_total`), help, unit, and its series.
struct Family<'a> {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    series: Vec<(Labels<'a>, f64)>,
}

impl Family<'_> {
    fn encode(self, encoder: &mut DescriptorEncoder, kind: MetricType) -> fmt::Result {
        if self.series.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        for (labels, value) in self.series {
            let metric = family.encode_family(&labels)?;
            match kind {
                MetricType::Gauge => ConstGauge::new(value).encode(metric)?,
                _ => ConstCounter::new(value).encode(metric)?,
            }
        }
        Ok(())
    }

    fn counter(self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        self.encode(encoder, MetricType::Counter)
    }

    fn gauge(self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        self.encode(encoder, MetricType::Gauge)
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let encoder = &mut encoder;
        self.devices(encoder)?;
        self.gauges(encoder)?;
        self.agreement(encoder)?;
        self.energy(encoder)?;
        self.time(encoder)?;
        self.health(encoder)
    }
}

impl Scrape {
    fn node(&self) -> (&'static str, &str) {
        ("node", &self.snapshot.node)
    }

    fn per_device(&self, value: impl Fn(&DeviceFigures) -> f64) -> Vec<(Labels<'_>, f64)> {
        let devices = self.snapshot.devices.iter();
        devices.map(|d| (vec![self.node(), ("device", d.device.as_str())], value(d))).collect()
    }

    fn devices(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        // How far the figures can be trusted is on the series itself: energy="estimated" is no measurement.
        let with_quality = |value: fn(&DeviceFigures) -> Option<f64>| {
            let known = self.snapshot.devices.iter().filter_map(|d| Some((d, value(d)?)));
            known
                .map(|(d, value)| {
                    (vec![self.node(), ("device", d.device.as_str()), ("energy", d.energy.as_str())], value)
                })
                .collect()
        };
        Family {
            name: "ampere_device_energy",
            help: "Energy of a device since the run began, as of the last attributed sample",
            unit: Some(Unit::Joules),
            series: with_quality(|d| Some(d.joules)),
        }
        .counter(encoder)?;
        Family {
            name: "ampere_device_power_watts",
            help: "Power of a device over the last second that was sampled; absent if that is long ago",
            unit: None,
            series: with_quality(|d| d.watts),
        }
        .gauge(encoder)?;
        let sources = self.snapshot.devices.iter().map(|d| {
            let labels = vec![
                self.node(),
                ("device", d.device.as_str()),
                ("source", d.source.as_str()),
                ("energy", d.energy.as_str()),
                ("kind", d.kind.as_str()),
                // What is within another device must not be added to it.
                ("within", d.within.as_str()),
            ];
            (labels, 1.0)
        });
        Family {
            name: "ampere_device_info",
            help: "1; where a device's figures come from, what it is, and which device also contains its joules",
            unit: None,
            series: sources.collect(),
        }
        .gauge(encoder)
    }

    /// What devices say beside their energy. In an OpenMetrics name the unit comes last.
    fn gauges(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let families: [(&'static str, &'static str, Quantity, Option<&'static str>); 5] = [
            (
                "ampere_device_reported_power_watts",
                "Power of a device as the device reports it; kind: a mean, or now",
                Quantity::Power,
                Some("kind"),
            ),
            (
                "ampere_device_temperature_celsius",
                "Temperature of a device as the device reports it, by its sensor",
                Quantity::Temperature,
                Some("sensor"),
            ),
            (
                "ampere_device_busy_ratio",
                "The part of the time in which a device computes, as the device reports it",
                Quantity::Busy,
                None,
            ),
            (
                "ampere_device_memory_used_bytes",
                "Memory of a device that is used, as the device reports it",
                Quantity::MemoryUsed,
                None,
            ),
            (
                "ampere_device_memory_size_bytes",
                "All memory of a device, as the device reports it",
                Quantity::MemorySize,
                None,
            ),
        ];
        for (name, help, quantity, label) in families {
            let mut series = Vec::new();
            for device in &self.snapshot.devices {
                for now in device.gauges.iter().filter(|now| now.quantity == quantity.as_str()) {
                    let mut labels = vec![self.node(), ("device", device.device.as_str())];
                    labels.extend(label.map(|label| (label, now.which.as_str())));
                    series.push((labels, now.value));
                }
            }
            Family { name, help, unit: None, series }.gauge(encoder)?;
        }
        Ok(())
    }

    /// Counters against each other.
    fn agreement(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut series = Vec::new();
        for device in &self.snapshot.devices {
            for check in &device.checks {
                let labels = vec![
                    self.node(),
                    ("device", device.device.as_str()),
                    ("against", check.against.as_str()),
                    ("kind", check.kind.as_str()),
                ];
                series.extend(check.difference_ratio.map(|difference| (labels, 1.0 + difference)));
            }
        }
        Family {
            name: "ampere_device_counter_agreement_ratio",
            help: "Energy by another measurement over that by the device's counter, in the time that both cover",
            unit: None,
            series,
        }
        .gauge(encoder)
    }

    fn energy(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        Family {
            name: "ampere_region_energy",
            help: "Exclusive energy of a region on a rank (ranks view)",
            unit: Some(Unit::Joules),
            series: self
                .snapshot
                .region_energy
                .iter()
                .map(|row| {
                    let labels = vec![
                        self.node(),
                        ("rank", row.rank.as_str()),
                        ("device", row.device.as_str()),
                        ("region", row.region.as_str()),
                    ];
                    (labels, row.joules)
                })
                .collect(),
        }
        .counter(encoder)?;
        Family {
            name: "ampere_kernel_energy",
            help: "Exclusive energy of a GPU kernel (kernels view)",
            unit: Some(Unit::Joules),
            series: self
                .snapshot
                .kernel_energy
                .iter()
                .map(|row| {
                    let labels =
                        vec![self.node(), ("device", row.device.as_str()), ("kernel", row.kernel.as_str())];
                    (labels, row.joules)
                })
                .collect(),
        }
        .counter(encoder)?;
        let idle = self.snapshot.devices.iter().flat_map(|d| {
            [("ranks", d.idle_joules_ranks), ("kernels", d.idle_joules_kernels)].map(|(view, joules)| {
                (vec![self.node(), ("device", d.device.as_str()), ("view", view)], joules)
            })
        });
        Family {
            name: "ampere_idle_energy",
            help: "Energy spent while no consumer of the view was active",
            unit: Some(Unit::Joules),
            series: idle.collect(),
        }
        .counter(encoder)?;
        Family {
            name: "ampere_lost_energy",
            help: "Energy that cannot be attributed because of a gap in sampling",
            unit: Some(Unit::Joules),
            series: self.per_device(|d| d.lost_joules),
        }
        .counter(encoder)?;
        Family {
            name: "ampere_pending_energy_joules",
            help: "Energy that the kernels view has not handed out yet: GPU streams report late",
            unit: None,
            series: self.per_device(|d| d.pending_joules_kernels),
        }
        .gauge(encoder)
    }

    fn time(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let rows = || self.snapshot.region_time.iter();
        Family {
            name: "ampere_region_calls",
            help: "Calls of a region on a rank's main location",
            unit: None,
            series: rows()
                .map(|r| {
                    (
                        vec![self.node(), ("rank", r.rank.as_str()), ("region", r.region.as_str())],
                        r.calls as f64,
                    )
                })
                .collect(),
        }
        .counter(encoder)?;
        Family {
            name: "ampere_region_time",
            help: "Exclusive time of a region on a rank's main location",
            unit: Some(Unit::Seconds),
            series: rows()
                .map(|r| {
                    (vec![self.node(), ("rank", r.rank.as_str()), ("region", r.region.as_str())], r.seconds)
                })
                .collect(),
        }
        .counter(encoder)
    }

    fn per_rank(&self, value: impl Fn(&RankFigures) -> f64) -> Vec<(Labels<'_>, f64)> {
        self.ranks.iter().map(|r| (vec![self.node(), ("rank", r.rank.as_str())], value(r))).collect()
    }

    /// How the counters are read. Nothing of it in a replay.
    fn sampler(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let Some(sampler) = &self.snapshot.sampler else { return Ok(()) };
        let of_node = |value: f64| vec![(vec![self.node()], value)];
        let counters: [Plain; 4] = [
            (
                "ampere_sampler_readings",
                "Successful readings of a device's counter",
                self.per_device(|d| d.readings.readings as f64),
            ),
            (
                "ampere_sampler_failed_readings",
                "Failed readings of a device's counter",
                self.per_device(|d| d.readings.failed_readings as f64),
            ),
            (
                "ampere_sampler_deadlines",
                "Times that the sampler had to wake up",
                of_node(sampler.deadlines as f64),
            ),
            (
                "ampere_sampler_missed_deadlines",
                "Times that the sampler woke up more than a millisecond too late",
                of_node(sampler.missed_deadlines as f64),
            ),
        ];
        for (name, help, series) in counters {
            Family { name, help, unit: None, series }.counter(encoder)?;
        }
        let times: [Plain; 3] = [
            (
                "ampere_sampler_read",
                "Time that the readings of a device's counter took",
                self.per_device(|d| d.readings.read_seconds),
            ),
            ("ampere_sampler_cpu", "CPU time of the sampler", of_node(sampler.cpu_seconds)),
            (
                "ampere_sampler_gauges",
                "Time that asking devices for what they say beside their energy took",
                of_node(sampler.gauges_seconds),
            ),
        ];
        for (name, help, series) in times {
            Family { name, help, unit: Some(Unit::Seconds), series }.counter(encoder)?;
        }
        let gauges: [Plain; 2] = [
            (
                "ampere_sampler_longest_late_seconds",
                "The most that the sampler woke up too late",
                of_node(sampler.longest_late_seconds),
            ),
            (
                "ampere_sampler_update_seconds",
                "Time from change to change of a device's counter, as observed; 0 while it is unknown",
                self.per_device(|d| d.readings.update_seconds),
            ),
        ];
        for (name, help, series) in gauges {
            Family { name, help, unit: None, series }.gauge(encoder)?;
        }
        Ok(())
    }

    fn health(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let counters: [Plain; 11] = [
            (
                "ampere_events",
                "Enter and leave events taken from the rings",
                self.per_rank(|r| r.events as f64),
            ),
            (
                "ampere_coalesced_calls",
                "Calls that were recorded together with others, without loss",
                self.per_rank(|r| r.coalesced_calls as f64),
            ),
            (
                "ampere_suppressed_calls",
                "Calls left out, enter and leave, because a ring was too full",
                self.per_rank(|r| r.suppressed_calls as f64),
            ),
            (
                "ampere_unrecorded_calls",
                "Calls of locations without a ring, and of frames that were too deep; known when the process ends",
                self.per_rank(|r| r.unrecorded_calls as f64),
            ),
            (
                "ampere_dropped_records",
                "Records for which a ring had no room",
                self.per_rank(|r| r.dropped_records as f64),
            ),
            (
                "ampere_late_events",
                "Events that came when their time was already attributed; of the whole node, on its first process",
                self.per_rank(|r| r.late_events as f64),
            ),
            (
                "ampere_counter_resets",
                "Times that a device's counter was reset",
                self.per_device(|d| d.counter_resets as f64),
            ),
            (
                "ampere_counter_wraps",
                "Times that a device's counter wrapped, which was corrected",
                self.per_device(|d| d.counter_wraps as f64),
            ),
            (
                "ampere_sampling_gaps",
                "Sample intervals that were so long that their energy is lost",
                self.per_device(|d| d.sampling_gaps as f64),
            ),
            (
                "ampere_unusable_samples",
                "Readings that were no numbers, came out of order, or cannot be true",
                self.per_device(|d| d.unusable_samples as f64),
            ),
            (
                "ampere_device_uncovered_seconds",
                "Time whose energy is unknown: the counter was reset, or its readings cannot be true",
                self.per_device(|d| d.uncovered_seconds),
            ),
        ];
        for (name, help, series) in counters {
            Family { name, help, unit: None, series }.counter(encoder)?;
        }
        Family {
            name: "ampere_collector_cpu",
            help: "CPU time of the collector",
            unit: Some(Unit::Seconds),
            series: vec![(vec![self.node()], self.snapshot.collector_cpu_seconds)],
        }
        .counter(encoder)?;
        let of_node_cpu = |seconds: fn(&NodeCpu) -> f64| {
            self.snapshot.node_cpu.iter().map(|cpu| (vec![self.node()], seconds(cpu))).collect()
        };
        let times: [Plain; 2] = [
            (
                "ampere_run_busy_cpu",
                "CPU time of the run's own processes on this node",
                of_node_cpu(|cpu| cpu.own_busy_seconds),
            ),
            (
                "ampere_node_busy_cpu",
                "CPU time of everything that ran on the node since the collector began",
                of_node_cpu(|cpu| cpu.node_busy_seconds),
            ),
        ];
        for (name, help, series) in times {
            Family { name, help, unit: Some(Unit::Seconds), series }.counter(encoder)?;
        }
        let gauges: [Plain; 5] = [
            (
                "ampere_counter_stale",
                "1 where a device's counter has stood still for long: it is frozen, or nothing is spent",
                self.per_device(|d| f64::from(u8::from(d.stale))),
            ),
            (
                "ampere_ring_fill_ratio",
                "How full a rank's fullest ring is",
                self.per_rank(|r| r.ring_fill_ratio),
            ),
            (
                "ampere_lag_seconds",
                "How far attribution is behind the application",
                vec![(vec![self.node()], self.snapshot.lag_seconds)],
            ),
            (
                "ampere_conservation_error_joules",
                "Difference between a device's energy and what is attributed, idle and lost; rounding only",
                self.per_device(|d| d.conservation_error_joules),
            ),
            (
                "ampere_collector_resident_bytes",
                "Resident memory of the collector",
                vec![(vec![self.node()], self.snapshot.collector_rss_bytes as f64)],
            ),
        ];
        for (name, help, series) in gauges {
            Family { name, help, unit: None, series }.gauge(encoder)?;
        }
        self.sampler(encoder)?;
        // A gauge, and not OpenMetrics' info, which the tools for the older text format refuse.
        Family {
            name: "ampere_build_info",
            help: "1; the version of ampere",
            unit: None,
            series: vec![(vec![self.node(), ("version", env!("CARGO_PKG_VERSION"))], 1.0)],
        }
        .gauge(encoder)?;
        let job = self.snapshot.job.clone().unwrap_or_default();
        let labels = vec![
            self.node(),
            ("run", self.snapshot.run.as_str()),
            ("scheduler", &job.scheduler),
            ("job_id", &job.id),
        ];
        Family {
            name: "ampere_run_info",
            help: "1; the run, and the batch system's job that it belongs to",
            unit: None,
            series: vec![(labels, 1.0)],
        }
        .gauge(encoder)
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
