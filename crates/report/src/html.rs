//! One page with everything, which needs no server and no network. Names come from the application: the template escapes all
//! of them.

use super::curve;
use super::flame;
use super::tree;
use crate::assignment;
use crate::gauges::OverTheRun;
use crate::highlights::{Sums, is_mpi, sentences, topmost, view};
use crate::over_ranks::{self, Spread};
use crate::summary::{Device, Summary, View};
use crate::text::{by_location, most_of, nodes_of};
use ampere_model::text::{joules, printable, short};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page.css");
/// Rows of each table: the rest is in `summary.json`, and in other reports.
const MOST_ROWS: usize = 50;
/// Characters of a caller's name.
const LONGEST_CALLER: usize = 40;
/// Devices with tables and pictures of their own, and those that are in a list beside them.
const MOST_DEVICES: usize = 16;
const MOST_LISTED: usize = 200;
/// Of a smaller part of all joules no rank is said to stand out.
const LEAST_SHARE: f64 = 0.01;
/// Ranks that are named because they stand out.
const MOST_NAMED: usize = 5;
/// Devices whose power is shown together.
const MOST_CURVES: usize = 8;
/// The meaning of the columns with the least and the most joules.
const LEAST: &str = "the joules of samples in which nothing else ran";
const MOST: &str = "the joules of all samples in which it ran at all";

/// Boxes of all pictures: a page stays small however many call paths there are.
const MOST_BOXES: usize = 6000;
/// Boxes of each picture.
const LEAST_BOXES: usize = 100;

/// The pictures of call paths.
struct Pictures<'a> {
    frames: &'a tree::Frames<'a>,
    /// Of each picture at most.
    boxes: usize,
}

/// An element by which a page is known as a run's.
pub fn page_mark(run_id: &str) -> Markup {
    html! { meta name="ampere-run" content=(printable(run_id)); }
}

/// The page.
pub fn render(summary: &Summary) -> String {
    let run = &summary.run;
    let title =
        format!("ampere: {}", if run.command.is_empty() { run.id.clone() } else { run.command.join(" ") });
    let several = topmost(summary).count() > 1;
    let frames = tree::Frames::of(summary);
    let (shown, listed) = largest(summary);
    let views = shown.iter().map(|device| device.views.len()).sum::<usize>();
    let pictures = Pictures { frames: &frames, boxes: (MOST_BOXES / (views + 2)).max(LEAST_BOXES) };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                (page_mark(&run.id))
                title { (printable(&title)) }
                style { (PreEscaped(STYLE)) (PreEscaped(flame::STYLE)) }
            }
            body {
                (head(summary))
                @if several { (everything(summary, &pictures)) (powers(summary)) }
                @for (at, device) in shown.iter().enumerate() { (one_device(summary, device, !several && at == 0, &pictures)) }
                (other_devices(&listed))
                (device_assignment(summary))
                (quality(summary))
                script { (PreEscaped(flame::SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// The largest devices, in their order, and all others, most joules first.
fn largest(summary: &Summary) -> (Vec<&Device>, Vec<&Device>) {
    let mut by_joules: Vec<(usize, &Device)> = summary.devices.iter().enumerate().collect();
    by_joules.sort_by(|a, b| b.1.total_joules.total_cmp(&a.1.total_joules));
    let others = by_joules.split_off(MOST_DEVICES.min(by_joules.len()));
    by_joules.sort_by_key(|(at, _)| *at);
    let devices = |all: Vec<(usize, _)>| all.into_iter().map(|(_, device)| device).collect();
    (devices(by_joules), devices(others))
}

fn other_devices(devices: &[&Device]) -> Markup {
    html! {
        @if !devices.is_empty() {
            details {
                summary { (devices.len()) " more devices, with less each" }
                table {
                    thead { tr { th.number { "total" } th { "device" } th { "node" } th { "most in" } } }
                    tbody {
                        @for device in devices.iter().take(MOST_LISTED) {
                            tr {
                                td.number { (joules(device.total_joules)) " " (printable(&device.unit)) }
                                td { (printable(&device.name)) } td { (printable(&device.node)) }
                                td { @if let Some(view) = device.shown().next() { (most_of(device, view)) } }
                            }
                        }
                    }
                }
                @if devices.len() > MOST_LISTED { p.small { "and " (devices.len() - MOST_LISTED) " more in summary.json" } }
            }
        }
    }
}

fn head(summary: &Summary) -> Markup {
    let run = &summary.run;
    html! {
        header {
            h1 { "ampere" @if !run.complete { " " span.badge.running[run.running] { (run.state()) } } @if run.energy != "measured" { " " span.badge { (printable(&run.energy)) } } }
            @if !run.command.is_empty() { p { code { (printable(&run.command.join(" "))) } } }
            p.small {
                (run.ranks) @if run.ranks == 1 { " rank on " } @else { " ranks on " }
                (printable(&nodes_of(&run.nodes))) ", "
                @if !run.start.is_empty() { (printable(&run.start)) " to " (printable(&run.end)) ", " }
                "run " (printable(&run.id))
                @if let Some(job) = &run.job { ", job " (printable(&job.to_string())) }
            }
            @if let Some(cpu) = &run.node_cpu { p.small { (cpu.words()) } }
            ul.short { @for sentence in sentences(summary) { li { (sentence) } } }
            @if !run.notes.is_empty() {
                div.notes { h2 { "Notes" } ul { @for note in &run.notes { li { (printable(note)) } } } }
            }
        }
    }
}

/// The sums of several devices.
fn everything(summary: &Summary, pictures: &Pictures) -> Markup {
    let sums = Sums::of(summary);
    let views: Vec<(&Device, &View)> =
        topmost(summary).filter_map(|device| Some((device, view(device, "ranks")?))).collect();
    html! {
        section {
            h2 { "All devices: " (joules(sums.joules)) " J" }
            (flame::picture(&pictures.frames.whole(), pictures.boxes))
            (legend())
            h3 { "Functions" }
            table {
                thead { tr { th.number { "J" } th.number { "share" } th {} th { "function" } } }
                tbody {
                    @for (name, part) in sums.regions.iter().take(MOST_ROWS) {
                        tr { (share_cells(*part, sums.joules)) td { (name_of(name)) } }
                    }
                    @if sums.idle > 0.0 { tr.rest { (share_cells(sums.idle, sums.joules)) td { "idle: no consumer ran" } } }
                    @if sums.lost > 0.0 { tr.rest { (share_cells(sums.lost, sums.joules)) td { "lost: cannot be attributed" } } }
                }
            }
            (left_out(sums.regions.iter().map(|row| row.1), "J"))
            (ranks_beside_each_other(summary, &views, "J"))
            @if !sums.kernels.is_empty() {
                h3 { "GPU kernels" }
                (flame::picture(&pictures.frames.of_kernels(), pictures.boxes))
                table {
                    thead { tr { th.number { "J" } th.number { "share" } th {} th { "kernel" } } }
                    tbody {
                        @for (name, part) in sums.kernels.iter().take(MOST_ROWS) {
                            tr { (share_cells(*part, sums.gpu_joules)) td { (name_of(name)) } }
                        }
                    }
                }
                p.small { "Shares are of the " (joules(sums.gpu_joules)) " J of GPUs with kernels, while one ran; the functions above are what ranks were in meanwhile." }
                (left_out(sums.kernels.iter().map(|row| row.1), "J"))
            }
        }
    }
}

/// Power of the devices that no other contains, below each other, by one scale: they show the same time.
fn powers(summary: &Summary) -> Markup {
    let mut curves: Vec<_> =
        topmost(summary).filter_map(|device| Some((device, device.power.as_ref()?))).collect();
    curves.sort_by_key(|(device, _)| (&device.node, device.name.len(), &device.name)); // "GPU-10" after "GPU-9"
    let scale = curves.iter().take(MOST_CURVES).map(|(_, power)| curve::most(power)).fold(0.0, f64::max);
    html! {
        @if curves.len() > 1 {
            section {
                h3 { "Power" }
                @for (device, power) in curves.iter().take(MOST_CURVES) {
                    p.small { (printable(&device.name)) " on " (printable(&device.node)) }
                    (curve::picture(power, scale, &device.energy))
                }
                @if curves.len() > MOST_CURVES { p.small { "and " (curves.len() - MOST_CURVES) " more below" } }
            }
        }
    }
}

fn one_device(summary: &Summary, device: &Device, open: bool, pictures: &Pictures) -> Markup {
    let unit = &device.unit;
    let watts = if device.sampled_seconds > 0.0 && unit == "J" {
        format!(", {:.1} W on average", device.total_joules / device.sampled_seconds)
    } else {
        String::new()
    };
    html! {
        details open[open] {
            summary {
                strong { (printable(&device.name)) } " on " (printable(&device.node)) ": " (joules(device.total_joules)) " " (printable(unit)) (watts)
                ", " (printable(&device.energy))
            }
            p.small {
                (printable(&device.metric)) ", " (device.samples) " samples"
                @if device.stale { ", " strong { "STALE: the counter stood still when last seen" } }
            }
            @if !device.gauges.is_empty() {
                p.small { "as it reports: " (printable(&device.gauges.iter().map(OverTheRun::text).collect::<Vec<_>>().join(", "))) }
            }
            @for check in &device.checks { p.small { (printable(&check.text())) } }
            @if let Some(curve) = &device.power { (curve::picture(curve, curve::most(curve), &device.energy)) }
            @for name in ["ranks", "kernels"] {
                @if let Some(view) = view(device, name) { (one_view(summary, device, view, pictures)) }
                @if let Some(other) = device.not_shown().filter(|_| name == "ranks") {
                    p.small { (printable(&other.title())) ": " (most_of(device, other)) }
                }
            }
        }
    }
}

fn one_view(summary: &Summary, device: &Device, view: &View, pictures: &Pictures) -> Markup {
    let (total, unit) = (view.whole(), printable(&device.unit));
    let is_time = unit == "s";
    let groups = by_location(summary, view);
    html! {
        section {
            h3 { (printable(&view.title())) }
            p.small {
                (printable(&view.policy)) ", " (printable(&view.sharing)) ": " (joules(view.attributed_joules)) " " (unit) " attributed, "
                (joules(view.idle_joules)) " " (unit) " idle, " (joules(view.lost_joules)) " " (unit) " lost; conservation error "
                (format!("{:.1e}", view.conservation_error_joules)) " " (unit)
            }
            (flame::picture(&pictures.frames.of_views(&device.name, std::iter::once(view)), pictures.boxes))
            (legend())
            (region_table(view, &unit))
            @if !is_time && !view.regions.is_empty() {
                p.small { "least: " (LEAST) "; most: " (MOST) "; the attributed joules lie between" }
            }
            @if !has_watts(view) && !view.regions.is_empty() {
                p.small { "no watts: no function had 10 samples to itself" }
            }
            (left_out(view.regions.iter().map(|row| row.figures.exclusive_joules), &unit))
            @if view.view == "ranks" { (ranks_beside_each_other(summary, &[(device, view)], &unit)) }
            @if (2..=MOST_ROWS).contains(&groups.len()) {
                table {
                    thead { tr { th.number { (unit) } th.number { "share" } th {} th { "location group" } } }
                    tbody {
                        @for (group, part) in groups.iter().take(MOST_ROWS) {
                            tr { (share_cells(*part, total)) td { (printable(group)) } }
                        }
                    }
                }
                (left_out(groups.iter().map(|group| group.1), &unit))
            }
        }
    }
}

/// Call paths of several ranks, and the ranks that stand out.
fn ranks_beside_each_other(summary: &Summary, views: &[(&Device, &View)], unit: &str) -> Markup {
    let Some(whole) = over_ranks::whole(summary, views).filter(|whole| whole.ranks > 1) else {
        return html! {};
    };
    let spreads = over_ranks::callpaths(summary, views, MOST_ROWS);
    html! {
        h3 { "Ranks beside each other" }
        p.small {
            (whole.ranks) " ranks: " (joules(whole.mean())) " " (unit) " each on average, " (joules(whole.least)) " to "
            (joules(whole.most)) " " (unit) (standing_out(summary, &whole, unit))
        }
        table {
            thead {
                tr {
                    th.number { (unit) } th.number { "share" } th {} th.number { "least rank" } th.number { "mean" }
                    th.number { "most" } th.number { "ranks" } th.number { "calls" } th { "call path" }
                }
            }
            tbody {
                @for spread in &spreads.rows {
                    tr {
                        (share_cells(spread.joules, whole.joules))
                        td.number { (joules(spread.least)) } td.number { (joules(spread.mean())) } td.number { (joules(spread.most)) }
                        td.number { (spread.ranks) } td.number { (spread.calls) }
                        td {
                            (callpath(summary, spread.what))
                            @if spread.joules >= LEAST_SHARE * whole.joules { span.small { (standing_out(summary, spread, unit)) } }
                        }
                    }
                }
            }
        }
        (others(spreads.others, unit))
    }
}

/// The innermost functions of a call path; all of it where the pointer rests.
fn callpath(summary: &Summary, path: u32) -> Markup {
    let regions = summary.regions_of(path);
    let last = regions.last().copied().unwrap_or_default();
    let callers = &regions[..regions.len().saturating_sub(1)];
    html! {
        span title=(printable(&regions.join(" > "))) {
            @if callers.len() > 2 { span.small { "… > " } }
            @for caller in callers.iter().rev().take(2).rev() { span.small { (short(caller, LONGEST_CALLER)) " > " } }
            (name_of(last))
        }
    }
}

/// The ranks whose joules are far from those of the others.
fn standing_out(summary: &Summary, spread: &Spread, unit: &str) -> String {
    let all = &spread.standing_out;
    let named = all.iter().take(MOST_NAMED);
    let named: Vec<String> = named
        .map(|((_, group), used)| format!("{} {} {unit}", printable(summary.name(*group)), joules(*used)))
        .collect();
    match all.len().saturating_sub(MOST_NAMED) {
        _ if all.is_empty() => String::new(),
        0 => format!("; far from the others: {}", named.join(", ")),
        more => format!("; far from the others: {} and {more} more", named.join(", ")),
    }
}

fn region_table(view: &View, unit: &str) -> Markup {
    let (total, is_time) = (view.whole(), unit == "s");
    let what = if view.view == "kernels" { "kernel" } else { "function" };
    let has_watts = has_watts(view);
    html! {
        table {
            thead {
                tr {
                    th.number { (unit) } th.number { "share" } th {}
                    @if !is_time { th.number title=(LEAST) { "least" } th.number title=(MOST) { "most" } }
                    th.number { "inclusive " (unit) } th.number { "s" }
                    th.number { "calls" } @if has_watts { th.number { "W" } } th { (what) }
                }
            }
            tbody {
                @for row in view.regions.iter().take(MOST_ROWS) {
                    tr {
                        (share_cells(row.figures.exclusive_joules, total))
                        @if !is_time {
                            td.number { (joules(row.figures.resolved_joules)) }
                            td.number { (row.figures.possible_joules.map_or_else(|| "?".to_owned(), joules)) }
                        }
                        td.number { (joules(row.figures.inclusive_joules)) }
                        td.number { (format!("{:.3}", row.figures.exclusive_seconds)) }
                        td.number { (row.figures.calls) }
                        @if has_watts {
                            td.number {
                                @match row.watts.resolved_watts {
                                    Some(watts) => (format!("{watts:.1}")),
                                    None => span.small title="too few samples belonged to it alone: its joules are modelled by time" { "below res." },
                                }
                            }
                        }
                        td { (name_of(&row.region)) }
                    }
                }
            }
        }
    }
}

fn has_watts(view: &View) -> bool {
    view.regions.iter().any(|row| row.watts.resolved_watts.is_some())
}

fn device_assignment(summary: &Summary) -> Markup {
    let lines = assignment::lines(&summary.topology);
    html! {
        @if !lines.is_empty() {
            details { summary { "Device assignment" } ul { @for line in lines.iter().take(MOST_ROWS) { li { (printable(line)) } } } @if lines.len() > MOST_ROWS { p.small { "and " (lines.len() - MOST_ROWS) " more in summary.json" } } }
        }
    }
}

fn quality(summary: &Summary) -> Markup {
    let (q, overhead) = (&summary.quality, &summary.overhead);
    let rows: [(&str, u64); 12] = [
        ("events", q.events),
        ("calls coalesced: recorded in groups", q.coalesced_calls),
        ("calls suppressed: they found no room", q.suppressed_calls),
        ("calls unrecorded: their threads had no ring", q.unrecorded_calls),
        ("records dropped", q.dropped_records),
        ("events late", q.late_events),
        ("events mended", q.repaired_events),
        ("records damaged", q.damaged_records),
        ("samples unusable", q.unusable_samples),
        ("definitions left out", q.left_out_definitions),
        ("counter resets", q.counter_resets),
        ("gaps in sampling", q.sampling_gaps),
    ];
    html! {
        details {
            summary { "Quality: conservation error " (format!("{:.1e}", q.conservation_error_joules)) " J" }
            table { tbody { @for (name, count) in rows { tr { td.number { (count) } td { (name) } } } } }
            @if overhead.collector_peak_rss_bytes > 0 {
                p.small {
                    "collector: " (format!("{:.2}", overhead.collector_cpu_seconds)) " s of CPU time, "
                    (format!("{:.1}", overhead.collector_peak_rss_bytes as f64 / 1e6)) " MB at most"
                }
            }
        }
    }
}

fn legend() -> Markup {
    html! {
        p.small {
            "Each box is as wide as its joules, below the one that called it. " span.function { "functions" } " " span.mpi { "MPI" } " "
            span.kernel { "GPU kernels" } " " span.rest { "idle or lost" } ". Click to enlarge one."
        }
    }
}

fn share_cells(part: f64, whole: f64) -> Markup {
    let share = if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
    html! {
        td.number { (joules(part)) }
        td.number { (format!("{share:.1} %")) }
        td.bar { div style=(format!("width:{:.1}%", share.clamp(0.0, 100.0))) {} }
    }
}

fn name_of(name: &str) -> Markup {
    html! { code.mpi[is_mpi(name)] { (printable(name)) } }
}

fn left_out(rows: impl Iterator<Item = f64>, unit: &str) -> Markup {
    others(crate::text::left_out(rows, MOST_ROWS), unit)
}

fn others((count, sum): (usize, f64), unit: &str) -> Markup {
    html! { @if count > 0 { p.small { "and " (count) " more in summary.json: " (joules(sum)) " " (unit) " in all" } } }
}
