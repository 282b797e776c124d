//! Findings of the doctor, for people or as JSON: one line each, which is wrapped on a terminal.

use ampere_model::text::{plural, wrapped};
use ampere_report::first::screen::Screen;
use serde::Serialize;
use std::io::{self, Write};

/// The status of a finding, which is the first word of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The checked part is present and works.
    Ok,
    /// The checked part is missing or deserves attention, but `ampere run` works.
    Note,
    /// `ampere run` does not work, or measures nothing, until this is corrected.
    Problem,
}

/// A finding: the result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub group: &'static str,
    pub name: String,
    pub status: Status,
    pub found: String,
    pub advice: Option<String>,
}

/// The findings of one group, in order.
pub struct Group {
    name: &'static str,
    pub checks: Vec<Check>,
}

impl Group {
    pub fn new(name: &'static str) -> Group {
        Group { name, checks: Vec::new() }
    }

    pub fn ok(&mut self, name: &str, found: impl Into<String>) {
        self.add(name, Status::Ok, found.into(), None);
    }

    pub fn note(&mut self, name: &str, found: impl Into<String>, advice: Option<String>) {
        self.add(name, Status::Note, found.into(), advice);
    }

    pub fn problem(&mut self, name: &str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(name, Status::Problem, found.into(), Some(advice.into()));
    }

    pub fn add(&mut self, name: &str, status: Status, found: String, advice: Option<String>) {
        let (found, advice) = (line(&found), advice.map(|advice| line(&advice)));
        let advice = advice.filter(|advice| !advice.is_empty());
        self.checks.push(Check { group: self.name, name: line(name), status, found, advice });
    }
}

/// Puts a text on one line: texts of programs, libraries and the kernel may contain line ends and control characters.
fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).collect()
}

/// Whether `ampere run` can work here.
pub fn is_ok(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.status != Status::Problem)
}

/// Advice may end with a line for the reader's shell, which begins with this word. The line is not wrapped, so that it can be
/// copied.
const SHELL_LINE: &str = "export ";
/// Lines of a finding after the first one are indented at most to this column.
const INDENT_MAX: usize = 30;
/// Longer names do not widen the column of names.
const NAME_WIDTH_MAX: usize = 24;

/// Prints the findings. `screen`: the terminal, if the output is one.
pub fn print(checks: &[Check], title: &str, screen: Option<Screen>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{title}")?;
    let mut group = "";
    for check in checks {
        if check.group != group {
            group = check.group;
            writeln!(out, "\n{group}")?;
        }
        let same_group = || checks.iter().filter(|other| other.group == check.group);
        let width =
            same_group().map(|other| other.name.chars().count()).max().unwrap_or(0).min(NAME_WIDTH_MAX);
        let (word, code) = match check.status {
            Status::Ok => ("ok", 32),
            Status::Note => ("note", 33),
            Status::Problem => ("problem", 31),
        };
        let mark = format!("{word:<7}");
        let advice = check.advice.as_ref().map_or_else(String::new, |advice| format!(" -> {advice}"));
        let text = format!("{}{advice}", check.found);
        let Some(screen) = screen else {
            writeln!(out, "  {mark}  {:<width$}  {text}", check.name)?;
            continue;
        };
        let command = text[check.found.len()..].find(SHELL_LINE).map(|at| check.found.len() + at);
        let (text, command) = text.split_at(command.unwrap_or(text.len()));
        let indent = "  problem  ".len() + width + 2;
        let mark = if screen.colour { format!("\x1b[{code}m{mark}\x1b[0m") } else { mark };
        let head = format!("  {mark}  {:<width$}  ", check.name);
        for (at, text) in wrapped(text.trim_end(), screen.width - indent.min(INDENT_MAX)).iter().enumerate() {
            let indent = if at == 0 { 0 } else { indent.min(INDENT_MAX) };
            writeln!(out, "{}{:indent$}{text}", if at == 0 { &head } else { "" }, "")?;
        }
        if !command.is_empty() {
            writeln!(out, "    {command}")?;
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (problems, notes) = (count(Status::Problem), count(Status::Note));
    let verdict = if problems == 0 {
        format!("ampere run works here: {}", plural(notes as u64, "note"))
    } else {
        format!(
            "ampere run does not work here: {}, {}",
            plural(problems as u64, "problem"),
            plural(notes as u64, "note")
        )
    };
    writeln!(out, "\n{verdict}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_one_line() {
        let mut group = Group::new("things");
        group.ok("a", "fine\n  and  \x1b[31mgood");
        group.note("longer", "odd", Some(String::new()));
        group.problem("b", "broken", "mend\nit");
        let mut out = Vec::new();
        print(&group.checks, "title", None, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "title\n\nthings\n  ok       a       fine and [31mgood\n  note     longer  odd\n  problem  b       broken -> mend it\n\n\
             ampere run does not work here: 1 problem, 1 note\n"
        );
        assert!(!is_ok(&group.checks) && is_ok(&group.checks[..2]));
    }

    #[test]
    fn a_terminal_wraps_findings_but_no_line_for_the_shell() {
        let mut group = Group::new("things");
        group.ok("a", "word ".repeat(30));
        let line = format!("export LD_LIBRARY_PATH={}", "/long".repeat(20));
        group.note("longer", "not found", Some(format!("without ampere run: {line}")));
        for width in [60, 80, 120] {
            let mut out = Vec::new();
            print(&group.checks, "title", Some(Screen::new(width, false)), &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.lines().any(|shown| shown.trim_start() == line), "{text}");
            let others = text.lines().filter(|shown| !shown.contains("export"));
            assert!(others.clone().all(|shown| shown.chars().count() <= width), "{text}");
            assert!(text.contains("\n                   word"), "later lines begin below the first: {text}");
            let words = others.flat_map(str::split_whitespace).filter(|word| *word == "word").count();
            assert_eq!(words, 30, "{text}");
        }
    }
}
