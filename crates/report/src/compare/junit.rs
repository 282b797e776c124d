//! The checks of a comparison as test cases, in the XML of JUnit, which CI systems show next to the tests of a program.

use super::check::Finding;
use super::{Comparison, verdict};
use std::fmt::Write;

pub fn render(comparison: &Comparison) -> String {
    let checks = &comparison.checks;
    let failures = checks.iter().filter(|check| check.finding == Finding::Exceeded).count();
    let counts = format!("tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"0\"", checks.len());
    let groups = comparison.groups.iter().map(|runs| {
        let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        names.join(" ")
    });
    let suite = Vec::from_iter(groups).join(" -- ");
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ampere compare\" {counts}>\n  <testsuite name=\"{}\" {counts}>\n",
        escaped(&suite)
    );
    // Writing to a String cannot fail.
    for check in checks {
        let words = escaped(&check.words);
        let _ = write!(
            out,
            "    <testcase classname=\"ampere.compare\" name=\"{} at most +{} %\">",
            escaped(&check.figure),
            check.allowed_percent
        );
        let _ = match check.finding {
            Finding::Exceeded => {
                write!(out, "<failure type=\"{}\" message=\"{words}\"/>", check.finding.name())
            }
            _ => write!(out, "<system-out>{words}</system-out>"),
        };
        out.push_str("</testcase>\n");
    }
    let verdict = escaped(&verdict::verdicts(comparison).join("; "));
    let _ = write!(out, "    <system-out>{verdict}</system-out>\n  </testsuite>\n</testsuites>\n");
    out
}

/// Escapes a text for XML, and replaces characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in ampere_model::text::printable(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}
