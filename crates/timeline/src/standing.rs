//! Which devices' joules are among a node's. Two counters that rise in step to the last tick are one: the dies of a package that
//! have one counter, the partitions of a GPU each of which shows its whole package's. A counter of several parts that counts less
//! than they do is not the node's total.
//!
//! Only counters are compared that may be one by what is known of the hardware, and only their values decide. Until then the
//! later one is left out, so that published totals never decrease.

use crate::agreement;
use crate::attributor::{Attributor, DeviceInfo, Unit};
use crate::topology::{CountedPart, is_mi250x};
use ampere_model::text::joules;
use ampere_model::{MetricValue, Timestamp};

/// The maximum number of readings with a new value that are compared.
const READINGS_MAX: usize = 256;
/// This many equal values are no accident: each is one of some thousand possible ones.
const EQUAL_MIN: usize = 3;
/// Values of a counter that moves with every reading are never equal. Instead, at least this many must lie between two of the
/// other counter's.
const BETWEEN_MIN: usize = 200;
/// This many values that the other counter cannot have had show that there are two.
const AGAINST_MIN: usize = 3;

/// What a device's joules are to its node's sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Standing {
    /// Its joules are a part of the sum.
    #[default]
    Counts,
    /// Its counter may be another device's: it is left out until that is known.
    Undecided,
    /// Its counter is that of the device with this number.
    Repeats(usize),
    /// It contains other devices that have counted more.
    Disproved(Disproof),
}

/// Why a device's counter is not that of all its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Disproof {
    /// The joules of the device itself.
    pub joules: f64,
    /// The joules of its parts in the same time.
    pub parts_joules: f64,
    /// The names of its parts, joined.
    pub parts: String,
}

/// The first values of a counter that differ from the previous one, in order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstReadings {
    /// Devices that became known earlier and may have the same counter.
    others: Vec<usize>,
    is_wanted: bool,
    values: Vec<(Timestamp, u64)>,
}

impl FirstReadings {
    /// Takes a reading, if readings are to be compared.
    pub fn add(&mut self, time: Timestamp, value: MetricValue) {
        if !self.is_wanted || self.values.len() >= READINGS_MAX {
            return;
        }
        // The bits of fractions are in the order of the numbers.
        let value = match value {
            MetricValue::U64(value) => Some(value),
            MetricValue::I64(value) => u64::try_from(value).ok(),
            MetricValue::F64(value) => Some(value.to_bits()).filter(|_| value >= 0.0),
        };
        let Some(value) = value else { return };
        if self.values.last().is_none_or(|(_, last)| *last != value) {
            self.values.push((time, value));
        }
    }
}

/// Whether two counters are one, by their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sameness {
    One,
    Two,
    Unknown,
}

/// Compares the values of two counters. Equal values, or values between two of the other counter's, show that they are one.
fn sameness(one: &[(Timestamp, u64)], other: &[(Timestamp, u64)], is_over: bool) -> Sameness {
    let (mut equal, mut between, mut against) = (0, 0, 0);
    for (time, value) in other.iter().skip(1) {
        let next = one.partition_point(|(at, _)| at <= time);
        let near = &one[next.saturating_sub(2)..(next + 2).min(one.len())];
        if near.iter().any(|(_, near)| near == value) {
            equal += 1;
            continue;
        }
        let around = next.checked_sub(1).and_then(|before| Some((one[before].1, one.get(next)?.1)));
        match around {
            Some((before, after)) if before <= *value && *value <= after => between += 1,
            // This is the end of a counter's range.
            Some((before, after)) if after < before => {}
            Some(_) => against += 1,
            None => {}
        }
    }
    let (in_step, is_risen) = (equal + between, one.len() > 1 || other.len() > 1);
    let are_two = against >= AGAINST_MIN && 4 * against > in_step || is_over && is_risen && against > in_step;
    if are_two {
        return Sameness::Two;
    }
    let is_enough = equal >= EQUAL_MIN || in_step >= BETWEEN_MIN || is_over && in_step > 0;
    match is_enough && 8 * against <= in_step {
        true => Sameness::One,
        false => Sameness::Unknown,
    }
}

/// Whether two devices may have one counter, by what is known of them.
fn may_be_one(one: (&DeviceInfo, &CountedPart), other: (&DeviceInfo, &CountedPart)) -> bool {
    let library = |info: &DeviceInfo| info.metric.split_once(":::").map(|(library, _)| library.to_owned());
    if one.0.node != other.0.node || library(one.0) != library(other.0) {
        return false;
    }
    let pci = |part: &CountedPart| part.evidence.pci.clone().filter(|_| part.is_gpu());
    let package = |pci: &str| pci.rsplit_once('.').map(|(package, _)| package.to_owned());
    if let (Some(own), Some(another)) = (pci(one.1), pci(other.1))
        && package(&own) == package(&another)
    {
        return true;
    }
    let models = [one.1, other.1].map(|part| part.evidence.model.as_str());
    if let (Some(first), Some(second)) = (one.1.number(), other.1.number())
        && models.into_iter().any(is_mi250x)
    {
        return first / 2 == second / 2;
    }
    let dies = [one.0, other.0].map(|info| die_of(&info.metric));
    dies[0].is_some() && dies[0] == dies[1]
}

/// The package and the part in names such as `package-0-die-1` and `package-0-die-1-dram`.
fn die_of(metric: &str) -> Option<(&str, &str)> {
    let name = metric.rsplit(':').next()?;
    let (package, die) = name.split_once("-die-")?;
    Some((package, die.trim_start_matches(|c: char| c.is_ascii_digit())))
}

impl Attributor {
    /// Notes which earlier devices may have the counter of the last device that was added.
    pub(crate) fn compare_last_device(&mut self) {
        let Some(last) = self.devices.len().checked_sub(1) else { return };
        let of = |device: usize| (&self.devices[device].info, self.counted_part(device));
        let others: Vec<usize> = (0..last).filter(|earlier| may_be_one(of(*earlier), of(last))).collect();
        if others.is_empty() {
            return;
        }
        others.iter().for_each(|other| self.devices[*other].first_readings.is_wanted = true);
        let device = &mut self.devices[last];
        device.first_readings.is_wanted = true;
        (device.first_readings.others, device.standing) = (others, Standing::Undecided);
    }

    /// Decides which devices count, by what they have shown so far. `is_over`: no more readings come.
    pub fn judge_devices(&mut self, is_over: bool) {
        for device in 0..self.devices.len() {
            if self.devices[device].standing == Standing::Undecided {
                let standing = self.standing_of_repeated(device, is_over);
                self.set_standing(device, standing);
            }
        }
        self.learn_repeated();
        let mut wholes: Vec<usize> = (0..self.devices.len()).collect();
        wholes.retain(|device| !self.devices[*device].info.traits.contains.is_empty());
        wholes.sort_by_key(|device| self.devices[*device].info.traits.contains.len());
        for whole in wholes {
            let device = &self.devices[whole];
            if device.info.unit != Unit::Joules
                || matches!(device.standing, Standing::Undecided | Standing::Repeats(_))
            {
                continue;
            }
            let disproof = agreement::disproof(self, whole, is_over);
            self.set_standing(whole, disproof.map_or(Standing::Counts, Standing::Disproved));
        }
    }

    fn set_standing(&mut self, device: usize, standing: Standing) {
        let before = std::mem::replace(&mut self.devices[device].standing, standing);
        if std::mem::discriminant(&before) != std::mem::discriminant(&self.devices[device].standing) {
            self.judged += 1;
        }
    }

    /// A number that changes whenever the set of devices that count does.
    pub fn judged(&self) -> u64 {
        self.judged
    }

    fn standing_of_repeated(&self, device: usize, is_over: bool) -> Standing {
        let own = &self.devices[device].first_readings;
        let mut standing = Standing::Counts;
        for other in &own.others {
            match sameness(&self.devices[*other].first_readings.values, &own.values, is_over) {
                Sameness::One => {
                    return match self.devices[*other].standing {
                        Standing::Repeats(first) => Standing::Repeats(first),
                        _ => Standing::Repeats(*other),
                    };
                }
                Sameness::Unknown if !is_over => standing = Standing::Undecided,
                Sameness::Two | Sameness::Unknown => {}
            }
        }
        standing
    }

    /// Whether a device's joules are its own, and a part of its node's.
    pub fn counts(&self, device: usize) -> bool {
        self.devices[device].standing == Standing::Counts
    }

    /// Whether a device's joules are known to be no part of its node's. Consumers draw from a device that is undecided.
    pub fn is_left_out(&self, device: usize) -> bool {
        matches!(self.devices[device].standing, Standing::Repeats(_) | Standing::Disproved(_))
    }

    /// One line for each device that is left out, and whether that makes the run incomplete.
    pub fn notes_of_left_out(&self) -> Vec<(String, bool)> {
        let notes = self.devices.iter().filter_map(|device| {
            let (name, node) = (&device.info.name, &device.info.node);
            match &device.standing {
                Standing::Counts | Standing::Undecided => None,
                Standing::Repeats(first) => {
                    let first = &self.devices[*first].info.name;
                    let line = format!(
                        "{name} on {node} shows the counter of {first}: both rise in step, to the last tick. Its joules are counted \
                         once, as {first}'s"
                    );
                    Some((line, false))
                }
                Standing::Disproved(disproof) => {
                    let line = format!(
                        "{name} on {node} is left out: its counter has {} J, less than the {} J of its parts ({}) in the same time. The \
                         total is that of the parts",
                        joules(disproof.joules),
                        joules(disproof.parts_joules),
                        disproof.parts
                    );
                    Some((line, true))
                }
            }
        });
        notes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of a counter that rises by `ticks` per reading, read at these times.
    fn counter(start: u64, ticks: u64, times: impl Iterator<Item = u64>) -> Vec<(Timestamp, u64)> {
        times.map(|time| (time, start + time / 10 * ticks)).collect()
    }

    #[test]
    fn one_counter_that_is_read_twice_is_one() {
        let one = counter(7_000, 813, (0..400).step_by(10));
        // The same counter is read a moment later, at other times, and while it moves.
        assert_eq!(sameness(&one, &counter(7_000, 813, (2..400).step_by(10)), false), Sameness::One);
        assert_eq!(sameness(&one, &counter(7_000, 813, (5..400).step_by(30)), false), Sameness::One);
        let moving =
            |shift: u64| (0..250).map(|at| (at * 10 + shift, 50 + at * 813 + shift * 81)).collect::<Vec<_>>();
        assert_eq!(sameness(&moving(0), &moving(3), false), Sameness::One);
        // The values were written a moment later; one of the two ended early.
        let late: Vec<_> = one.iter().map(|(time, value)| (time + 11, *value)).collect();
        assert_eq!(sameness(&one, &late, false), Sameness::One);
        assert_eq!(sameness(&one[..2], &one[..2], false), Sameness::Unknown);
        assert_eq!(sameness(&one[..2], &one[..2], true), Sameness::One);
    }

    #[test]
    fn two_counters_that_start_alike_are_two() {
        let one = counter(7_000, 813, (0..400).step_by(10));
        assert_eq!(sameness(&one, &counter(7_000, 502, (2..400).step_by(10)), false), Sameness::Two);
        assert_eq!(sameness(&one, &counter(9_999, 813, (2..400).step_by(10)), false), Sameness::Two);
        assert_eq!(sameness(&one, &counter(7_000, 806, (2..400).step_by(10)), true), Sameness::Two);
        let still = [(0, 5)];
        assert_eq!(sameness(&still, &still, true), Sameness::Unknown, "two that stand still");
    }

    #[test]
    fn dies_of_one_package_may_have_one_counter() {
        assert_eq!(die_of("rapl:::energy:package-0-die-1"), Some(("package-0", "")));
        assert_eq!(die_of("rapl:::energy:package-1-die-10-dram"), Some(("package-1", "-dram")));
        assert_eq!(die_of("rapl:::energy:package-1"), None);
    }
}
