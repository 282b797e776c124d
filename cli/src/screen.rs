//! A few lines at the bottom of the terminal that stay while the command's own output scrolls above them.

use rustix::termios::tcgetwinsize;
use std::io::Write;

/// The terminal's scrolling region is what lies above. Dropping it gives the terminal back as it was.
pub struct Screen {
    rows: u16,
    height: u16,
    width: usize,
}

impl Screen {
    /// `None` if the terminal is too small to share.
    pub fn open(rows: u16) -> Option<Screen> {
        let size = tcgetwinsize(std::io::stderr()).ok()?;
        if size.ws_row < rows + 8 || size.ws_col < 40 {
            return None;
        }
        let screen = Screen { rows, height: size.ws_row, width: usize::from(size.ws_col) };
        // Make room, then keep scrolling out of it: "\x1b7" and "\x1b8" save and restore the cursor around the change.
        let top = screen.height - rows;
        let make_room = "\n".repeat(usize::from(rows));
        screen.print(&format!("{make_room}\x1b[{rows}A\x1b7\x1b[1;{top}r\x1b8"));
        Some(screen)
    }

    pub fn draw(&mut self, lines: &[String]) {
        let mut text = String::from("\x1b7");
        for row in 0..self.rows {
            let at = self.height - self.rows + row + 1;
            let line = lines.get(usize::from(row)).map_or("", String::as_str);
            text.push_str(&format!("\x1b[{at};1H\x1b[2K{}", clip(line, self.width)));
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
        let mut text = String::from("\x1b7\x1b[r");
        for row in 0..self.rows {
            text.push_str(&format!("\x1b[{};1H\x1b[2K", self.height - self.rows + row + 1));
        }
        text.push_str("\x1b8");
        self.print(&text);
    }
}

/// The first `width` visible characters; escape sequences take no room.
fn clip(line: &str, width: usize) -> String {
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
