//! `summary.json`: the result of a run, as `ampere attribute --json` prints it too. Fields may be added, never renamed.

use crate::assignment::Link;
use crate::batch_job::Job;
use crate::callpaths::Numbering;
pub use crate::callpaths::{Callpath, Callpaths, Figures, Name, Paths};
use crate::events::{EventSum, EventTable};
use crate::gauges::OverTheRun;
use crate::lanes::NodeLanes;
use crate::losses::Losses;
use crate::missing::Numbers;
use crate::site::Site;
use crate::waits::Waiting;
use ampere_attribution::{Policy, Sharing};
use ampere_model::{Counted, Quality};
use ampere_timeline::agreement::Check;
use ampere_timeline::attributor::{Unit, ViewKind};
use ampere_timeline::curve::PowerCurve;
use ampere_timeline::work::CountedWork;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::ops::RangeInclusive;
use std::path::Path;

/// The value of [`Summary::schema`].
pub const SCHEMA: &str = "ampere-summary/2";

/// A run counts as complete if a device's energy is unknown for at most this fraction of it.
pub const UNKNOWN_SHARE_MAX: f64 = 0.01;

/// The maximum number of rows of a table in the summary that is on disk during a run, because it is written again and again.
pub const RUNNING_ROWS_MAX: usize = 1000;

/// The file as a whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Summary {
    /// Always [`SCHEMA`], so that readers can check it.
    pub schema: String,
    /// The run that the figures are about.
    pub run: Run,
    /// The losses, which show how much of the run is in the figures.
    pub quality: Losses,
    /// The cost of measuring the run.
    pub overhead: Overhead,
    /// The links between consumers and devices, with their reasons.
    #[serde(default)]
    pub topology: Vec<Link>,
    /// The names, by their numbers.
    #[serde(default)]
    pub names: Vec<Name>,
    /// The call paths of all views.
    #[serde(default)]
    pub paths: Paths,
    /// The devices: those that count energy first, time last.
    pub devices: Vec<Device>,
    /// The lanes of each node, which show what ran over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<NodeLanes>,
    /// The events that were counted with samples, by call path.
    #[serde(default, skip_serializing_if = "EventTable::is_empty")]
    pub events: EventTable,
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Summary::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Summary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Summary, D::Error> {
        let mut summary = Summary::deserialize(deserializer)?;
        if summary.schema != SCHEMA {
            return Err(D::Error::custom(format!("schema {:?}, {SCHEMA:?} expected", summary.schema)));
        }
        summary.flaw().map_or(Ok(summary), |flaw| Err(D::Error::custom(flaw)))
    }
}

/// The start of a summary's file, which is read without the tables, because these may be large.
#[derive(Debug)]
pub struct Head {
    /// The run that the figures are about.
    pub run: Run,
    /// The counts of lost records and events.
    pub quality: Losses,
}

impl Head {
    /// Reads the head of a file. Returns `None` if the file is not a summary.
    pub fn of(path: &Path) -> Option<Head> {
        struct Beginning<'a>(&'a mut (Option<String>, Option<Run>, Option<Losses>));
        impl<'de> Visitor<'de> for Beginning<'_> {
            type Value = ();

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a summary")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
                let (schema, run, quality) = self.0;
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "schema" => *schema = Some(map.next_value()?),
                        "run" => *run = Some(map.next_value()?),
                        "quality" => *quality = Some(map.next_value()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                    if schema.is_some() && run.is_some() && quality.is_some() {
                        break;
                    }
                }
                Err(M::Error::custom("the rest is not read"))
            }
        }
        if !path.symlink_metadata().is_ok_and(|there| there.is_file()) {
            return None; // opening a pipe would wait for its writer
        }
        let mut found = (None, None, None);
        let mut reader = serde_json::Deserializer::from_reader(BufReader::new(File::open(path).ok()?));
        let _ = reader.deserialize_map(Beginning(&mut found));
        let (schema, run, quality) = found;
        schema.filter(|schema| schema == SCHEMA)?;
        Some(Head { run: run?, quality: quality? })
    }
}

/// The maximum size of a `summary.json` that is read, because another user may have written it.
pub const BYTES_MAX: u64 = 1 << 30;

fn views_of(devices: &mut [Device]) -> impl Iterator<Item = &mut View> {
    devices.iter_mut().flat_map(|device| device.views.iter_mut().chain(&mut device.other_ranks))
}

impl Summary {
    /// Reads a summary. The code for this is generated here because the command line is optimized for size, and the text may have
    /// 100 MB.
    ///
    /// # Errors
    /// The text is not a summary, or its numbers cannot be true.
    pub fn of_json(text: &[u8]) -> serde_json::Result<Summary> {
        serde_json::from_slice(text)
    }

    fn views_mut(&mut self) -> impl Iterator<Item = &mut View> {
        views_of(&mut self.devices)
    }

    fn callpaths_mut(&mut self) -> impl Iterator<Item = &mut Callpath> {
        let views = views_of(&mut self.devices);
        views.flat_map(|view| view.callpaths.all_mut()).chain(self.events.callpaths_mut())
    }

    /// Returns the reason if its numbers cannot be true.
    fn flaw(&mut self) -> Option<&'static str> {
        let (names, paths) = (self.names.len(), self.paths.len());
        let is_there = |row: &Callpath| {
            (row.path as usize) < paths && (row.location_group.max(row.location) as usize) < names
        };
        let flaw = self.paths.flaw(names);
        let all_there = self.views_mut().all(|view| view.callpaths.all().all(is_there));
        let all_there = all_there && self.events.callpaths().all(is_there);
        let all_there = all_there && self.lanes.iter().all(NodeLanes::is_sound);
        let all_there = all_there && self.run.waiting.iter().all(|waiting| waiting.pairs.is_sound());
        flaw.or((!all_there).then_some("a row has a path or a name that does not exist"))
    }

    /// Returns the devices of other summaries, and the events of their call paths, with this summary's numbers.
    pub fn renumbered(&mut self, others: Vec<Summary>) -> (Vec<Device>, EventTable) {
        let (names, paths) = (std::mem::take(&mut self.names), std::mem::take(&mut self.paths));
        let mut numbering = Numbering::of(names, paths);
        let (mut devices, mut events) = (Vec::new(), EventTable::default());
        for mut other in others {
            let (names, paths) = (std::mem::take(&mut other.names), std::mem::take(&mut other.paths));
            numbering.renumber((&names, &paths), other.callpaths_mut());
            devices.append(&mut other.devices);
            events.append(std::mem::take(&mut other.events));
        }
        (self.names, self.paths) = (numbering.names, numbering.paths);
        (devices, events)
    }

    /// Numbers names and call paths in alphabetical order, as if all had been numbered at once.
    pub(crate) fn order_names(&mut self) {
        let (names, paths) = (std::mem::take(&mut self.names), std::mem::take(&mut self.paths));
        let rows = self.views_mut().flat_map(|view| view.callpaths.all());
        let mut of_rows: BTreeSet<u32> = rows.flat_map(|row| [row.location_group, row.location]).collect();
        of_rows.extend(self.events.callpaths().flat_map(|row| [row.location_group, row.location]));
        let of_rows: BTreeSet<&Name> = of_rows.into_iter().map(|number| &names[number as usize]).collect();
        let regions: BTreeSet<&Name> = paths.name.iter().map(|number| &names[*number as usize]).collect();
        let mut numbering = Numbering::default();
        for name in of_rows.into_iter().chain(regions) {
            numbering.name(name);
        }
        numbering.renumber((&names, &paths), self.callpaths_mut());
        let new = numbering.order_paths();
        self.callpaths_mut().for_each(|row| row.path = new[row.path as usize]);
        self.events.sort();
        (self.names, self.paths) = (numbering.names, numbering.paths);
    }

    /// Returns the name with this number.
    pub fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    /// Iterates over the innermost regions of all call paths.
    pub fn region_names(&self) -> impl Iterator<Item = &str> {
        self.paths.name.iter().map(|name| self.name(*name))
    }

    /// Returns the regions of a call path, outermost first.
    pub fn regions_of(&self, path: u32) -> Vec<&str> {
        let mut regions: Vec<&str> =
            self.paths.up(path).map(|path| self.name(self.paths.name[path as usize])).collect();
        regions.reverse();
        regions
    }
}

/// Returns node and name of the devices that are in another device of their node.
pub fn parts(summary: &Summary) -> HashSet<(&str, &str)> {
    let devices = summary.devices.iter();
    devices.flat_map(|whole| whole.contains.iter().map(|part| (whole.node.as_str(), part.as_str()))).collect()
}

/// Returns the devices that count joules and are not contained in another one of their node.
pub fn topmost(summary: &Summary) -> impl Iterator<Item = &Device> {
    let parts = parts(summary);
    let is_within = move |device: &Device| parts.contains(&(device.node.as_str(), device.name.as_str()));
    summary.devices.iter().filter(move |device| device.unit == "J" && !is_within(device))
}

/// Returns the view of this name that tables show, if it has functions.
pub fn view<'a>(device: &'a Device, name: &str) -> Option<&'a View> {
    device.shown().find(|view| view.view == name && !(view.callpaths.is_empty() && view.regions.is_empty()))
}

/// Returns the least trusted of the qualities of energy. "none" does not count.
pub fn least_trusted<'a>(names: impl Iterator<Item = &'a str>) -> &'a str {
    let all = [Quality::Measured, Quality::Integrated, Quality::Simulated, Quality::Estimated];
    names.max_by_key(|name| all.iter().position(|quality| quality.as_str() == *name)).unwrap_or("none")
}

/// The run that figures are about.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub id: String,
    /// The command line, word by word; empty for a trace.
    pub command: Vec<String>,
    /// The batch system's job that the run belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// The start of the run (RFC 3339, UTC).
    pub start: String,
    /// The end of the run (RFC 3339, UTC).
    pub end: String,
    /// Whether nothing of the run is missing. If something is, `notes` report it.
    pub complete: bool,
    /// Whether the run is still running, so that these are the figures up to now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// The host that recorded the events: "score-p", "embedded" or "trace".
    pub host: String,
    pub nodes: Vec<String>,
    pub ranks: u32,
    /// The number of ranks on each node, if there are several nodes.
    #[serde(default, skip_serializing_if = "is_of_one")]
    pub node_ranks: BTreeMap<String, u32>,
    /// The quality of the least trustworthy device: "measured", "integrated", "simulated" or "estimated".
    pub energy: String,
    pub seconds: f64,
    /// The sum over all nodes. A device's joules include those of the devices that it contains, which are not added again.
    #[serde(default)]
    pub total_joules: f64,
    /// The clock that timestamps are from.
    pub timer: String,
    pub ticks_per_second: u64,
    /// The source of the times at which threads were on a CPU: "switches" (the kernel reported each), "schedstat" (the kernel's
    /// count of each thread's CPU time was read at intervals) or "none"; empty for a trace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub activity: String,
    /// Readings of one node's clocks: ticks, and nanoseconds since 1970 at that moment, when the clock was first read and at the
    /// run's end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock: Vec<[u64; 2]>,
    /// Notes for the reader, one line each.
    pub notes: Vec<String>,
    /// The notes that explain why the run is incomplete, the most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The run's part of its node's CPU time; `None` for a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_cpu: Option<NodeCpu>,
    /// The command's exit status as in shells (128 + n for signal n), if `ampere run` waited for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_status: Option<i32>,
    /// Processes that did not end their measurement properly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endings: Vec<Ending>,
    /// Times without sampling, because the collector was killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// The CPU time between two samples of a thread's stack. Rows without calls come from samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_period_seconds: Option<f64>,
    /// The energy of waiting in MPI; `None` if that was not computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// The units of work that the run has counted, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<Work>,
    /// The ranges that started and ended, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Range>,
    /// The sums of the events that were counted with samples, such as instructions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventSum>,
    /// What the energy means for the site; `None` if the settings have no figures of the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Site>,
    /// The size of the MPI job, and its ranks in these figures; `None` if there are several jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<MpiRanks>,
}

fn is_of_one(nodes: &BTreeMap<String, u32>) -> bool {
    nodes.len() < 2
}

impl Run {
    /// Returns its nodes, and the number of ranks of each, as far as that is known.
    pub fn ranks_of_nodes(&self) -> BTreeMap<String, u32> {
        match self.nodes.as_slice() {
            [one] => BTreeMap::from([(one.clone(), self.ranks)]),
            _ => self.node_ranks.clone(),
        }
    }
}

/// An amount of work by name, such as time steps, that programs or the user count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub name: String,
    pub units: f64,
    /// All joules of the run, divided by the units; `None` if no device was measured.
    #[serde(default)]
    pub joules_per_unit: Option<f64>,
}

impl Work {
    /// Returns the units of work that were counted, by name.
    pub fn units(counted: &CountedWork) -> impl Iterator<Item = (String, f64)> {
        let work = counted.totals().filter(|(kind, ..)| *kind == Counted::Work);
        work.map(|(_, name, units)| (name.to_owned(), units))
    }

    /// Makes the work of a run from its units. `joules` are those of the run; `None` if no device was measured.
    pub fn of_run(units: impl IntoIterator<Item = (String, f64)>, joules: Option<f64>) -> Vec<Work> {
        let work = |(name, units): (String, f64)| Work {
            name,
            units,
            joules_per_unit: joules.map(|joules| joules / units).filter(|joules| joules.is_finite()),
        };
        units.into_iter().map(work).collect()
    }

    /// Adds the units of a run's nodes. `joules` are those of the run, if a device was measured.
    pub fn joined<'a>(nodes: impl Iterator<Item = &'a Run>, joules: Option<f64>) -> Vec<Work> {
        let mut units = BTreeMap::new();
        for work in nodes.flat_map(|node| &node.work) {
            *units.entry(work.name.clone()).or_default() += work.units;
        }
        Work::of_run(units, joules)
    }
}

/// Ranges that a program started and ended, and that may overlap: they are not frames, and have no joules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub name: String,
    /// The interface by which the program marked them, such as NVTX.
    pub interface: String,
    /// The number of ranges that have ended.
    pub count: u64,
    /// The sum of their seconds.
    pub seconds: f64,
    /// The number of ranges that have started and not ended.
    pub open: u64,
}

impl Range {
    /// Makes the ranges of a run from its counts, by interface and name.
    pub fn of_run(counted: &CountedWork) -> Vec<Range> {
        let mut ranges: BTreeMap<&str, Range> = BTreeMap::new();
        let mut started: BTreeMap<&str, f64> = BTreeMap::new();
        for (kind, name, number) in counted.totals() {
            match kind {
                Counted::Work | Counted::Events => continue,
                Counted::RangesStarted => _ = started.insert(name, number),
                Counted::RangesEnded => ranges.entry(name).or_default().count = number as u64,
                Counted::RangeSeconds => ranges.entry(name).or_default().seconds = number,
            }
            let range = ranges.entry(name).or_default();
            let (interface, name) = name.split_once("::").unwrap_or(("", name));
            (range.interface, range.name) = (interface.to_owned(), name.to_owned());
        }
        for (name, started) in started {
            let range = ranges.entry(name).or_default();
            // While the run lasts, a range may end between the reading of both numbers.
            range.open = (started as u64).saturating_sub(range.count);
        }
        ranges.into_values().collect()
    }

    /// Adds the ranges of a run's nodes.
    pub fn joined<'a>(nodes: impl Iterator<Item = &'a Run>) -> Vec<Range> {
        let mut ranges: BTreeMap<(&str, &str), Range> = BTreeMap::new();
        for range in nodes.flat_map(|node| &node.ranges) {
            let sum = ranges.entry((&range.interface, &range.name)).or_insert_with(|| Range {
                name: range.name.clone(),
                interface: range.interface.clone(),
                ..Range::default()
            });
            sum.count += range.count;
            sum.seconds += range.seconds;
            sum.open += range.open;
        }
        ranges.into_values().collect()
    }
}

/// The ranks of an MPI job that are in the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MpiRanks {
    /// The size of MPI_COMM_WORLD, and the number of ranks that MPI_Comm_spawn has started.
    pub size: u32,
    /// The ranks, in ascending order.
    pub ranks: Vec<u32>,
}

impl MpiRanks {
    /// Collects the ranks; `processes` gives the rank of each process and the size of its job. Ranks that MPI_Comm_spawn has
    /// started are numbered after the others, and their size includes the others.
    pub fn of(processes: impl Iterator<Item = (u32, u32)>) -> Option<MpiRanks> {
        let (mut processes, alone): (Vec<_>, Vec<_>) = processes.partition(|(_, size)| *size > 1);
        processes.sort_unstable();
        // MPI_Comm_spawn also starts ranks for a process that was started without others.
        if processes.first().is_some_and(|(rank, _)| *rank > 0) {
            processes.splice(0..0, alone.first().copied());
        }
        let is_one_job = processes.windows(2).all(|pair| {
            let [(rank, size), (next, next_size)] = [pair[0], pair[1]];
            rank < next && (next_size == size || next_size > size && next >= size)
        });
        let size = processes.last()?.1;
        is_one_job.then(|| MpiRanks { size, ranks: processes.into_iter().map(|(rank, _)| rank).collect() })
    }

    /// Returns the ranks of the job that are not in the figures.
    pub fn missing(&self) -> Numbers {
        Numbers::missing(self.size, self.ranks.iter().copied())
    }
}

/// A process that did not end its measurement properly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    pub rank: Option<u32>,
    /// The id of the process.
    pub pid: u32,
    /// How it ended, in words.
    pub what: String,
    /// The time when it was last known to run (RFC 3339, UTC); empty if that is not known.
    pub time: String,
    /// The signal that killed it, if that is known.
    pub signal: Option<i32>,
}

/// A time in which no counter was sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// The time of the last sample before it (RFC 3339, UTC).
    pub start: String,
    pub seconds: f64,
    /// The energy of that time; `null` if sampling did not continue.
    pub joules: Option<f64>,
}

/// CPU time during the run. For several nodes, the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeCpu {
    /// The time for which it was counted.
    pub seconds: f64,
    /// Busy CPU time of the run's own processes; see `ampere_counters::RunCpu`.
    pub own_busy_seconds: f64,
    pub collector_busy_seconds: f64,
    /// Busy CPU time of all processes on the node, including the run's own.
    pub node_busy_seconds: f64,
    pub cpus: u64,
    pub node_cpus: u64,
}

/// If other programs use less than this, in cores or as a fraction of all CPU time, that is attributed to the operating system
/// and not reported.
const OTHERS_CORES_MIN: f64 = 0.1;
const OTHERS_PART_MIN: f64 = 0.1;
/// The CPU time of others is not reported if it was counted for less than this, because the kernel counts in steps of 10 ms.
const OTHERS_SECONDS_MIN: f64 = 1.0;

/// If CPU time was counted for less than this fraction of the run, the text states the time.
const COUNTED_PART: f64 = 0.9;

impl NodeCpu {
    /// Describes the CPU time in one line for people. `run_seconds` is the duration of the run.
    pub fn words(&self, run_seconds: f64) -> String {
        let cores = if self.seconds > 0.0 { self.own_busy_seconds / self.seconds } else { 0.0 };
        let part = if self.seconds < COUNTED_PART * run_seconds {
            format!(", in {:.1} of {run_seconds:.1} s", self.seconds)
        } else {
            String::new()
        };
        format!(
            "{:.2} s of the node's {:.2} s of busy CPU time were this run's own: {cores:.2} of {} cores busy on average{part}",
            self.own_busy_seconds, self.node_busy_seconds, self.cpus
        )
    }

    /// Returns the CPU time of other programs, including the operating system.
    pub fn busy_seconds_of_others(&self) -> f64 {
        self.node_busy_seconds - self.own_busy_seconds - self.collector_busy_seconds
    }

    /// Whether others used enough of the node's CPU time to be worth a note.
    pub fn has_others(&self) -> bool {
        let others = self.busy_seconds_of_others();
        others > OTHERS_CORES_MIN * self.seconds && others > OTHERS_PART_MIN * self.node_busy_seconds
    }

    /// Returns the cores that other programs used on average, unless these are few for this number of nodes, or the time was
    /// too short to know that.
    pub fn cores_of_others(&self, nodes: usize) -> Option<f64> {
        let cores = self.busy_seconds_of_others() / self.seconds;
        (self.seconds >= OTHERS_SECONDS_MIN && cores > OTHERS_CORES_MIN * nodes.max(1) as f64)
            .then_some(cores)
    }

    /// Adds the CPU time of another node.
    pub fn with(self, more: NodeCpu) -> NodeCpu {
        NodeCpu {
            seconds: self.seconds.max(more.seconds),
            own_busy_seconds: self.own_busy_seconds + more.own_busy_seconds,
            collector_busy_seconds: self.collector_busy_seconds + more.collector_busy_seconds,
            node_busy_seconds: self.node_busy_seconds + more.node_busy_seconds,
            cpus: self.cpus + more.cpus,
            node_cpus: self.node_cpus + more.node_cpus,
        }
    }
}

impl Run {
    /// Describes how the command ended, if it failed: its status, and the signal that the status stands for in shells.
    pub fn bad_status(&self) -> Option<String> {
        let status = self.command_status.filter(|status| *status != 0)?;
        // A status above 128 may also be an ordinary exit status.
        let signal = (129..160).contains(&status).then(|| format!(", or {}", SignalNumber(status - 128)));
        Some(format!("{status}{}", signal.unwrap_or_default()))
    }

    /// Makes the run incomplete, for a reason that is also one of its notes.
    pub fn lacks(&mut self, reason: String) {
        self.complete = false;
        self.notes.push(reason.clone());
        self.missing.push(reason);
    }

    /// Returns all notes; those about what is missing come first.
    pub fn notes_in_order(&self) -> impl Iterator<Item = &String> {
        let others = self.notes.iter().filter(|note| !self.missing.contains(note));
        self.missing.iter().chain(others)
    }

    /// Returns a word to show next to the run's name; empty if the run is complete.
    pub fn state(&self) -> &'static str {
        match (self.complete, self.running) {
            (true, _) => "",
            (false, true) => "RUNNING",
            (false, false) => "INCOMPLETE",
        }
    }

    /// Returns the state as the end of a line.
    pub fn state_words(&self) -> String {
        if self.complete { String::new() } else { format!(", {}", self.state()) }
    }
}

impl Gap {
    /// Makes one line for all gaps that were closed, and one for each that was not.
    pub fn notes(gaps: &[Gap]) -> Vec<String> {
        let (closed, open): (Vec<&Gap>, Vec<&Gap>) = gaps.iter().partition(|gap| gap.joules.is_some());
        let mut notes: Vec<String> = match closed.as_slice() {
            [first, _, ..] => {
                let seconds: f64 = closed.iter().map(|gap| gap.seconds).sum();
                let joules: f64 = closed.iter().filter_map(|gap| gap.joules).sum();
                vec![format!(
                    "the collector was killed {} times, first at {}, and replaced: no counter was read for {seconds:.3} s in \
                     all; {joules:.3} J were used in that time, which are divided as between any two samples (run.gaps)",
                    closed.len(),
                    first.start
                )]
            }
            few => few.iter().map(|gap| gap.note()).collect(),
        };
        notes.extend(open.iter().map(|gap| gap.note()));
        notes
    }

    fn note(&self) -> String {
        match self.joules {
            Some(joules) => format!(
                "the collector was killed: no counter was read for {:.3} s from {} on; {joules:.3} J were used in that time, \
                 which are divided as between any two samples",
                self.seconds, self.start
            ),
            None => format!(
                "the collector was killed: no counter was read from {} on, and the energy of the last {:.3} s is not known",
                self.start, self.seconds
            ),
        }
    }
}

impl Ending {
    /// Makes one line for all endings, which are in time order: usually the first one caused the others.
    pub fn notes(endings: &[Ending]) -> Option<String> {
        let (first, others) = endings.split_first()?;
        let rank = first.rank.map_or_else(String::new, |rank| format!("MPI Rank {rank}, "));
        let was = if first.signal.is_some() { "was " } else { "" };
        let line = format!("{rank}process {} {was}{}: its figures are up to then", first.pid, first.what);
        let others = match others.len() {
            0 => String::new(),
            1 => "; another process ended the same way after it".to_owned(),
            many => format!("; {many} other processes ended the same way after it"),
        };
        Some(format!("{line}{others}. To measure all of it, repeat the run"))
    }
}

/// A signal's number, shown with its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignalNumber(pub i32);

impl SignalNumber {
    /// Returns the name, or a text such as "signal 34" for a signal without one here.
    pub fn name(self) -> String {
        const NAMES: [(i32, &str); 11] = [
            (1, "SIGHUP"),
            (2, "SIGINT"),
            (3, "SIGQUIT"),
            (4, "SIGILL"),
            (6, "SIGABRT"),
            (7, "SIGBUS"),
            (8, "SIGFPE"),
            (9, "SIGKILL"),
            (11, "SIGSEGV"),
            (14, "SIGALRM"),
            (15, "SIGTERM"),
        ];
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("signal {}", self.0),
        }
    }
}

impl std::fmt::Display for SignalNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name();
        if name.starts_with("SIG") { write!(f, "signal {} ({name})", self.0) } else { f.write_str(&name) }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Device {
    pub node: String,
    pub name: String,
    pub metric: String,
    /// The counter source that reads it, or "trace".
    pub source: String,
    /// The quality: "measured", "integrated" (from a measured power), "simulated" or "estimated".
    pub energy: String,
    /// The unit: "J", or "s" for the device "time", whose figures are all seconds, even those called joules.
    #[serde(default = "joules")]
    pub unit: String,
    /// The kind: "gpu", "cpu", "memory" or "node"; empty if it is not known.
    #[serde(default)]
    pub kind: String,
    /// Names of devices of the same node whose joules are also in this one's.
    #[serde(default)]
    pub contains: Vec<String>,
    /// Whether no process of the node may use this GPU, according to their variables (`ROCR_VISIBLE_DEVICES` and others).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    pub samples: u64,
    /// The joules from the first sample to the last.
    pub total_joules: f64,
    /// The watts of the estimate; `None` for a counter and for a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateWatts>,
    /// The power that the device draws without the job, under the policy *active*.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Under the policy *active*: the joules that the device always draws; the rest are `dynamic_joules`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_joules: Option<f64>,
    /// The dynamic part, known when `static_joules` is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_joules: Option<f64>,
    /// The time from the first sample to the last. Energy outside of it is not in the total.
    #[serde(default)]
    pub sampled_seconds: f64,
    /// The part of that time whose energy is unknown, because the counter was reset or its readings could not be true.
    #[serde(default)]
    pub uncovered_seconds: f64,
    /// The highest power that the device can draw; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts_max: Option<f64>,
    /// The mean time from one sample to the next.
    #[serde(default)]
    pub sample_seconds: f64,
    /// The longest time from one sample to the next.
    #[serde(default)]
    pub longest_sample_seconds: f64,
    /// The longest time without a change of the counter's value.
    #[serde(default)]
    pub longest_still_seconds: f64,
    /// Whether the counter had not changed for long when it was last read.
    #[serde(default)]
    pub stale: bool,
    /// Figures about its readings; `None` for a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readings: Option<Readings>,
    /// The device's gauges; empty if the figures are from a trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gauges: Vec<OverTheRun>,
    /// Measurements of the same energy that do not come from its counter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// The power over the run, in steps; `None` if there are fewer than two samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerCurve>,
    /// The ways in which its joules are divided.
    pub views: Vec<View>,
    /// The ranks view with the locations that the settings do not choose: all threads of the ranks, or only their main threads;
    /// `None` if there is no difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_ranks: Option<View>,
    /// Whether tables show `other_ranks` first, because other threads of a rank ran longer than its main thread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_ranks_lead: bool,
}

/// The model of the estimate, according to the settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EstimateWatts {
    /// The power of the whole node without load.
    pub idle_watts: f64,
    /// The power of one busy core above that.
    pub watts_per_core: f64,
}

/// The power that a device draws without the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The power in watts; 0 if it is not known.
    pub watts: f64,
    /// Where the baseline comes from: "set", "calibrated", "estimate", "idle intervals", or "none" if it is not known; then all
    /// joules are dynamic.
    pub kind: String,
    /// The number of intervals over which the baseline is the mean.
    pub samples: u64,
}

impl Baseline {
    /// Whether the baseline is known. If not, `watts` is 0 but means nothing.
    pub fn is_known(&self) -> bool {
        self.kind != "none"
    }
}

/// The names of the joules that are charged to no row: idle ones, those of other jobs, and lost ones.
pub const REST_NAMES: [&str; 3] = ["(idle)", "(other jobs)", "(lost)"];

impl Device {
    /// Returns the views that tables show to people.
    pub fn shown(&self) -> impl Iterator<Item = &View> {
        let leading = self.other_ranks.as_ref().filter(|_| self.other_ranks_lead);
        self.views.iter().map(move |view| leading.filter(|_| view.view == "ranks").unwrap_or(view))
    }

    /// Returns the ranks view that tables do not show.
    pub fn not_shown(&self) -> Option<&View> {
        let ranks = || self.views.iter().find(|view| view.view == "ranks");
        if self.other_ranks_lead { ranks() } else { self.other_ranks.as_ref() }
    }

    /// Returns the joules to which the shares of a view's rows refer. Like [`Figures::own_joules`], they are the dynamic
    /// joules under the policy *active*.
    pub fn own_whole(&self, view: &View) -> f64 {
        if !view.is_active() {
            return view.whole();
        }
        let of_rows: f64 = view.regions.iter().map(|row| row.figures.own_joules()).sum();
        self.dynamic_joules.unwrap_or_default().max(of_rows)
    }

    /// Returns the joules that are charged to no row of a view: the name of each part, its joules, and its static and dynamic
    /// joules if these are known. Lost joules are neither static nor dynamic.
    pub fn rest(&self, view: &View) -> impl Iterator<Item = (&'static str, f64, Option<(f64, f64)>)> {
        let [idle, other_jobs, lost] = REST_NAMES;
        let of_others = view.other_jobs_joules;
        let others = (of_others > 0.0).then_some((other_jobs, of_others, Some((0.0, of_others))));
        let idle = (idle, view.unused_joules(), self.idle_parts(view));
        std::iter::once(idle).chain(others).chain([(lost, view.lost_joules, None)])
    }

    /// Returns the static and the dynamic part of the joules that nobody used; `None` if they are not known.
    pub fn idle_parts(&self, view: &View) -> Option<(f64, f64)> {
        if !view.is_active() || view.sharing != Sharing::Shared.as_str() {
            return None;
        }
        let of_rows: f64 = view.regions.iter().filter_map(|row| row.figures.dynamic_joules).sum();
        let unused = view.unused_joules();
        let dynamic = (self.dynamic_joules? - of_rows - view.other_jobs_joules).clamp(0.0, unused.max(0.0));
        Some((unused - dynamic, dynamic))
    }

    pub fn known_seconds(&self) -> f64 {
        (self.sampled_seconds - self.uncovered_seconds).max(0.0)
    }

    /// Returns the time that may pass without a sample at each end of the run, because counters are read one after another, and
    /// some are updated only ten times per second.
    pub fn end_seconds(&self) -> f64 {
        let most = END_SECONDS.end().max(self.sample_seconds);
        self.longest_sample_seconds.max(2.0 * self.sample_seconds).clamp(*END_SECONDS.start(), most)
    }

    /// Returns the mean power over the time for which the device's energy is known; `None` for the device that counts time.
    /// `None` also if the mean exceeds the device's highest power: in a short time, a counter's first change may include
    /// earlier joules.
    pub fn mean_watts(&self) -> Option<f64> {
        let known_seconds = self.known_seconds();
        let mean = (self.unit == Unit::Joules.as_str() && known_seconds > 0.0)
            .then(|| self.total_joules / known_seconds);
        mean.filter(|watts| *watts <= self.watts_max.unwrap_or(f64::INFINITY))
    }

    /// Returns the powers of a row of one of this device's views.
    pub fn watts(&self, view: &View, row: &Figures) -> Watts {
        let least_seconds = RESOLVED_SAMPLES_MIN * self.sample_seconds;
        let is_resolved = row.resolved_seconds > 0.0 && row.resolved_seconds >= least_seconds;
        // For the device that counts time, everything is resolved, and seconds per second are not a power.
        if self.unit == Unit::Seconds.as_str() || !is_resolved {
            return Watts::default();
        }
        let rate = |joules: f64, seconds: f64| (seconds > 0.0).then(|| joules / seconds);
        let watts = Watts {
            mean_watts: rate(row.exclusive_joules, row.exclusive_seconds),
            resolved_watts: rate(row.resolved_joules, row.resolved_seconds),
            ..Watts::default()
        };
        watts.up_to(self.most_watts(view))
    }

    /// Returns the highest power that a row can have, in watts. With time slicing, a row is charged at most all joules of an
    /// interval, so its power is at most the device's. Other policies have no limit.
    pub(crate) fn most_watts(&self, view: &View) -> f64 {
        let is_time_sliced = view.policy == Policy::TimeSliced.as_str();
        self.watts_max.filter(|_| is_time_sliced).unwrap_or(f64::INFINITY)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(joules: &f64) -> bool {
    *joules == 0.0
}

fn joules() -> String {
    Unit::Joules.as_str().to_owned()
}

/// A device's joules divided among frames.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct View {
    /// The name of the view: "ranks" or "kernels".
    pub view: String,
    /// The threads whose frames count for a rank, if that makes a difference: "main" or "all".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub locations: String,
    /// The policy: "active", "time_sliced" or "busy_only".
    pub policy: String,
    /// The sharing: "shared" or "independent".
    pub sharing: String,
    /// Joules that were charged to frames.
    pub attributed_joules: f64,
    /// Joules that were charged to no frame.
    pub idle_joules: f64,
    /// The part of the idle joules that other jobs on the node used, by their CPU time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_jobs_joules: f64,
    /// Under the policy *active*: the seconds by which the dynamic joules were divided, of CPU time or, on a GPU, of kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_seconds: Option<f64>,
    /// Joules of intervals that cannot be attributed.
    pub lost_joules: f64,
    /// The difference between the sum of the attributed, idle and lost joules and the device's total.
    pub conservation_error_joules: f64,
    /// The call paths, those with the most joules first.
    pub callpaths: Callpaths,
    /// The regions, those with the most joules first.
    pub regions: Vec<Region>,
}

impl View {
    /// Returns the joules that shares refer to. If each consumer gets all joules, as for time, these are more than the device's
    /// total.
    pub fn whole(&self) -> f64 {
        self.attributed_joules + self.idle_joules + self.lost_joules
    }

    /// Returns the idle joules that other jobs did not use.
    pub fn unused_joules(&self) -> f64 {
        self.idle_joules - self.other_jobs_joules
    }

    /// Whether a row's frames ran on the view's own consumers. In the kernels view, the call path of a kernel begins with that
    /// of its launch. Rows of frames on that path have only inclusive joules, and tables of kernels leave them out.
    pub fn has_run(&self, row: &Figures) -> bool {
        let ran = row.calls > 0 || row.exclusive_seconds > 0.0 || row.exclusive_joules > 0.0;
        ran || (self.view != ViewKind::Kernels.as_str() && !row.is_cause_only())
    }

    /// Returns the regions whose frames ran on the view's own consumers: see [`View::has_run`].
    pub fn own_regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().filter(|row| self.has_run(&row.figures))
    }

    /// Whether the view's joules are divided into static and dynamic ones.
    pub fn is_active(&self) -> bool {
        self.policy == Policy::Active.as_str()
    }

    /// Returns the name of the view for people.
    pub fn title(&self) -> String {
        match self.locations.as_str() {
            "main" => format!("{} view, by main threads only", self.view),
            "all" => format!("{} view, by all threads", self.view),
            _ => format!("{} view", self.view),
        }
    }
}

/// The sum of the call paths that end in a region.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Region {
    pub region: Name,
    /// The sums over those call paths.
    #[serde(flatten)]
    pub figures: Figures,
    /// For a sampled function: the standard error of its exclusive joules that follows from the number of its samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_error_joules: Option<f64>,
    /// The power while the region ran.
    #[serde(default, flatten)]
    pub watts: Watts,
}

/// A row's resolved power counts as typical of the row if at least this part of its time is resolved.
const TYPICAL_PART_MIN: f64 = 0.05;

/// The power while a region or call path ran. A power is `null` if it cannot be resolved: it needs the time of
/// [`RESOLVED_SAMPLES_MIN`] resolved samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watts {
    /// Exclusive joules over exclusive seconds; for a rank that shares its device, the rank's share.
    pub mean_watts: Option<f64>,
    /// Resolved joules over resolved seconds: the device's power while nothing else ran; under the policy *active*, its power
    /// above the baseline while nothing else was active.
    pub resolved_watts: Option<f64>,
    /// The least power of the sample intervals in which it ran, however briefly. Time sliced: the device's power in the interval.
    /// Busy only: the interval's joules over the run time in it. `null` only if it never ran between samples.
    pub min_watts: Option<f64>,
    /// The greatest of the same powers.
    pub max_watts: Option<f64>,
}

impl Watts {
    /// Returns the resolved power for a table; `None` if it rests on so small a part of the row's time that the rest may well
    /// have had another power.
    pub fn typical(&self, row: &Figures) -> Option<f64> {
        self.resolved_watts.filter(|_| row.resolved_seconds >= TYPICAL_PART_MIN * row.exclusive_seconds)
    }

    /// Removes powers above `most`, the highest possible power. Two changes of a counter that are seen too close to each other
    /// cause such powers.
    pub(crate) fn up_to(self, most: f64) -> Watts {
        let possible = |watts: Option<f64>| watts.filter(|watts| *watts <= most);
        Watts {
            mean_watts: possible(self.mean_watts),
            resolved_watts: possible(self.resolved_watts),
            min_watts: possible(self.min_watts),
            max_watts: possible(self.max_watts),
        }
    }
}

/// A power needs the time of at least this many resolved samples.
pub const RESOLVED_SAMPLES_MIN: f64 = 10.0;

/// The range of [`Device::end_seconds`], except for a device that is sampled less often.
pub(crate) const END_SECONDS: RangeInclusive<f64> = 0.05..=0.1;

/// The cost of measuring a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Overhead {
    pub collector_cpu_seconds: f64,
    /// The largest resident memory of the collector's process.
    pub collector_peak_rss_bytes: u64,
    /// The sampler's cost; `None` if the figures are from a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<SamplerOverhead>,
    /// The cost of stack samples and records of switches for the measured program; `None` if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StacksOverhead>,
}

/// The estimated cost of stack samples and records of switches for the measured program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StacksOverhead {
    /// The CPU time between two samples of a thread's stack, as it was set. `None` if stacks were not sampled.
    pub period_seconds: Option<f64>,
    /// The cost of a sample for the sampled thread, as measured at the start of the run; `None` if there were no samples, or if
    /// it could not be measured.
    pub sample_seconds: Option<f64>,
    pub samples: u64,
    /// The number of records of switches.
    pub switches: u64,
    /// The estimated cost of all samples and switches.
    pub cost_seconds: f64,
    /// The CPU time of the program's processes, including that cost.
    pub program_seconds: f64,
}

impl StacksOverhead {
    /// Returns the cost as a fraction of the program's CPU time.
    pub fn share(&self) -> Option<f64> {
        (self.program_seconds > 0.0).then(|| self.cost_seconds / self.program_seconds)
    }

    /// Adds the cost on another node.
    pub fn with(mut self, more: &StacksOverhead) -> StacksOverhead {
        let largest = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        self.period_seconds = largest(self.period_seconds, more.period_seconds);
        self.sample_seconds = largest(self.sample_seconds, more.sample_seconds);
        self.samples += more.samples;
        self.switches += more.switches;
        self.cost_seconds += more.cost_seconds;
        self.program_seconds += more.program_seconds;
        self
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    /// The number of readings that succeeded.
    pub readings: u64,
    pub failed_readings: u64,
    /// The time that all readings took.
    pub read_seconds: f64,
    /// The time that the longest reading took.
    pub longest_read_seconds: f64,
    /// The observed time between two changes of the source's counters; 0 if it is not known.
    pub update_seconds: f64,
}

impl Readings {
    /// Adds the figures of another device that is shown together with this one.
    pub fn add(&mut self, more: &Readings) {
        self.readings += more.readings;
        self.failed_readings += more.failed_readings;
        self.read_seconds += more.read_seconds;
        self.longest_read_seconds = self.longest_read_seconds.max(more.longest_read_seconds);
        self.update_seconds = self.update_seconds.max(more.update_seconds);
    }
}

/// The cost of sampling, and how well it kept its deadlines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplerOverhead {
    /// CPU time of the sampler's thread.
    pub cpu_seconds: f64,
    /// The CPU time of the sampler's thread as a fraction of one core.
    pub cpu_share: f64,
    /// The number of times that the sampler had to wake up.
    pub deadlines: u64,
    /// The number of times that it woke up more than a millisecond too late.
    pub missed_deadlines: u64,
    /// The mean delay of waking up.
    pub mean_late_seconds: f64,
    /// The longest delay of waking up.
    pub longest_late_seconds: f64,
    /// The time that all readings of gauges took.
    #[serde(default)]
    pub gauges_seconds: f64,
    /// The time that the longest reading of gauges took.
    #[serde(default)]
    pub longest_gauge_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_nodes_are_added_and_those_without_an_end_are_open() {
        let mut counted = CountedWork::default();
        for (metric, number) in [
            ("ampere::work::NVTX::step", 7.0),
            ("ampere::ranges_started::NVTX::step", 5.0),
            ("ampere::ranges_ended::NVTX::step", 4.0),
            ("ampere::range_seconds::NVTX::step", 1.5),
            ("ampere::ranges_started::ITT::a::b", 1.0),
            ("ampere::ranges_ended::Kokkos::read before it started", 2.0),
        ] {
            counted.count(metric, "n0", number);
            counted.count(metric, "n1", number);
        }
        let range = |interface: &str, name: &str, count, seconds, open| Range {
            name: name.to_owned(),
            interface: interface.to_owned(),
            count,
            seconds,
            open,
        };
        let of_run = |times: u64| {
            let early = range("Kokkos", "read before it started", 2 * times, 0.0, 0);
            [
                range("ITT", "a::b", 0, 0.0, times),
                early,
                range("NVTX", "step", 4 * times, 1.5 * times as f64, times),
            ]
        };
        let run = Run { ranges: Range::of_run(&counted), ..Run::default() };
        assert_eq!(run.ranges, of_run(2));
        assert_eq!(Range::joined([&run, &run].into_iter()), of_run(4));
        assert_eq!(Work::units(&counted).collect::<Vec<_>>(), [("NVTX::step".to_owned(), 14.0)]);
    }
}
