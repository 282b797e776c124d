//! Messages about a run, one line each, for the summary and the terminal.

/// The notes that are kept; more than a reader can use.
const MOST_NOTES: usize = 1000;

/// The notes of a run, and whether one of them is about something that is lost.
#[derive(Debug, Default)]
pub struct Notes {
    lines: Vec<String>,
    is_incomplete: bool,
}

impl Notes {
    /// Adds a line, unless it is there already or there are too many.
    pub fn add(&mut self, line: impl Into<String>) {
        let line = line.into();
        if self.lines.len() < MOST_NOTES && !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    pub fn extend(&mut self, lines: impl IntoIterator<Item = String>) {
        lines.into_iter().for_each(|line| self.add(line));
    }

    /// Something of the run is lost: it is incomplete from now on.
    pub fn add_loss(&mut self, line: impl Into<String>) {
        self.is_incomplete = true;
        self.add(line);
    }

    pub fn set_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}
