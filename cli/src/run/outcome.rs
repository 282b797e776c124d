//! Shows a run's results on standard error, because standard output is the command's own.

use crate::collector::keeper::Results;
use ampere_collector::run_directory::nodes;
use ampere_collector::run_directory::output::holds_foreign_page;
use ampere_figures::summary::{BYTES_MAX, Run, Summary};
use ampere_model::text::{joules as joules_text, printable};
use ampere_report::text::render;
use ampere_ring::{Session, files};
use std::io::IsTerminal;
use std::path::Path;

/// What is expected of a run, and what is printed of it.
pub struct Expected<'a> {
    /// The reason if there was no event.
    pub why_nothing: &'a str,
    /// Score-P has to record the events.
    pub score_p: bool,
    /// Only what is wrong is printed.
    pub quiet: bool,
}

/// Shows the results, or why there are none. Returns whether what was expected was measured.
pub fn report(session: &Session, output: &Path, results: Results, expected: &Expected) -> bool {
    if results == Results::StillWritten {
        say!(
            "ampere: the collector is still writing the results; when it is done, {} has a summary.txt",
            output.display()
        );
        return true;
    }
    if results == Results::Missing {
        let why = files::read_text(&session.directory().join("failure"));
        let left = if output.is_dir() { output } else { session.directory() };
        say!(
            "ampere: the collector failed: {}; what is left can be finished: ampere recover {}",
            if why.is_empty() { "it ended before its time" } else { why.trim() },
            left.display()
        );
        return false;
    }
    let summary = ampere_owned::read(&output.join("summary.json"), BYTES_MAX)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    let Some(summary): Option<Summary> = summary else { return false };
    let has_others = !nodes::below(output, &summary.run.id).is_empty();
    let has_events = summary.quality.records.events > 0 || has_others;
    let is_recorded = !expected.score_p || summary.run.host == "score-p" || has_others;
    if !has_events {
        say!("ampere: nothing was measured: {}", expected.why_nothing);
    } else if !is_recorded {
        say!(
            "ampere: neither ranks nor calls are recorded, and what there is was sampled: {}",
            expected.why_nothing
        );
    }
    if !expected.quiet {
        show(&summary, output);
    }
    has_events && is_recorded
}

/// Shows a run's table and where its files are.
pub fn show(summary: &Summary, output: &Path) {
    show_all_nodes(&summary.run, output);
    say!("\n{}", render(summary, std::io::stderr().is_terminal()).trim_end());
    let trace = output.join("traces.otf2");
    if trace.exists() {
        say!("\ntrace:   {}", trace.display());
    }
    say!("summary: {}", output.join("summary.json").display());
    let page = output.join("report.html");
    if page.exists() && !holds_foreign_page(output, &summary.run.id) {
        say!("report:  {}", page.display());
    }
}

/// Shows the figures of all nodes. The table below is only this node's.
fn show_all_nodes(run: &Run, output: &Path) {
    let others = nodes::below(output, &run.id);
    let ended: Vec<&Run> =
        others.iter().filter_map(|node| node.run.as_ref()).filter(|run| !run.running).collect();
    if others.is_empty() {
        return;
    }
    let joules = run.total_joules + ended.iter().map(|run| run.total_joules).sum::<f64>();
    let missing = match others.len() - ended.len() {
        0 => String::new(),
        many => format!(", and {many} more that have not ended"),
    };
    say!(
        "\nampere: {} J on {} nodes{missing}; ampere report {} shows them as one, and the table is of {} alone",
        joules_text(joules),
        1 + ended.len(),
        output.display(),
        printable(&run.nodes.join(", "))
    );
}
