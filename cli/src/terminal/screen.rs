//! A few lines at the bottom of the terminal that stay while the command's own output scrolls above them.

use super::paint;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use std::io::Write;

/// Lines at the bottom of the terminal. The scrolling region is what lies above. Dropping this restores the terminal.
pub struct Screen {
    rows: u16,
    /// The terminal's lines and columns when its region was set; `None` while it is too small to share.
    size: Option<(u16, u16)>,
}

/// Whether another process group, mostly the shell's, has the terminal.
fn is_in_background() -> bool {
    tcgetpgrp(std::io::stderr()).is_ok_and(|group| group != rustix::process::getpgrp())
}

impl Screen {
    /// Reserves `rows` lines at the bottom. Returns `None` if the terminal is too small to share.
    pub fn open(rows: u16) -> Option<Screen> {
        let mut screen = Screen { rows, size: None };
        screen.fit();
        screen.size.is_some().then_some(screen)
    }

    /// Returns the number of lines of the terminal.
    pub fn terminal_lines() -> u16 {
        tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_row)
    }

    /// Sets the region again if the size of the terminal has changed.
    fn fit(&mut self) {
        let size = tcgetwinsize(std::io::stderr()).ok().map(|size| (size.ws_row, size.ws_col));
        let is_usable = |(lines, columns): &(u16, u16)| *lines >= self.rows + 8 && *columns >= 40;
        let usable = size.filter(|size| is_usable(size) && !is_in_background());
        if usable == self.size {
            return;
        }
        if self.size.is_some() {
            // Terminals differ in where the old lines are after a change of size, so everything from the cursor on is wiped.
            self.print("\x1b7\x1b[r\x1b8\x1b[J");
        }
        if let Some((lines, _)) = usable {
            // Make room, then exclude it from scrolling. "\x1b7" and "\x1b8" save and restore the cursor around the change.
            let (top, rows) = (lines - self.rows, self.rows);
            let make_room = "\n".repeat(usize::from(rows));
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

    /// Returns the codes that empty the lines of the table.
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
        let Some((height, _)) = self.size else { return };
        self.print(&format!("\x1b7\x1b[r{}\x1b8", self.wiped(height)));
    }
}
