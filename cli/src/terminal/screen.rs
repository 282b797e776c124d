//! A few lines at the bottom of the terminal that stay while the command's own output scrolls above them.

use super::paint;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use rustix::termios::{LocalModes, Termios, tcgetattr, tcgetpgrp, tcgetwinsize};
use std::io::Write;

/// Lines at the bottom of the terminal. Only the lines above them scroll. Dropping this restores the terminal.
pub struct Screen {
    rows: u16,
    /// The terminal's lines and columns when its region was set; `None` while it is not shared.
    size: Option<(u16, u16)>,
    /// Whether the command has had the terminal for itself, so that nothing is drawn any more.
    is_taken: bool,
}

/// Whether another process group, usually the shell's, has the terminal.
fn is_in_background() -> bool {
    tcgetpgrp(std::io::stderr()).is_ok_and(|group| group != rustix::process::getpgrp())
}

/// Whether the command reads single keys from the terminal, as editors, pagers and interpreters do. Such programs draw there.
pub fn is_taken() -> bool {
    let takes_lines = |modes: Termios| modes.local_modes.contains(LocalModes::ICANON);
    !is_in_background() && tcgetattr(std::io::stderr()).is_ok_and(|modes| !takes_lines(modes))
}

impl Screen {
    /// Makes a screen that draws in `rows` lines at the bottom. Returns `None` if the terminal is too small to share.
    pub fn open(rows: u16) -> Option<Screen> {
        let screen = Screen { rows, size: None, is_taken: false };
        screen.usable_size().is_some().then_some(screen)
    }

    /// Returns the size of the terminal if it can be shared.
    fn usable_size(&self) -> Option<(u16, u16)> {
        let size = tcgetwinsize(std::io::stderr()).ok().map(|size| (size.ws_row, size.ws_col));
        size.filter(|(lines, columns)| *lines >= self.rows + 8 && *columns >= 40 && !is_in_background())
    }

    /// Returns the number of lines of the terminal.
    pub fn terminal_lines() -> u16 {
        tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_row)
    }

    /// Sets the region, and sets it again if the size of the terminal has changed.
    fn fit(&mut self) {
        self.is_taken |= is_taken();
        let usable = self.usable_size().filter(|_| !self.is_taken);
        if usable == self.size {
            return;
        }
        if self.size.is_some() {
            // Terminals differ in where the old lines are after a change of size, so everything from the cursor on is wiped,
            // unless the command has drawn there.
            let wipe = if self.is_taken { "" } else { "\x1b[J" };
            self.print(&format!("\x1b7\x1b[r\x1b8{wipe}"));
        }
        if let Some((lines, _)) = usable {
            // Make room, then exclude it from scrolling. "\x1bD" moves down in the same column, because the command may have written
            // a part of a line; "\x1b7" and "\x1b8" save and restore the cursor around the change.
            let (top, rows) = (lines - self.rows, self.rows);
            let make_room = "\x1bD".repeat(usize::from(rows));
            self.print(&format!("{make_room}\x1b[{rows}A\x1b7\x1b[1;{top}r\x1b8"));
        }
        self.size = usable;
    }

    /// Draws the picture that `picture` makes for an area of the terminal.
    pub fn draw(&mut self, picture: impl FnOnce(Rect) -> Buffer) {
        self.fit();
        let Some((height, width)) = self.size else { return };
        let area = Rect::new(0, height - self.rows, width, self.rows);
        let picture = paint::whole(&picture(area));
        self.print(&format!("\x1b7{}{picture}\x1b8", self.wiped(height)));
    }

    /// Restores the terminal until the next picture.
    pub fn close(&mut self) {
        if let Some((height, _)) = self.size.take() {
            self.print(&format!("\x1b7\x1b[r{}\x1b8", self.wiped(height)));
        }
    }

    /// Returns the codes that empty the lines of the screen.
    fn wiped(&self, height: u16) -> String {
        let lines = height - self.rows + 1..=height;
        lines.map(|line| format!("\x1b[{line};1H\x1b[2K")).collect()
    }

    fn print(&self, text: &str) {
        let mut terminal = std::io::stderr().lock();
        let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
        if self.is_taken && !is_in_background() {
            // When a full-screen program exits, the terminal shows its earlier contents again, including our lines.
            self.print("\x1b[J");
        }
    }
}
