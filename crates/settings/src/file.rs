//! Reads `ampere.toml`. Every error has the number of the line.

use crate::config::Config;
use crate::device::DeviceSetting;
use crate::error::ConfigError;
use crate::names::nearest;
use crate::table::{Keeper, SETTINGS, Setting};
use crate::value::Written;
use std::fmt;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The table that may occur several times, as `[[device]]`.
const DEVICE: &str = "device";

/// The file that is read, for messages.
pub(crate) struct Source<'a> {
    /// The name of the file.
    pub origin: &'a str,
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at an offset in the text.
    pub fn error(&self, at: usize, why: impl fmt::Display) -> ConfigError {
        let line = self.text[..at.min(self.text.len())].matches('\n').count() + 1;
        ConfigError(format!("{}:{line}: {why}", self.origin))
    }

    /// The error for a key that does not exist.
    pub fn unknown(&self, key: &Spanned<DeString>, known: impl Iterator<Item = &'static str>) -> ConfigError {
        let meant = nearest(key.get_ref(), known);
        let advice = meant.map_or_else(String::new, |meant| format!("; did you mean \"{meant}\"?"));
        self.error(key.span().start, format!("unknown key \"{}\"{advice}", key.get_ref()))
    }
}

/// The entries of a table in the order of the file, so that the error is about the first mistake.
pub(crate) fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t Spanned<DeString<'i>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

impl Config {
    /// Reads the text of a file. `origin` is the file's name, for messages.
    ///
    /// # Errors
    /// Returns an error if the text is no TOML, a key is unknown, or a value cannot be used.
    pub fn parse(text: &str, origin: &str) -> Result<Config, ConfigError> {
        let source = Source { origin, text };
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            source.error(at, error.message().lines().next().unwrap_or_default())
        })?;
        let mut config = Config::default();
        for (name, value) in in_order(root.get_ref()) {
            let of_table = || {
                SETTINGS
                    .iter()
                    .filter(|setting| setting.key.is_some_and(|(table, _)| table == name.get_ref()))
            };
            let table = || {
                let expected = "a table of settings is expected";
                value
                    .get_ref()
                    .as_table()
                    .ok_or_else(|| source.error(name.span().start, format!("{}: {expected}", name.get_ref())))
            };
            if name.get_ref() == DEVICE {
                read_devices(&source, name, value.get_ref(), &mut config.devices)?;
            } else if of_table().next().is_some() {
                read_table(&source, table()?, of_table, &mut config)?;
            } else {
                let tables = SETTINGS.iter().filter_map(|setting| setting.key).map(|(table, _)| table);
                return Err(source.unknown(name, tables.chain([DEVICE])));
            }
        }
        Ok(config)
    }
}

/// Reads a table; `settings` are its rows of [`SETTINGS`].
fn read_table<I: Iterator<Item = &'static Setting>>(
    source: &Source,
    table: &DeTable,
    settings: impl Fn() -> I,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let key_of = |setting: &Setting| setting.key.map_or("", |(_, key)| key);
    for (key, value) in in_order(table) {
        let Some(setting) = settings().find(|setting| key_of(setting) == key.get_ref()) else {
            return Err(source.unknown(key, settings().map(key_of)));
        };
        let Keeper::Config(place) = setting.keeper else { continue };
        let read = place(config).read(&Written::File(value.get_ref()), &setting.within);
        read.map_err(|why| source.error(value.span().start, format!("{}: {why}", key.get_ref())))?;
    }
    Ok(())
}

fn read_devices(
    source: &Source,
    name: &Spanned<DeString>,
    value: &DeValue,
    devices: &mut Vec<DeviceSetting>,
) -> Result<(), ConfigError> {
    let no_list = || source.error(name.span().start, "write devices as [[device]] sections");
    for device in value.as_array().ok_or_else(no_list)? {
        let table = device.get_ref().as_table().ok_or_else(no_list)?;
        let device = DeviceSetting::read(source, table, device.span().start, devices)?;
        devices.push(device);
    }
    Ok(())
}
