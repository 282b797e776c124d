//! Messages about a run, one line each, for the summary and the terminal.

use ampere_model::text::short;
use rustc_hash::{FxBuildHasher, FxHashSet};
use std::hash::BuildHasher;

/// The maximum number of notes that are kept, which is more than a reader can use.
const NOTES_MAX: usize = 200;
/// The maximum number of characters of a note, which may contain names and paths of an application.
const NOTE_CHARACTERS_MAX: usize = 1000;

/// The notes of a run, and those of them that report a loss.
#[derive(Debug, Default)]
pub struct Notes {
    lines: Vec<String>,
    losses: Vec<String>,
    /// Hashes of the notes for which there was no place.
    left_out: FxHashSet<u64>,
}

impl Notes {
    /// Adds a note, unless the same one exists or there are too many.
    pub fn add(&mut self, line: impl Into<String>) {
        let line = cut(line.into());
        if self.lines.contains(&line) {
            return;
        }
        match self.lines.len() < NOTES_MAX {
            true => self.lines.push(line),
            false => _ = self.left_out.insert(FxBuildHasher.hash_one(&line)),
        }
    }

    pub fn extend(&mut self, lines: impl IntoIterator<Item = String>) {
        lines.into_iter().for_each(|line| self.add(line));
    }

    /// Adds a note about a loss, which makes the run incomplete.
    pub fn add_loss(&mut self, line: impl Into<String>) {
        let line = cut(line.into());
        if !self.losses.contains(&line) && self.losses.len() < NOTES_MAX {
            self.losses.push(line.clone());
        }
        self.add(line);
    }

    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Returns the notes about losses.
    pub fn losses(&self) -> &[String] {
        &self.losses
    }

    /// Returns these notes and others that are made at the end, within the limits on their number and length.
    pub fn with(&self, others: Vec<String>) -> Vec<String> {
        let mut all: Vec<String> = self.lines.iter().cloned().chain(others.into_iter().map(cut)).collect();
        // The notes that are made at the end are sums over the run, so they are kept.
        let left_out = self.left_out.len() + all.len().saturating_sub(NOTES_MAX);
        if left_out > 0 {
            let after = self.lines.len().min(NOTES_MAX / 2);
            all.drain(after..after + all.len().saturating_sub(NOTES_MAX));
            all.push(format!("{left_out} further notes are left out"));
        }
        all
    }
}

fn cut(line: String) -> String {
    match line.len() <= NOTE_CHARACTERS_MAX {
        true => line,
        false => short(&line, NOTE_CHARACTERS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_have_a_limit_in_number_and_length() {
        let mut notes = Notes::default();
        (0..1000).for_each(|number| notes.add(format!("{number} {}", "x".repeat(5000))));
        notes.add(notes.lines()[0].clone());
        notes.add(format!("999 {}", "x".repeat(5000)));
        let all = notes.with((0..50).map(|number| format!("at the end {number}")).collect());
        assert_eq!((notes.lines().len(), all.len()), (NOTES_MAX, NOTES_MAX + 1));
        assert!(all.iter().all(|note| note.chars().count() <= NOTE_CHARACTERS_MAX));
        assert_eq!(all[NOTES_MAX], "850 further notes are left out");
        assert_eq!(all[NOTES_MAX - 1], "at the end 49");
        assert_eq!(Notes::default().with(vec!["one".to_owned()]), ["one"]);
    }
}
