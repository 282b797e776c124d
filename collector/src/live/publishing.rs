//! What /metrics shows: a snapshot of the figures, several times a second.

use super::LiveRun;
use crate::gauges::{self, Seen};
use crate::overhead;
use crate::process::LiveLocation;
use crate::sampler::DeviceFigures;
use crate::snapshot::{self, RankFigures, Snapshot};
use crate::summary::{Readings, SamplerOverhead};
use ampere_ring::process::node_name;
use std::time::{Duration, Instant};

/// How often a snapshot is made for /metrics.
const SNAPSHOT_PERIOD: Duration = Duration::from_millis(100);
/// How often while nothing happens and nobody has asked for one for a while.
const UNASKED_PERIOD: Duration = Duration::from_secs(1);
/// Power is averaged over this.
const POWER_WINDOW: Duration = Duration::from_secs(1);

impl LiveRun {
    pub fn publish(&mut self) {
        self.publish_as(false);
    }

    /// The run is over.
    pub(super) fn publish_last(&mut self) {
        self.publish_as(true);
    }

    fn publish_as(&mut self, is_last: bool) {
        let begun = Instant::now();
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
        (snapshot.run, snapshot.job) = (self.options.run_id.clone(), self.options.facts.job.clone());
        snapshot.lag_seconds = clock.seconds(ticks.saturating_sub(self.done_until));
        snapshot.collector_cpu_seconds = overhead::cpu_seconds();
        snapshot.collector_rss_bytes = overhead::resident_bytes();
        snapshot.sampler = self.sampler.as_ref().map(|sampler| SamplerOverhead::of(&sampler.figures));
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
                shown.readings.add(&Readings::of(figures));
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

    /// By the attributor's devices, what the sampler says of them.
    pub(super) fn sampled(&self) -> Vec<Option<&DeviceFigures>> {
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
