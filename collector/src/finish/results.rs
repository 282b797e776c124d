//! The files that a run leaves in its output directory.

use super::Finish;
use crate::live::Mode;
use crate::run_directory::files::{WriteError, write_result, write_result_with};
use crate::run_directory::output::{self, ClaimError};
use ampere_figures::losses::Losses;
use ampere_figures::summary::{BYTES_MAX as SUMMARY_BYTES_MAX, Head, Summary};
use ampere_report::first::screen::Screen;
use ampere_report::json;
use std::path::{Path, PathBuf};

/// The reason why results are not in the output directory, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error(transparent)]
    Output(#[from] ClaimError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Render(#[from] ampere_report::ReportError),
    #[error("cannot read {}: {why}", path.display())]
    Read { path: PathBuf, why: std::io::Error },
    #[error("{why}; the figures without a trace are in {}", directory.display())]
    WrittenElsewhere { why: Box<ResultsError>, directory: PathBuf },
}

impl Finish {
    /// Writes the tables, unless those in the output directory are more complete than the remaining records.
    pub(super) fn write_figures(&self, summary: &Summary) -> Result<(), ResultsError> {
        match has_more_events(&self.run.options.output, summary) {
            true => end_running(&self.run.options.output),
            false => write_tables(&self.run.options.output, summary),
        }
    }

    /// Writes the final tables. If the disk has no room for them, those that were written before the trace stay.
    /// `keeps_tables`: the tables on disk are equal to the final ones.
    pub(super) fn write_final_figures(
        &self,
        summary: &Summary,
        keeps_tables: bool,
    ) -> Result<(), ResultsError> {
        let directory = &self.run.options.output;
        let is_described =
            keeps_tables && !has_more_events(directory, summary) && describe_tables(directory, summary);
        if is_described { Ok(()) } else { self.write_figures(summary) }
    }

    pub(super) fn write_final_page(&self, summary: &Summary) {
        if let Err(why) = self.write_page(summary) {
            eprintln!("ampere-collector: {why}: ampere report -f html makes it from summary.json");
        }
    }

    /// Writes figures that cannot be written to the output directory, for the reason `why`, to the directory of temporary files,
    /// because they would be lost when this process ends. The records are handled separately.
    pub(super) fn write_elsewhere(&self, why: ResultsError) -> ResultsError {
        if self.run.options.mode != Mode::Collector {
            return why; // `ampere recover -o` may name another directory
        }
        let directory = std::env::temp_dir().join(output::default_directory(&self.run.options.run_id));
        let is_made = ampere_owned::make(&directory, ampere_owned::PRIVATE_MODE).is_ok();
        let mut summary = self.run.summary(false);
        summary.run.lacks(format!("{why}: these figures were written elsewhere, without a trace"));
        if is_made && write_results(&directory, &summary).is_ok() {
            if !self.run.ingest.spool.directory.exists() {
                self.remove_records();
            }
            return ResultsError::WrittenElsewhere { why: Box::new(why), directory };
        }
        why
    }

    /// Writes the page of the figures that are in the directory.
    fn write_page(&self, summary: &Summary) -> Result<(), ResultsError> {
        let directory = &self.run.options.output;
        if output::holds_foreign_page(directory, &summary.run.id) {
            return Ok(()); // a note reports it
        }
        if !has_more_events(directory, summary) {
            return write_page(directory, summary);
        }
        write_page(directory, &read_summary(directory)?)
    }
}

/// Whether the directory already has figures of the same run with more events. If the disk was full, the records end early and
/// the figures do not.
pub fn has_more_events(directory: &Path, summary: &Summary) -> bool {
    let there = Head::of(&directory.join("summary.json")).filter(|there| there.run.id == summary.run.id);
    let events = |quality: &Losses| quality.records.events.saturating_add(quality.records.coalesced_calls);
    there.is_some_and(|there| events(&there.quality) > events(&summary.quality))
}

/// Writes `summary.json`, `summary.txt` and `report.html`, each completely or not at all.
pub fn write_results(directory: &Path, summary: &Summary) -> Result<(), ResultsError> {
    write_tables(directory, summary)?;
    write_page(directory, summary)
}

/// Writes the same files as [`write_results`], but leaves a page of another run as it is.
pub(super) fn write_results_among_others(directory: &Path, summary: &Summary) -> Result<(), ResultsError> {
    write_tables(directory, summary)?;
    let is_foreign = output::holds_foreign_page(directory, &summary.run.id);
    if is_foreign { Ok(()) } else { write_page(directory, summary) }
}

/// Writes `summary.json`, completely or not at all.
pub(crate) fn write_summary(directory: &Path, summary: &Summary) -> Result<(), ResultsError> {
    Ok(write_result_with(&directory.join("summary.json"), |file| json::write(file, summary))?)
}

/// Writes a new description of the run in front of the existing tables. Returns whether that was possible.
fn describe_tables(directory: &Path, summary: &Summary) -> bool {
    let path = directory.join("summary.json");
    let Ok(mut earlier) = ampere_owned::open_own(&path) else { return false };
    write_result_with(&path, |file| json::write_with_tables_of(&mut earlier, file, summary)).is_ok()
        && write_text(directory, summary).is_ok()
}

/// Keeps the figures that were written during the run, because they contain more than the remaining records, and marks the run as
/// ended.
fn end_running(directory: &Path) -> Result<(), ResultsError> {
    let mut known = read_summary(directory)?;
    if !std::mem::take(&mut known.run.running) {
        return Ok(());
    }
    known.run.lacks(format!(
        "the run was killed, and its last records are lost: the figures are those that were last written, at {}",
        known.run.end
    ));
    write_tables(directory, &known)
}

pub(super) fn read_summary(directory: &Path) -> Result<Summary, ResultsError> {
    let path = directory.join("summary.json");
    let known =
        ampere_owned::read(&path, SUMMARY_BYTES_MAX).and_then(|text| Ok(serde_json::from_slice(&text)?));
    known.map_err(|why| ResultsError::Read { path, why })
}

fn write_tables(directory: &Path, summary: &Summary) -> Result<(), ResultsError> {
    write_summary(directory, summary)?;
    write_text(directory, summary)
}

fn write_text(directory: &Path, summary: &Summary) -> Result<(), ResultsError> {
    Ok(write_result(&directory.join("summary.txt"), ampere_report::text::render(summary, Screen::FILE))?)
}

fn write_page(directory: &Path, summary: &Summary) -> Result<(), ResultsError> {
    let page = ampere_report::page_of(summary);
    Ok(write_result(&directory.join(output::PAGE), page)?)
}
