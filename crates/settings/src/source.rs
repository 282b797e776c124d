//! The text of a settings file, for messages that name the line.

use crate::error::ConfigError;
use crate::names::nearest;
use std::fmt;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The file that is read, for messages.
pub(crate) struct Source<'a> {
    /// The name of the file.
    pub origin: &'a str,
    pub text: &'a str,
}

impl Source<'_> {
    /// Makes an error for an offset in the text.
    pub fn error(&self, at: usize, why: impl fmt::Display) -> ConfigError {
        let line = self.text[..at.min(self.text.len())].matches('\n').count() + 1;
        ConfigError(format!("{}:{line}: {why}", self.origin))
    }

    /// Makes the error for a key that does not exist.
    pub fn unknown(&self, key: &Spanned<DeString>, known: impl Iterator<Item = &'static str>) -> ConfigError {
        let meant = nearest(key.get_ref(), known);
        let advice = meant.map_or_else(String::new, |meant| format!("; did you mean \"{meant}\"?"));
        self.error(key.span().start, format!("unknown key \"{}\"{advice}", key.get_ref()))
    }
}

/// Returns the entries of a table in the order of the file, so that the error is about the first mistake.
pub(crate) fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t Spanned<DeString<'i>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}
