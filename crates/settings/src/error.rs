//! The errors of settings, as text for users.

use ampere_model::text::printable;
use std::fmt;

/// The reason why settings cannot be used: one line with the file and its line, or with the variable.
#[derive(Debug)]
pub struct ConfigError(pub(crate) String);

impl fmt::Display for ConfigError {
    /// Writes the text so that it is safe for a terminal, whatever the file contains.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl std::error::Error for ConfigError {}

/// The reason why a value cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // fields: the value that was found, and the allowed values
pub enum WrongValue {
    /// A value of another TOML type.
    #[error("{expected} is expected, not {found}")]
    Type { expected: &'static str, found: &'static str },
    /// A word that is not among the allowed ones.
    #[error("{found:?}: use {words}")]
    Word { found: String, words: String },
    /// Text in place of a number.
    #[error("{0:?} is not a number")]
    Number(String),
    /// Text in place of a whole number.
    #[error("{0:?} is not a whole number")]
    Whole(String),
    /// Text in place of a time.
    #[error("{0:?} is not a time: write it like \"1ms\" (ns, us, ms, s)")]
    Time(String),
    /// A value outside of the allowed range.
    #[error("{found}: use {allowed}")]
    Range { found: String, allowed: String },
    /// A text that is not a list of CPUs, or names a CPU that no machine has.
    #[error("{found:?} is not a list of CPUs: {advice}")]
    Cpus { found: String, advice: String },
    /// A text that does not name an event that can be counted.
    #[error("{found:?}: {why}")]
    Event { found: String, why: &'static str },
    /// The name of a counter source that does not exist.
    #[error("{found:?} is not known; there are {}, none and auto", ampere_model::COUNTER_SOURCES.join(", "))]
    Source { found: String },
    /// Text in place of a regular expression.
    #[error("{pattern:?} is not a regular expression: {why}")]
    Pattern { pattern: String, why: String },
    /// A regular expression that does not have exactly one group.
    #[error(
        "{pattern:?} has {groups} groups: put the number, and nothing else, in parentheses; (?:...) is no group"
    )]
    Groups { pattern: String, groups: usize },
    /// The path of a file that does not exist.
    #[error("{0:?}: there is no such file")]
    File(String),
}
