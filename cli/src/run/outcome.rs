//! Shows a run's results on standard error, because standard output is the command's own.

use crate::collector::keeper::Results;
use crate::terminal::words::{eprint_in_colour, screen_of};
use ampere_collector::finish::join_figures;
use ampere_collector::run_directory::nodes;
use ampere_collector::run_directory::output::{PAGE, holds_foreign_page};
use ampere_figures::summary::{BYTES_MAX, Run, Summary};
use ampere_model::text::printable;
use ampere_report::first;
use ampere_ring::{Session, files};
use std::path::Path;

/// The option of `ampere report` that shows functions with the joules of the functions that they call.
const TREE: &str = "-f tree: inclusive joules";

/// What is expected of a run, and how much is printed.
pub struct Expected<'a> {
    /// The reason that is printed if there were no events.
    pub why_nothing: &'a str,
    /// Whether Score-P has to record the events.
    pub score_p: bool,
    /// Whether only errors and warnings are printed.
    pub quiet: bool,
}

/// Shows the results, or why there are none. Returns whether the run was measured as expected.
pub fn report(session: &Session, output: &Path, results: Results, expected: &Expected) -> bool {
    if results == Results::StillWriting {
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
            "ampere: the collector failed: {}; ampere recover {} finishes the run from its records",
            if why.is_empty() { "it ended early" } else { why.trim() },
            left.display()
        );
        return false;
    }
    // Nodes may have ended since their figures were last joined.
    if let Some(Err(why)) = nodes::run_in(output).map(|run| join_figures(output, &run)) {
        say!("ampere: the figures of the nodes were not joined: {why}");
    }
    let summary = match summary_in(output) {
        Ok(summary) => summary,
        Err(why) => {
            say!("ampere: {why}");
            return false;
        }
    };
    let has_others = summary.run.nodes.len() > 1 || !nodes::below(output, &summary.run.id).is_empty();
    let has_events = summary.quality.records.events > 0 || has_others;
    let is_recorded = !expected.score_p || summary.run.host == "score-p" || has_others;
    if !has_events {
        say!("ampere: nothing was recorded or sampled: {}", expected.why_nothing);
    } else if !is_recorded {
        say!("ampere: neither ranks nor calls were recorded, only samples: {}", expected.why_nothing);
    }
    if !expected.quiet {
        show(&summary, output);
    }
    has_events && is_recorded
}

/// Reads the summary of a run. The error is one line that says what to do.
fn summary_in(output: &Path) -> anyhow::Result<Summary> {
    let path = output.join("summary.json");
    let text = ampere_owned::read(&path, BYTES_MAX).map_err(|why| why.to_string());
    let summary = text.and_then(|text| Summary::of_json(&text).map_err(|why| why.to_string()));
    summary.map_err(|why| {
        anyhow::anyhow!(
            "cannot read {}: {why}; if there is a trace, ampere attribute {} computes the figures from it",
            path.display(),
            output.display()
        )
    })
}

/// Shows the first lines of a run's result, and where its files are.
pub fn show(summary: &Summary, output: &Path) {
    print_missing_nodes(&summary.run, output);
    let lines = first::render(summary, screen_of(&std::io::stderr()), &places_to_look(output, summary));
    // This line separates the program's output from ampere's, for readers and scripts.
    let nodes = printable(&first::names::nodes_of(&summary.run.nodes));
    eprint_in_colour(&format!("\nampere: the result on {nodes}\n{lines}"));
}

/// Returns where there is more information about a run.
pub fn places_to_look(output: &Path, summary: &Summary) -> Vec<String> {
    let page = output.join(PAGE);
    let has_page = page.exists() && !holds_foreign_page(output, &summary.run.id);
    let mut look: Vec<String> = has_page.then(|| shown(&page)).into_iter().collect();
    let more: Vec<String> = first::notes(&summary.run).into_iter().chain(tree_words(summary)).collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) };
    look.push(format!("ampere report {}{more}", shown(output)));
    look
}

/// Returns a hint at the tree of call paths, if that shows more than the first lines.
pub fn tree_words(summary: &Summary) -> Option<String> {
    ampere_report::has_most_joules_in_callees(summary).then(|| TREE.to_owned())
}

/// Returns a path relative to the working directory, if it is inside.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| path.strip_prefix(here).ok());
    printable(&below.unwrap_or(path).display().to_string())
}

/// Prints a line about nodes that are not in the result, because they have not ended.
fn print_missing_nodes(run: &Run, output: &Path) {
    let others = nodes::below(output, &run.id);
    let missing = nodes::missing_in(run, &others).count();
    if missing > 0 {
        say!(
            "\nampere: nodes of the run that have not ended: {missing}; ampere report {} shows them, too",
            output.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_that_cannot_be_read_is_reported_in_one_line() {
        let place = tempfile::tempdir().unwrap();
        let shown = place.path().display();
        let why = || summary_in(place.path()).unwrap_err().to_string();
        let begin = format!("cannot read {shown}/summary.json: ");
        let end = format!("; if there is a trace, ampere attribute {shown} computes the figures from it");
        assert!(why().starts_with(&begin) && why().ends_with(&end), "{}", why());
        std::fs::write(place.path().join("summary.json"), "{\"run\": ").unwrap();
        assert!(why().contains("EOF while parsing") && why().lines().count() == 1, "{}", why());
    }
}
