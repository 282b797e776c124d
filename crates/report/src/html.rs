//! Makes `report.html`, one file with everything that the live page shows, which needs no server and no network. Without scripts
//! it shows the totals and the largest rows. Names come from the application, so the template escapes all of them, and `page.js`
//! shows them as text.

use crate::first::names::nodes_of;
use crate::highlights::{Sums, sentences};
use crate::page::{BODY, Page, SCRIPT, STYLE};
use ampere_figures::summary::{Device, Summary, View};
use ampere_model::digits::{self, column, percent};
use ampere_model::regions::is_mpi;
use ampere_model::text::{joules, printable};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The maximum number of rows of each table for browsers without scripts.
const ROWS_MAX: usize = 50;
/// The maximum number of devices that are listed for browsers without scripts.
const DEVICES_MAX: usize = 50;

/// Returns the element that shows to which run a page belongs.
pub fn page_mark(run_id: &str) -> Markup {
    html! { meta name="ampere-run" content=(printable(run_id)); }
}

/// Returns the summary as an HTML page.
pub fn render(summary: &Summary) -> String {
    let run = &summary.run;
    let title =
        format!("ampere: {}", if run.command.is_empty() { run.id.clone() } else { run.command.join(" ") });
    // This cannot fail, because keys are strings, and figures that are not numbers are written as null.
    let data = serde_json::to_string(&Page::of(summary)).unwrap_or_default();
    // In a script element, `<` could end the element or start a comment. It occurs only in strings.
    let escaped = [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\'', "\\u0027")];
    let data = escaped.into_iter().fold(data, |data, (from, to)| data.replace(from, to));
    let body = html! {
        noscript { (without_scripts(summary)) }
        script type="application/json" id="data" { (PreEscaped(data)) }
    };
    document(&title, page_mark(&run.id), body, None)
}

/// Returns the page that requests its data from the collector. `wants_token`: the page asks the reader for a token first.
pub fn live_page(wants_token: bool) -> String {
    let body = html! {
        noscript { p { "The live page needs JavaScript. Without it, there are /metrics and /summary.json." } }
    };
    document("ampere", html! {}, body, Some(wants_token))
}

/// Makes a page. `wants_token` is set only for the live page, which connects to the collector; other pages do not connect to
/// anything.
fn document(title: &str, mark: Markup, data: Markup, wants_token: Option<bool>) -> String {
    let connects = if wants_token.is_some() { "; connect-src 'self'" } else { "" };
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'{connects}"
    );
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                (mark)
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="referrer" content="no-referrer";
                // Otherwise browsers request an icon.
                link rel="icon" href="data:,";
                title { (printable(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body data-token=[wants_token.map(|wants| if wants { "wanted" } else { "" })] {
                (PreEscaped(BODY))
                (data)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

fn without_scripts(summary: &Summary) -> Markup {
    let run = &summary.run;
    let sums = Sums::of(summary);
    let digits = digits::of_energy(&run.energy);
    html! {
        @if !run.complete { p.bad { strong { (run.state()) } } }
        @if !run.command.is_empty() { p { code { (printable(&run.command.join(" "))) } } }
        p.small {
            @if let Some(who) = crate::first::who(summary) { (who) " " } "on "
            (printable(&nodes_of(&run.nodes))) ", "
            @if !run.start.is_empty() { (printable(&run.start)) " to " (printable(&run.end)) ", " }
            "run " (printable(&run.id))
            @if let Some(job) = &run.job { ", job " (printable(&job.to_string())) }
        }
        @if let Some(cpu) = &run.node_cpu { p.small { (cpu.words(run.seconds)) } }
        ul { @for sentence in sentences(summary) { li { (sentence) } } }
        @if !run.notes.is_empty() { h2 { "Notes" } ul { @for note in &run.notes { li { (printable(note)) } } } }
        h2 { "All devices: " (joules(sums.joules)) " J" }
        (table("function", digits, &sums.regions, sums.joules, &[("idle: in no function", sums.idle - sums.other_jobs), ("other jobs on the node", sums.other_jobs), ("lost: cannot be attributed", sums.lost)]))
        @if !sums.kernels.is_empty() {
            h2 { "GPU kernels" }
            (table("kernel", digits, &sums.kernels, sums.joules, &[]))
            p.small { "GPUs with kernels have " (joules(sums.gpu_joules)) " J." }
        }
        h2 { "Devices" }
        table {
            thead { tr { th.number { "total" } th { "device" } th { "node" } th { "energy" } th { "its joules" } } }
            tbody { @for device in summary.devices.iter().take(DEVICES_MAX) { (device_row(device)) } }
        }
        @if summary.devices.len() > DEVICES_MAX { p.small { "and " (summary.devices.len() - DEVICES_MAX) " more in summary.json" } }
        p.small { "Pictures, call paths, the comparison of ranks and the quality of the figures need JavaScript. Their figures are also in summary.txt and summary.json." }
    }
}

fn device_row(device: &Device) -> Markup {
    let unit = printable(&device.unit);
    html! {
        tr {
            td.number { (joules(device.total_joules)) " " (unit) }
            td { (printable(&device.name)) } td { (printable(&device.node)) }
            td { (printable(&device.energy)) @if device.stale { ", STALE" } }
            td { @for view in device.shown() { p.small { (printable(&view.title())) ": " (divided(view, &unit)) } } }
        }
    }
}

fn divided(view: &View, unit: &str) -> String {
    let [attributed, idle, lost] =
        [view.attributed_joules, view.unused_joules(), view.lost_joules].map(joules);
    let others = match view.other_jobs_joules {
        0.0 => String::new(),
        of_others => format!(" {} {unit} of other jobs,", joules(of_others)),
    };
    format!("{attributed} {unit} attributed, {idle} {unit} idle,{others} {lost} {unit} lost")
}

fn table(what: &str, digits: usize, rows: &[(&str, f64)], whole: f64, rest: &[(&str, f64)]) -> Markup {
    let (count, sum) = crate::text::left_out(rows.iter().map(|row| row.1), ROWS_MAX);
    let is_rest = |number: usize| number >= rows.len().min(ROWS_MAX);
    let rest = rest.iter().filter(|row| row.1 > 0.0);
    let all: Vec<(&str, f64)> = rows.iter().take(ROWS_MAX).chain(rest).copied().collect();
    let texts = column(&all.iter().map(|row| row.1).collect::<Vec<_>>(), digits);
    html! {
        table {
            thead { tr { th.number { "J" } th.number { "of total" } th { (what) } } }
            tbody {
                @for (at, ((name, part), text)) in all.iter().zip(texts).enumerate() {
                    tr.rest[is_rest(at)] {
                        td.number { (text) }
                        td.number { (percent(*part, whole)) }
                        td.name[!is_rest(at)].mpi[!is_rest(at) && is_mpi(name)] { (printable(name)) }
                    }
                }
            }
        }
        @if count > 0 { p.small { "and " (count) " more in summary.json: " (joules(sum)) " J in all" } }
    }
}
