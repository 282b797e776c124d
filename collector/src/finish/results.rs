//! The files that a run leaves in its output directory.

use crate::live::{LiveRun, Mode};
use crate::run_directory::files::{write_whole, write_whole_with};
use crate::run_directory::output;
use ampere_report::summary::Summary;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

impl LiveRun {
    /// Writes the tables, unless there are some that know more than the records that are left.
    pub(super) fn write_figures(&self, summary: &Summary) -> Result<(), String> {
        if knows_more(&self.options.output, summary) {
            return Ok(());
        }
        write_tables(&self.options.output, summary)
    }

    /// Those of before the trace was written stay where a disk has no room for these.
    pub(super) fn write_final_figures(&self, summary: &Summary) {
        if let Err(why) = self.write_figures(summary) {
            eprintln!("ampere-collector: {why}: the figures are those of before the trace was written");
        }
        if let Err(why) = self.write_page(summary) {
            eprintln!("ampere-collector: {why}: ampere report -f html makes it of summary.json");
        }
    }

    /// Figures that the output directory does not take are nowhere else once this process is gone: they are left where
    /// temporary files are. `why` it does not take them; what becomes of the records is another matter.
    pub(super) fn write_elsewhere(&self, why: String) -> String {
        if self.options.mode != Mode::Collector {
            return why; // `ampere recover -o` may have another directory
        }
        let directory = std::env::temp_dir().join(output::default_directory(&self.options.run_id));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&directory).map_err(|e| e.to_string());
        match made.and_then(|()| write_results(&directory, &self.summary(false))) {
            Ok(()) => format!("{why}; the figures without a trace are in {}", directory.display()),
            Err(_) => why,
        }
    }

    /// Of the figures that lie there.
    fn write_page(&self, summary: &Summary) -> Result<(), String> {
        let directory = &self.options.output;
        if output::holds_foreign_page(directory, &summary.run.id) {
            return Ok(()); // a note says so
        }
        if !knows_more(directory, summary) {
            return write_page(directory, summary);
        }
        let known = std::fs::read(directory.join("summary.json")).map_err(|e| e.to_string())?;
        write_page(directory, &serde_json::from_slice(&known).map_err(|e| e.to_string())?)
    }
}

/// Whether the figures that lie there already are the same run's, of more events: where the disk was full, the records end
/// early and the figures do not.
pub fn knows_more(directory: &Path, summary: &Summary) -> bool {
    let text = std::fs::read(directory.join("summary.json")).unwrap_or_default();
    let there: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let events = |name: &str| there["quality"][name].as_u64().unwrap_or(0);
    let quality = &summary.quality;
    there["run"]["id"] == summary.run.id.as_str()
        && events("events").saturating_add(events("coalesced_calls"))
            > quality.events.saturating_add(quality.coalesced_calls)
}

/// `summary.json`, `summary.txt` and `report.html`, each whole or not at all.
pub fn write_results(directory: &Path, summary: &Summary) -> Result<(), String> {
    write_tables(directory, summary)?;
    write_page(directory, summary)
}

fn write_tables(directory: &Path, summary: &Summary) -> Result<(), String> {
    let path = directory.join("summary.json");
    write_whole_with(&path, |file| {
        serde_json::to_writer_pretty(&mut *file, summary)?;
        file.write_all(b"\n")
    })
    .and_then(|()| write_whole(&directory.join("summary.txt"), ampere_report::text::render(summary, false)))
    .map_err(|e| e.to_string())
}

fn write_page(directory: &Path, summary: &Summary) -> Result<(), String> {
    let page = ampere_report::render(summary, ampere_report::Format::Html, false)
        .map_err(|error| error.to_string())?;
    write_whole(&directory.join(output::PAGE), page).map_err(|e| e.to_string())
}
