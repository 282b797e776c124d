//! `[[source]]`: a counter that the user defines. A command prints its figures, or a file contains them.

use crate::error::{ConfigError, WrongValue};
use crate::section::{SectionKey, read_keys};
use crate::source::Source;
use crate::value::{Value, Within, Word, Written};
use regex::Regex;
use std::path::PathBuf;
use std::time::Duration;
use toml::de::DeTable;

/// The pattern that is used if the section has none: it finds the first number in the text.
const FIRST_NUMBER: &str = r"([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)";
/// A shorter period would load the node more than the figures are worth; after a longer one, a counter counts as stale.
const PERIODS: Within = Within::Times(Duration::from_millis(100), Duration::from_secs(60));
const NAME_BYTES_MAX: usize = 64;

/// A section `[[source]]` of the file.
#[derive(Clone, Debug)]
pub struct CustomSource {
    /// The device's name.
    pub name: String,
    /// Where the figure comes from.
    pub origin: Origin,
    /// The pattern that finds the figure in the text; its only group is the number.
    pub pattern: Regex,
    /// Whether the figure is a power or an energy.
    pub unit: CustomUnit,
    /// The factor from the figure to watts or joules.
    pub scale: f64,
    /// The time from one reading to the next.
    pub every: Duration,
    /// The names of the devices whose joules are also in this one's.
    pub contains: Vec<Regex>,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A command for `sh -c`, which prints it.
    Command(String),
    /// A file that contains it.
    File(PathBuf),
}

/// The unit of a figure, which also shows whether it is a power or an energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CustomUnit {
    /// A power, in watts.
    #[default]
    Watts,
    /// An energy since some start, in joules.
    Joules,
}

impl Word for CustomUnit {
    const WORDS: &'static [(&'static str, CustomUnit)] =
        &[("W", CustomUnit::Watts), ("J", CustomUnit::Joules)];
}

/// A regular expression that need not match the whole text, and that has one group.
#[derive(Default)]
struct GroupPattern(Option<Regex>);

/// A `[[source]]` that is being read.
pub(crate) struct Draft {
    name: Option<String>,
    command: Option<String>,
    file: Option<PathBuf>,
    pattern: GroupPattern,
    unit: Option<CustomUnit>,
    scale: f64,
    every: Duration,
    contains: Option<Vec<Regex>>,
}

impl Default for Draft {
    fn default() -> Draft {
        Draft {
            name: None,
            command: None,
            file: None,
            pattern: GroupPattern::default(),
            unit: None,
            scale: 1.0,
            every: Duration::from_secs(1),
            contains: None,
        }
    }
}

pub(crate) const KEYS: &[SectionKey<Draft>] = &[
    SectionKey {
        key: "name",
        default: "must be given",
        about: "The device's name, which no other `[[source]]` has.",
        within: Within::Anything,
        place: |draft| &mut draft.name,
    },
    SectionKey {
        key: "command",
        default: "this or `file` must be given",
        about: "A command that prints the figure. The collector runs it with `sh -c`, as the user.",
        within: Within::Anything,
        place: |draft| &mut draft.command,
    },
    SectionKey {
        key: "file",
        default: "this or `command` must be given",
        about: "A file that contains the figure.",
        within: Within::Anything,
        place: |draft| &mut draft.file,
    },
    SectionKey {
        key: "pattern",
        default: "the first number",
        about: "Finds the figure in the first 64 KiB of the text: a pattern with one group, which is the number.",
        within: Within::Anything,
        place: |draft| &mut draft.pattern,
    },
    SectionKey {
        key: "unit",
        default: "must be given",
        about: "Whether the figure is a power in watts, which is integrated, or an energy in joules since some start.",
        within: Within::Anything,
        place: |draft| &mut draft.unit,
    },
    SectionKey {
        key: "scale",
        default: "1",
        about: "Watts or joules per unit of the figure.",
        within: Within::Above(0.0),
        place: |draft| &mut draft.scale,
    },
    SectionKey {
        key: "every",
        default: "\"1s\"",
        about: "The time from one reading to the next. A command that takes longer than three times this, and than 2 s, is killed.",
        within: PERIODS,
        place: |draft| &mut draft.every,
    },
    SectionKey {
        key: "contains",
        default: "none",
        about: "The devices whose joules are also in this one's: patterns for whole names. Devices that others contain are not added to the total.",
        within: Within::Anything,
        place: |draft| &mut draft.contains,
    },
];

impl Value for Option<CustomUnit> {
    fn allowed(&self) -> String {
        CustomUnit::default().allowed()
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(CustomUnit::shown)
    }

    fn read(&mut self, written: &Written, within: &Within) -> Result<(), WrongValue> {
        let mut unit = CustomUnit::default();
        unit.read(written, within)?;
        *self = Some(unit);
        Ok(())
    }
}

impl Value for GroupPattern {
    fn allowed(&self) -> String {
        "a regular expression with one group".to_owned()
    }

    fn shown(&self) -> Option<String> {
        None
    }

    fn read(&mut self, written: &Written, _: &Within) -> Result<(), WrongValue> {
        let text = written.text()?;
        let pattern = crate::value::pattern(text, text)?;
        let groups = pattern.captures_len() - 1;
        if groups != 1 {
            return Err(WrongValue::Groups { pattern: text.to_owned(), groups });
        }
        self.0 = Some(pattern);
        Ok(())
    }
}

impl CustomSource {
    /// Reads a section that starts at offset `at` of the file. `before`: the sources before it.
    pub(crate) fn read(
        source: &Source,
        table: &DeTable,
        at: usize,
        before: &[CustomSource],
    ) -> Result<CustomSource, ConfigError> {
        let draft = read_keys(source, table, KEYS)?;
        let error = |why: &str| source.error(at, why);
        let name = draft.name.ok_or_else(|| error("a [[source]] needs a name"))?;
        let of_this = |why: &str| source.error(at, format!("source {name:?}: {why}"));
        let origin = match (draft.command, draft.file) {
            (Some(command), None) if !command.trim().is_empty() => Origin::Command(command),
            (None, Some(file)) if !file.as_os_str().is_empty() => Origin::File(file),
            _ => return Err(of_this("it needs either a command or a file")),
        };
        if name.trim() != name || name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(of_this("a name has 1 to 64 bytes, and no blanks at its ends"));
        }
        if name.chars().any(|c| c.is_control() || c == ':') {
            return Err(of_this("a name has no colons and no control characters"));
        }
        let pattern = match draft.pattern.0 {
            Some(pattern) => pattern,
            None => {
                crate::value::pattern(FIRST_NUMBER, FIRST_NUMBER).map_err(|why| of_this(&why.to_string()))?
            }
        };
        let unit = draft.unit.ok_or_else(|| of_this("it needs a unit, \"W\" or \"J\""))?;
        let read = CustomSource {
            name,
            origin,
            pattern,
            unit,
            scale: draft.scale,
            every: draft.every,
            contains: draft.contains.unwrap_or_default(),
        };
        match read.why_unusable(before) {
            Some(why) => Err(source.error(at, format!("source {:?}: {why}", read.name))),
            None => Ok(read),
        }
    }

    /// Whether, according to the settings, the joules of a device are also in this source's.
    pub fn contains(&self, device: &str) -> bool {
        device != self.name && self.contains.iter().any(|pattern| pattern.is_match(device))
    }

    /// Returns the reason if the source cannot be used next to those before it.
    fn why_unusable(&self, before: &[CustomSource]) -> Option<String> {
        if before.iter().any(|other| other.name == self.name) {
            return Some("there is another [[source]] with this name".to_owned());
        }
        // Collects the sources that this one contains, directly or indirectly. The sources before it contain no cycle.
        let mut inside: Vec<&CustomSource> = vec![self];
        let mut at = 0;
        while let Some(whole) = inside.get(at).copied() {
            if at > 0 && whole.contains(&self.name) {
                return Some(format!("{:?} contains it, and so it cannot contain {0:?}", whole.name));
            }
            for part in before.iter().filter(|part| whole.contains(&part.name)) {
                if !inside.iter().any(|known| known.name == part.name) {
                    inside.push(part);
                }
            }
            at += 1;
        }
        None
    }
}
