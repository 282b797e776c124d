//! A summary for people: `summary.txt`, and what `ampere run` and `ampere attribute` print.

use crate::baseline;
use crate::highlights::sentences;
use crate::over_ranks::{self, SHARE_MIN, Spread, Spreads, is_mpi_rank};
use ampere_figures::assignment;
use ampere_figures::gauges::OverTheRun;
use ampere_figures::summary::Callpath;
use ampere_figures::summary::{Baseline, Device, Figures, RESOLVED_SAMPLES_MIN, Region, Summary, View};
use ampere_figures::summary::{StacksOverhead, parts, topmost, view};
use ampere_model::order::largest_first;
use ampere_model::text::{compact, joules, printable, printable_lines, short};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;

/// A larger part of the run without samples is mentioned.
const UNSAMPLED_PART: f64 = 0.03;
/// The maximum number of rows of a table.
const ROWS_MAX: usize = 15;
/// Rows with a smaller part of the whole are summed.
const PART_MIN: f64 = 0.001;
/// Functions that a line names.
const NAMED_MAX: usize = 3;
const BAR_CELLS: usize = 24;
/// Devices with tables of their own.
const DEVICES_MAX: usize = 8;
/// Lines of the device assignment.
const LINKS_MAX: usize = 40;
const LINK_MAX: usize = 200;
/// Notes, and characters of each.
const NOTES_MAX: usize = 250;
const NOTE_CHARACTERS_MAX: usize = 2000;

/// The whole text. `colour`: for a terminal.
pub fn render(summary: &Summary, colour: bool) -> String {
    let mut out = String::new();
    let page = Page { summary };
    // Writing to a String cannot fail.
    let _ = page.head(&mut out);
    let _ = page.topology(&mut out);
    let _ = page.all_ranks(&mut out);
    let _ = page.devices(&mut out);
    let _ = page.foot(&mut out);
    let code = |mark, code| if colour && mark { code } else { "" };
    let parts = out.split_inclusive([BOLD, PLAIN]).map(|part| {
        let text = printable_lines(part.trim_end_matches([BOLD, PLAIN]));
        text + code(part.ends_with(BOLD), "\x1b[1m") + code(part.ends_with(PLAIN), "\x1b[0m")
    });
    parts.collect()
}

/// In the place of a terminal's codes, until all else is fit to print. No name has them: they are no characters.
const BOLD: char = '\u{fdd0}';
const PLAIN: char = '\u{fdd1}';

struct Page<'a> {
    summary: &'a Summary,
}

impl Page<'_> {
    fn bold(&self, text: &str) -> String {
        format!("{BOLD}{text}{PLAIN}")
    }

    fn head(&self, out: &mut String) -> std::fmt::Result {
        let summary = self.summary;
        let run = &summary.run;
        let ranks = match run.ranks {
            0 => "no ranks".to_owned(),
            1 => "1 rank".to_owned(),
            many => format!("{many} ranks"),
        };
        writeln!(
            out,
            "{}",
            self.bold(&format!(
                "ampere: {ranks} on {}, {:.1} s{}",
                printable(&nodes_of(&run.nodes)),
                run.seconds,
                run.state_words()
            ))
        )?;
        if !run.command.is_empty() {
            writeln!(out, "command: {}", printable(&run.command.join(" ")))?;
        }
        if let Some(job) = &run.job {
            writeln!(out, "job:     {}", printable(&job.to_string()))?;
        }
        if let Some(status) = run.bad_status() {
            writeln!(out, "status:  {status}")?;
        }
        writeln!(out, "energy:  {}", printable(energy(summary)))?;
        if let Some(cpu) = &run.node_cpu {
            writeln!(out, "cpu:     {}", cpu.words(run.seconds))?;
        }
        if summary.devices.len() > 1 {
            writeln!(out, "total:   {}", printable(&total(summary)))?;
        }
        for (at, sentence) in sentences(summary).iter().enumerate() {
            writeln!(out, "{} {sentence}", if at == 0 { "in short:" } else { "         " })?;
        }
        for note in run.notes.iter().take(NOTES_MAX) {
            writeln!(out, "note:    {}", short(note, NOTE_CHARACTERS_MAX))?;
        }
        if run.notes.len() > NOTES_MAX {
            writeln!(out, "note:    ... and {} more in summary.json", run.notes.len() - NOTES_MAX)?;
        }
        Ok(())
    }

    fn topology(&self, out: &mut String) -> std::fmt::Result {
        let summary = self.summary;
        let mut lines = assignment::lines(&summary.topology);
        lines.extend(without_consumer(summary));
        if !lines.is_empty() {
            writeln!(out, "\n{}", self.bold("device assignment"))?;
        }
        for line in lines.iter().take(LINKS_MAX) {
            writeln!(out, "  {}", short(line, LINK_MAX))?;
        }
        if lines.len() > LINKS_MAX {
            writeln!(out, "  ... and {} more in summary.json", lines.len() - LINKS_MAX)?;
        }
        Ok(())
    }

    /// The sum of the devices that no other contains, if there are several: what ranks used of all of them.
    fn all_ranks(&self, out: &mut String) -> std::fmt::Result {
        let views: Vec<(&Device, &View)> =
            topmost(self.summary).filter_map(|device| Some((device, view(device, "ranks")?))).collect();
        let Some(whole) =
            over_ranks::whole(self.summary, &views).filter(|whole| views.len() > 1 && whole.ranks > 1)
        else {
            return Ok(());
        };
        writeln!(out, "\n{}", self.bold(&format!("all ranks, of {} devices", views.len())))?;
        let is_dynamic = over_ranks::is_dynamic(&views);
        let unit = own_unit(is_dynamic, "J");
        self.whole_ranks(&whole, is_dynamic, out)?;
        let functions = over_ranks::functions(self.summary, &views, ROWS_MAX);
        let name = |name| short(self.summary.name(name), NAME_CHARS_MAX);
        self.spreads("function", &functions, whole.joules, &unit, name, out)?;
        self.callpaths_over_ranks(&views, whole.joules, &unit, out)
    }

    fn whole_ranks(&self, whole: &Spread, is_dynamic: bool, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "  {} ranks: {} {} each on average, {} J to {} J{}{}",
            whole.ranks,
            joules(whole.mean()),
            own_unit(is_dynamic, "J"),
            joules(whole.least),
            joules(whole.most),
            self.standing_out(whole),
            whole.other_processes()
        )
    }

    fn standing_out(&self, spread: &Spread) -> String {
        let named = spread.standing_out.iter().take(NAMED_MAX).map(|((node, group), used)| {
            let group = self.summary.name(*group);
            // A rank's number is unique in the job; the number of a process is not.
            let node = if group.starts_with("MPI Rank") { String::new() } else { format!(" on {node}") };
            format!("{}{} {} J", short(group, NAME_CHARS_MAX), printable(&node), joules(*used))
        });
        let named: Vec<String> = named.collect();
        match (named.is_empty(), spread.standing_out.len().saturating_sub(NAMED_MAX)) {
            (true, _) => String::new(),
            (_, 0) => format!("  ! {}", named.join(", ")),
            (_, more) => format!("  ! {} and {more} more", named.join(", ")),
        }
    }

    fn callpaths_over_ranks(
        &self,
        views: &[(&Device, &View)],
        total: f64,
        unit: &str,
        out: &mut String,
    ) -> std::fmt::Result {
        let name = |path| short_path(&self.summary.regions_of(path));
        let spreads = over_ranks::callpaths(self.summary, views, ROWS_MAX);
        self.spreads("call path", &spreads, total, unit, name, out)?;
        let is_large = |spread: &&Spread| spread.joules >= SHARE_MIN * total;
        if spreads.rows.iter().filter(is_large).any(|spread| !spread.standing_out.is_empty()) {
            writeln!(out, "  !: ranks whose joules are far from those of the others")?;
        }
        Ok(())
    }

    fn spreads(
        &self,
        what: &str,
        spreads: &Spreads,
        total: f64,
        unit: &str,
        name: impl Fn(u32) -> String,
        out: &mut String,
    ) -> std::fmt::Result {
        writeln!(
            out,
            "\n  {unit:>12} {:>6} {:>12} {:>12} {:>12} {:>6} {:>10} {:>10}  {what}",
            "share", "least rank", "mean", "most", "ranks", "s", "calls"
        )?;
        let (shown, small) = large(spreads.rows.iter(), total, |row: &Spread| (row.joules, row.joules));
        for spread in shown {
            let of_ranks = |value: f64| if spread.ranks > 0 { joules(value) } else { "-".to_owned() };
            writeln!(
                out,
                "  {:>12} {:>6} {:>12} {:>12} {:>12} {:>6} {:>10.3} {:>10}  {}{}",
                joules(spread.joules),
                percent(spread.joules, total),
                of_ranks(spread.least),
                of_ranks(spread.mean()),
                of_ranks(spread.most),
                spread.ranks,
                spread.seconds,
                calls(spread.calls),
                printable(&name(spread.what)),
                if spread.joules >= SHARE_MIN * total { self.standing_out(spread) } else { String::new() },
            )?;
        }
        let others = spreads.others;
        more_than_shown((others.0 + small.0, others.1 + small.1), unit, out)
    }

    /// The largest ones, in their order.
    fn devices(&self, out: &mut String) -> std::fmt::Result {
        let all = &self.summary.devices;
        let mut by_joules: Vec<usize> = (0..all.len()).collect();
        largest_first(&mut by_joules, |device| all[*device].total_joules);
        let (shown, others) = by_joules.split_at(DEVICES_MAX.min(all.len()));
        let mut shown = shown.to_vec();
        shown.sort_unstable();
        for device in shown {
            self.device(&all[device], out)?;
        }
        if !others.is_empty() {
            let rest: f64 = others.iter().map(|device| all[*device].total_joules).sum();
            writeln!(
                out,
                "\n... and {} more devices with less each, {} J in all: ampere report --device NAME",
                others.len(),
                joules(rest)
            )?;
        }
        Ok(())
    }

    fn device(&self, device: &Device, out: &mut String) -> std::fmt::Result {
        let summary = self.summary;
        let total = joules(device.total_joules);
        let title = if device.unit == "s" {
            format!("{} on {}: {total} s", device.name, device.node)
        } else {
            let watts =
                device.mean_watts().map_or_else(String::new, |watts| format!(", {watts:.1} W on average"));
            format!(
                "{} on {}: {total} J{watts}, {} ({}, {} samples)",
                device.name, device.node, device.energy, device.metric, device.samples
            )
        };
        writeln!(out, "\n{}", self.bold(&printable(&title)))?;
        self.static_and_dynamic(device, out)?;
        let unsampled = summary.run.seconds - device.sampled_seconds;
        if device.samples > 0 && unsampled > UNSAMPLED_PART * summary.run.seconds {
            writeln!(
                out,
                "  its samples are of {:.2} s, not of {:.2} s: what was spent in the other {unsampled:.2} s is not known",
                device.sampled_seconds, summary.run.seconds
            )?;
        }
        if device.stale {
            let still = device.longest_still_seconds;
            writeln!(out, "  STALE: the counter stood still when last seen, for {still:.1} s at most")?;
        }
        if !device.gauges.is_empty() {
            let says: Vec<String> = device.gauges.iter().map(OverTheRun::text).collect();
            writeln!(out, "  as it reports: {}", printable(&says.join(", ")))?;
        }
        for check in &device.checks {
            writeln!(out, "  {}", printable(&check.text()))?;
        }
        for view in device.shown() {
            self.view(device, view, out)?;
            if let Some(other) = device.not_shown().filter(|_| view.view == "ranks") {
                writeln!(out, "\n  {}: {}", printable(&other.title()), most_of(device, other))?;
            }
        }
        Ok(())
    }

    /// What the device draws in any case, and what its bounds resolve of the rest.
    fn static_and_dynamic(&self, device: &Device, out: &mut String) -> std::fmt::Result {
        let Some(words) = baseline::words(&[device]) else { return Ok(()) };
        let dynamic = device.dynamic_joules.unwrap_or_default();
        let (total, dynamic) = (joules(device.total_joules), joules(dynamic));
        let is_known = device.baseline.as_ref().is_some_and(Baseline::is_known);
        let rest = if is_known { format!("; {dynamic} J are dynamic") } else { String::new() };
        writeln!(out, "  {total} J{words}{rest}")?;
        baseline::resolved_words(std::iter::once(device)).map_or(Ok(()), |words| writeln!(out, "  {words}"))
    }

    fn view(&self, device: &Device, view: &View, out: &mut String) -> std::fmt::Result {
        if view.callpaths.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\n  {} ({}, {}): {} {unit} attributed, {} {unit} idle, {} {unit} lost; conservation error {:.1e} {unit}",
            printable(&view.title()),
            printable(&view.policy),
            printable(&view.sharing),
            joules(view.attributed_joules),
            joules(view.idle_joules),
            joules(view.lost_joules),
            view.conservation_error_joules,
            unit = printable(&device.unit),
        )?;
        self.regions(device, view, out)?;
        self.groups(device, view, out)?;
        self.callpaths(device, view, out)
    }

    fn regions(&self, device: &Device, view: &View, out: &mut String) -> std::fmt::Result {
        let what = if view.view == "kernels" { "kernel" } else { "function" };
        let (total, unit) = (device.own_whole(view), printable(&device.unit));
        let is_time = unit == "s";
        // A function that is recorded is also shown for what it calls.
        let of_row = |row: &Region| {
            let (own, calls) = (row.figures.own_joules(), row.figures.calls);
            (own, if calls > 0 { row.figures.inclusive_joules } else { own })
        };
        let (regions, small) = large(view.regions.iter(), total, of_row);
        let has_watts = regions.iter().any(|row| row.watts.resolved_watts.is_some());
        // For time, the seconds are what is shown already.
        let seconds = |text: String| if is_time { String::new() } else { format!(" {text:>10}") };
        let watts = |text: String| if has_watts { format!(" {text:>11}") } else { String::new() };
        writeln!(
            out,
            "\n  {unit:>12}{}{} {:>6}  {:<BAR_CELLS$}  {:>12}{} {:>10}{}  {what}",
            parts_columns(view, "static", "dynamic"),
            bounds_columns(is_time, "least", "most"),
            "share",
            "",
            format!("inclusive {unit}"),
            seconds("s".to_owned()),
            "calls",
            watts(if view.is_active() { "dynamic W" } else { "W" }.to_owned())
        )?;
        for row in &regions {
            let resolved = row.watts.resolved_watts;
            writeln!(
                out,
                "  {:>12}{}{} {:>6}  {:<BAR_CELLS$}  {:>12}{} {:>10}{}  {}",
                joules(row.figures.exclusive_joules),
                parts_of(view, &row.figures),
                bounds(is_time, &row.figures),
                percent(row.figures.own_joules(), total),
                bar(row.figures.own_joules(), total),
                joules(row.figures.inclusive_joules),
                seconds(format!("{:.3}", row.figures.exclusive_seconds)),
                calls_or_error(row),
                watts(resolved.map_or_else(|| "below res.".to_owned(), |watts| format!("{watts:.1}"))),
                short(&row.region, NAME_CHARS_MAX),
            )?;
        }
        more_than_shown(small, &own_unit(view.is_active(), &unit), out)?;
        if is_time { Ok(()) } else { explain_regions(&regions, (what, view.is_active()), has_watts, out) }
    }

    fn groups(&self, device: &Device, view: &View, out: &mut String) -> std::fmt::Result {
        let total = device.own_whole(view);
        let sums = by_location(self.summary, view);
        let unit = printable(&device.unit);
        if let Some(whole) =
            over_ranks::whole(self.summary, &[(device, view)]).filter(|_| sums.len() > ROWS_MAX)
        {
            writeln!(out)?;
            return self.whole_ranks(&whole, view.is_active(), out);
        }
        writeln!(
            out,
            "\n  {unit:>12}{} {:>6}  {:<BAR_CELLS$}  location group",
            parts_columns(view, "static", "dynamic"),
            "share",
            ""
        )?;
        for (group, figures) in sums.iter().take(ROWS_MAX) {
            writeln!(
                out,
                "  {:>12}{} {:>6}  {:<BAR_CELLS$}  {}",
                joules(figures.exclusive_joules),
                parts_of(view, figures),
                percent(figures.own_joules(), total),
                bar(figures.own_joules(), total),
                short(group, NAME_CHARS_MAX)
            )?;
        }
        let rest = left_out(sums.iter().map(|(_, figures)| figures.own_joules()), ROWS_MAX);
        more_than_shown(rest, &own_unit(view.is_active(), &unit), out)
    }

    fn callpaths(&self, device: &Device, view: &View, out: &mut String) -> std::fmt::Result {
        let (total, rows) = (device.own_whole(view), &view.callpaths);
        let sums = sums_by_location(view);
        let several = groups_of_several(self.summary, &sums);
        let unit = printable(&device.unit);
        let is_time = unit == "s";
        let groups: BTreeSet<u32> = rows.iter().map(|row| row.location_group).collect();
        if view.view == "ranks" && groups.len() > 1 {
            let unit = own_unit(view.is_active(), &unit);
            return self.callpaths_over_ranks(&[(device, view)], total, &unit, out);
        }
        writeln!(
            out,
            "\n  {unit:>12}{}{} {:>6} {:>10} {:>10}  top call paths",
            parts_columns(view, "static", "dynamic"),
            bounds_columns(is_time, "least", "most"),
            "share",
            "s",
            "calls"
        )?;
        let of_row = |row: &Callpath| (row.figures.own_joules(), row.figures.own_joules());
        let (shown, small) = large(rows.iter(), total, of_row);
        for row in shown {
            writeln!(
                out,
                "  {:>12}{}{} {:>6} {:>10.3} {:>10}  {}: {}",
                joules(row.figures.exclusive_joules),
                parts_of(view, &row.figures),
                bounds(is_time, &row.figures),
                percent(row.figures.own_joules(), total),
                row.figures.exclusive_seconds,
                calls(row.figures.calls),
                short(&name_of(self.summary, (row.location_group, row.location), &several), NAME_CHARS_MAX),
                short_path(&self.summary.regions_of(row.path)),
            )?;
        }
        more_than_shown(small, &own_unit(view.is_active(), &unit), out)
    }

    fn foot(&self, out: &mut String) -> std::fmt::Result {
        let summary = self.summary;
        writeln!(out, "\nquality: {}", summary.quality.text())?;
        let o = &summary.overhead;
        if o.collector_peak_rss_bytes > 0 {
            writeln!(
                out,
                "cost:    collector {:.2} s of CPU time, {:.1} MB at most",
                o.collector_cpu_seconds,
                o.collector_peak_rss_bytes as f64 / 1e6
            )?;
        }
        if let Some(s) = &o.sampler {
            writeln!(
                out,
                "         sampler {:.1} % of a core; {} of {} deadlines missed by more than 1 ms, {:.3} ms late on average",
                100.0 * s.cpu_share,
                s.missed_deadlines,
                s.deadlines,
                1e3 * s.mean_late_seconds
            )?;
        }
        if let Some((stacks, share)) = o.stacks.as_ref().and_then(|stacks| Some((stacks, stacks.share()?))) {
            writeln!(out, "         stacks  {}", stacks_cost(stacks, share))?;
        }
        Ok(())
    }
}

/// What samples of stacks and records of switches cost the program.
fn stacks_cost(stacks: &StacksOverhead, share: f64) -> String {
    let samples = stacks.period_seconds.map_or_else(String::new, |period| {
        let each = match stacks.sample_seconds {
            Some(cost) => format!("{:.1} us each", 1e6 * cost),
            None => "of unknown cost".to_owned(),
        };
        format!("{} samples, one in {:.3} ms, {each}, and ", stacks.samples, 1e3 * period)
    });
    format!(
        "about {:.1} % of the program's CPU time, an estimate: {samples}{} records of switches",
        100.0 * share,
        stacks.switches
    )
}

/// The names of nodes, in little room.
pub fn nodes_of(nodes: &[String]) -> String {
    match nodes {
        [] => "no node".to_owned(),
        few if few.len() <= NAMED_MAX => few.join(", "),
        many => compact(&many.iter().map(String::as_str).collect::<Vec<_>>()),
    }
}

/// A line for the devices without a consumer.
fn without_consumer(summary: &Summary) -> Option<String> {
    let linked: HashSet<(&str, &str)> = summary
        .topology
        .iter()
        .filter_map(|link| Some((link.node.as_str(), link.device.as_deref()?)))
        .collect();
    let is_linked = |device: &Device| linked.contains(&(device.node.as_str(), device.name.as_str()));
    let alone = summary.devices.iter().filter(|device| !is_linked(device));
    let mut names: Vec<&str> = alone.map(|device| device.name.as_str()).collect();
    names.sort_by_key(|name| (name.len(), *name));
    (!names.is_empty()).then(|| format!("{} <- no consumer: all idle", compact(&names)))
}

/// Where the joules come from.
fn energy(summary: &Summary) -> &str {
    let mut energies = summary.devices.iter().filter(|device| device.unit != "s");
    let all_estimated = energies.all(|device| device.energy == "estimated");
    match summary.run.energy.as_str() {
        "estimated" if !all_estimated => {
            "partly ESTIMATED from CPU time, not measured: see the devices below"
        }
        "integrated" => "measured, partly as power that was integrated: see the devices below",
        "estimated" => "ESTIMATED, not measured: from CPU time, by the watts of [estimate] in the settings",
        "none" if summary.devices.is_empty() => "none: no counter was read",
        "none" => "none: time only",
        "simulated" => "SIMULATED by a stand-in counter",
        other => other,
    }
}

/// All joules, and their devices: those that no other contains.
fn total(summary: &Summary) -> String {
    let parts = parts(summary);
    let energies = summary.devices.iter().filter(|device| device.unit == "J");
    let is_part = |device: &&Device| parts.contains(&(device.node.as_str(), device.name.as_str()));
    let (parts, whole): (Vec<&Device>, Vec<&Device>) = energies.partition(is_part);
    let nodes = |devices: &[&Device]| {
        devices.iter().map(|d| &d.node).collect::<std::collections::BTreeSet<_>>().len()
    };
    let has_several = nodes(&summary.devices.iter().collect::<Vec<_>>()) > 1;
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let names = |devices: &[&Device]| match has_several {
        false => devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", "),
        true => format!("{} on {}", counted(devices.len(), "device"), counted(nodes(devices), "node")),
    };
    let mut line = format!("{} J in {}", joules(summary.run.total_joules), names(&whole));
    if !parts.is_empty() {
        line.push_str(&format!(", which include {}", names(&parts)));
    }
    line
}

/// Two columns: the least and the most that a row's joules can be. Time has no such error. Sampled rows have none: the program
/// can have been elsewhere between two samples of a stack.
fn bounds(is_time: bool, row: &Figures) -> String {
    if row.calls == 0 {
        return bounds_columns(is_time, "-", "-");
    }
    let most = row.possible_joules.map_or_else(|| "?".to_owned(), joules);
    bounds_columns(is_time, &joules(row.resolved_joules), &most)
}

fn bounds_columns(is_time: bool, least: &str, most: &str) -> String {
    if is_time { String::new() } else { format!(" {least:>12} {most:>12}") }
}

/// Two columns of a view whose policy is *active*.
fn parts_columns(view: &View, fixed: &str, dynamic: &str) -> String {
    if view.is_active() { format!(" {fixed:>12} {dynamic:>12}") } else { String::new() }
}

fn parts_of(view: &View, row: &Figures) -> String {
    let part = |joules_of: Option<f64>| joules_of.map_or_else(|| "?".to_owned(), joules);
    parts_columns(view, &part(row.static_joules), &part(row.dynamic_joules))
}

/// The unit of what rows spent themselves.
pub fn own_unit(is_dynamic: bool, unit: &str) -> String {
    if is_dynamic { format!("dynamic {unit}") } else { unit.to_owned() }
}

/// Joules by location group and location.
type SumsByLocation = BTreeMap<(u32, u32), Figures>;

fn sums_by_location(view: &View) -> SumsByLocation {
    let mut sums: SumsByLocation = BTreeMap::new();
    for row in view.callpaths.iter() {
        add(sums.entry((row.location_group, row.location)).or_default(), &row.figures);
    }
    sums
}

/// Adds exclusive joules and their parts.
fn add(sum: &mut Figures, row: &Figures) {
    let part = |sum: Option<f64>, more: Option<f64>| more.map(|more| sum.unwrap_or_default() + more);
    sum.exclusive_joules += row.exclusive_joules;
    sum.static_joules = part(sum.static_joules, row.static_joules);
    sum.dynamic_joules = part(sum.dynamic_joules, row.dynamic_joules);
}

/// Location groups with joules in several locations: if one rank has threads, all ranks.
fn groups_of_several(summary: &Summary, sums: &SumsByLocation) -> BTreeSet<u32> {
    let groups: Vec<u32> =
        sums.iter().filter(|(_, sum)| sum.exclusive_joules > 0.0).map(|((group, _), _)| *group).collect();
    let several = groups.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    let mut several: BTreeSet<u32> = several.collect();
    let is_rank = |group: &u32| is_mpi_rank(summary.name(*group));
    if several.iter().any(is_rank) {
        several.extend(groups.into_iter().filter(is_rank));
    }
    several
}

/// A row's location group, and its thread where that is not the only one.
fn name_of(summary: &Summary, (group, location): (u32, u32), several: &BTreeSet<u32>) -> String {
    match several.contains(&group) {
        true => format!("{}, {}", summary.name(group), summary.name(location)),
        false => summary.name(group).to_owned(),
    }
}

/// Joules by location group, and by thread where a group has several. "MPI Rank 10" after "MPI Rank 9".
pub fn by_location(summary: &Summary, view: &View) -> Vec<(String, Figures)> {
    let sums = sums_by_location(view);
    let several = groups_of_several(summary, &sums);
    let mut shown: BTreeMap<(usize, &str, usize, &str), (String, Figures)> = BTreeMap::new();
    for (of, sum) in sums {
        let location = if several.contains(&of.0) { summary.name(of.1) } else { "" };
        let group = summary.name(of.0);
        let key = (group.len(), group, location.len(), location);
        let row = shown.entry(key).or_insert_with(|| (name_of(summary, of, &several), Figures::default()));
        add(&mut row.1, &sum);
    }
    shown.into_values().collect()
}

/// The functions with most joules of a view, in a few words.
pub fn most_of(device: &Device, view: &View) -> String {
    let rows = view.regions.iter().filter(|row| row.figures.own_joules() > 0.0).take(NAMED_MAX);
    let named = rows.map(|row| {
        format!(
            "{} ({})",
            short(&row.region, NAME_CHARS_MAX),
            percent(
                row.figures.own_joules(),
                if view.is_active() { device.own_whole(view) } else { device.total_joules }
            )
        )
    });
    named.collect::<Vec<_>>().join(", ")
}

/// The first rows, without small ones among them, and number and sum of all others. `of_row`: what is summed, and by which a row is
/// large. Where all rows are small, none is left out for that.
fn large<'a, T>(
    rows: impl Iterator<Item = &'a T>,
    whole: f64,
    of_row: impl Fn(&T) -> (f64, f64),
) -> (Vec<&'a T>, (usize, f64)) {
    let mut rows = rows.fuse();
    let first: Vec<&T> = rows.by_ref().take(ROWS_MAX).collect();
    let is_large = |row: &&T| of_row(row).1 >= PART_MIN * whole;
    let all_are_small = !first.iter().any(is_large);
    let (shown, small): (Vec<&T>, Vec<&T>) =
        first.into_iter().partition(|row| all_are_small || is_large(row));
    let others = small.into_iter().chain(rows).fold((0, 0.0), |sum, row| (sum.0 + 1, sum.1 + of_row(row).0));
    (shown, others)
}

fn more_than_shown((count, sum): (usize, f64), unit: &str, out: &mut String) -> std::fmt::Result {
    if count == 0 {
        return Ok(());
    }
    writeln!(out, "  ... and {count} more in summary.json: {} {unit} in all", joules(sum))
}

/// Number and sum of the rows after the first `shown`.
pub fn left_out(rows: impl Iterator<Item = f64>, shown: usize) -> (usize, f64) {
    rows.skip(shown).fold((0, 0.0), |(count, sum), row| (count + 1, sum + row))
}

/// A region that is on the stack several times, because it calls itself: "fib x18".
pub fn times(name: &str, count: u32) -> String {
    if count > 1 { format!("{name} x{count}") } else { name.to_owned() }
}

/// What the columns of functions or kernels mean.
fn explain_regions(
    regions: &[&Region],
    (what, is_active): (&str, bool),
    has_watts: bool,
    out: &mut String,
) -> std::fmt::Result {
    if is_active {
        writeln!(
            out,
            "  static: its part of what the device draws anyway; dynamic: what it used above that; share: of the dynamic joules"
        )?;
    }
    let is_recorded = regions.iter().any(|row| row.figures.calls > 0);
    if is_recorded && is_active {
        writeln!(
            out,
            "  least, most: the dynamic joules of samples in which only this {what} was active, and of all in which it was active at all"
        )?;
    } else if is_recorded {
        writeln!(
            out,
            "  least, most: the joules of samples in which only this {what} ran, and of all in which it ran at all"
        )?;
    }
    if regions.iter().any(|row| row.sampled_error_joules.is_some()) {
        writeln!(
            out,
            "  ±: of a sampled {what}, whose calls are not counted: the standard error of its joules"
        )?;
    }
    if has_watts {
        let watts = if is_active { "dynamic W" } else { "W" };
        writeln!(
            out,
            "  {watts}: over samples that belonged to this {what} alone; \"below res.\": fewer than {RESOLVED_SAMPLES_MIN}"
        )?;
        writeln!(out, "  of those, its joules are modelled by time")?;
    } else {
        writeln!(
            out,
            "  no watts: no {what} had {RESOLVED_SAMPLES_MIN} samples to itself, below that joules are modelled by time"
        )?;
    }
    Ok(())
}

/// A sampled function has its error in the place of its calls.
fn calls_or_error(row: &Region) -> String {
    let error = row.sampled_error_joules.filter(|_| row.figures.exclusive_joules > 0.0);
    error.map_or_else(
        || calls(row.figures.calls),
        |error| format!("± {:.1} %", 100.0 * error / row.figures.exclusive_joules),
    )
}

/// Calls of sampled rows are not counted.
fn calls(count: u64) -> String {
    if count == 0 { "sampled".to_owned() } else { count.to_string() }
}

fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1}%", 100.0 * part / whole) } else { String::new() }
}

/// A bar in eighths of a character.
pub fn bar(part: f64, whole: f64) -> String {
    let eighths = if whole > 0.0 { (part / whole * (BAR_CELLS * 8) as f64).round() as usize } else { 0 };
    let eighths = eighths.min(BAR_CELLS * 8);
    let mut text = "█".repeat(eighths / 8);
    if let Some(rest) = " ▏▎▍▌▋▊▉".chars().nth(eighths % 8).filter(|_| eighths % 8 > 0) {
        text.push(rest);
    }
    text
}

/// Longer names are cut in the middle: a template's name is known by its beginning and its end.
const NAME_CHARS_MAX: usize = 56;
const PATH_MAX: usize = 110;

/// A call path: each region's name cut, one that calls itself once, then the outermost regions left out.
pub fn short_path(path: &[&str]) -> String {
    let calls = path.chunk_by(|caller, called| caller == called);
    let names: Vec<String> =
        calls.map(|same| times(&short(same[0], NAME_CHARS_MAX), same.len() as u32)).collect();
    let mut length = 0;
    let fits = |name: &&String| {
        length += name.chars().count() + 3;
        length <= PATH_MAX
    };
    let kept = names.iter().rev().take_while(fits).count().max(1);
    let more = if kept < names.len() { "… > " } else { "" };
    format!("{more}{}", names[names.len() - kept..].join(" > "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional() {
        assert_eq!(bar(1.0, 1.0).chars().count(), BAR_CELLS);
        assert_eq!(bar(0.5, 1.0).chars().count(), BAR_CELLS / 2);
        assert_eq!(bar(0.0, 1.0), "");
        assert_eq!(bar(5.0, 1.0).chars().count(), BAR_CELLS, "never beyond its column");
    }

    #[test]
    fn small_rows_are_summed_unless_all_are() {
        let of_row = |joules: &f64| (*joules, *joules);
        let (shown, others) = large([900.0, 99.0, 0.5, 0.5].iter(), 1000.0, of_row);
        assert_eq!((shown, others), (vec![&900.0, &99.0], (2, 1.0)));
        let (shown, others) = large([1.0; 2000].iter(), 2000.0, of_row);
        assert_eq!((shown.len(), others), (ROWS_MAX, (1985, 1985.0)));
        assert_eq!(large([0.0].iter(), 0.0, of_row).0, [&0.0]);
    }

    #[test]
    fn long_names_keep_their_beginning_and_their_end() {
        let name = "std::sort<".to_owned() + &"x".repeat(1000) + ">::run";
        let cut = short(&name, 30);
        assert_eq!(cut.chars().count(), 30);
        assert!(cut.starts_with("std::sort<xxx") && cut.ends_with(">::run"), "{cut}");
        let path: Vec<String> = (0..20).map(|number| format!("{name}{number}")).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        assert!(short_path(&path).chars().count() < PATH_MAX + 10);
        assert_eq!(short_path(&["main", "f"]), "main > f");
        assert_eq!(short_path(&["main", "fib", "fib", "fib", "main"]), "main > fib x3 > main");
    }
}
