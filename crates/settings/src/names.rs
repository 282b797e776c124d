//! Names that were mistyped, and patterns that match nothing.

use strsim::levenshtein;

/// Names that are offered in place of a pattern that matches nothing.
const OFFERED: usize = 4;

/// The candidate that is most like a name. `None` if there is no candidate.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates.into_iter().min_by_key(|candidate| levenshtein(name, candidate))
}

/// Whether two names differ in at most a third of so many letters. More is another word altogether.
pub(crate) fn is_misspelt(name: &str, meant: &str, letters: usize) -> bool {
    levenshtein(name, meant) * 3 <= letters
}

/// A pattern as it was written: see [`DeviceSetting`](crate::DeviceSetting).
pub fn plain(pattern: &str) -> &str {
    pattern.strip_prefix("^(?:").and_then(|rest| rest.strip_suffix(")$")).unwrap_or(pattern)
}

/// The first few names, and how many more there are.
pub fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let shown: Vec<&str> = names.take(OFFERED).collect();
    let more = if count > OFFERED { format!(" and {} more", count - OFFERED) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// What a pattern that matches nothing could have matched: "there are a, b and 3 more", the most similar first.
pub fn offered<'a>(pattern: &str, names: impl Iterator<Item = &'a str>) -> String {
    let literal: String = pattern.chars().filter(|c| !r"\()[]*+?^$|".contains(*c)).collect();
    let mut names: Vec<&str> = names.collect();
    names.sort_by_key(|name| (levenshtein(&literal, name), *name));
    match names[..] {
        [] => "there is none".to_owned(),
        [one] => format!("there is only {one}"),
        _ => format!("there are {}", listed(names.into_iter())),
    }
}
