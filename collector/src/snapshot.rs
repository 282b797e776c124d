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

impl DeviceFigures {
    /// Metrics that the settings give the same name are one device: two series with the same labels would make a
    /// scrape invalid.
    fn add(&mut self, more: &DeviceFigures) {
        if self.energy == "measured" {
            self.energy.clone_from(&more.energy); // a sum is as good as the worst of it
        }
        self.joules += more.joules;
        self.watts += more.watts;
        self.lost_joules += more.lost_joules;
        self.idle_joules_ranks += more.idle_joules_ranks;
        self.idle_joules_kernels += more.idle_joules_kernels;
        self.pending_joules_kernels += more.pending_joules_kernels;
        self.conservation_error_joules += more.conservation_error_joules;
        self.samples += more.samples;
        self.counter_resets += more.counter_resets;
    }
}

impl Snapshot {
    /// Before anything is known but where we are.
    pub fn of_this_node() -> Snapshot {
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Snapshot { node, ..Snapshot::default() }
    }

    /// One row for each rank label. Two processes have the same when a script starts mpirun twice.
    pub fn distinct_ranks(&self) -> Vec<RankFigures> {
        let mut ranks: BTreeMap<&str, RankFigures> = BTreeMap::new();
        for more in &self.ranks {
            let sum = ranks.entry(&more.rank).or_default();
            sum.rank.clone_from(&more.rank);
            sum.events += more.events;
            sum.coalesced_calls += more.coalesced_calls;
            sum.suppressed_calls += more.suppressed_calls;
            sum.late_events += more.late_events;
            sum.dropped_records += more.dropped_records;
            sum.ring_fill_ratio = sum.ring_fill_ratio.max(more.ring_fill_ratio);
            sum.current_region.clone_from(&more.current_region);
        }
        ranks.into_values().collect()
    }
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
    let (mut regions, mut kernel_sums) = (BTreeMap::new(), BTreeMap::new());
    for device in &attributor.devices {
        let ranks = attributor.engine.totals(device.ranks);
        let kernels = attributor.engine.totals(device.kernels);
        let figures = DeviceFigures {
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
        };
        match snapshot.devices.iter_mut().find(|known| known.device == figures.device) {
            Some(known) => known.add(&figures),
            None => snapshot.devices.push(figures),
        }
        region_energy(attributor, device, limits, &mut regions);
        kernel_energy(attributor, device, limits, &mut kernel_sums);
    }
    snapshot.region_energy = regions
        .into_iter()
        .map(|((rank, device, region), joules)| RegionEnergy { rank, device, region, joules })
        .collect();
    snapshot.kernel_energy = kernel_sums
        .into_iter()
        .map(|((device, kernel), joules)| KernelEnergy { device, kernel, joules })
        .collect();
    region_time(attributor, limits, &mut snapshot);
    snapshot
}

fn region_energy(
    attributor: &Attributor,
    device: &crate::attributor::Device,
    limits: &mut Limits,
    named: &mut BTreeMap<(String, String, String), f64>,
) {
    let mut sums = BTreeMap::new();
    attributor.engine.each_account(device.view(ViewKind::Ranks), |location, region, joules| {
        *sums.entry((location, region)).or_insert(0.0) += joules;
    });
    for ((location, region), joules) in sums {
        let rank = rank_label(attributor, location.0);
        let region = attributor.regions.name(region);
        let region = if limits.regions.admits(&rank, &device.info.name, region) { region } else { OTHER };
        *named.entry((rank, device.info.name.clone(), region.to_owned())).or_insert(0.0) += joules;
    }
}

fn kernel_energy(
    attributor: &Attributor,
    device: &crate::attributor::Device,
    limits: &mut Limits,
    named: &mut BTreeMap<(String, String), f64>,
) {
    let mut sums = BTreeMap::new();
    attributor.engine.each_account(device.view(ViewKind::Kernels), |_, region, joules| {
        *sums.entry(region).or_insert(0.0) += joules;
    });
    for (region, joules) in sums {
        let kernel = attributor.regions.name(region);
        let kernel = if limits.kernels.admits("", &device.info.name, kernel) { kernel } else { OTHER };
        *named.entry((device.info.name.clone(), kernel.to_owned())).or_insert(0.0) += joules;
    }
}

fn region_time(attributor: &Attributor, limits: &mut Limits, snapshot: &mut Snapshot) {
    let mut named: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for (index, _) in attributor.locations.iter().enumerate().filter(|(_, location)| location.main) {
        let rank = rank_label(attributor, index as u32);
        let location_index = ampere_attribution::LocationIndex(index as u32);
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
    use ampere_model::Quality;

    #[test]
    fn a_series_keeps_its_name_and_so_does_other() {
        let mut limit = SeriesLimit::new(2);
        assert!(limit.admits("0", "d", "a"));
        assert!(limit.admits("0", "d", "b"));
        assert!(!limit.admits("0", "d", "c"));
        assert!(limit.admits("0", "d", "a"));
        assert!(!limit.admits("0", "d", "c"));
    }

    #[test]
    fn devices_of_the_same_name_are_one() {
        let config =
            crate::config::Config::parse("[[device]]\nname = \"GPU\"\nmetric = 'gpu.*'", "").unwrap();
        let mut attributor = Attributor::new(config, 1_000_000_000);
        for (metric, quality) in [("gpu0", Quality::Measured), ("gpu1", Quality::Estimated)] {
            attributor.add_device(crate::attributor::FoundDevice {
                node: "n".to_owned(),
                metric: metric.to_owned(),
                source: "test".to_owned(),
                quality,
                joules_per_unit: Some(1.0),
            });
        }
        let location = attributor.add_location(crate::attributor::LocationInfo {
            node: "n".to_owned(),
            group: "MPI Rank 0".to_owned(),
            name: "Master thread".to_owned(),
            kind: ampere_model::LocationKind::CpuThread,
            rank: Some(0),
            main: true,
        });
        let region = attributor.regions.add_unknown(1);
        attributor.engine.enter(location, 0, region);
        for device in 0..2 {
            let view = attributor.devices[device].ranks;
            for (time, value) in [(0, 0), (10, 7)] {
                let (time, increase) = attributor.devices[device].read_u64(time, value);
                attributor.engine.sample(view, time, increase);
            }
        }
        let snapshot = of_attributor(&attributor, &mut Limits::new(10));
        assert_eq!(snapshot.devices.len(), 1);
        assert_eq!((snapshot.devices[0].joules, snapshot.devices[0].energy.as_str()), (14.0, "estimated"));
        let rows: Vec<f64> = snapshot.region_energy.iter().map(|row| row.joules).collect();
        assert_eq!(rows, [14.0]);
    }

    #[test]
    fn ranks_of_the_same_label_are_one() {
        let rank = |events, ring_fill_ratio| RankFigures {
            rank: "0".to_owned(),
            events,
            ring_fill_ratio,
            ..RankFigures::default()
        };
        let snapshot = Snapshot { ranks: vec![rank(3, 0.5), rank(4, 0.25)], ..Snapshot::default() };
        let ranks = snapshot.distinct_ranks();
        assert_eq!(ranks.len(), 1);
        assert_eq!((ranks[0].events, ranks[0].ring_fill_ratio), (7, 0.5));
    }
}
