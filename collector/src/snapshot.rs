//! What /metrics and the live table show: a consistent picture of one moment.

use crate::attributor::{Attributor, ViewKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    pub node: String,
    /// Seconds since the first process joined.
    pub seconds: f64,
    pub devices: Vec<DeviceFigures>,
    /// Ranks view: exclusive joules by (rank, device, region).
    pub region_energy: Vec<RegionEnergy>,
    /// Kernels view: exclusive joules by (device, kernel).
    pub kernel_energy: Vec<KernelEnergy>,
    pub region_time: Vec<RegionTime>,
    pub ranks: Vec<RankFigures>,
    /// How far attribution is behind.
    pub lag_seconds: f64,
    pub collector_cpu_seconds: f64,
    pub collector_rss_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceFigures {
    pub device: String,
    pub source: String,
    /// "measured", "estimated", "simulated".
    pub energy: String,
    pub joules: f64,
    pub watts: f64,
    pub lost_joules: f64,
    pub idle_joules_ranks: f64,
    pub idle_joules_kernels: f64,
    /// Energy that the kernels view has not yet handed out, because GPU streams report late.
    pub pending_joules_kernels: f64,
    pub conservation_error_joules: f64,
    pub samples: u64,
    pub counter_resets: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegionEnergy {
    pub rank: String,
    pub device: String,
    pub region: String,
    pub joules: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KernelEnergy {
    pub device: String,
    pub kernel: String,
    pub joules: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegionTime {
    pub rank: String,
    pub region: String,
    pub calls: u64,
    pub seconds: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RankFigures {
    pub rank: String,
    pub events: u64,
    pub coalesced_calls: u64,
    pub suppressed_calls: u64,
    pub late_events: u64,
    pub dropped_records: u64,
    pub ring_fill_ratio: f64,
    /// The region that runs now.
    pub current_region: String,
}

/// Where what finds no room goes.
pub const OTHER: &str = "other";

/// Decides which series get a name of their own. Once a series has one it keeps it, and what once was in "other" stays
/// there: counters must not go back.
#[derive(Debug)]
pub struct SeriesLimit {
    most: usize,
    named: HashSet<(String, String, String)>,
}

impl SeriesLimit {
    pub fn new(most: usize) -> SeriesLimit {
        SeriesLimit { most, named: HashSet::new() }
    }

    fn admits(&mut self, a: &str, b: &str, c: &str) -> bool {
        let key = (a.to_owned(), b.to_owned(), c.to_owned());
        self.named.contains(&key) || (self.named.len() < self.most && self.named.insert(key))
    }
}

/// Limits of each family of metrics.
#[derive(Debug)]
pub struct Limits {
    regions: SeriesLimit,
    kernels: SeriesLimit,
    times: SeriesLimit,
}

impl Limits {
    pub fn new(most: usize) -> Limits {
        let limit = || SeriesLimit::new(most);
        Limits { regions: limit(), kernels: limit(), times: limit() }
    }
}

/// The attributor's part of a snapshot.
pub fn of_attributor(attributor: &Attributor, limits: &mut Limits) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for device in &attributor.devices {
        let ranks = attributor.engine.totals(device.ranks);
        let kernels = attributor.engine.totals(device.kernels);
        snapshot.devices.push(DeviceFigures {
            device: device.info.name.clone(),
            source: device.info.source.clone(),
            energy: device.info.quality.as_str().to_owned(),
            joules: ranks.total_joules,
            watts: 0.0,
            lost_joules: ranks.lost_joules,
            idle_joules_ranks: ranks.idle_joules,
            idle_joules_kernels: kernels.idle_joules,
            pending_joules_kernels: (ranks.total_joules - kernels.total_joules).max(0.0),
            conservation_error_joules: ranks.conservation_error_joules.max(kernels.conservation_error_joules),
            samples: ranks.samples,
            counter_resets: ranks.counter_resets,
        });
        region_energy(attributor, device, limits, &mut snapshot);
        kernel_energy(attributor, device, limits, &mut snapshot);
    }
    region_time(attributor, limits, &mut snapshot);
    snapshot
}

fn region_energy(
    attributor: &Attributor,
    device: &crate::attributor::Device,
    limits: &mut Limits,
    snapshot: &mut Snapshot,
) {
    let mut sums = BTreeMap::new();
    attributor.engine.each_account(device.view(ViewKind::Ranks), |location, region, joules| {
        *sums.entry((location, region)).or_insert(0.0) += joules;
    });
    let mut named: BTreeMap<(String, String), f64> = BTreeMap::new();
    for ((location, region), joules) in sums {
        let rank = rank_label(attributor, location.0);
        let region = attributor.regions.name(region);
        let region = if limits.regions.admits(&rank, &device.info.name, region) { region } else { OTHER };
        *named.entry((rank, region.to_owned())).or_insert(0.0) += joules;
    }
    let device = &device.info.name;
    snapshot.region_energy.extend(named.into_iter().map(|((rank, region), joules)| RegionEnergy {
        rank,
        device: device.clone(),
        region,
        joules,
    }));
}

fn kernel_energy(
    attributor: &Attributor,
    device: &crate::attributor::Device,
    limits: &mut Limits,
    snapshot: &mut Snapshot,
) {
    let mut sums = BTreeMap::new();
    attributor.engine.each_account(device.view(ViewKind::Kernels), |_, region, joules| {
        *sums.entry(region).or_insert(0.0) += joules;
    });
    let mut named: BTreeMap<String, f64> = BTreeMap::new();
    for (region, joules) in sums {
        let kernel = attributor.regions.name(region);
        let kernel = if limits.kernels.admits("", &device.info.name, kernel) { kernel } else { OTHER };
        *named.entry(kernel.to_owned()).or_insert(0.0) += joules;
    }
    let device = &device.info.name;
    snapshot.kernel_energy.extend(named.into_iter().map(|(kernel, joules)| KernelEnergy {
        device: device.clone(),
        kernel,
        joules,
    }));
}

fn region_time(attributor: &Attributor, limits: &mut Limits, snapshot: &mut Snapshot) {
    let mut named: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for (index, location) in attributor.locations.iter().enumerate().filter(|(_, location)| location.main) {
        let rank = rank_label(attributor, index as u32);
        let location_index = ampere_attribution::LocationIndex(index as u32);
        let _ = location;
        attributor.engine.each_callpath(location_index, |region, calls, ticks| {
            let region = attributor.regions.name(region);
            let region = if limits.times.admits(&rank, "", region) { region } else { OTHER };
            let sum = named.entry((rank.clone(), region.to_owned())).or_insert((0, 0));
            sum.0 += calls;
            sum.1 += ticks;
        });
    }
    snapshot.region_time.extend(named.into_iter().map(|((rank, region), (calls, ticks))| RegionTime {
        rank,
        region,
        calls,
        seconds: ticks as f64 / attributor.ticks_per_second as f64,
    }));
}

/// "0", or the location group's name where the rank is not known.
pub fn rank_label(attributor: &Attributor, location: u32) -> String {
    let info = &attributor.locations[location as usize];
    info.rank.map_or_else(|| info.group.clone(), |rank| rank.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_keeps_its_name_and_so_does_other() {
        let mut limit = SeriesLimit::new(2);
        assert!(limit.admits("0", "d", "a"));
        assert!(limit.admits("0", "d", "b"));
        assert!(!limit.admits("0", "d", "c"));
        assert!(limit.admits("0", "d", "a"));
        assert!(!limit.admits("0", "d", "c"));
    }
}
