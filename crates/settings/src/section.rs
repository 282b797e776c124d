//! The keys of a section that may occur several times, such as `[[device]]`.

use crate::error::ConfigError;
use crate::source::{Source, in_order};
use crate::value::{Value, Within, Written};
use toml::de::DeTable;

/// A key of a section. `Draft` is the section while it is read.
pub(crate) struct SectionKey<Draft> {
    pub key: &'static str,
    /// The default, as text.
    pub default: &'static str,
    /// What the key sets, for the reference.
    pub about: &'static str,
    /// The values that are allowed.
    pub within: Within,
    /// Returns the field of the draft that the key sets.
    pub place: fn(&mut Draft) -> &mut dyn Value,
}

impl<Draft: Default> SectionKey<Draft> {
    pub fn allowed(&self) -> String {
        let allowed = (self.place)(&mut Draft::default()).allowed();
        match self.within {
            Within::Anything => allowed,
            within => within.to_string(),
        }
    }
}

/// Reads the values of a section into a draft.
pub(crate) fn read_keys<Draft: Default>(
    source: &Source,
    table: &DeTable,
    keys: &[SectionKey<Draft>],
) -> Result<Draft, ConfigError> {
    let mut draft = Draft::default();
    for (key, value) in in_order(table) {
        let Some(known) = keys.iter().find(|known| known.key == key.get_ref()) else {
            return Err(source.unknown(key, keys.iter().map(|known| known.key)));
        };
        let read = (known.place)(&mut draft).read(&Written::File(value.get_ref()), &known.within);
        read.map_err(|why| source.error(value.span().start, format!("{}: {why}", known.key)))?;
    }
    Ok(draft)
}
