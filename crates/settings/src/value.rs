//! Reads and writes values: with TOML's types in the file, as text in the environment.

use crate::error::WrongValue;
use ampere_attribution::{Policy, Sharing};
use ampere_model::{COUNTER_SOURCES, CountedEvent, NAMED_EVENTS};
use regex::Regex;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use toml::de::DeValue;

/// A value as it was written.
pub(crate) enum Written<'a> {
    /// A value in an environment variable.
    Variable(&'a str),
    /// A value in the file `ampere.toml`.
    File(&'a DeValue<'a>),
}

/// The range in which a value must lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Within {
    Anything,
    /// The shortest and the longest allowed time.
    Times(Duration, Duration),
    /// The smallest number that is allowed.
    AtLeast(f64),
    /// A number that the value must exceed.
    Above(f64),
}

/// A type of value that settings have.
pub(crate) trait Value {
    /// Describes the allowed values, for the reference.
    fn allowed(&self) -> String;
    /// Returns a default as it may be written, for the reference; `None` if the default means "not set". Only defaults are
    /// shown.
    fn shown(&self) -> Option<String>;
    /// Sets the value. An error leaves it unchanged, except for a list of counter sources, of which the known ones are set.
    fn read(&mut self, written: &Written, within: &Within) -> Result<(), WrongValue>;
}

/// An enum whose values are written as words.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// All values with their words.
    const WORDS: &'static [(&'static str, Self)];
}

impl Word for Policy {
    const WORDS: &'static [(&'static str, Policy)] = Policy::WORDS;
}

impl Word for Sharing {
    const WORDS: &'static [(&'static str, Sharing)] = Sharing::WORDS;
}

/// The threads of a process among which its joules are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Locations {
    /// Only the main thread: its innermost frame is that of the rank.
    #[default]
    Main,
    /// All threads with an open frame, in equal shares.
    All,
}

impl Word for Locations {
    const WORDS: &'static [(&'static str, Locations)] = &[("main", Locations::Main), ("all", Locations::All)];
}

impl Locations {
    /// Returns the setting's word, `main` or `all`.
    pub fn as_str(self) -> &'static str {
        match self {
            Locations::Main => "main",
            Locations::All => "all",
        }
    }
}

/// The period of reading the gauges of devices. `None` is written `off` and means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaugePeriod(pub Option<Duration>);

/// The period of sampling stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackPeriod {
    /// The stacks are not sampled.
    Off,
    /// Stacks are sampled as often as the limit on the cost allows, but not more often than every millisecond of CPU time.
    Auto,
    /// Stacks are sampled each time the thread has used this much CPU time.
    Every(Duration),
}

/// The numbers of some CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(pub Vec<usize>);

/// The maximum number of events that are counted with each sample.
const EVENTS_MAX: usize = 8;

/// The number of CPUs in the C library's `cpu_set_t`.
const CPUS_MAX: usize = 1024;

impl<'a> Written<'a> {
    fn wrong_type(expected: &'static str, found: &DeValue) -> WrongValue {
        let found = match found {
            DeValue::String(_) => "a text in quotes",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list in brackets",
            DeValue::Table(_) => "a table of settings",
        };
        WrongValue::Type { expected, found }
    }

    pub fn text(&self) -> Result<&'a str, WrongValue> {
        match self {
            Written::Variable(text) => Ok(text),
            Written::File(value) => {
                value.as_str().ok_or_else(|| Written::wrong_type("a text in quotes", value))
            }
        }
    }

    fn texts(&self) -> Result<Vec<&'a str>, WrongValue> {
        match self {
            Written::Variable(text) => {
                Ok(text.split(',').map(str::trim).filter(|text| !text.is_empty()).collect())
            }
            Written::File(DeValue::Array(values)) => {
                values.iter().map(|value| Written::File(value.get_ref()).text()).collect()
            }
            Written::File(value) => Err(Written::wrong_type("a list in brackets", value)),
        }
    }

    fn number(&self) -> Result<f64, WrongValue> {
        let text = match self {
            Written::Variable(text) => *text,
            Written::File(DeValue::Integer(_)) => return Ok(self.whole()? as f64),
            Written::File(DeValue::Float(float)) => float.as_str(),
            Written::File(value) => return Err(Written::wrong_type("a number", value)),
        };
        text.trim().parse().map_err(|_| WrongValue::Number(text.to_owned()))
    }

    pub fn whole(&self) -> Result<u64, WrongValue> {
        let (text, radix) = match self {
            Written::Variable(text) => (*text, 10),
            Written::File(DeValue::Integer(integer)) => (integer.as_str(), integer.radix()),
            Written::File(value) => return Err(Written::wrong_type("a whole number", value)),
        };
        u64::from_str_radix(text.trim(), radix).map_err(|_| WrongValue::Whole(text.to_owned()))
    }

    fn switch(&self) -> Result<bool, WrongValue> {
        match self {
            Written::Variable(text) => match text.trim() {
                "on" | "1" | "true" => Ok(true),
                "off" | "0" | "false" => Ok(false),
                _ => Err(WrongValue::Word { found: (*text).to_owned(), words: "on or off".to_owned() }),
            },
            Written::File(DeValue::Boolean(value)) => Ok(*value),
            Written::File(value) => Err(Written::wrong_type("true or false", value)),
        }
    }

    fn time(&self) -> Result<Duration, WrongValue> {
        parse_duration(self.text()?)
    }
}

/// Parses a time in the form that settings have: "250us", "1ms", "1.5 s".
///
/// # Errors
/// Returns an error if the text is not a time, or a negative one.
pub fn parse_duration(text: &str) -> Result<Duration, WrongValue> {
    let wrong = || WrongValue::Time(text.to_owned());
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let seconds = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

/// Formats a time so that [`parse_duration`] can read it.
pub(crate) fn shown_duration(time: Duration) -> String {
    format!("{time:?}").replace('µ', "u")
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Within::Anything => Ok(()),
            Within::Times(least, most) => {
                write!(f, "{} to {}", shown_duration(*least), shown_duration(*most))
            }
            Within::AtLeast(least) => write!(f, "a number of {least} or more"),
            Within::Above(bound) => write!(f, "a number above {bound}"),
        }
    }
}

impl Within {
    fn check_time(&self, time: Duration) -> Result<Duration, WrongValue> {
        match self {
            Within::Times(least, most) if !(*least..=*most).contains(&time) => {
                Err(WrongValue::Range { found: shown_duration(time), allowed: self.to_string() })
            }
            _ => Ok(time),
        }
    }

    fn check_number(&self, number: f64) -> Result<f64, WrongValue> {
        let is_within = match self {
            Within::AtLeast(least) => number >= *least && number.is_finite(),
            Within::Above(bound) => number > *bound && number.is_finite(),
            Within::Anything | Within::Times(..) => true,
        };
        let wrong = || WrongValue::Range { found: number.to_string(), allowed: self.to_string() };
        is_within.then_some(number).ok_or_else(wrong)
    }
}

/// Joins words as in "a, b or c".
pub(crate) fn alternatives(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

impl<T: Word> Value for T {
    fn allowed(&self) -> String {
        alternatives(&T::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>())
    }

    fn shown(&self) -> Option<String> {
        let word = T::WORDS.iter().find(|(_, value)| value == self);
        word.map(|(word, _)| format!("{word:?}"))
    }

    fn read(&mut self, written: &Written, _: &Within) -> Result<(), WrongValue> {
        let text = written.text()?.trim();
        let word = T::WORDS.iter().find(|(word, _)| *word == text);
        let wrong = || WrongValue::Word { found: text.to_owned(), words: self.allowed() };
        *self = word.ok_or_else(wrong)?.1;
        Ok(())
    }
}

impl Value for Option<Policy> {
    fn allowed(&self) -> String {
        Policy::default().allowed()
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(Policy::shown)
    }

    fn read(&mut self, written: &Written, within: &Within) -> Result<(), WrongValue> {
        let mut policy = self.unwrap_or_default();
        policy.read(written, within)?;
        *self = Some(policy);
        Ok(())
    }
}

/// Implements [`Value`] for a type, from the allowed values, an expression that shows a value, and one that reads it.
macro_rules! simple_value {
    ($type:ty, $allowed:expr, |$value:ident| $shown:expr, |$written:ident, $within:ident| $read:expr) => {
        impl Value for $type {
            fn allowed(&self) -> String {
                $allowed.to_owned()
            }

            fn shown(&self) -> Option<String> {
                let $value = self;
                $shown
            }

            fn read(&mut self, $written: &Written, $within: &Within) -> Result<(), WrongValue> {
                *self = $read?;
                Ok(())
            }
        }
    };
}

simple_value!(
    bool,
    "true or false; on or off in the variable",
    |on| Some(on.to_string()),
    |written, _within| { written.switch() }
);
simple_value!(usize, "a whole number", |number| Some(number.to_string()), |written, _within| {
    written.whole().map(|number| number as usize)
});
simple_value!(Option<u64>, "a whole number", |number| number.map(|n| n.to_string()), |written, within| {
    written.whole().and_then(|number| within.check_number(number as f64).map(|_| Some(number)))
});
simple_value!(f64, "a number", |number| Some(number.to_string()), |written, within| {
    written.number().and_then(|number| within.check_number(number))
});
simple_value!(Option<f64>, "a number", |number| number.map(|n| n.to_string()), |written, within| {
    written.number().and_then(|number| within.check_number(number)).map(Some)
});
simple_value!(Duration, "a time", |time| Some(format!("{:?}", shown_duration(*time))), |written, within| {
    written.time().and_then(|time| within.check_time(time))
});
simple_value!(
    Option<Duration>,
    "a time",
    |time| time.map(|time| format!("{:?}", shown_duration(time))),
    |written, within| written.time().and_then(|time| within.check_time(time)).map(Some)
);
simple_value!(Option<String>, "a text", |text| text.clone(), |written, _within| {
    written.text().map(|text| Some(text.to_owned()))
});
simple_value!(PathBuf, "a path", |path| Some(format!("{:?}", path.display())), |written, _within| {
    written.text().map(PathBuf::from)
});
simple_value!(
    Option<PathBuf>,
    "a path",
    |path| path.as_ref().map(|path| format!("{:?}", path.display())),
    |written, _within| written.text().map(|text| (!text.is_empty()).then(|| PathBuf::from(text)))
);
simple_value!(
    Vec<String>,
    "a list of names; in the variable, separated by commas",
    |names| (!names.is_empty()).then(|| format!("{names:?}")),
    |written, _within| written.texts().map(|names| names.into_iter().map(str::to_owned).collect())
);
simple_value!(Option<Regex>, "a regular expression", |_regex| None, |written, _within| {
    written.text().and_then(matching_all).map(Some)
});
simple_value!(Option<Vec<Regex>>, "a list of regular expressions", |_regex| None, |written, _within| {
    written.texts().and_then(|patterns| patterns.into_iter().map(matching_all).collect()).map(Some)
});

fn shown_period(period: Option<Duration>) -> String {
    period.map_or_else(|| "\"off\"".to_owned(), |time| format!("{:?}", shown_duration(time)))
}

/// Parses a period; `None` if it is `off`.
fn parse_period(text: &str, within: &Within) -> Result<Option<Duration>, WrongValue> {
    match text {
        "off" => Ok(None),
        time => Ok(Some(within.check_time(parse_duration(time)?)?)),
    }
}

impl Value for GaugePeriod {
    fn allowed(&self) -> String {
        "a time, or off".to_owned()
    }

    fn shown(&self) -> Option<String> {
        Some(shown_period(self.0))
    }

    fn read(&mut self, written: &Written, within: &Within) -> Result<(), WrongValue> {
        self.0 = parse_period(written.text()?.trim(), within)?;
        Ok(())
    }
}

impl Value for Option<StackPeriod> {
    fn allowed(&self) -> String {
        "auto, off, or a time".to_owned()
    }

    fn shown(&self) -> Option<String> {
        match self.as_ref()? {
            StackPeriod::Auto => Some("\"auto\"".to_owned()),
            StackPeriod::Off => Some(shown_period(None)),
            StackPeriod::Every(period) => Some(shown_period(Some(*period))),
        }
    }

    fn read(&mut self, written: &Written, within: &Within) -> Result<(), WrongValue> {
        *self = Some(match written.text()?.trim() {
            "auto" => StackPeriod::Auto,
            text => parse_period(text, within)?.map_or(StackPeriod::Off, StackPeriod::Every),
        });
        Ok(())
    }
}

impl Value for Vec<CountedEvent> {
    fn allowed(&self) -> String {
        format!("off, on, or a list of {} and NAME=TYPE:CONFIG", NAMED_EVENTS.join(", "))
    }

    fn shown(&self) -> Option<String> {
        Some("\"off\"".to_owned())
    }

    fn read(&mut self, written: &Written, _: &Within) -> Result<(), WrongValue> {
        let texts = match written {
            Written::File(DeValue::String(text)) => Written::Variable(text).texts()?,
            _ => written.texts()?,
        };
        let names = match texts[..] {
            [] | ["off"] => Vec::new(),
            ["on"] => NAMED_EVENTS.to_vec(),
            _ => texts,
        };
        let mut events: Vec<CountedEvent> = Vec::new();
        for text in names {
            let wrong = |why| WrongValue::Event { found: text.to_owned(), why };
            let event = CountedEvent::parse(text).map_err(wrong)?;
            if events.iter().any(|other| other.name == event.name) {
                return Err(wrong("there are two events with this name"));
            }
            if events.len() == EVENTS_MAX {
                return Err(wrong("at most 8 events are counted"));
            }
            events.push(event);
        }
        *self = events;
        Ok(())
    }
}

impl Value for Option<Cpus> {
    fn allowed(&self) -> String {
        "a list of CPUs like 0-3,8".to_owned()
    }

    fn shown(&self) -> Option<String> {
        None
    }

    /// Sets nothing if the variable is empty.
    fn read(&mut self, written: &Written, _: &Within) -> Result<(), WrongValue> {
        if !matches!(written, Written::Variable("")) {
            *self = Some(Cpus::parse(written.text()?)?);
        }
        Ok(())
    }
}

impl Cpus {
    /// Parses a list in the form of Slurm, taskset and the kernel: "0-3,8".
    ///
    /// # Errors
    /// Returns an error if the text is not such a list, or names a CPU that no machine has.
    pub fn parse(text: &str) -> Result<Cpus, WrongValue> {
        let wrong = |advice: String| WrongValue::Cpus { found: text.to_owned(), advice };
        let unreadable = || wrong("write it like 0-3,8".to_owned());
        let mut cpus = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| unreadable());
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(unreadable());
            }
            if last >= CPUS_MAX {
                return Err(wrong(format!("CPUs are numbered up to {}", CPUS_MAX - 1)));
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }
}

impl Value for Option<Vec<&'static str>> {
    fn allowed(&self) -> String {
        format!("{}, with commas between them; none; or auto", COUNTER_SOURCES.join(", "))
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().map(|names| names.join(","))
    }

    /// Sets the known names even if others are unknown. Without any known name, the sources are chosen automatically.
    fn read(&mut self, written: &Written, _: &Within) -> Result<(), WrongValue> {
        let names: Vec<String> = written.texts()?.iter().map(|name| name.to_ascii_lowercase()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        *self = match names[..] {
            [] | ["auto"] => None,
            ["none"] => Some(Vec::new()),
            _ => {
                let mut known: Vec<&'static str> = Vec::new();
                let named = names.iter().filter_map(|name| COUNTER_SOURCES.iter().find(|s| *s == name));
                for source in named {
                    if !known.contains(source) {
                        known.push(source);
                    }
                }
                (!known.is_empty()).then_some(known)
            }
        };
        let is_unknown = |name: &&&str| !COUNTER_SOURCES.contains(*name);
        match names.iter().find(is_unknown) {
            Some(name) if !matches!(names[..], ["auto" | "none"]) => {
                Err(WrongValue::Source { found: (*name).to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// Returns a regular expression that must match the whole text.
fn matching_all(text: &str) -> Result<Regex, WrongValue> {
    pattern(text, &format!("^(?:{text})$"))
}

/// Compiles a regular expression, which the user wrote as `written`.
pub(crate) fn pattern(written: &str, expression: &str) -> Result<Regex, WrongValue> {
    Regex::new(expression).map_err(|error| {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        WrongValue::Pattern { pattern: written.to_owned(), why }
    })
}
