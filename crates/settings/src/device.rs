//! `[[device]]`: which metric counts a device's energy, and which locations are its consumers.

use crate::error::{ConfigError, WrongValue};
use crate::names::plain;
use crate::section::{SectionKey, read_keys};
use crate::source::Source;
use crate::value::{Value, Within, Word, Written, alternatives};
use regex::Regex;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// A section `[[device]]` of the file.
#[derive(Clone, Debug)]
pub struct DeviceSetting {
    /// The device's name, in which `$1` stands for a capture of `metric`.
    pub name: String,
    /// The nodes to which it applies; `None` for all.
    pub node: Option<Regex>,
    /// The metric that counts its energy.
    pub metric: Regex,
    /// Whether the metric is a power. `None`: as in the metric's definition; without one, it is cumulative.
    pub instantaneous: Option<bool>,
    /// The factor from raw values to joules (or watts); `None` for that of the metric's definition.
    pub scale: Option<f64>,
    /// The value at which the raw counter wraps to 0 (RAPL: 2^32).
    pub wraps_at: Option<u64>,
    /// The time by which the counter lags behind the energy that it counts.
    pub delay: Duration,
    /// The power that it draws without the job, in watts.
    pub baseline_watts: Option<f64>,
    /// Whether `ampere calibrate` measured this power.
    pub calibrated: bool,
    /// Consumers of the kernels view; `None` for the streams of the GPU whose number is in the metric's name.
    pub locations: Option<Vec<Regex>>,
    /// Consumers of the ranks view.
    pub ranks: Ranks,
}

/// The consumers of a device's ranks view.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Ranks {
    /// All ranks on the node.
    #[default]
    All,
    /// Ranks that are found to use it, as for a device without a `[[device]]`.
    Found,
    /// These ranks, by their numbers in MPI_COMM_WORLD.
    Listed(Vec<u32>),
}

/// A `[[device]]` that is being read.
#[derive(Default)]
pub(crate) struct Draft {
    name: Option<String>,
    metric: Option<Regex>,
    node: Option<Regex>,
    kind: Kind,
    scale: Option<f64>,
    wraps_at: Option<u64>,
    delay: Duration,
    baseline_watts: Option<f64>,
    calibrated: bool,
    locations: Option<Vec<Regex>>,
    ranks: Ranks,
}

#[derive(Clone, Copy, PartialEq, Default)]
enum Kind {
    #[default]
    AsDefined,
    Cumulative,
    Instantaneous,
}

impl Word for Kind {
    const WORDS: &'static [(&'static str, Kind)] =
        &[("cumulative", Kind::Cumulative), ("instantaneous", Kind::Instantaneous)];
}

pub(crate) const KEYS: &[SectionKey<Draft>] = &[
    SectionKey {
        key: "name",
        default: "must be given",
        about: "The device's name; $1 stands for what the first group in `metric` matched.",
        within: Within::Anything,
        place: |draft| &mut draft.name,
    },
    SectionKey {
        key: "metric",
        default: "must be given",
        about: "The metric that counts its energy: a pattern for the whole name.",
        within: Within::Anything,
        place: |draft| &mut draft.metric,
    },
    SectionKey {
        key: "node",
        default: "any node",
        about: "The nodes to which it applies: a pattern for the whole name.",
        within: Within::Anything,
        place: |draft| &mut draft.node,
    },
    SectionKey {
        key: "kind",
        default: "from the metric's definition, else cumulative",
        about: "Whether the metric is an energy since some start, or a power.",
        within: Within::Anything,
        place: |draft| &mut draft.kind,
    },
    SectionKey {
        key: "scale",
        default: "from the metric's unit",
        about: "Joules (watts, for a power) per unit of the raw value.",
        within: Within::Above(0.0),
        place: |draft| &mut draft.scale,
    },
    SectionKey {
        key: "wraps_at",
        default: "2^64",
        about: "The raw counter wraps to 0 at this value.",
        within: Within::AtLeast(2.0),
        place: |draft| &mut draft.wraps_at,
    },
    SectionKey {
        key: "delay",
        default: "\"0ns\"",
        about: "The time by which the counter lags behind the energy that it counts; `ampere calibrate` measures it.",
        within: Within::Anything,
        place: |draft| &mut draft.delay,
    },
    SectionKey {
        key: "baseline_watts",
        default: "the idle watts of the estimate; otherwise the mean power while nothing of the run was active, if there was such a time",
        about: "The power that the device draws without the job. Under the policy `active`, these joules are static, and all joules above them are dynamic.",
        within: Within::AtLeast(0.0),
        place: |draft| &mut draft.baseline_watts,
    },
    SectionKey {
        key: "calibrated",
        default: "false",
        about: "Whether `baseline_watts` was measured by `ampere calibrate`, which writes this; reports then say so.",
        within: Within::Anything,
        place: |draft| &mut draft.calibrated,
    },
    SectionKey {
        key: "locations",
        default: "the streams of the GPU whose number is in the metric's name",
        about: "The GPU streams that are the consumers of the kernels view: patterns for whole names.",
        within: Within::Anything,
        place: |draft| &mut draft.locations,
    },
    SectionKey {
        key: "ranks",
        default: "\"all\"",
        about: "The ranks that are the consumers of the ranks view: all on the node, those that are found to use the device, or a list. If only one GPU lists a rank, the rank's GPU streams use that GPU, unless addresses show another.",
        within: Within::Anything,
        place: |draft| &mut draft.ranks,
    },
];

impl Value for Ranks {
    fn allowed(&self) -> String {
        alternatives(&["\"all\"", "\"found\"", "a list like [0, 1]"])
    }

    fn shown(&self) -> Option<String> {
        None
    }

    fn read(&mut self, written: &Written, _: &Within) -> Result<(), WrongValue> {
        *self = match written {
            Written::File(DeValue::Array(ranks)) => {
                let rank = |rank: &toml::Spanned<DeValue>| {
                    let number = Written::File(rank.get_ref()).whole()?;
                    u32::try_from(number).map_err(|_| WrongValue::Whole(number.to_string()))
                };
                Ranks::Listed(ranks.iter().map(rank).collect::<Result<_, _>>()?)
            }
            other => match other.text()? {
                "all" => Ranks::All,
                "found" => Ranks::Found,
                word => return Err(WrongValue::Word { found: word.to_owned(), words: self.allowed() }),
            },
        };
        Ok(())
    }
}

impl DeviceSetting {
    /// Returns the ranks that are listed, if there is a list.
    pub fn listed_ranks(&self) -> Option<&Vec<u32>> {
        match &self.ranks {
            Ranks::Listed(ranks) => Some(ranks),
            _ => None,
        }
    }

    /// Returns the device's name, if this setting applies to this metric on this node.
    pub fn name_for(&self, node: &str, metric: &str) -> Option<String> {
        if self.node.as_ref().is_some_and(|pattern| !pattern.is_match(node)) {
            return None;
        }
        let captures = self.metric.captures(metric)?;
        let mut name = String::new();
        captures.expand(&self.name, &mut name);
        Some(name)
    }

    /// Returns the patterns of the nodes and of the metrics to which it applies.
    pub fn patterns(&self) -> (Option<&str>, &str) {
        (self.node.as_ref().map(|node| node.as_str()), self.metric.as_str())
    }
}

impl DeviceSetting {
    /// Reads a section that starts at offset `at` of the file. `before`: the devices before it.
    pub(crate) fn read(
        source: &Source,
        table: &DeTable,
        at: usize,
        before: &[DeviceSetting],
    ) -> Result<DeviceSetting, ConfigError> {
        let draft = read_keys(source, table, KEYS)?;
        let missing = |key| source.error(at, format!("a [[device]] needs a {key}"));
        let setting = DeviceSetting {
            name: draft.name.ok_or_else(|| missing("name"))?,
            metric: draft.metric.ok_or_else(|| missing("metric"))?,
            node: draft.node,
            instantaneous: match draft.kind {
                Kind::AsDefined => None,
                Kind::Cumulative => Some(false),
                Kind::Instantaneous => Some(true),
            },
            scale: draft.scale,
            wraps_at: draft.wraps_at,
            delay: draft.delay,
            baseline_watts: draft.baseline_watts,
            calibrated: draft.calibrated,
            locations: draft.locations,
            ranks: draft.ranks,
        };
        match setting.why_unusable(before) {
            Some(why) => Err(source.error(at, format!("device {:?}: {why}", setting.name))),
            None => Ok(setting),
        }
    }

    /// Returns the reason if the setting can never be used, given the settings before it.
    fn why_unusable(&self, before: &[DeviceSetting]) -> Option<String> {
        let metric = plain(self.metric.as_str());
        if let Some(first) = before.iter().find(|first| first.patterns() == self.patterns()) {
            return Some(format!("metric = '{metric}' is already assigned to device {:?}", first.name));
        }
        let groups = self.metric.captures_len() - 1;
        let names: Vec<&str> = self.metric.capture_names().flatten().collect();
        let is_missing = |reference: &&str| match reference.parse::<usize>() {
            Ok(number) => number > groups,
            Err(_) => !names.contains(reference),
        };
        let missing = references(&self.name).into_iter().find(is_missing)?;
        let groups = if groups == 1 { "1 group".to_owned() } else { format!("{groups} groups") };
        Some(format!("name: there is no ${missing}, metric = '{metric}' has {groups}"))
    }
}

/// Returns the captures that a name refers to, as [`regex::Captures::expand`] does: `$1`, `${1}x` or `$word`. `$$` is a dollar
/// sign.
fn references(name: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = name;
    while let Some((_, after)) = rest.split_once('$') {
        let (reference, behind) = match after.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some(braced) => braced,
            None => {
                let is_outside = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                after.split_at(after.find(is_outside).unwrap_or(after.len()))
            }
        };
        all.extend((!reference.is_empty()).then_some(reference));
        rest = if reference.is_empty() { after.strip_prefix('$').unwrap_or(after) } else { behind };
    }
    all
}
