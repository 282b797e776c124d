//! The latest figures of a running job, and tables of them.

use super::table::{Column, Row, Table, Value, column};
use super::tree::NO_CALL_PATHS;
use ampere_figures::nodes::gathered::Nodes;
use ampere_figures::nodes::job::{Job, NodeLine, NodeState};
use ampere_figures::nodes::report::NodeReport;
use ampere_figures::shares::{self, Whole};
use ampere_figures::snapshot::{DeviceFigures, RankFigures, RegionEnergy, Snapshot};
use ampere_figures::summary::least_trusted;
use ampere_model::digits::{self, energy};
use ampere_model::order::largest_first;
use ampere_model::regions::is_python;
use ampere_model::sum;
use ampere_model::text::printable;
use ampere_report::page::{Page, PowerSeries};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// The maximum number of seconds for which power is kept.
const HISTORY_MAX: usize = 120;
/// The table below a command's output leaves out functions with a smaller share of the whole.
const SHARE_MIN: f64 = 0.001;
/// Joules that are not divided yet are mentioned only if they are at least this fraction of all joules.
const PENDING_PART_MIN: f64 = 0.01;
/// A row's power is its mean since the newest snapshot that is at least this many seconds old.
const RATE_SECONDS: f64 = 2.0;

/// The figures of a run, as far as they have arrived.
#[derive(Default)]
pub struct Figures {
    pub snapshot: Snapshot,
    /// Earlier snapshots, the oldest first. Rates are means since the oldest.
    earlier: VecDeque<Snapshot>,
    /// The page with call paths; `None` until one was requested.
    pub page: Option<Page>,
    /// The figures of all nodes, if there are several.
    pub job: Option<Job>,
    /// The figures of the node whose collector answers, at the time of its snapshot.
    own: Nodes,
    own_line: Job,
    /// The power of each device, one value for each second.
    history: HashMap<String, VecDeque<Option<f64>>>,
    /// The joules that belong to no function, from the page; `None` unless the joules of devices are also taken from the
    /// page.
    idle_of_page: Option<f64>,
    /// Whether the run has ended.
    pub has_ended: bool,
}

impl Figures {
    /// Returns the notes of the snapshot, then those that only the page has.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        let of_page = self.page.iter().flat_map(|page| &page.notes);
        self.snapshot.notes.iter().chain(of_page.filter(|note| !self.snapshot.notes.contains(note)))
    }

    pub fn add(&mut self, snapshot: Snapshot) {
        let last = std::mem::replace(&mut self.snapshot, snapshot);
        (self.idle_of_page, self.has_ended) = (None, self.snapshot.is_last);
        let now = self.snapshot.seconds;
        if !last.node.is_empty() {
            self.earlier.push_back(last);
        }
        while self.earlier.get(1).is_some_and(|next| now - next.seconds >= RATE_SECONDS) {
            self.earlier.pop_front();
        }
        for device in &self.snapshot.devices {
            let history = self.history.entry(device.device.clone()).or_default();
            history.push_back(device.watts);
            history.drain(..history.len().saturating_sub(HISTORY_MAX));
        }
        self.own_line = self.own.sum(&NodeReport::of(&self.snapshot));
    }

    /// Whether the run has processes, and none of them is a rank.
    pub fn has_only_processes(&self) -> bool {
        let ranks = &self.snapshot.ranks;
        !ranks.is_empty() && !ranks.iter().any(RankFigures::is_rank)
    }

    /// Marks the figures as final, because the run has ended.
    pub fn end(&mut self) {
        self.has_ended = true;
        let last = Snapshot { is_last: true, ..self.snapshot.clone() };
        self.own_line = self.own.sum(&NodeReport::of(&last));
        let nodes = self.job.iter_mut().flat_map(|job| &mut job.nodes);
        for node in nodes.filter(|node| node.state == NodeState::Running) {
            (node.state, node.watts) = (NodeState::Over, None);
        }
    }

    /// Stores a page. The first one also provides the power before this program was started.
    pub fn see_page(&mut self, page: Page) {
        if self.page.is_none() {
            for series in &page.power {
                let known = self.history.entry(series.name.clone()).or_default();
                for watts in before(series) {
                    known.push_front(watts);
                }
            }
        }
        self.page = Some(page);
    }

    /// Shows the joules of the page instead of the snapshot's, so that the devices match the call paths: the page and the
    /// snapshot are from different moments.
    pub fn show_joules_of_page(&mut self) {
        let Some(page) = self.page.as_ref().filter(|page| page.job.is_none() && page.tables.is_some()) else {
            return;
        };
        for device in &mut self.snapshot.devices {
            let name = printable(&device.device);
            let line = page.devices.iter().find(|line| line.name == name);
            device.joules = line.map_or(device.joules, |line| line.joules);
        }
        self.snapshot.seconds = page.run.seconds;
        self.idle_of_page = Some(page.totals.idle_joules - page.totals.other_jobs_joules);
    }

    /// Returns the joules that belong to no function, without those of other jobs.
    pub fn idle_joules(&self) -> f64 {
        let of =
            |device: &DeviceFigures| device.division.idle_joules_ranks - device.division.other_jobs_joules;
        self.idle_of_page.unwrap_or_else(|| sum(self.snapshot.topmost().map(of)))
    }

    /// Returns the ranks whose call paths can be requested, in the collector's order.
    pub fn rank_choices(&self) -> &[String] {
        let tables = self.page.as_ref().and_then(|page| page.tables.as_ref());
        tables.map_or(&[][..], |tables| &tables.ranks.each)
    }

    pub fn history(&self, device: &str) -> impl DoubleEndedIterator<Item = Option<f64>> {
        self.history.get(device).into_iter().flatten().copied()
    }

    /// Returns the joules of all devices that are not contained in another.
    pub fn joules(&self) -> f64 {
        Whole::of_snapshot(&self.snapshot).total
    }

    /// Whether functions of a Python program are known.
    pub fn has_python(&self) -> bool {
        let of_threads = self.snapshot.threads_energy.iter().map(|row| &row.region);
        let of_ranks = self.snapshot.region_energy.iter().map(|row| &row.region);
        of_threads.chain(of_ranks).any(|name| is_python(name))
    }

    /// Whether there is a GPU, or may be one on another node.
    pub fn has_gpus(&self) -> bool {
        self.snapshot.devices.iter().any(|device| device.kind == "gpu")
            || self.has_kernels()
            || self.job().is_some()
    }

    /// Whether a GPU kernel has ended.
    pub fn has_kernels(&self) -> bool {
        !self.snapshot.kernel_energy.is_empty() || self.job().is_some_and(|job| !job.kernels.is_empty())
    }

    pub fn job(&self) -> Option<&Job> {
        self.job.as_ref().filter(|job| job.nodes.len() > 1)
    }
}

/// Returns the power in each second before the end of the series, the latest first.
fn before(series: &PowerSeries) -> Vec<Option<f64>> {
    let Some(last) = series.segments.last() else { return Vec::new() };
    let end = last.begin + last.step * last.watts.len() as f64;
    let at = |time: f64| {
        let of = series.segments.iter().rev().find(|segment| segment.begin <= time)?;
        of.watts.get(((time - of.begin) / of.step) as usize).copied().flatten()
    };
    let times = (1..HISTORY_MAX).map(|second| end - second as f64);
    times.take_while(|time| *time >= 0.0).map(at).collect()
}

const JOULES: Column = column("TOTAL J", 12, 0);
const SHARE: Column = column("OF TOTAL", 9, 34);
const DYNAMIC_SHARE: Column = column("OF DYNAMIC", 11, 34);
const WATTS: Column = column("W NOW", 9, 60);
const DYNAMIC_WATTS: Column = column("DYN W NOW", 10, 60);
const CALLS: Column = column("CALLS", 11, 70);
const BAR: Column = column("", 24, 120);

const DYNAMIC_JOULES: Column = column("DYNAMIC J", 12, 0);

const FUNCTIONS: &[Column] =
    &[JOULES, SHARE, WATTS, CALLS, column("SECONDS", 10, 78), BAR, column("FUNCTION", 0, 0)];
/// The columns if the dynamic joules of each function are known. Then shares and watts are those of dynamic joules.
const FUNCTIONS_DYNAMIC: &[Column] = &[
    DYNAMIC_JOULES,
    column("TOTAL J", 12, 64),
    DYNAMIC_SHARE,
    DYNAMIC_WATTS,
    column("CALLS", 11, 90),
    column("SECONDS", 10, 102),
    BAR,
    column("FUNCTION", 0, 0),
];
const PYTHON_FUNCTION: Column = column("PYTHON FUNCTION WITH C CODE", 0, 0);
const PYTHON: &[Column] = &[JOULES, SHARE, column("SECONDS", 10, 60), BAR, PYTHON_FUNCTION];
const PYTHON_DYNAMIC: &[Column] = &[
    DYNAMIC_JOULES,
    column("TOTAL J", 12, 64),
    DYNAMIC_SHARE,
    column("SECONDS", 10, 78),
    BAR,
    PYTHON_FUNCTION,
];
/// The columns of the table below a command's output.
const FEW: &[Column] = &[column("J", 12, 0), SHARE, column("", 24, 60), column("FUNCTION", 0, 0)];
const FUNCTIONS_OF_JOB: &[Column] = &[JOULES, SHARE, BAR, column("FUNCTION", 0, 0)];
const KERNELS: &[Column] = &[JOULES, SHARE, WATTS, BAR, column("KERNEL", 0, 0)];
const RANKS_OF_JOB: &[Column] = &[JOULES, SHARE, BAR, column("NODE", 0, 0)];
/// The first column of the table of ranks. In runs without ranks it is `PROCESS`, because names of processes are longer.
const RANK: Column = column("RANK", 10, 0);
const PROCESS: Column = column("PROCESS", 16, 0);
/// Returns the columns of the table of ranks, which begins with `first`. `is_dynamic`: the dynamic joules of each rank are
/// known. `has_waits`: ranks of this node have waited for each other in MPI. Joules of waiting include static ones, so they are
/// shown only next to the total.
fn columns_of_ranks(first: Column, is_dynamic: bool, has_waits: bool) -> Vec<Column> {
    const ALL: &[Column] = &[JOULES, SHARE, WATTS];
    const DYNAMIC: &[Column] = &[DYNAMIC_JOULES, column("TOTAL J", 12, 72), DYNAMIC_SHARE, DYNAMIC_WATTS];
    const DYNAMIC_WITH_WAITS: &[Column] =
        &[column("DYNAMIC J", 10, 0), column("TOTAL J", 9, 76), DYNAMIC_SHARE, column("DYN W NOW", 10, 92)];
    let waits_from = if is_dynamic { 76 } else { 64 };
    let waits = [column("WAITED J", 10, waits_from), column("CAUSED J", 10, waits_from)];
    let (joules, waits, more) = match (is_dynamic, has_waits) {
        (false, false) => (ALL, &[][..], 0),
        (false, true) => (ALL, &waits[..], 20),
        (true, false) => (DYNAMIC, &[][..], 20),
        (true, true) => (DYNAMIC_WITH_WAITS, &waits[..], 40),
    };
    let rest = [column("EVENTS", 12, 70 + more), column("LOST", 8, 90 + more), column("RING", 7, 100 + more)];
    // Longer names leave no room for the total on a narrow terminal.
    let more_room = if first.width > RANK.width { first.width } else { 0 };
    let wider = |column: &Column| Column {
        terminal_width_min: column.terminal_width_min + more_room,
        ..column.clone()
    };
    let joules: Vec<Column> =
        joules.iter().map(|of| if of.title == "TOTAL J" { wider(of) } else { of.clone() }).collect();
    [&[first][..], &joules, waits, &rest, &[column("NOW IN", 0, 0)]].concat()
}

const DEVICES: &[Column] = &[
    JOULES,
    WATTS,
    column("IDLE J", 12, 50),
    column("LOST J", 10, 70),
    column("BAD", 6, 80),
    column("SAMPLES", 10, 100),
    column("QUALITY", 10, 40),
    column("DEVICE", 0, 0),
];
const NODES: &[Column] = &[
    JOULES,
    SHARE,
    WATTS,
    column("IDLE", 7, 70),
    column("RANKS", 6, 76),
    column("STATE", 8, 40),
    column("QUALITY", 10, 100),
    column("NODE", 0, 0),
];

/// Joules by the name of a function, rank or device.
type Sums<'a> = BTreeMap<&'a str, f64>;

/// Rows with their share of the joules, and their power.
struct Parts<'a> {
    sums: Sums<'a>,
    earlier: Sums<'a>,
    /// The seconds since the earlier figures.
    seconds: f64,
    whole: f64,
}

impl<'a> Parts<'a> {
    fn of(figures: &'a Figures, whole: f64, sums: impl Fn(&'a Snapshot) -> Sums<'a>) -> Parts<'a> {
        let earlier = figures.earlier.front();
        let seconds = earlier.map_or(0.0, |earlier| figures.snapshot.seconds - earlier.seconds);
        Parts {
            sums: sums(&figures.snapshot),
            earlier: earlier.map(sums).unwrap_or_default(),
            seconds,
            whole,
        }
    }

    fn of_job(rows: impl Iterator<Item = (&'a str, f64)>, whole: f64) -> Parts<'a> {
        let mut sums = Sums::new();
        rows.for_each(|(name, joules)| *sums.entry(name).or_insert(0.0) += joules);
        Parts { sums, earlier: Sums::new(), seconds: 0.0, whole }
    }

    fn share(&self, joules: f64) -> f64 {
        if self.whole > 0.0 { joules / self.whole } else { 0.0 }
    }

    fn watts(&self, name: &str) -> Option<f64> {
        let joules = *self.sums.get(name)?;
        let earlier = self.earlier.get(name).copied().unwrap_or(0.0);
        (self.seconds > 0.5 && !self.earlier.is_empty()).then(|| (joules - earlier) / self.seconds)
    }

    fn table(
        &self,
        columns: impl Into<Cow<'static, [Column]>>,
        nothing: &'static str,
        value: impl Fn(&str, &str) -> Value,
    ) -> Table {
        let columns = columns.into();
        let is_dynamic = columns.iter().any(|column| column.title == DYNAMIC_JOULES.title);
        let rows = self.sums.iter().map(|(name, joules)| {
            let share = self.share(*joules);
            let values = columns.iter().map(|column| match column.title {
                "DYNAMIC J" => Value::Joules(*joules),
                "TOTAL J" if !is_dynamic => Value::Joules(*joules),
                "J" => Value::WithUnit(*joules),
                "OF TOTAL" | "OF DYNAMIC" => Value::Share(share),
                "W NOW" | "DYN W NOW" => Value::Watts(self.watts(name)),
                "" => Value::Bar(share),
                title => value(title, name),
            });
            Row { key: (*name).to_owned(), values: values.collect(), warns: false }
        });
        let rows = rows.collect();
        Table { columns, rows, nothing }
    }
}

fn topmost(snapshot: &Snapshot) -> HashSet<&str> {
    snapshot.topmost().map(|device| device.device.as_str()).collect()
}

fn of_topmost(snapshot: &Snapshot) -> impl Iterator<Item = &RegionEnergy> {
    let topmost = topmost(snapshot);
    snapshot.region_energy.iter().filter(move |row| topmost.contains(row.device.as_str()))
}

/// Returns the joules of each region over all ranks and devices. Devices that are contained in others are left out, because the
/// containing devices count their joules.
fn by_region(snapshot: &Snapshot) -> Sums<'_> {
    let mut sums = Sums::new();
    for row in &snapshot.threads_energy {
        *sums.entry(&row.region).or_insert(0.0) += row.joules;
    }
    if sums.is_empty() {
        of_topmost(snapshot).for_each(|row| *sums.entry(&row.region).or_insert(0.0) += row.joules);
    }
    sums
}

/// Returns the dynamic joules of each region. Empty unless they are known for all regions.
fn dynamic_by_region(snapshot: &Snapshot) -> Sums<'_> {
    let of_threads = snapshot.threads_energy.iter().map(|row| (row.region.as_str(), row.dynamic_joules));
    let rows: Vec<(&str, Option<f64>)> = match snapshot.threads_energy.is_empty() {
        true => of_topmost(snapshot).map(|row| (row.region.as_str(), row.dynamic_joules)).collect(),
        false => of_threads.collect(),
    };
    let mut sums = Sums::new();
    if rows.iter().all(|(_, dynamic)| dynamic.is_some()) {
        rows.iter()
            .for_each(|(region, joules)| *sums.entry(region).or_insert(0.0) += joules.unwrap_or_default());
    }
    sums
}

fn by_rank(snapshot: &Snapshot) -> Sums<'_> {
    let mut sums: Sums = snapshot.ranks.iter().map(|rank| (rank.rank.as_str(), 0.0)).collect();
    of_topmost(snapshot).for_each(|row| *sums.entry(&row.rank).or_insert(0.0) += row.joules);
    sums
}

/// Returns the dynamic joules of each rank. Empty unless they are known for all rows.
fn dynamic_by_rank(snapshot: &Snapshot) -> Sums<'_> {
    let is_known = of_topmost(snapshot).all(|row| row.dynamic_joules.is_some());
    let mut sums = Sums::new();
    if is_known && of_topmost(snapshot).next().is_some() {
        sums.extend(snapshot.ranks.iter().map(|rank| (rank.rank.as_str(), 0.0)));
        of_topmost(snapshot)
            .for_each(|row| *sums.entry(&row.rank).or_insert(0.0) += row.dynamic_joules.unwrap_or_default());
    }
    sums
}

fn by_kernel(snapshot: &Snapshot) -> Sums<'_> {
    let topmost = topmost(snapshot);
    let mut sums = Sums::new();
    let of_topmost = snapshot.kernel_energy.iter().filter(|row| topmost.contains(row.device.as_str()));
    of_topmost.for_each(|row| *sums.entry(&row.kernel).or_insert(0.0) += row.joules);
    sums
}

/// Whether rows are ordered by dynamic joules. During the run, the dynamic joules of kernels are not known.
fn is_dynamic(snapshot: &Snapshot) -> bool {
    snapshot.kernel_energy.is_empty() && !dynamic_by_region(snapshot).is_empty()
}

/// Returns the unit of the joules by which functions are compared, as at the end of a run: dynamic ones if they are known.
pub fn unit(snapshot: &Snapshot) -> &'static str {
    if is_dynamic(snapshot) { "dynamic J" } else { "J" }
}

/// Describes the rows and the columns of [`few`].
pub fn head_of_few(snapshot: &Snapshot) -> String {
    let rows = if snapshot.kernel_energy.is_empty() { "functions" } else { "kernels, functions" };
    format!("{rows}: {}, {}", unit(snapshot), shares::head(is_dynamic(snapshot)))
}

/// Returns a text about the joules of GPUs that belong to no kernel yet; `None` if they are few. A kernel is known only after
/// it has ended.
pub fn pending_words(snapshot: &Snapshot) -> Option<String> {
    let gpus = snapshot.topmost().filter(|device| device.kind == "gpu");
    let pending: f64 = gpus.map(|device| device.division.pending_joules_kernels).sum();
    let all: f64 = snapshot.topmost().map(|device| device.joules).sum();
    (pending > PENDING_PART_MIN * all).then(|| format!("{} wait for kernels to end", energy(pending)))
}

/// Returns the number of digits of joules in tables.
pub fn digits(snapshot: &Snapshot) -> usize {
    digits::of_energy(least_trusted(snapshot.devices.iter().map(|device| device.energy.as_str())))
}

/// Returns the joules of each kernel, and those of each function on devices other than GPUs. As at the end of a run, the joules
/// of GPUs belong to their kernels, and not to the functions that wait for them.
fn by_kernel_or_region(snapshot: &Snapshot) -> Sums<'_> {
    let gpus = snapshot.devices.iter().filter(|device| device.kind == "gpu");
    let gpus: HashSet<&str> = gpus.map(|device| device.device.as_str()).collect();
    let mut sums = by_kernel(snapshot);
    let of_others = of_topmost(snapshot).filter(|row| !gpus.contains(row.device.as_str()));
    of_others.for_each(|row| *sums.entry(&row.region).or_insert(0.0) += row.joules);
    sums
}

/// Returns the joules of each kernel and function in [`unit`], and the total to which shares refer.
fn largest_rows(snapshot: &Snapshot) -> (Sums<'_>, f64) {
    let (dynamic, whole) = (dynamic_by_region(snapshot), Whole::of_snapshot(snapshot));
    if !snapshot.kernel_energy.is_empty() {
        return (by_kernel_or_region(snapshot), whole.total);
    }
    if dynamic.is_empty() {
        return (by_region(snapshot), whole.total);
    }
    (dynamic, whole.dynamic)
}

/// Returns the kernels and functions with the most joules in [`unit`], the largest first.
pub fn largest(snapshot: &Snapshot, limit: usize) -> Vec<(&str, f64)> {
    let mut sums: Vec<_> = largest_rows(snapshot).0.into_iter().collect();
    largest_first(&mut sums, |(_, joules)| *joules);
    sums.truncate(limit);
    sums
}

/// Returns the kernels and functions with the most joules as rows, for a few lines below a command's output.
pub fn few(snapshot: &Snapshot, limit: usize) -> Table {
    let (sums, whole) = largest_rows(snapshot);
    let parts = Parts::of_job(sums.into_iter(), whole);
    let mut table = parts.table(FEW, "", |_, name| Value::Text(name.to_owned()));
    super::table::sort_rows(&mut table.rows, Default::default());
    table.rows.truncate(limit);
    table.rows.retain(|row| parts.share(parts.sums[row.key.as_str()]) >= SHARE_MIN || whole == 0.0);
    table
}

/// Returns the table of functions. `whole_job`: over all nodes, if there are several.
pub fn functions(figures: &Figures, whole_job: bool) -> Table {
    let parts = match figures.job().filter(|_| whole_job) {
        Some(job) => {
            let rows = job.functions.iter().map(|row| (row.name.as_str(), row.joules));
            let table = Parts::of_job(rows, job.totals.joules);
            return table.table(FUNCTIONS_OF_JOB, "no function yet", |_, name| Value::Text(name.to_owned()));
        }
        None => Parts::of(figures, figures.joules(), by_region),
    };
    let whole = Whole::of_snapshot(&figures.snapshot).dynamic;
    let dynamic = Parts::of(figures, whole, dynamic_by_region);
    let all = &parts.sums;
    let (columns, parts) = match dynamic.sums.is_empty() {
        true => (FUNCTIONS, &parts),
        false => (FUNCTIONS_DYNAMIC, &dynamic),
    };
    let mut times: HashMap<&str, (u64, f64)> = HashMap::new();
    for row in &figures.snapshot.region_time {
        let sum = times.entry(&row.region).or_default();
        *sum = (sum.0.saturating_add(row.calls), sum.1 + row.seconds);
    }
    let time = |name: &str| times.get(name).copied().unwrap_or_default();
    parts.table(columns, "no function yet", |title, name| match title {
        "TOTAL J" => Value::Joules(all.get(name).copied().unwrap_or_default()),
        "CALLS" => Value::Calls(time(name).0),
        "SECONDS" => Value::Seconds(time(name).1),
        _ => Value::Text(name.to_owned()),
    })
}

pub fn kernels(figures: &Figures, whole_job: bool) -> Table {
    let nothing = "no GPU kernel has ended yet";
    let name = |_: &str, name: &str| Value::Text(name.to_owned());
    match figures.job().filter(|_| whole_job) {
        Some(job) => {
            let rows = job.kernels.iter().map(|row| (row.name.as_str(), row.joules));
            Parts::of_job(rows, job.totals.joules).table(KERNELS, nothing, name)
        }
        None => Parts::of(figures, figures.joules(), by_kernel).table(KERNELS, nothing, name),
    }
}

pub fn ranks(figures: &Figures, whole_job: bool) -> Table {
    let nothing = "no process yet";
    let first = if figures.has_only_processes() { PROCESS } else { RANK };
    if let Some(job) = figures.job().filter(|_| whole_job) {
        let parts = Parts::of_job(std::iter::empty(), job.totals.joules);
        let rows = job.ranks.iter().map(|rank| Row {
            key: format!("{} {}", rank.node, rank.rank),
            values: vec![
                Value::Text(rank.rank.clone()),
                Value::Joules(rank.joules),
                Value::Share(parts.share(rank.joules)),
                Value::Bar(parts.share(rank.joules)),
                Value::Text(rank.node.clone()),
            ],
            warns: false,
        });
        return Table { columns: [&[first], RANKS_OF_JOB].concat().into(), rows: rows.collect(), nothing };
    }
    let ranks = figures.snapshot.ranks.iter();
    let known: HashMap<&str, &RankFigures> = ranks.map(|rank| (rank.rank.as_str(), rank)).collect();
    let nothing_of = RankFigures::default();
    let rank = |name: &str| known.get(name).copied().unwrap_or(&nothing_of);
    let (mut waited, mut caused) = (Sums::new(), Sums::new());
    let waiting = &figures.snapshot.waiting;
    waiting.waited.iter().for_each(|row| *waited.entry(&row.rank).or_default() += row.joules);
    waiting.caused.iter().for_each(|row| *caused.entry(&row.rank).or_default() += row.joules);
    let of = |sums: &Sums, name: &str| Value::Joules(sums.get(name).copied().unwrap_or_default());
    let all = by_rank(&figures.snapshot);
    let dynamic = Parts::of(figures, Whole::of_snapshot(&figures.snapshot).dynamic, dynamic_by_rank);
    let is_dynamic = !dynamic.sums.is_empty();
    let parts = if is_dynamic { dynamic } else { Parts::of(figures, figures.joules(), by_rank) };
    let columns = columns_of_ranks(first, is_dynamic, !waited.is_empty());
    let mut table = parts.table(columns, nothing, |title, name| match title {
        "TOTAL J" => of(&all, name),
        "WAITED J" => of(&waited, name),
        "CAUSED J" => of(&caused, name),
        "RANK" | "PROCESS" => Value::Text(name.to_owned()),
        "EVENTS" => Value::Count(rank(name).losses.events),
        "LOST" => Value::Count(rank(name).losses.lost()),
        "RING" => Value::Share(rank(name).ring_fill_ratio),
        _ => Value::Text(rank(name).current_region.clone()),
    });
    table.rows.sort_by_key(|row| (row.key.len(), row.key.clone()));
    table.rows.iter_mut().for_each(|row| row.warns = rank(&row.key).losses.lost() > 0);
    table
}

/// Returns the table of Python functions, each with the functions in C that it calls, as on the page of the node.
pub fn python(figures: &Figures) -> Table {
    let page = figures.page.as_ref();
    let Some((page, tables)) = page.and_then(|page| Some((page, page.tables.as_ref()?))) else {
        return Table { columns: PYTHON.into(), rows: Vec::new(), nothing: NO_CALL_PATHS };
    };
    let names = tables.python.name.iter().filter_map(|at| tables.names.get(*at as usize));
    let sums =
        |values: &[f64]| -> Sums { names.clone().map(String::as_str).zip(values.iter().copied()).collect() };
    let of = &tables.python;
    let [all, dynamic, seconds] = [&of.joules, &of.dynamic_joules, &of.seconds].map(|values| sums(values));
    let (columns, parts) = match tables.dynamic_joules.filter(|_| !dynamic.is_empty()) {
        Some(whole) => (PYTHON_DYNAMIC, Parts::of_job(dynamic.into_iter(), whole)),
        None => (PYTHON, Parts::of_job(all.clone().into_iter(), page.totals.joules)),
    };
    let of_row = |sums: &Sums, name: &str| sums.get(name).copied().unwrap_or_default();
    parts.table(columns, "no function of a Python program yet", |title, name| match title {
        "TOTAL J" => Value::Joules(of_row(&all, name)),
        "SECONDS" => Value::Seconds(of_row(&seconds, name)),
        _ => Value::Text(name.to_owned()),
    })
}

pub fn devices(figures: &Figures) -> Table {
    let row = |device: &DeviceFigures| {
        let within = if device.within.is_empty() { String::new() } else { format!("  in {}", device.within) };
        let stale = if device.counter.stale { "  does not change" } else { "" };
        Row {
            key: device.device.clone(),
            values: vec![
                Value::Joules(device.joules),
                Value::Watts(device.watts),
                Value::Joules(device.division.idle_joules_ranks),
                Value::Joules(device.division.lost_joules),
                Value::Count(device.counter.losses.unusable_samples),
                Value::Count(device.counter.samples),
                Value::Text(device.energy.clone()),
                Value::Text(format!("{}{within}{stale}", device.device)),
            ],
            warns: device.counter.stale || device.counter.losses.unusable_samples > 0,
        }
    };
    let rows = figures.snapshot.devices.iter().map(row).collect();
    Table { columns: DEVICES.into(), rows, nothing: "no device yet" }
}

/// Returns the table of nodes. A run on one node has one row.
pub fn nodes(figures: &Figures) -> Table {
    let job = figures.job().unwrap_or(&figures.own_line);
    let whole = job.totals.joules;
    let row = |node: &NodeLine| {
        let problem = if node.problem.is_empty() { String::new() } else { format!("  {}", node.problem) };
        Row {
            key: node.node.clone(),
            values: vec![
                Value::Joules(node.joules),
                Value::Share(if whole > 0.0 { node.joules / whole } else { 0.0 }),
                Value::Watts(node.watts),
                node.idle_ratio.map_or(Value::Watts(None), Value::Share),
                Value::Count(node.ranks as u64),
                Value::Text(node.state.as_str().to_owned()),
                Value::Text(node.energy.clone()),
                Value::Text(format!("{}{problem}", node.node)),
            ],
            warns: node.state == NodeState::Gone || !node.problem.is_empty(),
        }
    };
    Table { columns: NODES.into(), rows: job.nodes.iter().map(row).collect(), nothing: "no node yet" }
}
