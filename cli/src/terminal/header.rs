//! The lines above the rows: the run, its devices, and how exact the figures are.

use super::figures::{Figures, pending_words};
use super::table::watts_text;
use ampere_figures::nodes::job::Job;
use ampere_figures::snapshot::{DeviceFigures, Snapshot};
use ampere_figures::summary::{Run, least_trusted};
use ampere_model::digits::energy;
use ampere_model::text::{first_words, printable, short};
use ampere_report::first::shortened_command;
use ampere_report::work;
use ratatui_core::style::Stylize;
use ratatui_core::text::{Line, Span};

const NAME_CHARS_MAX: usize = 24;
/// The maximum number of notes that are shown.
pub const NOTES_MAX: usize = 2;

/// Returns the word for joules that are not measured; empty for measured ones.
fn quality(energy: &str) -> &str {
    if energy == "measured" { "" } else { energy }
}

/// Describes the busy cores of the run, in the words that its result uses, and then those of other programs; `None` if they are
/// not known.
fn busy(snapshot: &Snapshot) -> Option<[String; 2]> {
    let cpu = snapshot.collector.node_cpu.filter(|cpu| cpu.seconds > 0.0)?;
    let cores = |busy: f64| busy.max(0.0) / cpu.seconds;
    let own = format!("{:.1} of {} cores busy", cores(cpu.own_busy_seconds), cpu.cpus);
    Some([own, format!(", others {:.1}", cores(cpu.busy_seconds_of_others()))])
}

/// Describes all devices, and then the busy cores.
fn device_parts(snapshot: &Snapshot) -> Vec<String> {
    let words = snapshot.devices.iter().map(|d| {
        let watts = d.watts.map_or_else(|| "-".to_owned(), |watts| format!("{:.0}", watts.max(0.0)));
        let name = printable(&d.device);
        format!("{name} {} {watts} W {}", energy(d.joules), printable(quality(&d.energy)))
            .trim_end()
            .to_owned()
    });
    words.chain(busy(snapshot).map(|parts| parts.concat())).collect()
}

/// Describes all devices in one line.
pub fn device_words(snapshot: &Snapshot) -> String {
    device_parts(snapshot).join(", ")
}

/// Describes as many devices as fit into `room` characters.
pub fn device_words_in(snapshot: &Snapshot, room: usize) -> String {
    fitting(&device_parts(snapshot), ", ", room)
}

/// Joins the parts that fit into `room` characters. The others are left out; no part is cut.
pub fn fitting(parts: &[String], between: &str, room: usize) -> String {
    let length = |text: &str| text.chars().count();
    parts.iter().filter(|part| !part.is_empty()).fold(String::new(), |line, part| {
        let longer = if line.is_empty() { part.clone() } else { format!("{line}{between}{part}") };
        if length(&longer) <= room { longer } else { line }
    })
}

/// Describes the sum of all nodes.
pub fn job_words(job: &Job) -> String {
    let watts = watts_text(job.totals.watts);
    format!("{} nodes: {} {watts} W", job.nodes.len(), energy(job.totals.joules))
}

/// Returns the state of the run, for the first line: the time, the processes and the events.
pub fn progress(snapshot: &Snapshot) -> [String; 3] {
    let events = snapshot.losses().records.events;
    [format!("{:.1} s", snapshot.seconds), processes(snapshot), format!("{events} events")]
}

/// Returns the numbers of ranks and of other processes, such as "4 ranks and 1 other process".
fn processes(snapshot: &Snapshot) -> String {
    let ranks = snapshot.ranks.iter().filter(|process| process.is_rank()).count();
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

/// Returns the lines above the views. `height` is the height of the terminal.
pub fn lines(figures: &Figures, width: u16, height: u16) -> Vec<Line<'static>> {
    let mut lines = vec![first(figures, width)];
    let limit = (usize::from(height).saturating_sub(8) / 4).clamp(1, 10);
    lines.extend(devices(figures, width, limit));
    if height >= 12 {
        lines.push(trust(figures, width));
    }
    if height >= 20 {
        lines.extend(work(&figures.snapshot, width));
        let notes = figures.snapshot.notes.iter().take(NOTES_MAX);
        let room = usize::from(width).saturating_sub(1).max(1);
        lines.extend(notes.map(|note| Line::from(format!(" {}", first_words(note, room))).yellow()));
    }
    lines
}

/// Returns a line with the units of work that were counted on this node.
fn work(snapshot: &Snapshot, width: u16) -> Option<Line<'static>> {
    let energies = snapshot.topmost().map(|device| device.energy.as_str());
    let energy = least_trusted(energies).to_owned();
    let run = Run { work: snapshot.work.clone(), energy, ..Run::default() };
    let works: Vec<String> = work::lines(&run, None).into_iter().map(|parts| parts.join(", ")).collect();
    let words = fitting(&works, "; ", usize::from(width).saturating_sub(1));
    (!words.is_empty()).then(|| Line::from(format!(" {words}")))
}

/// Returns the first line: the command, the job, the joules of all nodes if there are several, how long it has run, its processes
/// and events.
fn first(figures: &Figures, width: u16) -> Line<'static> {
    let snapshot = &figures.snapshot;
    let run = figures.page.as_ref().map(|page| &page.run).filter(|run| !run.command.is_empty());
    let job = snapshot.job.as_ref().map_or_else(String::new, |job| format!("{} {}", job.scheduler, job.id));
    let of_job = figures.job().map_or_else(String::new, job_words);
    let when = if figures.has_ended { "ended, figures at " } else { "at " };
    let [time, processes, events] = progress(snapshot);
    let mut parts = [job, of_job, format!("{when}{time}"), processes, events].map(|part| printable(&part));
    let joined = |parts: &[String]| fitting(parts, "  ", usize::MAX) + " ";
    let room = usize::from(width).saturating_sub(" ampere  ".len());
    // The events, the processes and the job are left out, in this order, if there is no room.
    for least_important in [4, 3, 0] {
        if joined(&parts).chars().count() > room {
            parts[least_important].clear();
        }
    }
    let right = joined(&parts);
    let used = right.chars().count() + " ampere  ".len();
    let room = usize::from(width).saturating_sub(used + 1);
    let name = match run {
        _ if room < 4 => String::new(),
        Some(run) => shortened_command(&run.command, room, run.ranks > 1),
        None => short(&snapshot.run, room),
    };
    let line = format!(" ampere {name:<room$} {right}");
    Line::from(format!("{line:<width$}", width = usize::from(width))).reversed()
}

/// Returns one line each for the first devices that are not contained in another, and one line for the rest.
fn devices(figures: &Figures, columns: u16, limit: usize) -> Vec<Line<'static>> {
    let topmost: Vec<&DeviceFigures> = figures.snapshot.topmost().collect();
    let shown = if topmost.len() > limit { limit - 1 } else { topmost.len() };
    let longest = topmost[..shown].iter().map(|device| device.device.chars().count());
    let width = longest.max().unwrap_or(0).clamp(5, NAME_CHARS_MAX);
    let mut lines: Vec<Line> =
        topmost[..shown].iter().map(|device| device_line(figures, device, width, columns)).collect();
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
    format!(" {name:<width$} {:>10} {:>7} W", energy(sum), watts_text(watts))
}

fn device_line(figures: &Figures, device: &DeviceFigures, width: usize, columns: u16) -> Line<'static> {
    const STALE: &str = "  does not change";
    let text = figures_text(&device.device, width, device.joules, device.watts);
    let mut spans = vec![Span::raw(text), quality_span(quality(&device.energy))];
    let used: usize = spans.iter().map(Span::width).sum();
    let used = used + if device.counter.stale { STALE.len() } else { 0 };
    const POWER: &str = "power ";
    let room = usize::from(columns).saturating_sub(used + POWER.len());
    let chart = history(figures, &device.device, room.min(HISTORY_MAX));
    spans.extend((chart.width() > 0).then(|| [Span::raw(POWER), chart.cyan()]).into_iter().flatten());
    if device.counter.stale {
        spans.push(STALE.red());
    }
    Line::from(spans)
}

fn quality_span(quality: &str) -> Span<'static> {
    let blanks = if quality.is_empty() { "" } else { "  " };
    format!("  {}{blanks}", printable(quality)).yellow()
}

/// The maximum length of the chart of a device's power, with a character for each second.
const HISTORY_MAX: usize = 24;

fn history(figures: &Figures, device: &str, seconds: usize) -> Span<'static> {
    let mut watts: Vec<Option<f64>> = figures.history(device).rev().take(seconds).collect();
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

/// Returns the line that shows how far the figures can be trusted. Losses are highlighted. If there is no room, texts are left
/// out from the start of the line; the losses are at its end.
fn trust(figures: &Figures, width: u16) -> Line<'static> {
    let snapshot = &figures.snapshot;
    let mut spans = Vec::new();
    if !figures.has_ended {
        spans.push(Span::raw(format!("behind by {:.1} s  ", snapshot.collector.lag_seconds)));
    }
    let sum = |of: fn(&DeviceFigures) -> f64| snapshot.topmost().map(of).sum::<f64>();
    let others = sum(|device| device.division.other_jobs_joules);
    spans.push(Span::raw(format!("idle {}  ", energy(figures.idle_joules()))));
    spans.extend(pending_words(snapshot).map(|words| Span::raw(words + "  ")));
    if others > 0.0 {
        spans.push(Span::raw(format!("other jobs {}  ", energy(others))));
    }
    let lost = sum(|device| device.division.lost_joules);
    if lost > 0.0 {
        spans.push(format!("lost {}  ", energy(lost)).red());
    }
    let losses = figures.job().map_or_else(|| snapshot.losses(), |job| job.losses);
    let bad: Vec<Span> = losses.occurred().map(|(count, word)| format!("{count} {word}  ").red()).collect();
    spans.extend(if bad.is_empty() && lost == 0.0 { vec![Span::raw("nothing lost")] } else { bad });
    let length = |spans: &[Span]| spans.iter().map(Span::width).sum::<usize>();
    let room = usize::from(width).saturating_sub(1);
    let own_and_others =
        busy(snapshot).into_iter().flat_map(|[own, others]| [format!("{own}{others}  "), own + "  "]);
    let fitting = own_and_others.map(Span::raw).find(|words| words.width() + length(&spans) <= room);
    spans.splice(..0, fitting);
    while spans.len() > 1 && length(&spans) > room {
        spans.remove(0);
    }
    spans.insert(0, Span::raw(" "));
    Line::from(spans)
}
