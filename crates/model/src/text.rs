//! Formats text for people: names that are safe for a terminal, and errors on one line.

use crate::digits::{MEASURED, significant};
use std::borrow::Cow;

/// Replaces characters that are not safe in a terminal. Names come from the application. No control character may reach a
/// terminal, nor a character that changes the direction of writing, because it could change the meaning of a line.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_printable(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Like [`printable`], for a text of several lines, in which tabs are kept, too.
pub fn printable_lines(text: &str) -> String {
    let stays = |c| is_printable(c) || matches!(c, '\n' | '\t');
    text.chars().map(|c| if stays(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

fn is_printable(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns
}

/// Shortens a name to at most `longest` characters and makes it safe to print.
pub fn short(text: &str, longest: usize) -> String {
    let text = printable(text);
    let count = text.chars().count();
    if count <= longest {
        return text;
    }
    if longest == 0 {
        return String::new();
    }
    let head: String = text.chars().take(longest * 2 / 3).collect();
    let tail: String = text.chars().skip(count - (longest - longest * 2 / 3 - 1)).collect();
    format!("{head}…{tail}")
}

/// Like [`short`], for names that must stay different: a text that is cut gets a hash of the whole, because names of templates
/// often differ only in their middle.
pub fn short_distinct(text: &str, longest: usize) -> String {
    match text.chars().nth(longest) {
        None => short(text, longest),
        Some(_) => format!("{}#{:08x}", short(text, longest.saturating_sub(9)), fnv1a(text.bytes()) as u32),
    }
}

/// Returns the first words of a sentence, in at most `longest` characters that are safe to print. Names are cut in their middle
/// by [`short`], but a sentence without its middle cannot be understood.
pub fn first_words(text: &str, longest: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= longest {
        return text;
    }
    let fitting: String = text.chars().take(longest.saturating_sub(1)).collect();
    let ends_a_word = text.chars().nth(longest.saturating_sub(1)) == Some(' ');
    let words = fitting.rsplit_once(' ').filter(|_| !ends_a_word);
    let whole = words.map_or(fitting.as_str(), |(words, _)| words);
    // A sentence may be a single path.
    let kept = if whole.chars().count() >= longest / 2 { whole } else { &fitting };
    format!("{}…", kept.trim_end_matches([' ', ',', ':', ';']))
}

/// Formats a number with its noun: `1 ring`, `2 rings`, `2 processes`.
pub fn plural(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ if noun.ends_with('s') => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// Returns the FNV-1a hash of bytes or other numbers. It is the same in every process and version.
pub fn fnv1a(numbers: impl IntoIterator<Item = impl Into<u64>>) -> u64 {
    numbers
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, number| (hash ^ number.into()).wrapping_mul(0x0100_0000_01b3))
}

/// A text of limited size: writing more than `bytes_max` bytes to it is an error, which stops the writer.
#[derive(Debug)]
pub struct Bounded {
    /// The text that was written.
    pub text: String,
    /// The maximum size of the text.
    pub bytes_max: usize,
}

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        if self.text.len() + more.len() > self.bytes_max {
            return Err(std::fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

/// Formats joules that are in no column.
pub fn joules(value: f64) -> String {
    significant(value, MEASURED)
}

/// Whether two words are a number and its unit, such as `12` and `kJ,`.
fn is_number_with_unit(number: &str, unit: &str) -> bool {
    const UNITS: [&str; 10] = ["%", "J", "kJ", "MJ", "mJ", "Wh", "W", "kW", "s", "ms"];
    let unit = unit.trim_end_matches([',', ';', ':', '.', ')']);
    number.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit)
}

/// Returns a text in lines of at most `room` characters. A longer word, such as a path, is divided. A number and its unit are on
/// one line.
pub fn wrapped(text: &str, room: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        let unit = words.next_if(|next| is_number_with_unit(word, next));
        let word = &*unit.map_or(Cow::Borrowed(word), |unit| Cow::Owned(format!("{word} {unit}")));
        match lines.last_mut().filter(|line| length(line) + 1 + length(word) <= room) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None if word.is_empty() => lines.push(String::new()),
            None => {
                let characters: Vec<char> = word.chars().collect();
                lines.extend(characters.chunks(room.max(1)).map(String::from_iter));
            }
        }
    }
    lines
}

/// Formats an error with its causes, on one line that is safe to print. Causes that the error has already named are left out.
pub fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let words = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        if !line.contains(&words) {
            let separator = if line.is_empty() { "" } else { ": " };
            line = format!("{line}{separator}{words}");
        }
        cause = error.source();
    }
    printable(&line)
}

/// Joins names; those that differ only in their last number are shown as a range: `MPI Rank 0-3, 7`.
pub fn compact(names: &[&str]) -> String {
    const SHOWN_MAX: usize = 6;
    let mut parts: Vec<(String, Option<u64>, Option<u64>)> = Vec::new();
    // In "node007", the zeros before the number belong to it.
    let mut widths: Vec<usize> = Vec::new();
    for name in names {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (stem, number) = name.split_at(name.len() - digits);
        let is_filled = digits > 1 && number.starts_with('0');
        let width = if is_filled || widths.last() == Some(&digits) { digits } else { 0 };
        let number = number.parse::<u64>().ok();
        match (parts.last_mut(), number) {
            (Some((known, Some(_), Some(last))), Some(number))
                if known == stem && last.checked_add(1) == Some(number) && widths.last() == Some(&width) =>
            {
                *last = number;
            }
            _ => {
                parts.push((stem.to_owned(), number, number));
                widths.push(width);
            }
        }
    }
    let mut before = None;
    let mut texts = Vec::new();
    for ((stem, first, last), width) in parts.iter().zip(widths) {
        let numbers = match (first, last) {
            // "GPU-0..3": a second dash could be read as a part of the name.
            (Some(first), Some(last)) if first < last && stem.ends_with('-') => {
                format!("{first:0width$}..{last:0width$}")
            }
            (Some(first), Some(last)) if first < last => format!("{first:0width$}-{last:0width$}"),
            (Some(first), _) => format!("{first:0width$}"),
            _ => String::new(),
        };
        // The name is not repeated.
        let again = before == Some(stem) && !numbers.is_empty();
        texts.push(if again { numbers } else { format!("{stem}{numbers}") });
        before = Some(stem);
    }
    listed(texts.iter(), SHOWN_MAX)
}

/// Joins the first `limit` names, and adds the number of the others: `a, b and 3 more`.
pub fn listed(names: impl ExactSizeIterator<Item = impl AsRef<str>>, limit: usize) -> String {
    let more = names.len().saturating_sub(limit);
    let named: Vec<String> = names.take(limit).map(|name| name.as_ref().to_owned()).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_with_its_unit() {
        assert_eq!(wrapped("joules -53 %, 2237 J of 4 s", 12), ["joules", "-53 %,", "2237 J of", "4 s"]);
        assert_eq!(wrapped("rank 3 s", 6), ["rank", "3 s"]);
    }

    #[test]
    fn long_names_that_differ_in_the_middle_stay_two() {
        let kernel = |functor: &str| format!("void {}<{functor}>({})", "a::".repeat(40), "int, ".repeat(40));
        let [one, other] = ["Fill", "Sum"].map(|functor| short_distinct(&kernel(functor), 100));
        assert_ne!(one, other);
        assert_eq!((one.chars().count(), short_distinct(&one, 100)), (100, one.clone()));
    }

    #[test]
    fn a_hostile_name_is_only_a_name() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(
            printable("\u{9b}2J \u{202e}evil\u{2066} é 日本"),
            "\u{fffd}2J \u{fffd}evil\u{fffd} é 日本"
        );
    }

    #[test]
    fn a_long_sentence_keeps_its_first_words() {
        let sentence = "other programs ran on the node; its joules are shared";
        assert_eq!(first_words(sentence, 80), sentence);
        assert_eq!(first_words(sentence, 36), "other programs ran on the node; its…");
        assert_eq!(first_words(sentence, 34), "other programs ran on the node…");
        assert_eq!(first_words(&format!("in {}", "x".repeat(50)), 20), format!("in {}…", "x".repeat(16)));
    }

    #[test]
    fn causes_are_named_once() {
        #[derive(Debug)]
        struct Caused(&'static str, Option<Box<Caused>>);
        impl std::fmt::Display for Caused {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl std::error::Error for Caused {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                self.1.as_deref().map(|cause| cause as _)
            }
        }
        let because = |text, cause| Caused(text, Some(Box::new(cause)));
        let error = because("cannot go on", because("cannot write /x: no room", Caused("no room", None)));
        assert_eq!(one_line(&error), "cannot go on: cannot write /x: no room");
        assert_eq!(one_line(&Caused("two\n  lines", None)), "two lines");
    }

    #[test]
    fn names_with_numbers_are_ranges() {
        for (names, expected) in [
            (&["MPI Rank 0"][..], "MPI Rank 0"),
            (&["MPI Rank 0", "MPI Rank 1", "MPI Rank 2"], "MPI Rank 0-2"),
            (&["MPI Rank 0", "MPI Rank 1", "MPI Rank 7"], "MPI Rank 0-1, 7"),
            (&["MPI Rank 8", "MPI Rank 9", "MPI Rank 10"], "MPI Rank 8-10"),
            (&["node098", "node099", "node100", "node103"], "node098-100, 103"),
            (&["Process"], "Process"),
            (&["Process/HIP[0:0]", "Process/HIP[0:1]"], "Process/HIP[0:0], Process/HIP[0:1]"),
            (&["a", "b", "c", "d", "e", "f", "g", "h"], "a, b, c, d, e, f and 2 more"),
        ] {
            assert_eq!(compact(names), expected);
        }
    }
}
