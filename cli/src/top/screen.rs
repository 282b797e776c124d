//! `ampere top` on the whole terminal.

use super::asked::Asked;
use super::watching::{Answer, Asking, News, Wish, listen, read_keys};
use crate::terminal::full_screen::{self, FullScreen};
use crate::terminal::viewer::{self, LINES_BESIDE_RESULT, View, Viewer};
use ampere_endpoint::token::Token;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

/// A collector that has not answered for this long is shown as silent.
const SILENT_AFTER: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_secs(1);

/// The reason why the screen was left.
enum End {
    /// The user pressed the key that quits.
    Quit,
    Signal(i32),
}

/// Shows a run until the user quits. Returns `None` if there is no terminal.
pub fn show(asked: &Asked, token: Option<&Token>) -> Option<anyhow::Result<ExitCode>> {
    let keys = full_screen::keys()?;
    let (send, news) = channel();
    let open = || -> std::io::Result<_> {
        listen(send.clone())?;
        let screen = FullScreen::open(&keys)?;
        read_keys(keys, send.clone())?;
        Ok((screen, Asking::start(asked, token, send)?))
    };
    let (screen, asking) = match open() {
        Ok(opened) => opened,
        Err(why) => return Some(Err(why.into())),
    };
    let mut shown = Shown {
        screen,
        viewer: Viewer::default(),
        answered: Instant::now(),
        unanswered: None,
        written: None,
    };
    let end = shown.follow(asked, &asking, &news);
    let has_ended = shown.unanswered.is_some() || shown.viewer.has_result();
    drop(shown); // this restores the terminal
    Some(match end {
        End::Signal(signal) => Ok(ExitCode::from(128u8.wrapping_add(signal as u8))),
        End::Quit if has_ended => super::end(asked),
        End::Quit => Ok(ExitCode::SUCCESS),
    })
}

struct Shown {
    screen: FullScreen,
    viewer: Viewer,
    /// The time of the last answer.
    answered: Instant,
    /// The reason why the last request had no answer; `None` if it was answered.
    unanswered: Option<String>,
    /// When the results on the screen were written.
    written: Option<SystemTime>,
}

impl Shown {
    fn follow(&mut self, asked: &Asked, asking: &Asking, news: &Receiver<News>) -> End {
        loop {
            let problem = self.problem(asked);
            if !self.screen.draw(self.viewer.draw(FullScreen::size(), problem.as_deref())) {
                return End::Quit;
            }
            let first = match news.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return End::Quit,
                Ok(first) => first,
            };
            // All messages that have arrived are shown in one picture.
            for one in std::iter::once(first).chain(news.try_iter()) {
                match one {
                    News::Ended(signal) => return End::Signal(signal),
                    News::Resized => {}
                    News::Unanswered(why) => {
                        self.unanswered = Some(why);
                        self.show_result(asked);
                    }
                    News::Figures(answer) => {
                        self.store_answer(*answer);
                        if self.viewer.figures.has_ended {
                            self.show_result(asked);
                        }
                        asking.wish(&self.wish());
                    }
                    News::Key(key) => match self.viewer.press(key) {
                        viewer::Asked::Nothing => {}
                        viewer::Asked::Quit => return End::Quit,
                        viewer::Asked::Suspend if !self.screen.suspend() => return End::Quit,
                        viewer::Asked::Suspend => {}
                        // A view that has just been chosen has no figures yet, so they are requested.
                        viewer::Asked::Figures => {
                            asking.wish(&self.wish());
                            asking.now();
                        }
                    },
                }
            }
        }
    }

    /// Shows the first lines of the result as soon as the results have been written, and each time that they were written again.
    fn show_result(&mut self, asked: &Asked) {
        let written = asked.results_written();
        if written.is_none() || written == self.written || asked.results().is_none() {
            return;
        }
        self.written = written;
        if !self.viewer.has_result() {
            self.viewer.figures.end();
            self.viewer.refresh();
        }
        let (columns, rows) = FullScreen::size();
        if let Some(lines) =
            asked.first_lines(columns.into(), rows.saturating_sub(LINES_BESIDE_RESULT).into())
        {
            self.viewer.show_result(lines);
        }
    }

    fn wish(&self) -> Wish {
        let view = self.viewer.view();
        Wish { page: self.viewer.needs_page(), nodes: view == View::Nodes, rank: self.viewer.rank() }
    }

    fn store_answer(&mut self, answer: Answer) {
        (self.answered, self.unanswered) = (Instant::now(), None);
        let viewer = &mut self.viewer;
        if viewer.is_paused() {
            return;
        }
        viewer.figures.add(answer.snapshot);
        if let Some(page) = answer.page {
            viewer.figures.see_page(page);
            if viewer.view().is_of_page() {
                viewer.figures.show_joules_of_page();
            }
        }
        viewer.figures.job = answer.job.or(viewer.figures.job.take());
        viewer.refresh();
    }

    /// Returns the reason if the figures are old.
    fn problem(&self, asked: &Asked) -> Option<String> {
        let age = self.answered.elapsed();
        if self.viewer.has_result() {
            return Some(asked.end());
        }
        let Some(why) = &self.unanswered else {
            return (age > SILENT_AFTER).then(|| format!("no answer for {} s", age.as_secs()));
        };
        Some(match asked.results() {
            Some(_) => asked.end(),
            None => format!("no answer for {} s; these are the last figures: {why}", age.as_secs()),
        })
    }
}
