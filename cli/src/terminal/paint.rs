//! Converts the cells of a picture to terminal codes.

use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier};
use ratatui_core::text::Line;
use std::fmt::Write;

/// The code that resets the style.
const PLAIN: &str = "\x1b[0m";

/// Writes a line into a picture. A line that is too long is cut and ends with an ellipsis.
pub fn put(picture: &mut Buffer, x: u16, y: u16, line: &Line) {
    let area = *picture.area();
    if y >= area.bottom() || x >= area.right() {
        return;
    }
    picture.set_line(x, y, line, area.right() - x);
    if Line::from(line.to_string().trim_end()).width() > usize::from(area.right() - x) {
        picture[(area.right() - 1, y)].set_symbol("…");
    }
}

/// Returns the codes that change the picture `from` into `to`. If their sizes differ, the screen is wiped and drawn again.
pub fn change(from: &Buffer, to: &Buffer) -> String {
    if from.area() == to.area() {
        return codes(&from.diff(to));
    }
    format!("{PLAIN}\x1b[2J{}", whole(to))
}

/// Returns the codes for the whole picture on an empty screen.
pub fn whole(picture: &Buffer) -> String {
    codes(&Buffer::empty(*picture.area()).diff(picture))
}

fn codes(cells: &[(u16, u16, &Cell)]) -> String {
    let mut text = String::new();
    let mut next = None;
    let mut style = None;
    for (x, y, cell) in cells {
        if next != Some((*x, *y)) {
            let _ = write!(text, "\x1b[{};{}H", y + 1, x + 1);
        }
        let new = (cell.fg, cell.bg, cell.modifier);
        if style != Some(new) {
            put_style(&mut text, new);
            style = Some(new);
        }
        text.push_str(cell.symbol());
        // Terminals disagree on the width of some characters, so the cursor is positioned again after them.
        let mut chars = cell.symbol().chars();
        let is_simple = matches!((chars.next(), chars.next()), (Some(' '..='~' | '─'..='█'), None));
        next = is_simple.then_some((x + 1, *y));
    }
    if !text.is_empty() {
        text.push_str(PLAIN);
    }
    text
}

fn put_style(text: &mut String, (fg, bg, modifier): (Color, Color, Modifier)) {
    text.push_str("\x1b[0");
    for (set, code) in [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)] {
        if modifier.contains(set) {
            let _ = write!(text, ";{code}");
        }
    }
    for (colour, first) in [(fg, 30), (bg, 40)] {
        let number = match colour {
            Color::Black => 0,
            Color::Red => 1,
            Color::Green => 2,
            Color::Yellow => 3,
            Color::Cyan => 6,
            _ => continue,
        };
        let _ = write!(text, ";{}", first + number);
    }
    text.push('m');
}

/// Returns an empty picture.
pub fn empty(width: u16, height: u16) -> Buffer {
    Buffer::empty(Rect::new(0, 0, width, height))
}

/// Returns a picture's characters, without blanks at the ends of lines.
#[cfg(test)]
pub fn text(picture: &Buffer) -> String {
    let width = usize::from(picture.area().width).max(1);
    let lines = picture.content().chunks(width);
    let lines = lines.map(|cells| cells.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned());
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

/// Like [`text`], with a bar in front of each line, because `expect!` removes indentation that all lines have.
#[cfg(test)]
pub fn framed(picture: &Buffer) -> String {
    text(picture).lines().map(|line| format!("|{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::style::Stylize;

    fn picture(line: Line) -> Buffer {
        let mut picture = empty(8, 2);
        put(&mut picture, 1, 1, &line);
        picture
    }

    #[test]
    fn only_changed_cells_are_written_and_nothing_outside_the_picture() {
        let one = picture("abc".into());
        assert_eq!(whole(&one), "\x1b[2;2H\x1b[0mabc\x1b[0m");
        assert_eq!(change(&one, &one), "");
        assert_eq!(change(&one, &picture("axc".red().into())), "\x1b[2;2H\x1b[0;31maxc\x1b[0m");
        assert_eq!(change(&empty(9, 2), &one), "\x1b[0m\x1b[2J\x1b[2;2H\x1b[0mabc\x1b[0m");
        assert_eq!(text(&picture("a long line".into())), "\n a long…\n");
        assert_eq!(text(&picture("as wide   ".into())), "\n as wide\n");
        put(&mut empty(3, 1), 0, 1, &"below".into());
    }

    #[test]
    fn the_cursor_is_positioned_again_after_a_character_that_may_be_wide() {
        assert_eq!(whole(&picture("é日b".into())), "\x1b[2;2H\x1b[0mé\x1b[2;3H日\x1b[2;5Hb\x1b[0m");
    }

    #[test]
    fn no_control_character_reaches_the_terminal() {
        let hostile = picture("a\x1b]0;t\x07\n\u{9b}".into());
        assert!(!text(&hostile).contains(['\x1b', '\x07', '\u{9b}']), "{}", text(&hostile));
    }
}
