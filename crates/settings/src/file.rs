//! Reads `ampere.toml` and the environment. Every error in the file has the number of the line.

use crate::config::{Config, SourceSettings};
use crate::custom::CustomSource;
use crate::device::DeviceSetting;
use crate::error::ConfigError;
use crate::source::{Source, in_order};
use crate::table::{IfWrong, Keeper, SETTINGS, Setting};
use crate::value::Written;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The tables that may occur several times, as `[[device]]` and `[[source]]`.
const DEVICE: &str = "device";
const SOURCE: &str = "source";

impl Config {
    /// Reads the configuration file, if one is named, and then the environment, which takes precedence.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or a setting cannot be used.
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        let mut config = match path {
            Some(path) => {
                let shown = path.display().to_string();
                let text = read(path)
                    .map_err(|e| ConfigError(format!("cannot read the configuration {shown}: {e}")))?;
                Config::parse(&text, &shown)?
            }
            None => Config::default(),
        };
        config.apply(&variable)?;
        Ok(config)
    }

    /// Applies the environment variables. A variable of a counter source that cannot be used is ignored ([`Config::left_out`]).
    ///
    /// # Errors
    /// Returns an error for the first of the other variables that cannot be used. All others are applied.
    pub fn apply(&mut self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        let mut result = Ok(());
        for setting in SETTINGS {
            let Keeper::Config(place) = setting.keeper else { continue };
            let Some(text) = lookup(setting.variable) else { continue };
            let read = place(self).read(&Written::Variable(&text), &setting.within);
            let Err(why) = read else { continue };
            let why = format!("{}: {why}", setting.variable);
            match setting.if_wrong {
                IfWrong::Refused => result = result.and(Err(ConfigError(why))),
                IfWrong::RefusedByRun | IfWrong::LeftOut => self.left_out.push(why),
            }
        }
        result
    }

    /// Reads the text of a file. `origin` is the file's name, for messages.
    ///
    /// # Errors
    /// Returns an error if the text is not TOML, a key is unknown, or a value cannot be used.
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
                read_sections(&source, name, value.get_ref(), &mut config.devices, DeviceSetting::read)?;
            } else if name.get_ref() == SOURCE {
                let sources = &mut config.sources.custom;
                read_sections(&source, name, value.get_ref(), sources, CustomSource::read)?;
            } else if of_table().next().is_some() {
                read_table(&source, table()?, of_table, &mut config)?;
            } else {
                let tables = SETTINGS.iter().filter_map(|setting| setting.key).map(|(table, _)| table);
                return Err(source.unknown(name, tables.chain([DEVICE, SOURCE])));
            }
        }
        Ok(config)
    }
}

/// Reads a file, which may be a pipe. A file of 1 MiB or more is an error.
fn read(path: &Path) -> std::io::Result<String> {
    const BYTES_MAX: u64 = 1 << 20;
    let mut text = String::new();
    let length = File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    match length as u64 {
        BYTES_MAX => Err(std::io::Error::other("it is too long for a settings file")),
        _ => Ok(text),
    }
}

impl SourceSettings {
    /// Returns the environment's settings of counter sources, independently of the other settings.
    pub fn from_environment() -> SourceSettings {
        let mut config = Config::default();
        let _ = config.apply(&variable); // the other settings are not used
        config.sources
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
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

/// Reads all sections of one name. `read` also gets the sections that were read before.
fn read_sections<Section>(
    source: &Source,
    name: &Spanned<DeString>,
    value: &DeValue,
    sections: &mut Vec<Section>,
    read: impl Fn(&Source, &DeTable, usize, &[Section]) -> Result<Section, ConfigError>,
) -> Result<(), ConfigError> {
    let name_of = name.get_ref();
    let no_list =
        || source.error(name.span().start, format!("write each {name_of} as a section [[{name_of}]]"));
    for section in value.as_array().ok_or_else(no_list)? {
        let table = section.get_ref().as_table().ok_or_else(no_list)?;
        let section = read(source, table, section.span().start, sections)?;
        sections.push(section);
    }
    Ok(())
}
