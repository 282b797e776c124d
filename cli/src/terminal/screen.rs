//! A few lines at the bottom of the terminal that stay while the command's own output scrolls above them.

use rustix::termios::{tcgetpgrp, tcgetwinsize};
use std::io::Write;

/// The terminal's scrolling region is what lies above. Dropping it gives the terminal back as it was.
pub struct Screen {
    rows: u16,
    /// Size of the terminal when its region was set: (lines, columns). `None` while it is too small to share.
    size: Option<(u16, u16)>,
}

/// Another process group has the terminal, mostly the shell's.
fn is_in_background() -> bool {
    tcgetpgrp(std::io::stderr()).is_ok_and(|group| group != rustix::process::getpgrp())
}

impl Screen {
    /// `None` if the terminal is too small to share.
    pub fn open(rows: u16) -> Option<Screen> {
        let mut screen = Screen { rows, size: None };
        screen.fit();
        screen.size.is_some().then_some(screen)
    }

    /// Lines of the terminal that this program writes to.
    pub fn terminal_lines() -> u16 {
        tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_row)
    }

    /// Sets the region anew if the terminal has another size than it had.
    fn fit(&mut self) {
        let size = tcgetwinsize(std::io::stderr()).ok().map(|size| (size.ws_row, size.ws_col));
        let is_usable = |(lines, columns): &(u16, u16)| *lines >= self.rows + 8 && *columns >= 40;
        let usable = size.filter(|size| is_usable(size) && !is_in_background());
        if usable == self.size {
            return;
        }
        if self.size.is_some() {
            // Where the old lines went is the terminal's choice: everything from the cursor on is wiped.
            self.print("\x1b7\x1b[r\x1b8\x1b[J");
        }
        if let Some((lines, _)) = usable {
            // Make room, then keep scrolling out of it: "\x1b7" and "\x1b8" save and restore the cursor around the change.
            let (top, rows) = (lines - self.rows, self.rows);
            let make_room = "\n".repeat(usize::from(rows));
            self.print(&format!("{make_room}\x1b[{rows}A\x1b7\x1b[1;{top}r\x1b8"));
        }
        self.size = usable;
    }

    pub fn draw(&mut self, lines: &[String]) {
        self.fit();
        let Some((height, width)) = self.size else { return };
        let mut text = String::from("\x1b7");
        for row in 0..self.rows {
            let at = height - self.rows + row + 1;
            let line = lines.get(usize::from(row)).map_or("", String::as_str);
            text.push_str(&format!("\x1b[{at};1H\x1b[2K{}", clip(line, usize::from(width))));
        }
        text.push_str("\x1b8");
        self.print(&text);
    }

    fn print(&self, text: &str) {
        let mut terminal = std::io::stderr().lock();
        let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let Some((height, _)) = self.size else { return };
        let mut text = String::from("\x1b7\x1b[r");
        for row in 0..self.rows {
            text.push_str(&format!("\x1b[{};1H\x1b[2K", height - self.rows + row + 1));
        }
        text.push_str("\x1b8");
        self.print(&text);
    }
}

/// The first `width` visible characters; escape sequences take no room.
pub fn clip(line: &str, width: usize) -> String {
    let (mut out, mut seen, mut in_escape) = (String::new(), 0, false);
    for c in line.chars() {
        if in_escape {
            in_escape = !c.is_ascii_alphabetic();
        } else if c == '\x1b' {
            in_escape = true;
        } else if seen == width {
            continue;
        } else {
            seen += 1;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::clip;

    #[test]
    fn escapes_take_no_room() {
        assert_eq!(clip("\x1b[7mabcdef\x1b[0m", 3), "\x1b[7mabc\x1b[0m");
        assert_eq!(clip("ab", 3), "ab");
    }
}
