//! Handles a metric name that several locations of a node have recorded. Either all ranks read the same counter, or each rank
//! sees its own GPU as number 0. The samples show which is the case.
//!
//! Apart from a constant, two recorders of the same counter never differ by more than the counter can rise between their
//! readings, plus the updates that one of them sees earlier than the other. If they differ by more, there are two devices. If
//! they do not, and the counter has risen by much more than that, there is one. Otherwise it is unknown, and they are treated
//! as two, except counters of whole nodes.
//!
//! GPUs of ranks with balanced load differ this little, too, as do cores. They count as one only if something else shows it: the
//! same absolute values, the same increments or powers, or differences that do not drift.

use crate::metrics::{Metrics, OnNodes};
use crate::places::{Place, Ranks, has_threads, node_of, own_part, process_of};
use crate::series::{Key, Series};
use crate::shares::Share;
use ampere_attribution::{Increase, Sample};
use ampere_model::counted::Level;
use ampere_model::text::listed;
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, watts_max_of};
use ampere_timeline::topology::metric_number;
use anyhow::Context;
use otf2::{Definitions, EventHandler, Flow, LocationGroupRef, LocationRef, MetricRef, MetricValue, Trace};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;

/// An upper bound on the time between two updates of a counter.
const UPDATE_SECONDS: f64 = 0.1;
/// The number of updates by which two recorders of one counter may differ. A value is read a moment before or after the time that
/// is recorded with it, so one recorder may see an update early and the other late.
const UPDATES: f64 = 2.0;
/// A rise of this many times the largest difference that could remain unseen between two counters proves that there is one
/// counter.
const PROVING_RISE_RATIO: f64 = 10.0;
/// A counter that stands still at this fraction of its readings is updated less often than it is read.
const STILL_PART_MIN: f64 = 0.2;
/// A counter is absolute if its first value is at least as much as it gains in this time. A counter that starts at 0 in each
/// process differs less between processes, because these start together.
const START_SECONDS: f64 = 10.0;
/// Two absolute counters that agree are one counter if their first values are at least as much as they gain in this time.
const AGREEING_SECONDS: f64 = 100.0;
/// The difference between two recorders of one counter changes by less than the counter gains in this time, or changes back at
/// once.
const DRIFT_SECONDS: f64 = 0.02;
const DRIFT_READINGS_MIN: u32 = 8;
/// The differences drift if the squares of the steps from each one to the next are less than this fraction of their variance.
/// For independent differences, this ratio is 2.
const DRIFTING_STEPS_MAX: f64 = 0.5;
/// At least this fraction of the values that change must be the same for both recorders, apart from coincidences.
const EQUAL_PART_MIN: f64 = 0.125;
/// Equal values must exceed coincidences by at least this number of standard deviations.
const EQUAL_DEVIATIONS: f64 = 3.0;
/// At least this many updates show whether two recorders saw the same ones.
const UPDATES_MIN: u32 = 8;
/// Joules in doubt matter if they are more than this fraction of the total.
const DOUBTFUL_PART_MAX: f64 = 0.01;
const NAMES_MAX: usize = 4;
/// The relative difference of sums that count as equal: sums of many readings differ in their last digits.
const DIGITS: f64 = 1e-9;
/// After this number of readings of a recorder, and its multiples, it is checked again which pairs need to be compared.
const READINGS_PER_CHECK: u32 = 256;
/// An upper bound on the recorders of one metric on a node that are compared with each other.
const COMPARED_MAX: usize = 1024;

/// The counters that the recorders of each metric read.
#[derive(Clone, Default)]
pub(crate) struct Recorders {
    counters: HashMap<Key, Vec<ReadBy>>,
    notes: Vec<String>,
    /// Joules that are counted twice or missing if the recorders read more or fewer counters than assumed, or that may belong to
    /// another node.
    doubtful_joules: f64,
}

/// Whether too many of the joules are in doubt.
pub(crate) fn are_in_doubt(doubtful_joules: f64, total_joules: f64) -> bool {
    doubtful_joules > DOUBTFUL_PART_MAX * total_joules
}

/// The recorders of one counter.
#[derive(Clone, Debug)]
pub(crate) struct ReadBy {
    /// The series of all recorders. The samples of the first one are used: it covers the longest time, to 1 %, and has at least half as
    /// many readings as any other.
    pub series: Vec<Series>,
    /// Location groups of the only processes that can draw from the counter; empty if any process may. A recorder need not have
    /// used what it counts: a processor's counters serve all processes, and a process may record for others. But if each
    /// process has recorded its own GPU by the same name, that is the GPU that it sees.
    pub users: Vec<LocationGroupRef>,
    /// A name such as "rank 3".
    pub recorder: String,
}

impl Recorders {
    /// Reads all samples of a trace, or those of some nodes.
    pub fn survey(
        path: &Path,
        config: &Config,
        share: Option<&Share>,
        exceptions: &OnNodes,
    ) -> anyhow::Result<Recorders> {
        let mut trace = Trace::open(path)?;
        let definitions = trace.definitions().clone();
        trace.restrict(|location| share.is_none_or(|share| share.has(&definitions, location)));
        let mut survey = Survey {
            metrics: Metrics::new(&definitions, config).with(exceptions.clone()),
            definitions: &definitions,
            attributor: Attributor::new(config.clone(), definitions.clock.timer_resolution),
            series: HashMap::new(),
            compared: BTreeMap::new(),
            tracks: HashMap::new(),
            waiting: BTreeMap::new(),
            samples: 0,
        };
        trace.read_events(&mut survey).with_context(|| format!("cannot read {}", path.display()))?;
        survey.end();
        let mut recorders = Recorders::default();
        for (key, compared) in survey.compared {
            if compared.tracks.len() > 1 {
                let is_silent = |track: &Track| survey.attributor.devices[track.device].is_silent();
                recorders.add(key, &compared, &definitions, is_silent);
            }
        }
        Ok(recorders)
    }

    /// Returns the counters of a key; `None` if only one location records it.
    pub fn of(&self, key: &Key) -> Option<&[ReadBy]> {
        self.counters.get(key).map(Vec::as_slice)
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the joules that may be counted twice, be missing, or be of another node.
    pub fn doubtful_joules(&self) -> f64 {
        self.doubtful_joules
    }

    fn add(
        &mut self,
        key: Key,
        compared: &Compared,
        definitions: &Definitions,
        is_silent: impl Fn(&Track) -> bool,
    ) {
        let tracks = &compared.tracks;
        let named = Named { definitions, ranks: Ranks::of(definitions) };
        let some_count = !tracks.iter().all(&is_silent);
        // Score-P's synchronous plugins for processors and nodes store the counter for all ranks until MPI is initialised, and then
        // 0 for all but one. A GPU may be a rank's own.
        let is_left_out = |track: &Track| is_silent(track) || !compared.is_gpu && track.ends_in_zeros(tracks);
        let (silent, counting): (Vec<usize>, Vec<usize>) =
            (0..tracks.len()).partition(|at| some_count && is_left_out(&tracks[*at]));
        let all = counting.len();
        let mut counters = compared.counters(counting);
        // Recorders may end, or begin later than others, and some read more often.
        for counter in &mut counters {
            let longest = counter.iter().map(|at| tracks[*at].covered()).max().unwrap_or(0);
            let is_short = |at: &usize| tracks[*at].covered() < longest - longest / 100;
            let most = counter.iter().map(|at| tracks[*at].readings).max().unwrap_or(0);
            let is_sparse = |at: &usize| tracks[*at].readings < most / 2;
            counter.sort_by_key(|at| (is_short(at), is_sparse(at)));
        }
        let names = named.recorders(compared, &counters);
        let Key { node, metric, .. } = &key;
        let what = if node.is_empty() { metric.clone() } else { format!("{metric} on {node}") };
        if compared.left_out > 0 {
            let left_out = compared.left_out;
            self.notes.push(format!(
                "{what} is recorded by {left_out} locations in addition to {COMPARED_MAX}: they are left out"
            ));
            self.doubtful_joules = f64::MAX; // JSON has no infinity
        }
        let (ended, silent): (Vec<usize>, Vec<usize>) =
            silent.into_iter().partition(|at| tracks[*at].nonzero.is_some());
        for (silent, zeros) in [(silent, "only zeros"), (ended, "only zeros after the first part of the run")]
        {
            if !silent.is_empty() {
                let silent = silent.iter().map(|at| named.process(&tracks[*at]));
                self.notes.push(format!(
                    "{what}: {} recorded {zeros} and is not treated as a device",
                    listed(silent, NAMES_MAX)
                ));
            }
        }
        self.notes.extend(match names.len() {
            1 if all == 1 => None,
            1 => Some(format!("{what} is recorded by {all} locations that all read one counter: only the samples of one of them are used")),
            several => Some(format!(
                "{what} is recorded by {all} locations and means {several} devices: those of {}",
                listed(names.iter(), NAMES_MAX)
            )),
        });
        self.add_doubts(&what, compared, &counters, &names);
        // Each node may have recorded its own device under a name that seems to state a node.
        let recorded_on = |counter: &Vec<usize>| node_of(definitions, tracks[counter[0]].series.location);
        let first = counters.first().map(recorded_on);
        if counters.iter().any(|counter| Some(recorded_on(counter)) != first) {
            let elsewhere = counters.iter().filter(|counter| recorded_on(counter) != *node);
            let joules: f64 = elsewhere.map(|counter| tracks[counter[0]].joules).sum();
            self.doubtful_joules += joules;
            self.notes.push(format!(
                "{what} has different values on several nodes: {joules:.3} J may belong to the nodes of their recorders"
            ));
        }
        let users = users(definitions, compared, &counters);
        let counters = counters.iter().zip(names).zip(users).map(|((counter, recorder), users)| {
            let series = counter.iter().map(|at| tracks[*at].series).collect();
            ReadBy { series, users, recorder }
        });
        self.counters.insert(key, counters.collect());
    }

    fn add_doubts(&mut self, what: &str, compared: &Compared, counters: &[Vec<usize>], names: &[String]) {
        for (at, counter) in counters.iter().enumerate() {
            let unclear = counters[..at]
                .iter()
                .position(|other| compared.verdict(other[0], counter[0]) == Verdict::Unclear);
            let is_one =
                |at: &usize, other: &usize| other != at && compared.verdict(*other, *at) == Verdict::One;
            let is_assumed = |at: &&usize| !counter.iter().any(|other| is_one(at, other));
            let assumed: Vec<usize> = counter.iter().skip(1).filter(is_assumed).copied().collect();
            if !assumed.is_empty() {
                let joules: f64 = assumed.iter().map(|at| compared.tracks[*at].joules).sum();
                self.doubtful_joules += joules;
                self.notes.push(format!(
                    "{what}: whether {} recorders read one counter cannot be determined from their values: they count as one \
                     device, and {joules:.3} J are missing if they are not",
                    assumed.len() + 1
                ));
            }
            if let Some(other) = unclear {
                let joules = |counter: &[usize]| compared.tracks[counter[0]].joules;
                let joules = joules(counter).min(joules(&counters[other]));
                self.doubtful_joules += joules;
                self.notes.push(format!(
                    "{what}: whether {} and {} read one counter cannot be determined from their values: they stay two \
                     devices, and {joules:.3} J are counted twice if it is one",
                    names[other], names[at]
                ));
            }
        }
    }
}

/// Returns the only processes that can draw from each counter; empty lists where they are unknown.
fn users(
    definitions: &Definitions,
    compared: &Compared,
    counters: &[Vec<usize>],
) -> Vec<Vec<LocationGroupRef>> {
    let of = |counter: &Vec<usize>| -> Option<Vec<LocationGroupRef>> {
        let mut all = Vec::new();
        for track in counter.iter().map(|at| &compared.tracks[*at]) {
            let recorder = process_of(definitions, track.series.location);
            match track.place.users.as_slice() {
                [] if compared.is_gpu => {
                    all.push(recorder.filter(|process| has_threads(definitions, *process))?)
                }
                [] => return None,
                // A package's counter that a process records for itself does not belong to that process alone.
                _ if compared.is_shared && !track.place.are_others => return None,
                users => all.extend_from_slice(users),
            }
        }
        Some(all)
    };
    let known: Option<Vec<_>> = counters.iter().map(of).collect();
    let mut seen = HashSet::new();
    let mut is_new = |users: &Vec<LocationGroupRef>| {
        let users: HashSet<_> = users.iter().copied().collect();
        users.into_iter().all(|user| seen.insert(user))
    };
    // A process that has recorded several counters has recorded those of other processes, too.
    known.filter(|known| known.iter().all(&mut is_new)).unwrap_or_else(|| vec![Vec::new(); counters.len()])
}

/// Finds names of recorders for messages.
struct Named<'a> {
    definitions: &'a Definitions,
    ranks: Ranks,
}

impl Named<'_> {
    /// Returns a name for each counter, from its first recorder: "rank 3", with the location if several have that name.
    fn recorders(&self, compared: &Compared, counters: &[Vec<usize>]) -> Vec<String> {
        let first = |at: usize| &compared.tracks[counters[at][0]];
        let mut names: Vec<String> = (0..counters.len()).map(|at| self.process(first(at))).collect();
        let is_shared =
            |names: &[String], at: usize| names.iter().filter(|name| **name == names[at]).count() > 1;
        let shared: Vec<usize> = (0..names.len()).filter(|at| is_shared(&names, *at)).collect();
        for at in shared {
            let location = self.definitions.locations.get(first(at).series.location);
            names[at] = format!("{}/{}", names[at], location.map_or("", |location| &location.name));
        }
        let bases = names.clone();
        for at in 1..names.len() {
            let before = bases[..at].iter().filter(|name| **name == bases[at]).count();
            if before > 0 {
                names[at] = format!("{} ({})", names[at], before + 1);
            }
        }
        names
    }

    /// Returns "rank 3", or the name of the process that the values are about or that owns them.
    fn process(&self, track: &Track) -> String {
        let location = track.series.location;
        let process = track.place.users.first().copied().or_else(|| process_of(self.definitions, location));
        let rank = process.and_then(|process| self.ranks.get(process));
        let group = process.and_then(|process| self.definitions.location_groups.get(process));
        rank.map(|rank| format!("rank {rank}"))
            .or_else(|| group.map(|group| group.name.clone()))
            .unwrap_or_else(|| format!("location {}", location.0))
    }
}

/// The conclusion from the samples of two recorders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    One,
    Two,
    Unclear,
}

/// The records of a metric by one recorder so far.
struct Track {
    series: Series,
    place: Place,
    /// The index among the survey's devices.
    device: usize,
    is_power: bool,
    /// The GPU of the context, or the core's thread, that the scope names.
    own_part: Option<String>,
    /// Whether the values are about the whole node of the recorder.
    is_of_node: bool,
    /// The times of the first and the last reading. `joules` counts from the first one.
    first: Option<u64>,
    time: Option<u64>,
    joules: f64,
    /// The time of the reading before the last rise.
    before_rise: Option<u64>,
    /// An upper bound on the time between two updates of the counter: the shortest time from the reading before a rise to the
    /// reading of the next rise, at most [`UPDATE_SECONDS`].
    update_seconds: f64,
    /// The largest power, and the largest number of joules between two readings.
    watts: f64,
    rise_max: f64,
    /// The number of readings, and of those with the same value as the one before.
    readings: u32,
    still: u32,
    /// The time between the last two readings.
    gap_seconds: f64,
    /// The power at the last reading of a power, and the sum of its changes, each for the time between the two readings. Another
    /// recorder of the same power, which reads it at other times, may differ by these joules.
    power: Option<f64>,
    changes: f64,
    /// The time and the joules of the reading before the last one.
    previous: Option<(u64, f64)>,
    /// The watts of the last two readings of a power, or else the joules since the readings before them. The last one is first.
    values: [f64; 2],
    /// The times of the first and the last reading that shows another value than 0.
    nonzero: Option<(u64, u64)>,
    /// The first and the last reading as they were recorded.
    first_shown: Option<(u64, f64)>,
    shown: (u64, f64),
    was_reset: bool,
}

impl Track {
    fn new(series: Series, place: Place, device: usize, is_power: bool) -> Track {
        let (first, time, before_rise) = (None, None, None);
        let update_seconds = UPDATE_SECONDS;
        Track {
            series,
            place,
            device,
            is_power,
            own_part: None,
            is_of_node: false,
            first,
            time,
            joules: 0.0,
            before_rise,
            update_seconds,
            watts: 0.0,
            rise_max: 0.0,
            readings: 0,
            still: 0,
            gap_seconds: f64::INFINITY,
            power: None,
            changes: 0.0,
            previous: None,
            values: [f64::NAN; 2],
            nonzero: None,
            first_shown: None,
            shown: (0, 0.0),
            was_reset: false,
        }
    }

    /// Processes the value that a reading shows.
    fn show(&mut self, time: u64, value: f64) {
        self.first_shown.get_or_insert((time, value));
        self.shown = (time, value);
        if value != 0.0 {
            self.nonzero.get_or_insert((time, time)).1 = time;
        }
    }

    /// Whether the recorder showed other values at first and then, for most of the time, only zeros, while another recorder
    /// continued to show other values.
    fn ends_in_zeros(&self, all: &[Track]) -> bool {
        let Some((first, last)) = self.nonzero else { return false };
        let zeros = self.shown.0.saturating_sub(last);
        let covers = |(begin, end): (u64, u64)| begin <= last && end + zeros / 100 >= self.shown.0;
        zeros > last - first && all.iter().filter_map(|other| other.nonzero).any(covers)
    }

    /// Processes a reading, with the joules since the one before.
    fn read(&mut self, time: u64, joules: f64, ticks_per_second: f64) {
        let seconds = |from: u64| time.saturating_sub(from) as f64 / ticks_per_second;
        if let Some(before) = self.time.filter(|_| joules > 0.0) {
            if let Some(start) = self.before_rise.replace(before) {
                self.update_seconds = self.update_seconds.min(seconds(start));
            }
            self.watts = self.watts.max(joules / (seconds(before) + self.update_seconds));
            self.rise_max = self.rise_max.max(joules);
        }
        self.gap_seconds = self.time.map_or(f64::INFINITY, seconds);
        self.first.get_or_insert(time);
        self.previous = self.time.map(|before| (before, self.joules));
        let value = if self.is_power { joules / self.gap_seconds } else { joules };
        self.values = [value, self.values[0]];
        if self.is_power && self.gap_seconds > 0.0 && self.gap_seconds.is_finite() {
            let watts = joules / self.gap_seconds;
            let change = self.power.replace(watts).map_or(0.0, |before| (watts - before).abs());
            self.changes += change * self.gap_seconds;
        }
        self.time = Some(time);
        self.joules += joules;
        self.readings += 1;
        self.still += u32::from(joules == 0.0);
    }

    /// Returns the time from the first to the last reading.
    fn covered(&self) -> u64 {
        self.first.zip(self.time).map_or(0, |(first, last)| last.saturating_sub(first))
    }

    /// Whether this track covers at least nine tenths of the time of another one.
    fn covers_most_of(&self, other: &Track) -> bool {
        let begin = self.first.max(other.first).unwrap_or(0);
        let both = self.time.min(other.time).unwrap_or(0).saturating_sub(begin);
        both >= other.covered() - other.covered() / 10
    }

    /// Returns the first recorded value of an energy, and the mean rise per tick of its values, if both are above 0.
    fn absolute(&self) -> Option<(f64, f64)> {
        let ((begin, first), (end, last)) = (self.first_shown.filter(|_| !self.was_reset)?, self.shown);
        let rise = (last - first) / end.saturating_sub(begin) as f64;
        (!self.is_power && first > 0.0 && rise > 0.0 && rise.is_finite()).then_some((first, rise))
    }

    /// Whether the last reading shows only one update. `update_seconds` may be too long: it is at least the time between readings.
    fn shows_one_update(&self) -> bool {
        self.gap_seconds <= 0.5 * self.update_seconds
    }

    /// Whether the counter is read more often than it is updated.
    fn shows_updates(&self) -> bool {
        !self.is_power && f64::from(self.still) >= STILL_PART_MIN * f64::from(self.readings)
    }

    /// Returns the joules of one update. For a power, each reading is an update.
    fn update(&self) -> f64 {
        if self.is_power { self.rise_max } else { self.watts * self.update_seconds }
    }
}

/// The recorders of a metric on a node.
struct Compared {
    tracks: Vec<Track>,
    /// The number of recorders that are not compared.
    left_out: usize,
    /// For each recorder, an earlier one that, according to all readings so far, reads the same counter. Recorders with the same
    /// leader are not compared with each other, because both are compared with the leader. If one of them turns out to read
    /// another counter, it has no leader from then on, and comparing continues.
    leaders: Vec<Option<usize>>,
    /// Each pair of recorders, the earlier in `tracks` first: (0, 1), (0, 2), (1, 2), (0, 3)...
    pairs: Vec<Pair>,
    /// The power that a device of this kind does not exceed.
    watts: f64,
    is_gpu: bool,
    /// Whether it is a counter of cores.
    is_core: bool,
    /// Whether the counter is that of a part which all processes of the node use.
    is_shared: bool,
    ticks_per_second: f64,
}

/// The second recorder's joules minus the first's, which are constant if both read the same counter.
#[derive(Clone, Copy)]
struct Pair {
    /// The constant lies between `least` and `most`.
    least: f64,
    most: f64,
    /// The largest amount by which these bounds have contradicted each other, also before a reset.
    contradiction: f64,
    /// The shortest times from a reading of the second recorder to one of the first, and from the first to the second.
    seconds: [f64; 2],
    /// Joules of both at the first comparison.
    first: Option<(f64, f64)>,
    updates: SeenUpdates,
    drift: Drift,
    equality: Equality,
}

/// How the differences of two recorders change in time. The joules of one are interpolated for the times of the other.
#[derive(Clone, Copy)]
struct Drift {
    count: u32,
    mean: f64,
    /// The sum of the squares of deviations from the mean.
    squares: f64,
    last: f64,
    /// The sum of the squares of the steps from each difference to the next.
    steps: f64,
}

impl Drift {
    const NEW: Drift = Drift { count: 0, mean: 0.0, squares: 0.0, last: 0.0, steps: 0.0 };

    fn add(&mut self, difference: f64) {
        if self.count > 0 {
            self.steps += (difference - self.last).powi(2);
        }
        self.last = difference;
        self.count += 1;
        let deviation = difference - self.mean;
        self.mean += deviation / f64::from(self.count);
        self.squares += deviation * (difference - self.mean);
    }

    /// Whether the differences drift, by more than a counter of this power explains.
    fn is_seen(&self, watts: f64) -> bool {
        // The variance of values that are spread evenly is a twelfth of their range, squared.
        let range = (12.0 * self.squares / f64::from(self.count.max(1))).sqrt();
        self.count >= DRIFT_READINGS_MIN
            && range > DRIFT_SECONDS * watts
            && self.steps < DRIFTING_STEPS_MAX * self.squares
    }
}

/// Counts the values of one recorder that differ from its previous value, and how many of these equal the last value of the other
/// recorder.
#[derive(Clone, Copy)]
struct Equality {
    varying: u32,
    equal: u32,
    /// The number of these values that equal the other recorder's value before its last one.
    by_chance: u32,
}

impl Equality {
    const NEW: Equality = Equality { varying: 0, equal: 0, by_chance: 0 };

    fn is_seen(self) -> bool {
        let [varying, equal, by_chance] = [self.varying, self.equal, self.by_chance].map(f64::from);
        let more = equal - by_chance;
        more > 0.0
            && more >= EQUAL_PART_MIN * varying
            && more.powi(2) >= EQUAL_DEVIATIONS.powi(2) * (equal + by_chance)
    }
}

/// Compares the updates of a counter that two recorders saw.
#[derive(Clone, Copy)]
struct SeenUpdates {
    /// Whether each recorder has seen an update since the last comparison.
    has_risen: [bool; 2],
    /// The difference at the last comparison.
    difference: Option<f64>,
    /// The number of comparisons in which the difference had not changed, and of those in which it had.
    same: u32,
    changed: u32,
}

impl SeenUpdates {
    const NEW: SeenUpdates = SeenUpdates { has_risen: [false; 2], difference: None, same: 0, changed: 0 };

    /// Processes a rise. If it is not known to be one update, the updates seen before it are discarded.
    fn see(&mut self, recorder: usize, (first, second): (f64, f64), is_one_update: bool) {
        if !is_one_update {
            (self.has_risen, self.difference) = ([false; 2], None);
            return;
        }
        self.has_risen[recorder] = true;
        if self.has_risen == [true; 2] {
            if let Some(before) = self.difference.replace(second - first) {
                let is_same = (second - first - before).abs() <= DIGITS * first.max(second);
                *(if is_same { &mut self.same } else { &mut self.changed }) += 1;
            }
            self.has_risen = [false; 2];
        }
    }
}

impl Pair {
    const NEW: Pair = Pair {
        least: f64::NEG_INFINITY,
        most: f64::INFINITY,
        contradiction: f64::NEG_INFINITY,
        seconds: [f64::INFINITY; 2],
        first: None,
        updates: SeenUpdates::NEW,
        drift: Drift::NEW,
        equality: Equality::NEW,
    };

    /// Compares two readings. `reach` is the most that the counter can have gained in `seconds`, the time between them.
    /// `second_is_later` states that the second recorder's reading is the later one.
    fn compare(&mut self, (first, second): (f64, f64), seconds: f64, reach: f64, second_is_later: bool) {
        self.first.get_or_insert((first, second));
        let difference = second - first;
        let (least, most) =
            if second_is_later { (difference - reach, difference) } else { (difference, difference + reach) };
        (self.least, self.most) = (self.least.max(least), self.most.min(most));
        self.contradiction = self.contradiction.max(self.least - self.most);
        let shortest = &mut self.seconds[usize::from(second_is_later)];
        *shortest = shortest.min(seconds);
    }

    /// Starts again after one of the recorders was reset, because the constant is now a different one.
    fn begin_again(&mut self) {
        *self = Pair { least: Pair::NEW.least, most: Pair::NEW.most, drift: Drift::NEW, ..*self };
    }
}

fn pair(first: usize, second: usize) -> usize {
    second * (second - 1) / 2 + first
}

impl Compared {
    fn add(&mut self, track: Track) -> usize {
        self.tracks.push(track);
        self.leaders.push(None);
        self.pairs.resize(pair(0, self.tracks.len()), Pair::NEW);
        self.tracks.len() - 1
    }

    /// Processes a reading of one recorder, with the joules since the one before.
    fn read(&mut self, at: usize, time: u64, joules: f64) {
        self.tracks[at].read(time, joules, self.ticks_per_second);
        if self.tracks[at].readings.is_multiple_of(READINGS_PER_CHECK) {
            let may_lead = |other: &usize| self.leaders[*other].is_none();
            let leader = (0..at).filter(may_lead).find(|other| self.verdict(*other, at) == Verdict::One);
            self.leaders[at] = leader;
        }
        let (now, is_one_update) = (self.tracks[at].joules, self.tracks[at].shows_one_update());
        for other in (0..self.tracks.len()).filter(|other| *other != at) {
            if !self.are_compared(at, other) {
                continue;
            }
            self.compare(other, at);
            self.follow(other, at);
            if joules > 0.0 && self.tracks[other].time.is_some() {
                let other_joules = self.tracks[other].joules;
                let both = if other < at { (other_joules, now) } else { (now, other_joules) };
                let pair = &mut self.pairs[pair(other.min(at), other.max(at))];
                pair.updates.see(usize::from(other < at), both, is_one_update);
            }
        }
    }

    /// Compares the last readings of two recorders.
    fn compare(&mut self, earlier: usize, later: usize) {
        let (first, second) = (earlier.min(later), earlier.max(later));
        let [from, to] = [earlier, later].map(|at| self.tracks[at].time);
        let (Some(from), Some(to)) = (from, to) else { return };
        let seconds = to.saturating_sub(from) as f64 / self.ticks_per_second;
        let reach = self.watts * (seconds + UPDATE_SECONDS);
        let both = (self.tracks[first].joules, self.tracks[second].joules);
        self.pairs[pair(first, second)].compare(both, seconds, reach, second == later);
    }

    /// Compares the last two readings of a recorder with the last reading of another one, if that lies between them.
    fn follow(&mut self, other: usize, at: usize) {
        let (own, of_other) = (&self.tracks[at], &self.tracks[other]);
        let (Some(time), Some((begin, joules)), Some(between)) = (own.time, own.previous, of_other.time)
        else {
            return;
        };
        if begin >= time || !(begin..=time).contains(&between) {
            return;
        }
        let part = (between - begin) as f64 / (time - begin) as f64;
        let difference = joules + part * (own.joules - joules) - of_other.joules;
        let [value, before] = own.values;
        let digits = DIGITS * if own.is_power { value } else { own.joules };
        let is_equal = |to: f64| (value - to).abs() <= digits;
        let pair = &mut self.pairs[pair(other.min(at), other.max(at))];
        pair.drift.add(if other < at { difference } else { -difference });
        if value > 0.0 && (value - before).abs() > digits {
            pair.equality.varying += 1;
            pair.equality.equal += u32::from(is_equal(of_other.values[0]));
            pair.equality.by_chance += u32::from(is_equal(of_other.values[1]));
        }
    }

    /// Compares the last reading of a recorder with those of the recorders with the same leader.
    fn compare_with_others_of_leader(&mut self, at: usize) {
        for other in (0..self.tracks.len()).filter(|other| *other != at) {
            if !self.are_compared(at, other) {
                let is_later = self.tracks[at].time >= self.tracks[other].time;
                let (earlier, later) = if is_later { (other, at) } else { (at, other) };
                self.compare(earlier, later);
            }
        }
    }

    fn are_compared(&self, one: usize, other: usize) -> bool {
        self.leaders[one].is_none() || self.leaders[one] != self.leaders[other]
    }

    /// Groups recorders by the counter that they read.
    fn counters(&self, recorders: Vec<usize>) -> Vec<Vec<usize>> {
        let mut counters: Vec<Vec<usize>> = Vec::new();
        for track in recorders {
            let is_read_by = |counter: &Vec<usize>| {
                let verdicts: Vec<Verdict> =
                    counter.iter().map(|other| self.verdict(*other, track)).collect();
                verdicts.contains(&Verdict::One) && !verdicts.contains(&Verdict::Two)
            };
            // Recorders of the whole node read one counter, unless their values show otherwise.
            let may_be_read_by = |counter: &Vec<usize>| {
                counter.iter().all(|other| {
                    let [one, two] = [track, *other].map(|at| &self.tracks[at]);
                    one.is_of_node
                        && two.is_of_node
                        && one.covers_most_of(two)
                        && two.covers_most_of(one)
                        && self.verdict(*other, track) != Verdict::Two
                })
            };
            let counter = counters.iter().position(is_read_by);
            match counter.or_else(|| counters.iter().position(may_be_read_by)) {
                Some(counter) => counters[counter].push(track),
                None => counters.push(vec![track]),
            }
        }
        counters
    }

    fn was_reset(&mut self, at: usize, time: u64) {
        self.compare_with_others_of_leader(at);
        self.tracks[at].time = Some(time);
        self.tracks[at].before_rise = None;
        self.tracks[at].previous = None;
        self.tracks[at].was_reset = true;
        for other in (0..self.tracks.len()).filter(|other| *other != at) {
            self.pairs[pair(other.min(at), other.max(at))].begin_again();
        }
    }

    /// Compares the first values of two absolute counters: `Some(Verdict::Two)` if one counter cannot have shown both.
    fn verdict_of_absolute(&self, one: &Track, other: &Track) -> Option<Verdict> {
        let ((first, rise), (second, other_rise)) = (one.absolute()?, other.absolute()?);
        let second_of_rise = rise.max(other_rise) * self.ticks_per_second;
        let between = one.first_shown?.0.abs_diff(other.first_shown?.0) as f64 / self.ticks_per_second;
        let is_absolute = |seconds: f64| first.min(second) >= seconds * second_of_rise;
        let apart = (first - second).abs() / second_of_rise;
        match () {
            () if is_absolute(START_SECONDS) && apart >= START_SECONDS * (1.0 + between) => {
                Some(Verdict::Two)
            }
            () if is_absolute(AGREEING_SECONDS) && apart <= UPDATES * (UPDATE_SECONDS + between) => {
                Some(Verdict::One)
            }
            () => None,
        }
    }

    /// Judges two recorders.
    fn verdict(&self, first: usize, second: usize) -> Verdict {
        let (first, second) = (first.min(second), first.max(second));
        let (one, other, pair) =
            (&self.tracks[first], &self.tracks[second], &self.pairs[pair(first, second)]);
        let update = one.update().max(other.update());
        let digits = DIGITS * one.joules.max(other.joules);
        let SeenUpdates { same, changed, .. } = pair.updates;
        let has_updates = same + changed >= UPDATES_MIN;
        let updates_differ = has_updates && same < changed && one.shows_updates() && other.shows_updates();
        let between_readings = one.changes + other.changes;
        // Recorders may show one counter from different first values on, but then their joules rise equally.
        let by_absolute = self.verdict_of_absolute(one, other).filter(|_| !pair.equality.is_seen());
        let scopes_differ =
            one.own_part.is_some() && other.own_part.is_some() && one.own_part != other.own_part;
        if by_absolute == Some(Verdict::Two) || self.is_gpu && scopes_differ {
            return Verdict::Two;
        }
        if pair.contradiction > UPDATES * update + digits + between_readings || updates_differ {
            return Verdict::Two;
        }
        let Some(begun) = pair.first else { return Verdict::Unclear };
        let watts = one.watts.max(other.watts);
        let risen = (one.joules - begun.0).min(other.joules - begun.1);
        let unseen = watts * pair.seconds.iter().sum::<f64>() + update + between_readings;
        // A recorder has no reason to record one counter twice, unless it is for each hardware thread of a core.
        let is_of_part = |track: &Track| track.series.instance.is_some() && track.place.users.is_empty();
        let is_one_location =
            one.series.location == other.series.location && !(is_of_part(one) && is_of_part(other));
        // Two idle GPUs may have the same constant power, which sensors round to watts.
        let is_constant = |track: &Track| track.is_power && track.changes <= digits;
        let may_be_idle = self.is_gpu && is_constant(one) && is_constant(other);
        let may_be_balanced = (self.is_gpu || self.is_core)
            && by_absolute != Some(Verdict::One)
            && (one.is_power || pair.drift.is_seen(watts));
        let has_risen = risen > 0.0 && risen + digits >= PROVING_RISE_RATIO * unseen;
        let is_shown = match pair.equality.is_seen() {
            true => has_risen || one.is_power,
            false => has_risen && !may_be_balanced,
        };
        match () {
            () if is_shown && !is_one_location && !may_be_idle => Verdict::One,
            () if scopes_differ => Verdict::Two,
            () => Verdict::Unclear,
        }
    }
}

/// An upper bound on the samples that wait for those of other devices.
const WAITING_MAX: usize = 1 << 20;

/// A metric, and the index of one of its recorders in [`Compared::tracks`].
type RecorderIndex = (Key, usize);

struct Survey<'a> {
    metrics: Metrics,
    definitions: &'a Definitions,
    /// Reads the counters. Each recorder has its own device.
    attributor: Attributor,
    /// The track of each series; `None` if the series is not a device.
    series: HashMap<Series, Option<RecorderIndex>>,
    compared: BTreeMap<Key, Compared>,
    /// The track of each of the attributor's devices.
    tracks: HashMap<usize, RecorderIndex>,
    /// Samples that wait for those of other devices, which may have an earlier time.
    waiting: BTreeMap<(u64, u64), (usize, Increase)>,
    samples: u64,
}

impl Survey<'_> {
    fn queue_samples(&mut self, device: usize) {
        while let Some(Sample { time, increase, .. }) = self.attributor.devices[device].sample() {
            self.samples += 1;
            self.waiting.insert((time, self.samples), (device, increase));
        }
    }

    /// Compares the waiting samples up to `end`, in time order.
    fn compare_until(&mut self, end: u64) {
        if self.waiting.len() > WAITING_MAX {
            self.attributor.devices.iter_mut().for_each(|device| device.counter_mut().decide_before(end));
        }
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= end) {
            let ((time, _), (device, increase)) = first.remove_entry();
            let Some((key, track)) = self.tracks.get(&device) else { continue };
            let Some(compared) = self.compared.get_mut(key) else { continue };
            match increase {
                Increase::First => compared.read(*track, time, 0.0),
                Increase::Joules(joules) | Increase::Lost(joules) => compared.read(*track, time, joules),
                Increase::Reset => compared.was_reset(*track, time),
            }
        }
    }

    fn end(&mut self) {
        for device in 0..self.attributor.devices.len() {
            self.attributor.devices[device].counter_mut().end();
            self.queue_samples(device);
        }
        self.compare_until(u64::MAX);
        for compared in self.compared.values_mut() {
            (0..compared.tracks.len()).for_each(|at| compared.compare_with_others_of_leader(at));
        }
    }

    fn find(&mut self, series: Series) -> Option<RecorderIndex> {
        let mut found = self.metrics.describe(self.definitions, series)?;
        let key = found.key();
        if let Some(compared) = self.compared.get_mut(&key).filter(|c| c.tracks.len() == COMPARED_MAX) {
            compared.left_out += 1;
            return None;
        }
        let device = found.add_to(&mut self.attributor)?;
        let is_power = self.attributor.devices[device].is_power();
        let is_core = found.counted.level == Some(Level::Cores);
        let is_whole = matches!(found.counted.level, Some(Level::Node | Level::Platform));
        let mut track = Track::new(series, found.place.clone(), device, is_power);
        track.own_part = own_part(self.definitions, series.instance, is_core);
        track.is_of_node = is_whole
            && series.instance.is_none()
            && !found.place.is_outside
            && node_of(self.definitions, series.location) == found.place.node;
        let ticks_per_second = self.attributor.ticks_per_second as f64;
        let new = || Compared {
            tracks: Vec::new(),
            left_out: 0,
            leaders: Vec::new(),
            pairs: Vec::new(),
            watts: watts_max_of(&found.traits.kind, &found.device.metric),
            is_gpu: found.traits.kind == "gpu" || metric_number(&found.device.metric).is_some(),
            is_core,
            is_shared: matches!(
                found.counted.level,
                Some(Level::Node | Level::Platform | Level::Package | Level::Memory)
            ),
            ticks_per_second,
        };
        let track = self.compared.entry(key.clone()).or_insert_with(new).add(track);
        Some((key, track))
    }
}

impl EventHandler for Survey<'_> {
    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Flow {
        let values: Vec<_> = self.metrics.values(metric, values).collect();
        for (member, value) in values {
            let series = Series { location, member, instance: metric.instance };
            if !self.series.contains_key(&series) {
                let track = self.find(series);
                self.series.insert(series, track);
            }
            let Some(Some((key, track))) = self.series.get(&series) else { continue };
            let Some(compared) = self.compared.get_mut(key) else { continue };
            compared.tracks[*track].show(time, crate::index::number(value));
            let device = compared.tracks[*track].device;
            self.tracks.insert(device, (key.clone(), *track));
            self.attributor.devices[device].read(time, crate::index::value(value), 0);
            self.queue_samples(device);
        }
        self.compare_until(self.attributor.undecided_since().min(time));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2::MetricMemberRef;

    fn compared(recorders: u64) -> Compared {
        let mut compared = Compared {
            tracks: Vec::new(),
            left_out: 0,
            leaders: Vec::new(),
            pairs: Vec::new(),
            watts: 1000.0,
            is_gpu: false,
            is_core: false,
            is_shared: false,
            ticks_per_second: 1000.0,
        };
        for location in 0..recorders {
            let series =
                Series { location: LocationRef(location), member: MetricMemberRef(0), instance: None };
            compared.add(Track::new(series, Place::default(), location as usize, false));
        }
        compared
    }

    /// All recorders read 10 times a second, each with its own power at that time.
    fn read(compared: &mut Compared, readings: std::ops::Range<u64>, watts: impl Fn(usize, u64) -> f64) {
        for at in readings {
            for recorder in 0..compared.tracks.len() {
                let joules = if at == 0 { 0.0 } else { 0.1 * watts(recorder, at) };
                compared.read(recorder, 100 * at + recorder as u64, joules);
            }
        }
    }

    #[test]
    fn recorders_of_one_counter_are_compared_with_one_of_them() {
        let mut compared = compared(64);
        read(&mut compared, 0..600, |_, at| 100.0 + (at % 7) as f64);
        let others =
            |at: usize| (0..64).filter(|other| *other != at && compared.are_compared(at, *other)).count();
        assert_eq!((others(0), (1..64).map(others).sum::<usize>()), (63, 63));
        assert_eq!(compared.counters((0..64).collect()), [(0..64).collect::<Vec<_>>()]);
    }

    /// Two GPUs with balanced load differ by less than a reading in such a short time.
    #[test]
    fn absolute_counters_with_other_values_are_two() {
        for (starts, counters) in [
            ([9.1e5, 3.3e5], vec![vec![0], vec![1]]),
            ([9.1e5, 9.1e5], vec![vec![0, 1]]),
            // A counter that starts at 0 in each process, one of which started earlier.
            ([0.0, 200.0], vec![vec![0, 1]]),
        ] {
            let mut compared = compared(2);
            compared.is_gpu = true;
            for at in 0..51 {
                for (recorder, start) in starts.into_iter().enumerate() {
                    let time = 100 * at + recorder as u64;
                    compared.tracks[recorder].show(time, start + 45.0 * at as f64);
                    compared.read(recorder, time, if at == 0 { 0.0 } else { 45.0 });
                }
            }
            assert_eq!(compared.counters(vec![0, 1]), counters, "{starts:?}");
        }
    }

    #[test]
    fn gpus_whose_joules_drift_apart_are_not_taken_for_one() {
        for (watts, is_gpu, verdict) in [
            ([500.0, 503.0], true, Verdict::Unclear),
            ([500.0, 503.0], false, Verdict::One),
            ([500.0, 500.0], true, Verdict::One),
        ] {
            let mut compared = compared(2);
            compared.is_gpu = is_gpu;
            read(&mut compared, 0..41, |recorder, _| watts[recorder]);
            assert_eq!(compared.verdict(0, 1), verdict, "{watts:?} {is_gpu}");
        }
    }

    #[test]
    fn gpus_with_noise_of_their_own_are_not_taken_for_one() {
        // Pseudo-random noise of up to 32 W.
        let noise = |of: u64, at: u64| {
            let mixed = (at * 2 + of + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            ((mixed ^ (mixed >> 29)) >> 44) as f64 / 32_768.0
        };
        for is_power in [true, false] {
            for (is_one, verdict) in [(true, Verdict::One), (false, Verdict::Unclear)] {
                let mut compared = compared(2);
                compared.is_gpu = true;
                compared.tracks.iter_mut().for_each(|track| track.is_power = is_power);
                read(&mut compared, 0..301, |recorder, at| {
                    400.0 + noise(if is_one { 0 } else { recorder as u64 }, at)
                });
                assert_eq!(compared.verdict(0, 1), verdict, "{is_power}");
            }
        }
    }

    #[test]
    fn scopes_of_two_gpus_or_threads_and_a_whole_node_decide_what_values_do_not() {
        for is_gpu in [true, false] {
            let mut compared = compared(2);
            (compared.is_gpu, compared.is_core) = (is_gpu, !is_gpu);
            for (at, track) in compared.tracks.iter_mut().enumerate() {
                track.own_part = Some(at.to_string());
            }
            read(&mut compared, 0..41, |recorder, _| 500.0 + 3.0 * recorder as f64);
            assert_eq!(compared.verdict(0, 1), Verdict::Two, "{is_gpu}");
        }
        // Without a rise, the values show nothing.
        for is_of_node in [true, false] {
            let mut compared = compared(2);
            compared.tracks.iter_mut().for_each(|track| track.is_of_node = is_of_node);
            read(&mut compared, 0..41, |_, _| 0.0);
            assert_eq!(compared.counters(vec![0, 1]).len(), if is_of_node { 1 } else { 2 });
        }
    }

    #[test]
    fn recorders_that_differ_late_read_two_counters() {
        // Before the reading `until`, all recorders have the same power.
        for (until, watts) in
            [(600, [100.0, 300.0, 500.0]), (1070, [100.0, 300.0, 600.0]), (600, [500.0, 100.0, 300.0])]
        {
            let mut compared = compared(3);
            read(&mut compared, 0..1100, |recorder, at| if at < until { 100.0 } else { watts[recorder] });
            (0..3).for_each(|at| compared.compare_with_others_of_leader(at));
            assert_eq!(compared.counters((0..3).collect()), [[0], [1], [2]], "{until} {watts:?}");
        }
    }
}
