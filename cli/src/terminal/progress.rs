//! How far a trace has been read, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

pub struct Progress {
    bar: ProgressBar,
    /// What is counted.
    unit: &'static str,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::of("events")
    }
}

impl Progress {
    pub fn of(unit: &'static str) -> Progress {
        Progress { bar: ProgressBar::hidden(), unit }
    }

    /// To be called with the events that are done, and those to expect. Short traces show no bar.
    pub fn step(&self) -> impl FnMut(u64, u64) {
        |done, expected| {
            if done > 0 && self.bar.is_hidden() && std::io::stderr().is_terminal() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
                let template =
                    format!("{{bar:40}} {{human_pos}} of {{human_len}} {}, {{eta}} left", self.unit);
                let style = ProgressStyle::with_template(&template);
                self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            }
            self.bar.set_length(expected);
            self.bar.set_position(done);
        }
    }

    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}
