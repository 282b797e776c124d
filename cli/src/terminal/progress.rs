//! Shows progress in a line on the terminal, which is updated a few times per second. Without a terminal, nothing is shown.

use ampere_model::text::first_words;
use ampere_report::text::bar;
use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PERIOD_MS: u64 = 100;
/// The width of the bar in characters.
const BAR: usize = 24;

/// A line on the terminal. Dropping it clears the line.
pub struct StatusLine {
    begun: Instant,
    is_terminal: bool,
    /// The time at which the line is written next, in milliseconds since the start; 0 until it is first written.
    due_ms: AtomicU64,
}

impl Default for StatusLine {
    fn default() -> StatusLine {
        let is_terminal = std::io::stderr().is_terminal();
        StatusLine { begun: Instant::now(), is_terminal, due_ms: AtomicU64::new(0) }
    }
}

impl StatusLine {
    /// Whether nothing is shown, because standard error is not a terminal.
    pub fn is_hidden(&self) -> bool {
        !self.is_terminal
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Writes the line if it is due. `part` is the completed fraction, if that is known.
    pub fn write(&self, part: Option<f64>, words: impl FnOnce() -> String) {
        let now = self.elapsed().as_millis() as u64;
        if self.is_hidden() || now < self.due_ms.load(Ordering::Relaxed) {
            return;
        }
        self.due_ms.store(now + PERIOD_MS, Ordering::Relaxed);
        let bar = part.map_or_else(String::new, |part| format!("{:<BAR$} ", bar(part, 1.0)));
        let columns = tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let line = first_words(&format!("{bar}{}", words()), columns.max(20) - 1);
        print(&format!("\r{line}\x1b[K"));
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if self.due_ms.load(Ordering::Relaxed) > 0 {
            print("\r\x1b[K");
        }
    }
}

fn print(text: &str) {
    let mut terminal = std::io::stderr().lock();
    let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
}

/// Shows how much has been read, and the remaining time.
pub struct Progress {
    line: StatusLine,
    /// The unit of the numbers, such as "events".
    unit: &'static str,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::of("events")
    }
}

impl Progress {
    pub fn of(unit: &'static str) -> Progress {
        Progress { line: StatusLine::default(), unit }
    }

    /// Returns a function that is called with the completed and the total number.
    pub fn step(&self) -> impl FnMut(u64, u64) {
        |done, expected| {
            if done > 0 && expected > 0 {
                let remaining =
                    self.line.elapsed().as_secs_f64() * expected.saturating_sub(done) as f64 / done as f64;
                self.line.write(Some(done as f64 / expected as f64), || {
                    format!("{done} of {expected} {}, {remaining:.0} s left", self.unit)
                });
            }
        }
    }

    pub fn end(self) {}
}
