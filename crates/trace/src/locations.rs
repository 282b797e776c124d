//! Adds a trace's locations and regions to an attributor.

use crate::evidence;
use crate::index::as_model;
use crate::metrics::Found;
use crate::places::{Ranks, node_of};
use crate::shares::Share;
use ampere_attribution::LocationIndex;
use ampere_model::numbers::NumberTable;
use ampere_model::text::listed;
use ampere_model::{LocationKind, RegionRef};
use ampere_timeline::attributor::{Attributor, LocationInfo};
use ampere_timeline::pipeline::{Pipeline, Stream};
use otf2::{Definitions, LocationGroupRef, LocationRef, LocationType};
use std::collections::{BTreeSet, HashMap, HashSet};

#[derive(Clone, Copy)]
pub(crate) struct LocationState {
    /// The time of the first enter.
    pub(crate) first: u64,
    /// The time of the last enter or leave; at the end, also of the last sample.
    pub(crate) last: u64,
    /// The number of enters and leaves so far.
    pub(crate) events: u64,
    /// The number of open frames.
    pub(crate) depth: u64,
    /// The number of events after which the open frames end, and the time at which they do, if these are known.
    pub(crate) ends_after: Option<(u64, u64)>,
    /// The number of calls that an enter counts as, unless it states a number of coalesced calls: 1, or 0 on a location of
    /// samples.
    pub(crate) calls: u32,
    pub(crate) index: LocationIndex,
}

impl LocationState {
    /// Counts an event. Ends the frames that are still open if this is known to be the location's last event and readings of
    /// counters follow it.
    #[inline]
    pub(crate) fn count(&mut self, stream: &mut Stream) {
        self.events += 1;
        if let Some((_, time)) = self.ends_after.filter(|(events, _)| *events == self.events) {
            stream.close(time);
            self.depth = 0;
        }
    }
}

/// Adds the trace's regions. Returns them by their numbers in the trace, which may be far apart, because some tools use hashes.
pub(crate) fn add_regions(definitions: &Definitions, attributor: &mut Attributor) -> NumberTable<RegionRef> {
    let mut regions = NumberTable::default();
    for (reference, region) in definitions.regions.iter() {
        let added = attributor.regions.add(&as_model(region));
        regions.insert(reference.0.into(), attributor.regions.first_of_same_name(added));
    }
    regions
}

/// Returns the threads without frames of processes whose first thread only records counters (those of `found`) while another
/// thread has frames. The first thread with frames is such a process' main thread.
pub(crate) fn threads_without_frames(
    definitions: &Definitions,
    found: &[Found],
    mut has_frames: impl FnMut(LocationRef) -> bool,
) -> BTreeSet<LocationRef> {
    let recorders: HashSet<LocationRef> = found.iter().map(|found| found.series.location).collect();
    let mut processes: HashMap<Option<LocationGroupRef>, Vec<(LocationRef, bool)>> = HashMap::new();
    for (reference, location) in definitions.locations.iter() {
        let is_recorded = evidence::samples(definitions, reference).is_none();
        if location.kind == LocationType::CpuThread && is_recorded && !evidence::is_of_other_threads(location)
        {
            processes.entry(location.group).or_default().push((reference, has_frames(reference)));
        }
    }
    let has = |(_, has): &(LocationRef, bool)| *has;
    let only_records = |thread: &(LocationRef, bool)| !has(thread) && recorders.contains(&thread.0);
    processes.retain(|_, threads| threads.first().is_some_and(only_records) && threads.iter().any(has));
    processes.into_values().flatten().filter(|thread| !has(thread)).map(|(thread, _)| thread).collect()
}

/// Returns the reason if functions are left out because they are on locations that are neither threads nor streams.
pub(crate) fn doubt_of_functions(
    definitions: &Definitions,
    locations: impl IntoIterator<Item = LocationRef>,
) -> Option<String> {
    const NAMES_MAX: usize = 4;
    let name = |at| definitions.locations.get(at).map(|location| location.name.clone());
    let names: Vec<String> = locations.into_iter().filter_map(name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "functions are left out because their location is of a type that only has metrics: {}",
            listed(names.iter(), NAMES_MAX)
        )
    })
}

/// Adds the trace's locations, or only those of a share, except those in `missing`, which have no event file. No thread in
/// `without_frames` is a main thread.
pub(crate) fn add_locations(
    definitions: &Definitions,
    share: Option<&Share>,
    missing: &[LocationRef],
    without_frames: &BTreeSet<LocationRef>,
    pipeline: &mut Pipeline,
) -> NumberTable<LocationState> {
    let mut all = NumberTable::default();
    let mut mains = HashSet::new();
    let ranks = Ranks::of(definitions);
    let owners = evidence::owners(definitions);
    let is_wanted = |location| share.is_none_or(|share| share.has(definitions, location));
    for (reference, location) in definitions.locations.iter().filter(|(reference, _)| is_wanted(*reference)) {
        let kind = match location.kind {
            LocationType::CpuThread => LocationKind::CpuThread,
            LocationType::AcceleratorStream => LocationKind::Gpu,
            _ => continue,
        };
        let group = location.group.and_then(|g| definitions.location_groups.get(g));
        // The first thread of a group is the process' main thread, even if its events are missing. Every location of stack
        // samples counts as that of a main thread, whichever thread it belongs to, as in a live run.
        let samples = evidence::samples(definitions, reference);
        let is_thread = kind == LocationKind::CpuThread
            && !evidence::is_of_other_threads(location)
            && !without_frames.contains(&reference);
        let main = is_thread && (mains.insert(location.group) || samples.is_some());
        if missing.contains(&reference) {
            continue;
        }
        let node = node_of(definitions, reference);
        let group = group.map_or_else(String::new, |g| g.name.clone());
        let rank = location.group.and_then(|g| ranks.get(g));
        let info = LocationInfo { node, rank, group, name: location.name.clone(), kind, main };
        let mut of_location = evidence::of_location(definitions, reference);
        let process = of_location.process.map(|process| LocationGroupRef(process as u32));
        of_location.owner = process.and_then(|process| owners.get(&process).cloned()).unwrap_or_default();
        let attributor = &mut pipeline.attributor;
        let index = match samples {
            Some(_) => attributor.add_samples(info, of_location),
            None => attributor.add_location_with(info, of_location),
        };
        if main && let Some(group) = location.group {
            let seconds = evidence::thread_seconds(definitions, group);
            seconds.into_iter().for_each(|seconds| attributor.set_cpu_seconds(group.0.into(), seconds));
        }
        let calls = u32::from(samples.is_none());
        all.insert(
            reference.0,
            LocationState { first: u64::MAX, last: 0, events: 0, depth: 0, ends_after: None, calls, index },
        );
        pipeline.add_stream(index);
    }
    put_samples_on_recorded(definitions, &mut all, pipeline);
    all
}

/// Puts the frames of samples on the locations that have the recorded calls of the same threads.
fn put_samples_on_recorded(
    definitions: &Definitions,
    all: &mut NumberTable<LocationState>,
    pipeline: &mut Pipeline,
) {
    for (reference, _) in definitions.locations.iter() {
        let Some(Some(on)) = evidence::samples(definitions, reference) else { continue };
        let places = [reference, on].map(|of| all.get_mut(of.0).map(|state| state.index));
        let [Some(samples), Some(recorded)] = places else { continue };
        pipeline.put_samples_on(samples, recorded);
    }
}
