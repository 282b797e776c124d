//! Mistyped names, and patterns that match nothing.

use ampere_model::signature::function;
use strsim::levenshtein;

/// The maximum number of names that are suggested for a pattern that matches nothing.
const SUGGESTED_MAX: usize = 4;

/// Returns the candidate that is most similar to a name; `None` if there is no candidate.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates.into_iter().min_by_key(|candidate| levenshtein(name, candidate))
}

/// Whether the number of letters in which two names differ is at most a third of `letters`. Names that differ more are different
/// words.
pub fn is_misspelt(name: &str, meant: &str, letters: usize) -> bool {
    levenshtein(name, meant) * 3 <= letters
}

/// Returns a pattern of a `[[device]]` as the user wrote it, without the anchors that were added when it was read.
pub fn plain(pattern: &str) -> &str {
    pattern.strip_prefix("^(?:").and_then(|rest| rest.strip_suffix(")$")).unwrap_or(pattern)
}

/// Returns the first few names, and the number of the others.
pub fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    ampere_model::text::listed(names, SUGGESTED_MAX)
}

/// Describes what a pattern that matches nothing could have matched: "there are a, b and 3 more", the most similar first.
pub fn suggested<'a>(pattern: &str, names: impl Iterator<Item = &'a str>) -> String {
    suggested_first(pattern, names, |_| false)
}

/// Like [`suggested`], but the names for which `is_likely` is true come first.
pub fn suggested_first<'a>(
    pattern: &str,
    names: impl Iterator<Item = &'a str>,
    is_likely: impl Fn(&str) -> bool,
) -> String {
    let literal: String = pattern.chars().filter(|c| !r"\()[]*+?^$|".contains(*c)).collect();
    // Long parameters and namespaces do not make a function's name less similar.
    let distance = |name: &str| {
        let own = function(name);
        let last = own.rsplit("::").next().unwrap_or(own);
        [name, own, last].map(|name| levenshtein(&literal, name)).into_iter().min()
    };
    let is_part = |name: &str| !literal.is_empty() && name.contains(&literal);
    let mut names: Vec<&str> = names.collect();
    names.sort_by_cached_key(|name| (!is_likely(name), !is_part(name), distance(name), *name));
    match names[..] {
        [] => "there is none".to_owned(),
        [one] => format!("there is only {one}"),
        _ => format!("there are {}", listed(names.into_iter())),
    }
}
