//! Settings: `ampere.toml` and the environment variables.
//!
//! [`SETTINGS`] is the table of all settings: key, variable, values, default and a sentence for each. It controls how the file
//! and the environment are read ([`Config::load`]) and how `ampere doctor` checks variables ([`Setting::check`]). The reference
//! in docs and the manual page are made from it ([`reference`]). To add a setting, add its row and, if the collector uses it, its
//! field in [`Config`]. The keys of a `[[device]]` and of a `[[source]]` have tables of their own.
//!
//! ```text
//! table.rs      the table
//! config.rs     the checked settings of a run
//! value.rs      reads and writes values
//! section.rs    the keys of sections that may occur several times
//! device.rs     `[[device]]`
//! custom.rs     `[[source]]`
//! file.rs       reads the file and the environment
//! reference.rs  the reference for manual and documentation
//! names.rs      mistyped names, patterns
//! error.rs      errors
//! source.rs     the text of the file, for messages
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod config;
mod custom;
mod device;
mod error;
mod file;
mod names;
pub mod reference;
mod section;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use ampere_attribution::{Policy, Sharing};
pub use config::{
    AttributionSettings, Config, CounterLimits, MetricsSettings, SamplerSettings, SiteSettings,
    SourceSettings,
};
pub use custom::{CustomSource, CustomUnit, Origin};
pub use device::{DeviceSetting, Ranks};
pub use error::{ConfigError, WrongValue};
pub use names::{is_misspelt, listed, plain, suggested, suggested_first};
pub use table::{ENV_RECORDER, IfWrong, PREFIX, SETTINGS, Setting, setting};
pub use value::{Cpus, GaugePeriod, Locations, StackPeriod, parse_duration};
