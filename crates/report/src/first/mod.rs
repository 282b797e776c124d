//! The first lines of a result, as many as the screen has room for: what `ampere run` and `ampere attribute` print, and how
//! `summary.txt` and `ampere report` begin. Everything else is in the tables below them.
//!
//! ```text
//! facts.rs    kernels, functions, and the total of the shares         hints.rs    what to do next
//! tables.rs   the tables of functions, kernels and GPUs               names.rs    names in little room
//! screen.rs   lines and columns of a width                            levels.rs   when the power of a kernel changed
//! ```

pub(crate) mod facts;
mod hints;
mod levels;
pub mod names;
pub mod screen;
pub(crate) mod tables;

use crate::highlights::Sums;
use crate::over_ranks::{self, Spread, is_mpi_rank};
use crate::{baseline, other_jobs, waits};
use ampere_figures::shares;
use ampere_figures::summary::{Baseline, Device, Ending, Run, Summary, topmost, view};
use ampere_model::COUNTER_SOURCES;
use ampere_model::digits::{self, energy, percent, significant, watt_hours};
use ampere_model::sum;
use ampere_model::text::{first_words, printable, short, wrapped};
use facts::Facts;
pub use facts::WAITING_PART_MIN;
use names::nodes_of;
use screen::{LABEL, Line, Screen, Style, labelled, parts};
use std::collections::{BTreeMap, BTreeSet};
use tables::{Caps, DETAILS_MAX};

/// The maximum number of lines of the first reason for which a run is incomplete.
const REASON_LINES_MAX: usize = 4;
/// Ranks are balanced if the largest is at most this fraction above the mean.
const BALANCED_EXCESS_MAX: f64 = 0.05;
/// An MPI function with at least this fraction of all joules of MPI has nearly all of them.
const NEARLY_ALL_MIN: f64 = 0.9;
/// Idle joules are mentioned if they are at least this fraction of all joules.
const IDLE_SHARE_MIN: f64 = 0.1;
/// Smaller parts of the whole are not mentioned.
const MENTIONED_SHARE_MIN: f64 = 0.005;

/// The maximum length of the reasons why no counter was read, in characters.
const NO_COUNTER_CHARS_MAX: usize = 120;

/// Returns the lines as one text. `look` names the places of further information.
pub fn render(summary: &Summary, screen: Screen, look: &[String]) -> String {
    lines(summary, screen, look).iter().map(|line| line.shown(screen) + "\n").collect()
}

/// Returns the hints alone.
pub fn hints(summary: &Summary) -> Vec<String> {
    hints::of(&Facts::of(summary))
}

/// The parts that do not depend on the number of lines.
struct Parts {
    head: Vec<Line>,
    /// The lines about MPI, ranks and nodes, by [`Caps::details`].
    around: [Vec<Line>; DETAILS_MAX + 1],
    path: Vec<Line>,
    hints: Vec<String>,
}

fn lines(summary: &Summary, screen: Screen, look: &[String]) -> Vec<Line> {
    let facts = Facts::of(summary);
    let fixed = Parts {
        head: [head(&facts, screen), reason(&facts, screen), energies(&facts, screen), work(&facts, screen)]
            .concat(),
        around: std::array::from_fn(|details| around(&facts, details, screen)),
        path: hottest_path(&facts, screen),
        hints: hints::of(&facts),
    };
    let mut caps = Caps::of(&facts);
    loop {
        let lines = with_caps(&facts, &fixed, &caps, screen, look);
        if lines.len() <= screen.lines || !caps.tighten() {
            return lines.into_iter().take(screen.lines).collect();
        }
    }
}

/// Returns the lines about MPI, waiting, ranks and nodes.
fn around(facts: &Facts, details: usize, screen: Screen) -> Vec<Line> {
    [
        mpi(facts, details, screen),
        waiting(facts, details, screen),
        ranks(facts, details, screen),
        nodes(facts, screen),
    ]
    .concat()
}

fn with_caps(facts: &Facts, fixed: &Parts, caps: &Caps, screen: Screen, look: &[String]) -> Vec<Line> {
    let hints = fixed.hints.iter().take(caps.hints);
    let mut last: Vec<Line> = hints.flat_map(|hint| labelled("hint", hint, Style::Hint, screen)).collect();
    let hidden = fixed.hints.len().saturating_sub(caps.hints);
    let hidden = match hidden {
        0 => String::new(),
        1 => "there: 1 more hint".to_owned(),
        many => format!("there: {many} more hints"),
    };
    if !look.is_empty() {
        last.extend(parts("look", &[look, &[hidden]].concat(), screen));
    }
    let path = if caps.has_path { fixed.path.clone() } else { Vec::new() };
    let mut groups = vec![
        [fixed.head.clone(), missing(facts, caps, screen)].concat(),
        tables::of(facts, caps, screen),
        [fixed.around[caps.details].clone(), path].concat(),
        last,
    ];
    groups.retain(|group| !group.is_empty());
    let between = if caps.has_gaps { vec![Line::empty()] } else { Vec::new() };
    groups.join(&between[..])
}

/// Returns the lines with the command, the nodes, the time and the exit status.
fn head(facts: &Facts, screen: Screen) -> Vec<Line> {
    let run = &facts.summary.run;
    let mut words = vec![places(facts), duration(run.seconds)];
    if let Some(status) = run.command_status {
        words.push(format!("exit {}", run.bad_status().unwrap_or_else(|| status.to_string())));
    }
    words.extend(run.job.as_ref().map(|job| job.to_string()));
    if !run.complete {
        words.push(run.state().to_owned());
    }
    let rest = words.join("    ");
    let what = if run.command.is_empty() { run.id.clone() } else { command_line(&run.command) };
    let cut = |room: usize| match run.command.as_slice() {
        [] => short(&what, room),
        words => shortened_command(words, room, run.ranks > 1),
    };
    let failed = run.bad_status().is_some() || (!run.complete && !run.running);
    let style = if failed { Style::Bad } else { Style::Title };
    const COMMAND_MIN: usize = 20;
    let room = screen.width.saturating_sub(12 + rest.chars().count());
    if room >= COMMAND_MIN.min(what.chars().count()) {
        return vec![Line { style, text: format!("ampere  {}    {rest}", cut(room)) }];
    }
    let mut lines = vec![Line { style, text: format!("ampere  {}", cut(screen.width - 8)) }];
    lines.extend(parts("", &words, screen).into_iter().map(|line| Line { style, ..line }));
    lines
}

/// Returns the words of the command in one line. A word may be a whole script.
pub(crate) fn command_line(words: &[String]) -> String {
    words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a path without its directories.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns a command in at most `room` characters: without the directory of its first word, and if `is_launched` without the
/// options of the launcher, which come before the launched program.
pub fn shortened_command(words: &[String], room: usize, is_launched: bool) -> String {
    let command = command_line(words);
    let program = words.first().map_or("", String::as_str);
    let Some(rest) = command.strip_prefix(program).filter(|_| command.chars().count() > room) else {
        return short(&command, room);
    };
    let program = file_name(program);
    let command = format!("{program}{rest}");
    let (first, length) = (program.chars().count(), command.chars().count());
    if length <= room || first + 8 > room || !is_launched {
        return short(&command, room);
    }
    let end: String = command.chars().skip(length - (room - first - 3)).collect();
    let end = end.split_once(' ').map_or(end.as_str(), |(_, end)| end);
    // Without its option, such as -n, a number has no meaning.
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit());
    let end = end.split_once(' ').filter(|(word, _)| is_number(word)).map_or(end, |(_, end)| end);
    printable(&format!("{program} … {end}"))
}

fn duration(seconds: f64) -> String {
    format!("{} s", significant(seconds, if seconds < 1000.0 { 3 } else { 4 }))
}

/// Returns the number of a run's ranks, or of its processes if there are no ranks. `None` if there are neither.
pub(crate) fn who(summary: &Summary) -> Option<String> {
    let views = summary.devices.iter().filter_map(|device| Some((device, view(device, "ranks")?)));
    let rows = views.flat_map(|(device, view)| {
        view.callpaths.iter().map(|row| (device.node.as_str(), row.location_group))
    });
    let groups: BTreeSet<(&str, u32)> = rows.collect();
    let ranks = groups.iter().filter(|(_, group)| is_mpi_rank(summary.name(*group))).count();
    let counted =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    match (ranks.max(if ranks > 0 { summary.run.ranks as usize } else { 0 }), groups.len()) {
        (0, 0) => None,
        (0, processes) => Some(counted(processes, "process", "processes")),
        (ranks, _) => Some(counted(ranks, "rank", "ranks")),
    }
}

/// Returns a text such as "2 ranks on vm", "3 processes on 2 nodes (a, b)".
fn places(facts: &Facts) -> String {
    let summary = facts.summary;
    let who = who(summary).map_or_else(String::new, |who| who + " ");
    // A name without its domain, unless this would leave nothing.
    let host = |node: &String| match node.split_once('.') {
        Some((host, _)) if node.parse::<std::net::IpAddr>().is_err() && !host.is_empty() => host.to_owned(),
        _ => node.clone(),
    };
    let nodes: Vec<String> = summary.run.nodes.iter().map(host).collect();
    match nodes.as_slice() {
        [] => who.trim_end().to_owned(),
        [one] => format!("{who}on {}", short(one, 24)),
        many => format!("{who}on {} nodes ({})", many.len(), short(&nodes_of(many), 32)),
    }
}

/// Returns the joules, how well they are known, and the part that is drawn in any case.
fn energies(facts: &Facts, screen: Screen) -> Vec<Line> {
    let summary = facts.summary;
    let joules = all_joules(summary);
    let about = if facts.is_estimated() { "~" } else { "" };
    let mut figures = format!("{about}{}", energy(joules));
    figures.push_str(&watt_hours(joules).map_or_else(String::new, |hours| format!(" ({hours})")));
    if let Some((is_bound, watts)) = facts::watts(summary) {
        let least = if is_bound { "at least " } else { about };
        figures.push_str(&format!(", {least}{} W", significant(watts, 3)));
    }
    let sources = sources(summary);
    let mut lines = if joules > 0.0 {
        parts("energy", &[figures, sources], screen)
    } else {
        labelled("energy", &sources, Style::Plain, screen)
    };
    let devices: Vec<&Device> = topmost(summary).collect();
    let fixed = baseline::words(&devices).unwrap_or_default();
    let mut fixed = vec![fixed.trim_start_matches([',', ';', ' ']).to_owned()];
    let is_known = |device: &&Device| device.baseline.as_ref().is_some_and(Baseline::is_known);
    if facts.is_dynamic && devices.iter().any(is_known) {
        fixed.push(format!("{about}{} are dynamic", energy(facts.whole)));
    }
    fixed.extend(idle(facts).map(|joules| {
        let part = percent(joules, all_joules(summary));
        format!("{about}{} ({part} of total) are idle: in no function", energy(joules))
    }));
    lines.extend(parts("", &fixed, screen));
    lines.extend(other_jobs::words(summary).map(|words| parts("", &[words], screen)).unwrap_or_default());
    lines.extend(parts_of_whole(facts, screen));
    lines
}

/// Returns a line for each unit of work that was counted, and for each name of ranges.
fn work(facts: &Facts, screen: Screen) -> Vec<Line> {
    let lines = crate::work::lines(&facts.summary.run, facts.is_dynamic.then_some(facts.whole));
    let ranges = crate::work::range_lines(&facts.summary.run);
    let work = lines.iter().flat_map(|line| parts("work", line, screen));
    work.chain(ranges.iter().flat_map(|line| parts("ranges", line, screen))).collect()
}

fn all_joules(summary: &Summary) -> f64 {
    sum(topmost(summary).map(|device| device.total_joules))
}

/// Returns the joules of the time in which no process ran, if they are many and in no row. Without dynamic joules, and for GPUs,
/// they have a row.
fn idle(facts: &Facts) -> Option<f64> {
    let sums = Sums::of(facts.summary);
    let joules = sums.idle - sums.other_jobs;
    let is_in_no_row = facts.is_dynamic && facts.kernels.is_empty();
    (is_in_no_row && joules >= IDLE_SHARE_MIN * sums.joules).then_some(joules)
}

/// Returns the origin of the joules as text.
fn sources(summary: &Summary) -> String {
    let mut devices: Vec<&Device> = topmost(summary).collect();
    let all_estimated = devices.iter().all(|device| device.energy == "estimated");
    // A trace does not record why its energy was estimated.
    let is_chosen = devices.iter().all(|device| device.source == "estimate")
        && !summary.run.notes.iter().any(|note| note.contains("no energy counter was found"));
    let why = if is_chosen { "chosen by --counters" } else { "no counter" };
    match summary.run.energy.as_str() {
        "estimated" if all_estimated && devices.iter().all(|device| hints::are_watts_set(device)) => {
            return format!("ESTIMATE: {why}, by this node's watts");
        }
        "estimated" if all_estimated => return format!("ESTIMATE: {why}, shares only"),
        "none" if summary.devices.is_empty() => {
            let is_why =
                |note: &&String| note.split_once(": ").is_some_and(|(of, _)| COUNTER_SOURCES.contains(&of));
            let why: Vec<&str> = summary.run.notes.iter().filter(is_why).map(String::as_str).collect();
            let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
            return format!("none: no counter was read{}", first_words(&why, NO_COUNTER_CHARS_MAX));
        }
        "none" => return "none: time only".to_owned(),
        _ => {}
    }
    let quality = match summary.run.energy.as_str() {
        "measured" => "MEASURED",
        "integrated" => "MEASURED as power",
        "simulated" => "SIMULATED",
        "estimated" => "PARTLY ESTIMATED",
        other => other,
    };
    let kind = |device: &Device| if device.kind == "gpu" { "GPU".to_owned() } else { device.name.clone() };
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    devices.iter().for_each(|device| *kinds.entry(kind(device)).or_default() += 1);
    let kinds = kinds.iter().map(|(kind, count)| match (*count, kind.as_str()) {
        (1, _) => kind.clone(),
        (many, "GPU") => format!("{many} GPUs"),
        (many, _) => format!("{many} x {kind}"),
    });
    let kinds: Vec<String> = kinds.collect();
    let origins: BTreeSet<&str> = devices.iter().map(|device| origin(device)).collect();
    devices.retain(|device| device.sample_seconds > 0.0);
    let every = devices.iter().map(|device| device.sample_seconds).reduce(f64::max);
    let every = every.map_or_else(String::new, |seconds| format!(", every {}", interval(seconds)));
    let origins = origins.into_iter().collect::<Vec<_>>().join(" + ");
    let kinds = if kinds.len() > 3 { format!("{} devices", devices.len()) } else { kinds.join(" + ") };
    printable(&format!("{quality}  {kinds}, {origins}{every}"))
}

/// Returns the library that read a device, which a trace's metrics name: `A2rocm_smi:::energy_count:device=0`.
fn origin(device: &Device) -> &str {
    let of_metric = device.metric.split_once(":::").map(|(library, _)| library.trim_start_matches("A2"));
    if device.source == "trace" { of_metric.unwrap_or("trace") } else { &device.source }
}

fn interval(seconds: f64) -> String {
    if seconds < 0.9995 {
        format!("{} ms", significant(1e3 * seconds, 2))
    } else {
        format!("{} s", significant(seconds, 2))
    }
}

/// Returns the joules of kernels, those of GPUs between kernels, and the GPUs that nothing used.
fn parts_of_whole(facts: &Facts, screen: Screen) -> Vec<Line> {
    if facts.kernels.is_empty() {
        return Vec::new();
    }
    let (used, unused): (Vec<&Device>, Vec<&Device>) =
        facts.gpus.iter().partition(|device| facts.is_used(device));
    let (hidden, unused): (Vec<&Device>, Vec<&Device>) = unused.iter().partition(|device| device.hidden);
    let sum = |devices: &[&Device]| devices.iter().map(|device| facts.joules_of(device)).sum::<f64>();
    let kernels: f64 = used.iter().map(|device| facts.in_kernels(device)).sum();
    let hosts: f64 = facts.host_devices.iter().map(|device| facts.joules_of(device)).sum();
    let all = [
        (kernels, "in kernels".to_owned()),
        (sum(&used) - kernels, format!("on {} outside kernels", tables::which(&used, 16))),
        (sum(&unused), format!("{} unused", tables::which(&unused, 16))),
        (sum(&hidden), format!("{} hidden", tables::which(&hidden, 16))),
        (hosts, "outside of GPUs".to_owned()),
    ];
    let all = all.iter().filter(|(part, _)| *part >= MENTIONED_SHARE_MIN * facts.whole);
    let words = all.map(|(part, what)| format!("{:.0} % {what}", 100.0 * part / facts.whole));
    let words = words.collect::<Vec<_>>().join(", ");
    labelled("", &format!("{}: {words}", shares::head(facts.is_dynamic)), Style::Plain, screen)
}

/// Returns the most important reason why a run is incomplete.
fn reason(facts: &Facts, screen: Screen) -> Vec<Line> {
    let run = &facts.summary.run;
    let reason = run.missing.first().filter(|_| !run.complete && !run.running);
    let words = reason.map(|reason| {
        first_words(&format!("{}: {reason}", run.state()), REASON_LINES_MAX * (screen.width - 1))
    });
    let lines = words.into_iter().flat_map(|words| wrapped(&words, screen.width));
    lines.map(|text| Line { style: Style::Bad, text }).collect()
}

/// Returns what was lost, and further reasons why a run is incomplete.
fn missing(facts: &Facts, caps: &Caps, screen: Screen) -> Vec<Line> {
    let run = &facts.summary.run;
    if run.complete || run.running {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let mut quality = facts.summary.quality;
    quality.records.late_events = 0; // late events are in the figures
    let losses: Vec<String> =
        quality.occurred().map(|(number, word)| format!("{} {word}", digits::count(number))).collect();
    if !losses.is_empty() {
        lines.extend(labelled("lost", &losses.join(", "), Style::Plain, screen));
    }
    let ended = Ending::notes(&run.endings);
    // Summaries of earlier versions do not state what is missing, so the last notes are shown, which are about counters.
    let notes: Vec<&String> = match run.missing.is_empty() {
        true => run.notes.iter().rev().collect(),
        // The processes that a signal ended are only among the notes of the report.
        false => run.missing.iter().skip(1).filter(|note| Some(*note) != ended.as_ref()).collect(),
    };
    for note in notes.into_iter().take(caps.notes) {
        let room = 2 * (screen.width - 9);
        lines.extend(labelled("note", &first_words(note, room), Style::Plain, screen));
    }
    lines
}

/// Returns the joules of MPI functions, and how busy this run and other programs kept the processors.
fn mpi(facts: &Facts, details: usize, screen: Screen) -> Vec<Line> {
    let (joules, most) = facts.mpi();
    let most = most.filter(|_| joules >= MENTIONED_SHARE_MIN * facts.whole);
    let cores = facts.summary.run.node_cpu.filter(|cpu| cpu.seconds > 0.0);
    let cores =
        cores.map(|cpu| format!("{:.2} of {} cores busy", cpu.own_busy_seconds / cpu.seconds, cpu.cpus));
    let words = most.map(|most| {
        let name = names::shorten(most.name, 40);
        let which = match most.joules / joules {
            all if all > 0.995 => format!("all {name}"),
            part if part >= NEARLY_ALL_MIN => format!("nearly all {name}"),
            _ => format!("most in {name} ({})", percent(most.joules, facts.whole)),
        };
        format!("{} {}, {which}", percent(joules, facts.whole), tables::share_head(facts))
    });
    let label = if words.is_some() { "MPI" } else { "cpu" };
    let others = facts.cores_of_others().filter(|_| details == DETAILS_MAX).zip(facts.summary.run.node_cpu);
    let others =
        others.map(|(cores, cpu)| format!("other programs used {cores:.2} of {} cores", cpu.node_cpus));
    parts(label, &[words, cores, others].map(Option::unwrap_or_default), screen)
}

/// Returns the energy that ranks used while they waited for each other, and the causes of the waits.
fn waiting(facts: &Facts, details: usize, screen: Screen) -> Vec<Line> {
    let is_large = |joules: f64| joules >= MENTIONED_SHARE_MIN * facts.summary.run.total_joules;
    if !waits::of(facts.summary).is_some_and(|waiting| is_large(waiting.joules)) {
        return Vec::new();
    }
    let mut words = waits::words(facts.summary);
    // The first words are the energy of waiting, and the next ones its causes.
    words.truncate(if details == DETAILS_MAX { words.len() } else { details + 1 });
    parts("waiting", &words, screen)
}

fn ranks(facts: &Facts, details: usize, screen: Screen) -> Vec<Line> {
    let views = facts.views(&facts.host_devices, "ranks");
    let Some(whole) = over_ranks::whole(facts.summary, &views).filter(|whole| whole.ranks > 1) else {
        return Vec::new();
    };
    if !facts.summary.names.iter().any(|name| is_mpi_rank(name)) || facts.is_time() {
        return Vec::new();
    }
    let mut words = vec![balance(facts, &whole)];
    let (count, joules) = whole.others;
    if details == DETAILS_MAX && joules >= MENTIONED_SHARE_MIN * facts.whole {
        words.push(format!(
            "not ranks: {count} other process{} {}",
            if count == 1 { "" } else { "es" },
            energy(joules)
        ));
    }
    parts("ranks", &words, screen)
}

fn balance(facts: &Facts, whole: &Spread) -> String {
    let more = if whole.mean() > 0.0 { whole.most / whole.mean() - 1.0 } else { 0.0 };
    let kind = if facts.is_dynamic { " dynamic" } else { "" };
    let [mean, least, most] = [whole.mean(), whole.least, whole.most].map(energy);
    // The mean of two ranks is not shown, because it is easily computed.
    let mean = if whole.ranks > 2 { format!(", mean {mean}") } else { String::new() };
    let above = |spread: &Spread, more: f64| {
        let highest = spread.most_on.map_or("one rank", |(_, group)| facts.summary.name(group));
        format!("{} is {:.0} % above the mean", highest.replace("MPI Rank", "rank"), 100.0 * more)
    };
    let words = match hints::unbalanced(facts) {
        _ if more > BALANCED_EXCESS_MAX => format!(": {}", above(whole, more)),
        // A rank with less work waits in MPI, which takes joules, too.
        Some((spread, more)) => format!(", but outside MPI {}", above(&spread, more)),
        None => ": balanced".to_owned(),
    };
    match least == most {
        true => format!("{least}{kind} each{words}"),
        false => format!("{least} to {most}{kind}{mean}{words}"),
    }
}

fn nodes(facts: &Facts, screen: Screen) -> Vec<Line> {
    let mut joules: BTreeMap<&str, f64> = BTreeMap::new();
    topmost(facts.summary).for_each(|device| *joules.entry(&device.node).or_default() += device.total_joules);
    if joules.len() < 2 {
        return Vec::new();
    }
    let mean = joules.values().sum::<f64>() / joules.len() as f64;
    let named = |(node, joules): (&&str, &f64)| format!("{} ({})", energy(*joules), short(node, 24));
    let by = |a: &(&&str, &f64), b: &(&&str, &f64)| a.1.total_cmp(b.1);
    let (least, most) = (joules.iter().min_by(by).map(named), joules.iter().max_by(by).map(named));
    let range = least.zip(most).map_or_else(String::new, |(least, most)| format!("{least} to {most}"));
    labelled("nodes", &format!("{} each on average, {range}", energy(mean)), Style::Plain, screen)
}

fn hottest_path(facts: &Facts, screen: Screen) -> Vec<Line> {
    let views = facts.views(&facts.host_devices, "ranks");
    let paths = over_ranks::callpaths(facts.summary, &views, 1);
    let Some(hottest) = paths.rows.first() else { return Vec::new() };
    let mut regions = facts.summary.regions_of(hottest.what);
    if !facts.python.is_empty() {
        regions.retain(|name| !["_Py", "Py", "libpython"].iter().any(|begin| name.starts_with(begin)));
    }
    if regions.len() < 2 {
        return Vec::new();
    }
    let head = if facts.is_dynamic { "most dynamic joules: " } else { "most joules: " };
    let path = names::path(&regions, screen.width - LABEL - head.len());
    let mut lines = vec![Line::plain(format!("{:<LABEL$}{head}{path}", "path"))];
    if names::is_recursive(&path) {
        lines.extend(labelled("", names::RECURSION, Style::Plain, screen));
    }
    lines
}

/// Returns the number of a run's notes, in words.
pub fn notes(run: &Run) -> Option<String> {
    let count = run.notes.len();
    (count > 0).then(|| format!("{count} note{}", if count == 1 { "" } else { "s" }))
}
