//! Calls and seconds of a run, of which each device has those of the ranks that draw from it.

use crate::summary::{Device, Summary, View};
use std::collections::{BTreeMap, HashMap};

/// Exclusive and inclusive joules, exclusive seconds, and calls.
pub type Sum = [f64; 4];

/// The figures of a kind of view over all devices. A rank that draws from several devices makes its calls once.
pub struct Calls<'a> {
    summary: &'a Summary,
    /// Joules by path and by region, which counts a region once that is on the stack twice.
    paths: HashMap<u32, [f64; 2]>,
    regions: HashMap<&'a str, [f64; 2]>,
    /// Seconds and calls by node, location group, location and path.
    by_location: HashMap<(&'a str, u32, u32, u32), (f64, u64)>,
}

impl<'a> Calls<'a> {
    pub fn of(summary: &'a Summary) -> Calls<'a> {
        Calls { summary, paths: HashMap::new(), regions: HashMap::new(), by_location: HashMap::new() }
    }

    pub fn add(&mut self, device: &'a Device, view: &'a View) {
        for row in &view.regions {
            let sum = self.regions.entry(&row.region).or_default();
            sum[0] += row.figures.exclusive_joules;
            sum[1] += row.figures.inclusive_joules;
        }
        for row in view.callpaths.iter() {
            let sum = self.paths.entry(row.path).or_default();
            sum[0] += row.figures.exclusive_joules;
            sum[1] += row.figures.inclusive_joules;
            let at = (device.node.as_str(), row.location_group, row.location, row.path);
            let (seconds, calls) = self.by_location.entry(at).or_default();
            *seconds = seconds.max(row.figures.exclusive_seconds);
            *calls = (*calls).max(row.figures.calls);
        }
    }

    /// By region, and by path.
    pub fn sums(self) -> (BTreeMap<&'a str, Sum>, BTreeMap<u32, Sum>) {
        let with_joules = |[exclusive, inclusive]: [f64; 2]| [exclusive, inclusive, 0.0, 0.0];
        let mut regions: BTreeMap<&str, [f64; 4]> =
            self.regions.into_iter().map(|(name, joules)| (name, with_joules(joules))).collect();
        let mut paths: BTreeMap<u32, [f64; 4]> =
            self.paths.into_iter().map(|(path, joules)| (path, with_joules(joules))).collect();
        for ((_, _, _, path), (seconds, calls)) in self.by_location {
            let name = self.summary.name(self.summary.paths.name[path as usize]);
            for sum in [paths.entry(path).or_default(), regions.entry(name).or_default()] {
                sum[2] += seconds;
                sum[3] += calls as f64;
            }
        }
        (regions, paths)
    }
}
