//! What /metrics shows: a snapshot of the figures, several times a second.

use crate::ingest::process::LiveLocation;
use crate::live::LiveRun;
use crate::overhead;
use crate::run_directory::neighbours::Neighbours;
use crate::sampling::gauges::{self, Seen};
use crate::sampling::sampler::DeviceFigures;
use crate::serving::snapshot::{self, RankFigures, Snapshot};
use ampere_model::Quality;
use ampere_report::summary::{NodeCpu, Readings, SamplerOverhead};
use ampere_ring::process::node_name;
use ampere_timeline::attributor::Unit;
use std::time::{Duration, Instant};

/// How often a snapshot is made for /metrics.
const SNAPSHOT_PERIOD: Duration = Duration::from_millis(100);
/// How often while nothing happens and nobody has asked for one for a while.
const UNASKED_PERIOD: Duration = Duration::from_secs(1);
/// How often other runs are looked for.
const NEIGHBOURS_PERIOD: Duration = Duration::from_secs(1);
/// Power is averaged over this.
const POWER_WINDOW: Duration = Duration::from_secs(1);

impl LiveRun {
    pub fn publish(&mut self) {
        self.publish_as(false);
    }

    /// The run is over.
    pub(crate) fn publish_last(&mut self) {
        self.publish_as(true);
    }

    fn publish_as(&mut self, is_last: bool) {
        let begun = Instant::now();
        self.look_at_node();
        let mut snapshot = self.snapshot();
        snapshot.is_last = is_last;
        self.latest.set(snapshot);
        if self.latest.was_asked() {
            self.asked = begun;
        }
        let period = if self.is_calm() { UNASKED_PERIOD } else { SNAPSHOT_PERIOD };
        // With very many call paths a snapshot takes time that the rings need: never more than a twentieth of it.
        self.next_snapshot = begun + period.max(20 * begun.elapsed());
    }

    fn snapshot(&mut self) -> Snapshot {
        let (Some(attributor), Some(clock)) = (&self.attributor, self.clock) else {
            return Snapshot::default();
        };
        let ticks = clock.now(&self.session);
        let mut snapshot = snapshot::of_attributor(attributor, &mut self.limits);
        (snapshot.node, snapshot.seconds) = match &self.options.replay {
            Some(replay) => {
                let played = ticks.min(replay.last).saturating_sub(replay.first);
                (replay.node(), clock.seconds(played))
            }
            None => (node_name(), self.begun.elapsed().as_secs_f64()),
        };
        (snapshot.run, snapshot.job) = (self.options.run_id.clone(), self.options.manifest.job.clone());
        snapshot.lag_seconds = clock.seconds(ticks.saturating_sub(self.done_until));
        snapshot.node_cpu = self.node_cpu;
        snapshot.notes.extend(self.notes_of_node());
        snapshot.collector_cpu_seconds = overhead::cpu_seconds();
        snapshot.collector_rss_bytes = overhead::resident_bytes();
        snapshot.sampler = self.sampler.as_ref().map(|sampler| SamplerOverhead::from(&*sampler.figures));
        let (window, mut power) = (clock.ticks(POWER_WINDOW), std::mem::take(&mut self.power));
        for (number, (device, figures)) in attributor.devices.iter().zip(self.sampled()).enumerate() {
            let shown = snapshot.devices.iter_mut().find(|shown| shown.device == device.info.name);
            let Some(shown) = shown else { continue };
            if let Some((time, joules)) = attributor.engine.last_sample(device.ranks) {
                power.see(number, time, joules, window);
            }
            // Of several metrics with one name, the power of those that it is known of.
            let watts = power.per_tick(number, ticks, window).map(|joules| joules / clock.seconds(1));
            shown.watts = watts.map(|watts| shown.watts.unwrap_or(0.0) + watts).or(shown.watts);
            if let Some(figures) = figures {
                shown.readings.add(&Readings::from(figures));
                gauges::add_all(&mut shown.gauges, figures.gauges.iter().filter_map(Seen::now));
            }
        }
        self.power = power;
        let late = self.lanes.iter().map(|lane| lane.late()).sum::<u64>();
        for (at, process) in self.processes.iter().enumerate() {
            let main = process.locations.iter().find(|location| location.definition.id.0 == 0);
            let current =
                main.and_then(|main| main.index).and_then(|index| attributor.engine.current_region(index));
            snapshot.ranks.push(RankFigures {
                rank: process.rank_number().map_or_else(|| process.group(), |rank| rank.to_string()),
                events: process.sum(|l| l.events),
                coalesced_calls: process.sum(|l| l.stream.coalesced_calls),
                suppressed_calls: process.sum(LiveLocation::suppressed_calls),
                unrecorded_calls: process.unrecorded.1,
                // The lanes count lateness for the whole node; it is shown once.
                late_events: if at == 0 { late } else { 0 },
                dropped_records: process.sum(|l| l.ring.dropped_records()),
                ring_fill_ratio: process.locations.iter().map(|l| l.fullest).fold(0.0, f64::max),
                current_region: current.map_or_else(String::new, |r| attributor.regions.name(r).to_owned()),
            });
        }
        for location in self.processes.iter_mut().flat_map(|process| &mut process.locations) {
            location.fullest = 0.0;
        }
        snapshot.ranks.sort_by_key(|figures| (figures.rank.len(), figures.rank.clone())); // "10" after "9"
        snapshot
    }

    /// How busy the node is, and who else is measured on it.
    fn look_at_node(&mut self) {
        let Some((busy, (cpus, node_cpus))) = self.with_run_cpu(|run| (run.busy(), run.cpus())) else {
            return;
        };
        self.node_cpu = busy.map(|busy| NodeCpu {
            seconds: self.watched_since.elapsed().as_secs_f64(),
            own_busy_seconds: busy.own_ns as f64 * 1e-9,
            collector_busy_seconds: overhead::cpu_seconds(),
            node_busy_seconds: busy.node_ns as f64 * 1e-9,
            cpus: cpus as u64,
            node_cpus: node_cpus as u64,
        });
        if self.next_neighbours <= Instant::now() {
            self.next_neighbours = Instant::now() + NEIGHBOURS_PERIOD;
            self.neighbours.iter_mut().for_each(Neighbours::look);
        }
    }

    /// What the counters count of others' work.
    pub(crate) fn notes_of_node(&self) -> Vec<String> {
        let devices = self.attributor.iter().flat_map(|attributor| &attributor.devices);
        let mut energies = devices.filter(|device| device.info.unit == Unit::Joules).peekable();
        if energies.peek().is_none() {
            return Vec::new();
        }
        let means = if energies.all(|device| device.info.quality == Quality::Estimated) {
            "the estimate is of this run's own CPU time, and of the idle watts of the CPUs that it may use, whoever else may"
        } else {
            "what the counters count of others' work is in this run's joules, too"
        };
        let others = self.neighbours.as_ref().and_then(Neighbours::words);
        let others = others.map(|who| format!("measured on this node at the same time: {who}; {means}"));
        let busy = self.node_cpu.filter(NodeCpu::has_others);
        let busy = busy.map(|cpu| {
            let part = 100.0 * cpu.own_busy_seconds / cpu.node_busy_seconds;
            format!(
                "{part:.1} % of the node's busy CPU time was this run's own, the rest was others': {means}"
            )
        });
        others.into_iter().chain(busy).collect()
    }

    /// By the attributor's devices, what the sampler says of them.
    pub(crate) fn sampled(&self) -> Vec<Option<&DeviceFigures>> {
        let devices = self.attributor.as_ref().map_or(0, |attributor| attributor.devices.len());
        let mut all = vec![None; devices];
        let (Some(sampler), Some(samples)) = (&self.sampler, &self.samples) else { return all };
        for (figures, number) in sampler.figures.devices().iter().zip(&samples.numbers) {
            if let Some(device) = samples.devices.get(*number).copied().flatten() {
                all[device] = Some(figures);
            }
        }
        all
    }
}
