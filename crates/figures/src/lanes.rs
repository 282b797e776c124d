//! Lanes show what ran over time, in steps like those of a power curve: the kernels of each GPU, and the functions of each rank's
//! main thread.

use crate::callpaths::Name;
use ampere_attribution::LocationIndex;
use ampere_model::{LocationKind, RegionRef};
use ampere_timeline::attributor::{Attributor, LocationInfo, Unit, ViewKind};
use ampere_timeline::lanes::{Lane as OfLocation, STEPS_MAX};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The maximum number of lanes of ranks on a node: with more ranks, several ranks share a lane.
const RANK_LANES_MAX: usize = 16;
/// The maximum number of GPUs on a node that have a lane.
const GPU_LANES_MAX: usize = 16;
/// The maximum number of lanes of a run on several nodes. The lanes of the other nodes are in their own summaries.
pub const LANES_MAX: usize = 64;

/// The lanes of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeLanes {
    pub node: String,
    /// The names of the regions in the lanes.
    pub names: Vec<Name>,
    pub lanes: Vec<Lane>,
}

impl NodeLanes {
    /// Whether every region has a name and a percentage.
    pub(crate) fn is_sound(&self) -> bool {
        let is_known =
            |region: &Option<u32>| region.is_none_or(|region| (region as usize) < self.names.len());
        let is_sound =
            |lane: &Lane| lane.region.len() == lane.percent.len() && lane.region.iter().all(is_known);
        self.lanes.iter().all(is_sound)
    }
}

/// The regions that ran on a GPU, on a rank, or on several ranks, one for each step of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// "kernels" of a GPU, or "ranks".
    pub view: String,
    /// The GPU; or the first rank's location group.
    pub first: String,
    /// The last rank's location group; equal to `first` if the lane has only one rank.
    pub last: String,
    /// The start of the first step, in seconds after the first sample of the node's devices.
    pub begin: f64,
    /// The length of a step in seconds.
    pub step: f64,
    /// The region with the most exclusive time in each step, by its index in [`NodeLanes::names`]; `None` if none ran.
    pub region: Vec<Option<u32>>,
    /// The time of this region in percent of the step, on average over the ranks.
    pub percent: Vec<u8>,
}

/// Returns the lanes of all nodes of an attributor, of both views or of `only` one.
pub(crate) fn of_attributor(attributor: &Attributor, only: Option<ViewKind>) -> Vec<NodeLanes> {
    let devices = attributor.devices.iter().filter(|device| device.info.unit == Unit::Joules);
    let mut begins: BTreeMap<&str, u64> = BTreeMap::new();
    for device in devices {
        if let Some(first) = device.counter_figures().first {
            let begin = begins.entry(&device.info.node).or_insert(first);
            *begin = first.min(*begin);
        }
    }
    let nodes = begins.into_iter().map(|(node, begin)| {
        let mut names = Names { attributor, numbers: HashMap::new(), all: Vec::new() };
        let is_wanted = |kind| only.is_none_or(|only| only == kind);
        let mut lanes = Vec::new();
        if is_wanted(ViewKind::Kernels) {
            lanes.extend(of_gpus(attributor, node).map(|of| names.lane("kernels", &of, 1, begin)));
        }
        if is_wanted(ViewKind::Ranks) {
            lanes
                .extend(of_ranks(attributor, node).map(|(of, ranks)| names.lane("ranks", &of, ranks, begin)));
        }
        NodeLanes { node: node.to_owned(), names: names.all, lanes }
    });
    joined(nodes.filter(|node| !node.lanes.is_empty()))
}

/// Locations that share a lane, each with the name by which the lane shows it.
type Members<'a> = Vec<(&'a str, &'a OfLocation)>;

/// Returns the GPU streams of each GPU.
fn of_gpus<'a>(attributor: &'a Attributor, node: &'a str) -> impl Iterator<Item = Members<'a>> {
    let mut streams: BTreeMap<usize, Members> = BTreeMap::new();
    for (at, lane) in locations(attributor, node, LocationKind::Gpu) {
        let devices = attributor.kernel_devices_of(LocationIndex(at as u32));
        let counting = || devices.iter().copied().filter(|device| attributor.counts(*device));
        // A stream may draw from a counter of the node, too.
        let gpu = counting().find(|device| attributor.counted_part(*device).is_gpu());
        if let Some(device) = gpu.or_else(|| counting().next()) {
            streams.entry(device).or_default().push((&attributor.devices[device].info.name, lane));
        }
    }
    let mut gpus: Vec<Members> = streams.into_values().collect();
    gpus.sort_by_key(|gpu| gpu.first().map(|(name, _)| (name.len(), *name)));
    gpus.into_iter().take(GPU_LANES_MAX)
}

/// Returns the main threads of the ranks, or of the processes if there are no ranks, and how many of them share a lane.
fn of_ranks<'a>(attributor: &'a Attributor, node: &'a str) -> impl Iterator<Item = (Members<'a>, usize)> {
    let mut threads: Vec<_> = locations(attributor, node, LocationKind::CpuThread).collect();
    let info = |at: usize| -> &'a LocationInfo { &attributor.locations[at] };
    let has_ranks = threads.iter().any(|(at, _)| info(*at).rank.is_some());
    threads.retain(|(at, _)| !has_ranks || info(*at).rank.is_some());
    // Processes without a rank stay in the order in which they began.
    let mut places = HashMap::new();
    let place_of = |(at, _): &(usize, _)| *places.entry(info(*at).group.as_str()).or_insert(*at);
    let places: Vec<usize> = threads.iter().map(place_of).collect();
    let mut threads: Vec<_> = places.into_iter().zip(threads).collect();
    threads.sort_by_key(|(place, (at, _))| (info(*at).rank, *place));
    let processes = threads.chunk_by(|a, b| a.0 == b.0);
    let process = |of: &[(usize, (usize, &'a OfLocation))]| -> Members<'a> {
        of.iter().map(|(_, (at, lane))| (info(*at).group.as_str(), *lane)).collect()
    };
    let processes: Vec<Members> = processes.map(process).collect();
    let size = processes.len().div_ceil(RANK_LANES_MAX).max(1);
    let groups: Vec<_> = processes.chunks(size).map(|group| (group.concat(), group.len())).collect();
    groups.into_iter()
}

/// Returns a node's locations of one kind that have lanes.
fn locations<'a>(
    attributor: &'a Attributor,
    node: &'a str,
    kind: LocationKind,
) -> impl Iterator<Item = (usize, &'a OfLocation)> {
    let all = attributor.locations.iter().enumerate();
    let here = all.filter(move |(_, info)| info.kind == kind && info.node == node);
    here.filter_map(|(at, _)| Some((at, attributor.lane(at)?))).filter(|(_, lane)| !lane.steps().is_empty())
}

/// Gives the names of regions their numbers.
struct Names<'a> {
    attributor: &'a Attributor,
    numbers: HashMap<&'a str, u32>,
    all: Vec<Name>,
}

impl Names<'_> {
    fn number(&mut self, region: RegionRef) -> u32 {
        let name = self.attributor.regions.name(region);
        *self.numbers.entry(name).or_insert_with(|| {
            self.all.push(name.into());
            self.all.len() as u32 - 1
        })
    }

    /// Makes the lane of these members. `shared_by`: the number of ranks over which their times are averaged.
    fn lane(&mut self, view: &str, members: &[(&str, &OfLocation)], shared_by: usize, begin: u64) -> Lane {
        let step = step_of(members);
        let members: Vec<(&str, OfLocation)> =
            members.iter().map(|(name, lane)| (*name, (*lane).clone().with_steps_of(step))).collect();
        let first = members.iter().map(|(_, lane)| lane.begin() / step).min().unwrap_or(0);
        let mut sums: Vec<Vec<(RegionRef, f64)>> = Vec::new();
        for (_, lane) in &members {
            let from = (lane.begin() / step - first) as usize;
            sums.resize_with(sums.len().max(from + lane.steps().len()), Vec::new);
            for (sums, step) in sums[from..].iter_mut().zip(lane.steps()) {
                step.regions().for_each(|(region, part)| add(sums, region, part.into()));
            }
        }
        let (mut region, mut percent) = (Vec::new(), Vec::new());
        for sum in sums {
            let most = sum.into_iter().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
            region.push(most.map(|(region, _)| self.number(region)));
            let part = most.map_or(0.0, |(_, part)| part / shared_by as f64);
            percent.push((100.0 * part).round().clamp(0.0, 100.0) as u8);
        }
        let seconds = |ticks: f64| ticks / self.attributor.ticks_per_second as f64;
        let name =
            |at: Option<&(&str, OfLocation)>| at.map_or_else(String::new, |(name, _)| (*name).to_owned());
        Lane {
            view: view.to_owned(),
            first: name(members.first()),
            last: name(members.last()),
            begin: seconds(first as f64 * step as f64 - begin as f64),
            step: seconds(step as f64),
            region,
            percent,
        }
    }
}

/// Returns the length of the steps of a shared lane, in ticks. The steps are longer if the lane's members ran far apart in
/// time, so that the lane has few steps.
fn step_of(members: &[(&str, &OfLocation)]) -> u64 {
    let lanes = || members.iter().map(|(_, lane)| lane);
    let begin = lanes().map(|lane| lane.begin()).min().unwrap_or(0);
    let end = lanes().map(|lane| lane.end()).max().unwrap_or(0);
    let mut step = lanes().map(|lane| lane.step_ticks()).max().unwrap_or(1);
    while end.saturating_sub(begin) / step > STEPS_MAX as u64 {
        step *= 2;
    }
    step
}

fn add(sums: &mut Vec<(RegionRef, f64)>, region: RegionRef, part: f64) {
    match sums.iter_mut().find(|(known, _)| *known == region) {
        Some((_, sum)) => *sum += part,
        None => sums.push((region, part)),
    }
}

/// Returns the lanes of several nodes: of the first ones in the order of their names, with at most [`LANES_MAX`] lanes in all.
pub(crate) fn joined(all: impl Iterator<Item = NodeLanes>) -> Vec<NodeLanes> {
    let mut all: Vec<NodeLanes> = all.collect();
    all.sort_by(|a, b| a.node.cmp(&b.node));
    let mut left = LANES_MAX;
    all.retain(|node| {
        let fits = node.lanes.len() <= left;
        left = if fits { left - node.lanes.len() } else { 0 };
        fits
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_model::{Quality, Region, RegionHandle};
    use ampere_settings::Config;
    use ampere_timeline::attributor::FoundDevice;
    use ampere_timeline::pipeline::{GpuStreams, Pipeline};

    fn run(ranks: u32, each: impl Fn(u32) -> Vec<(u64, Option<u32>)>) -> Vec<NodeLanes> {
        let mut attributor = Attributor::new(Config::default(), 1000);
        attributor.add_device(FoundDevice {
            node: "n".to_owned(),
            metric: "estimate:::energy".to_owned(),
            source: "estimate".to_owned(),
            quality: Quality::Estimated,
            joules_per_unit: Some(1.0),
        });
        for name in ["compute", "MPI_Wait"] {
            attributor.regions.add(&Region {
                handle: RegionHandle(0),
                name: name.to_owned(),
                canonical_name: name.to_owned(),
                source_file: String::new(),
                begin_line: 0,
                end_line: 0,
                region_type: 0,
                paradigm: 0,
            });
        }
        let location = |rank| LocationInfo {
            node: "n".to_owned(),
            group: format!("MPI Rank {rank}"),
            name: "Master thread".to_owned(),
            kind: LocationKind::CpuThread,
            rank: Some(rank),
            main: true,
        };
        let locations: Vec<_> = (0..ranks).map(|rank| attributor.add_location(location(rank))).collect();
        let launcher = LocationInfo { group: "mpirun".to_owned(), rank: None, ..location(0) };
        attributor.add_location(launcher);
        let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
        locations.iter().for_each(|location| pipeline.add_stream(*location));
        pipeline.place_streams();
        pipeline.attributor.read_now(0, 20, 0);
        for (rank, location) in locations.iter().enumerate() {
            let stream = pipeline.stream(*location).expect("a stream");
            for (time, region) in each(rank as u32) {
                match region {
                    Some(region) => stream.enter(time, RegionRef(region), 1),
                    None => stream.leave(time),
                }
            }
        }
        pipeline.advance_to_the_end();
        pipeline.conclude();
        of_attributor(&pipeline.attributor, None)
    }

    #[test]
    fn a_rank_has_a_lane_of_what_ran_most_in_each_step() {
        let all = run(2, |rank| match rank {
            0 => vec![(0, Some(0)), (34, Some(1)), (40, None), (60, None)],
            _ => vec![(30, Some(1)), (50, None)],
        });
        let NodeLanes { node, names, lanes } = &all[0];
        assert_eq!((all.len(), node.as_str(), lanes.len()), (1, "n", 2));
        let name = |region: &Option<u32>| region.map(|region| names[region as usize].to_string());
        let named: Vec<_> = lanes[0].region.iter().map(name).collect();
        let [compute, wait] = ["compute", "MPI_Wait"].map(|name| Some(name.to_owned()));
        let of = |name: &Option<String>| name.clone();
        assert_eq!(named, [of(&compute), of(&compute), of(&compute), of(&wait), of(&compute), of(&compute)]);
        assert_eq!(lanes[0].percent, [100, 100, 100, 60, 100, 100]);
        assert_eq!((lanes[0].begin, lanes[0].step), (-0.02, 0.01), "the counter was read later");
        assert_eq!((lanes[1].first.as_str(), lanes[1].begin), ("MPI Rank 1", 0.01));
        assert_eq!(lanes[1].region.iter().map(name).collect::<Vec<_>>(), [of(&wait), of(&wait)]);
    }

    #[test]
    fn many_ranks_share_lanes_and_other_processes_have_none() {
        let all = run(33, |rank| vec![(0, Some(u32::from(rank == 1))), (100, None)]);
        let lanes = &all[0].lanes;
        assert_eq!(lanes.len(), 11, "33 ranks in lanes of 3");
        assert_eq!((lanes[0].first.as_str(), lanes[0].last.as_str()), ("MPI Rank 0", "MPI Rank 2"));
        assert_eq!((lanes[0].percent[0], lanes[1].percent[0]), (67, 100), "one of the first three waits");
        assert_eq!(lanes[10].last, "MPI Rank 32");
    }

    #[test]
    fn ranks_that_ran_far_apart_share_a_lane_with_few_steps() {
        const DAYS: u64 = 1000 * 86_400_000;
        let all = run(17, |rank| {
            let begin = u64::from(rank) * DAYS;
            vec![(begin, Some(0)), (begin + 100, None)]
        });
        let lanes = &all[0].lanes;
        assert_eq!((lanes[0].first.as_str(), lanes[0].last.as_str()), ("MPI Rank 0", "MPI Rank 1"));
        assert!(lanes.iter().all(|lane| lane.region.len() <= STEPS_MAX + 2));
        let ran = |lane: &Lane| lane.region.iter().filter(|region| region.is_some()).count();
        assert_eq!((ran(&lanes[0]), ran(&lanes[8])), (2, 10), "a lane of one rank keeps its short steps");
    }

    #[test]
    fn only_the_first_of_many_nodes_have_lanes() {
        let of = |at: usize| NodeLanes {
            node: format!("n{at:04}"),
            lanes: vec![Lane::default(); 20],
            ..NodeLanes::default()
        };
        let all = joined((0..1000).rev().map(of));
        assert_eq!(
            all.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(),
            ["n0000", "n0001", "n0002"]
        );
    }
}
