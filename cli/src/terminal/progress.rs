//! How far a trace has been read, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

pub struct Progress(ProgressBar);

impl Default for Progress {
    fn default() -> Progress {
        Progress(ProgressBar::hidden())
    }
}

impl Progress {
    /// To be called with the events that are done, and those to expect. Short traces show no bar.
    pub fn step(&self) -> impl FnMut(u64, u64) {
        |done, expected| {
            if done > 0 && self.0.is_hidden() && std::io::stderr().is_terminal() {
                self.0.set_draw_target(ProgressDrawTarget::stderr());
                let style =
                    ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} events, {eta} left");
                self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            }
            self.0.set_length(expected);
            self.0.set_position(done);
        }
    }

    pub fn end(self) {
        self.0.finish_and_clear();
    }
}
