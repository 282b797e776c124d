//! The lines above the rows: the run, its devices, and how good the figures are.

use super::figures::Figures;
use super::table::watts_text;
use ampere_figures::nodes::job::Job;
use ampere_figures::snapshot::{DeviceFigures, Snapshot};
use ampere_figures::summary::least_trusted;
use ampere_model::text::{joules, printable, short};
use ratatui_core::style::Stylize;
use ratatui_core::text::{Line, Span};

const NAME_CHARS_MAX: usize = 24;
/// The maximum number of notes that are shown.
pub const NOTES_MAX: usize = 2;

/// Returns a word for joules that are not measured.
fn quality(energy: &str) -> &str {
    if energy == "measured" { "" } else { energy }
}

/// Returns the busy cores of the run and of the node; `None` if they are not known.
fn busy(snapshot: &Snapshot) -> Option<String> {
    let cpu = snapshot.collector.node_cpu.filter(|cpu| cpu.seconds > 0.0)?;
    let cores = |busy: f64| busy / cpu.seconds;
    Some(format!("{:.1} of {:.1} busy cores", cores(cpu.own_busy_seconds), cores(cpu.node_busy_seconds)))
}

/// Describes all devices in one line.
pub fn device_words(snapshot: &Snapshot) -> String {
    let words = snapshot.devices.iter().map(|d| {
        let watts = d.watts.map_or_else(|| "-".to_owned(), |watts| format!("{:.0}", watts.max(0.0)));
        let name = printable(&d.device);
        format!("{name} {} J {watts} W {}", joules(d.joules), printable(quality(&d.energy)))
            .trim_end()
            .to_owned()
    });
    words.chain(busy(snapshot)).collect::<Vec<_>>().join(", ")
}

/// Describes the sum of all nodes.
pub fn job_words(job: &Job) -> String {
    let watts = watts_text(job.totals.watts);
    format!("{} nodes: {} J {watts} W", job.nodes.len(), joules(job.totals.joules))
}

/// Returns the state of the run, for the first line.
pub fn progress(snapshot: &Snapshot) -> String {
    let events = snapshot.losses().records.events;
    format!("{:.1} s  {}  {events} events", snapshot.seconds, processes(snapshot))
}

/// "4 ranks and 1 other process".
fn processes(snapshot: &Snapshot) -> String {
    let ranks = snapshot.ranks.iter().filter(|process| process.is_numbered()).count();
    let counted =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    match (ranks, snapshot.ranks.len() - ranks) {
        (0, others) => counted(others, "process", "processes"),
        (ranks, 0) => counted(ranks, "rank", "ranks"),
        (ranks, others) => {
            let others = counted(others, "other process", "other processes");
            format!("{} and {others}", counted(ranks, "rank", "ranks"))
        }
    }
}

/// Returns the lines above the views. `height` is that of the terminal.
pub fn lines(figures: &Figures, width: u16, height: u16) -> Vec<Line<'static>> {
    let mut lines = vec![first(figures, width)];
    let most = (usize::from(height).saturating_sub(8) / 4).clamp(1, 10);
    lines.extend(devices(figures, most));
    if height >= 12 {
        lines.push(trust(figures));
    }
    if height >= 20 {
        let notes = figures.snapshot.notes.iter().take(NOTES_MAX);
        lines.extend(notes.map(|note| Line::from(format!(" {}", printable(note))).yellow()));
    }
    lines
}

/// Returns the first line: the command, how long it has run, and the joules.
fn first(figures: &Figures, width: u16) -> Line<'static> {
    let snapshot = &figures.snapshot;
    let command = figures.page.as_ref().map(|page| page.run.command.join(" ")).unwrap_or_default();
    let name = if command.is_empty() { &snapshot.run } else { &command };
    let job = snapshot.job.as_ref().map_or_else(String::new, |job| format!("{} {}  ", job.scheduler, job.id));
    let of_job = figures.job().map_or_else(String::new, |job| job_words(job) + "  ");
    let when = if figures.has_ended { "ended, figures at " } else { "at " };
    let right = printable(&format!("{job}{of_job}{when}{} ", progress(snapshot)));
    let used = right.chars().count() + " ampere  ".len();
    let room = usize::from(width).saturating_sub(used + 1);
    let name = if room < 4 { String::new() } else { short(name, room) };
    let line = format!(" ampere {name:<room$} {right}");
    Line::from(format!("{line:<width$}", width = usize::from(width))).reversed()
}

/// Returns a line for each of the first devices that are not in another one, and one line for the rest.
fn devices(figures: &Figures, most: usize) -> Vec<Line<'static>> {
    let topmost: Vec<&DeviceFigures> = figures.snapshot.topmost().collect();
    let shown = if topmost.len() > most { most - 1 } else { topmost.len() };
    let longest = topmost[..shown].iter().map(|device| device.device.chars().count());
    let width = longest.max().unwrap_or(0).clamp(5, NAME_CHARS_MAX);
    let mut lines: Vec<Line> =
        topmost[..shown].iter().map(|device| device_line(figures, device, width)).collect();
    if let (Some(first), Some(_)) = (lines.first_mut(), figures.job()) {
        first.push_span(format!("  only {}", short(&figures.snapshot.node, NAME_CHARS_MAX)).yellow());
    }
    if topmost.len() > shown {
        let rest = &topmost[shown..];
        let sum: f64 = rest.iter().map(|device| device.joules).sum();
        let watts = rest.iter().filter_map(|device| device.watts).reduce(|sum, watts| sum + watts);
        let name =
            if shown == 0 { format!("{} devices", rest.len()) } else { format!("{} more", rest.len()) };
        let energy = quality(least_trusted(rest.iter().map(|device| device.energy.as_str())));
        lines.push(Line::from(vec![Span::raw(figures_text(&name, width, sum, watts)), quality_span(energy)]));
    }
    lines
}

fn figures_text(name: &str, width: usize, sum: f64, watts: Option<f64>) -> String {
    let name = short(name, NAME_CHARS_MAX);
    format!(" {name:<width$} {:>12} J {:>7} W", joules(sum), watts_text(watts))
}

fn device_line(figures: &Figures, device: &DeviceFigures, width: usize) -> Line<'static> {
    let text = figures_text(&device.device, width, device.joules, device.watts);
    let mut spans = vec![Span::raw(text), quality_span(quality(&device.energy))];
    spans.push(history(figures, &device.device).cyan());
    if device.counter.stale {
        spans.push("  does not change".red());
    }
    Line::from(spans)
}

fn quality_span(quality: &str) -> Span<'static> {
    let blanks = if quality.is_empty() { "" } else { "  " };
    format!("  {}{blanks}", printable(quality)).yellow()
}

/// Characters of a device's power over time, a second each.
const HISTORY: usize = 24;

fn history(figures: &Figures, device: &str) -> Span<'static> {
    let mut watts: Vec<Option<f64>> = figures.history(device).rev().take(HISTORY).collect();
    watts.reverse();
    let highest = watts.iter().flatten().fold(0.0, |most: f64, watts| most.max(*watts));
    let height =
        |watts: f64| if highest > 0.0 { (watts.max(0.0) / highest * 7.0).round() as usize } else { 0 };
    let cells = watts.iter().map(|watts| match watts {
        Some(watts) => "▁▂▃▄▅▆▇█".chars().nth(height(*watts).min(7)).unwrap_or(' '),
        None => ' ',
    });
    Span::raw(cells.collect::<String>())
}

/// Returns the line that shows how far the figures can be trusted. Losses are highlighted.
fn trust(figures: &Figures) -> Line<'static> {
    let snapshot = &figures.snapshot;
    let mut spans = vec![Span::raw(" ")];
    spans.extend(busy(snapshot).map(|words| Span::raw(words + "  ")));
    if !figures.has_ended {
        spans.push(Span::raw(format!("behind by {:.1} s  ", snapshot.collector.lag_seconds)));
    }
    let sum = |of: fn(&DeviceFigures) -> f64| snapshot.topmost().map(of).sum::<f64>();
    let others = sum(|device| device.division.other_jobs_joules);
    spans.push(Span::raw(format!("in no function {} J  ", joules(figures.idle_joules()))));
    if others > 0.0 {
        spans.push(Span::raw(format!("other jobs {} J  ", joules(others))));
    }
    let lost = sum(|device| device.division.lost_joules);
    if lost > 0.0 {
        spans.push(format!("lost {} J  ", joules(lost)).red());
    }
    let losses = figures.job().map_or_else(|| snapshot.losses(), |job| job.losses);
    let bad: Vec<Span> = losses.occurred().map(|(count, word)| format!("{count} {word}  ").red()).collect();
    spans.extend(if bad.is_empty() && lost == 0.0 { vec![Span::raw("nothing lost")] } else { bad });
    Line::from(spans)
}
