//! Decides which devices' joules are added up for a node. Two counters that rise in step to the last tick are the same one: the
//! dies of a package may have one counter, and each partition of a GPU may show that of the whole package. A counter that
//! should contain other devices, but counts less than they do, is left out.
//!
//! Two counters are compared only if they may be the same one according to what is known of the hardware, or if they are of
//! another tool's trace and their names differ only in numbers. Then only their values decide. Until then the later one's
//! joules are in no total, so that published totals never decrease.

use crate::agreement;
use crate::attributor::{Attributor, Device, DeviceInfo, Standing, Unit};
use crate::sameness::{Compare, Sameness, sameness, sameness_by_values_alone};
use crate::topology::CountedPart;
use ampere_model::counted::{is_mi250x, without_numbers};
use ampere_model::text::joules;

/// Whether two devices may have the same counter, by what is known about them.
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
    let names = [one.0, other.0].map(|info| info.metric.rsplit(':').next().unwrap_or_default());
    let zones = names.map(name_without_zone);
    let dies = names.map(die_of);
    names[0] != names[1] && zones[0] == zones[1] || dies[0].is_some() && dies[0] == dies[1]
}

/// Whether two energy counters of another tool's trace differ only in numbers, in the metric or in the part or location that was
/// added to it ([`DeviceInfo::counter`]), such as two CPUs of one core. Then only their values can show that they are one.
fn differ_only_in_numbers(one: &Device, other: &Device) -> bool {
    let [first, second] = [one, other].map(|device| &device.info);
    let is_energy_of_other_tool = |info: &DeviceInfo| info.unit == Unit::Joules && info.is_by_other_tool;
    is_energy_of_other_tool(first)
        && is_energy_of_other_tool(second)
        && first.node == second.node
        && first.counter != second.counter
        && without_numbers(&first.counter) == without_numbers(&second.counter)
        && !one.is_power()
        && !other.is_power()
}

/// Returns `package-0` for `zone-2-package-0`, which is the name of a second zone `package-0`.
fn name_without_zone(name: &str) -> &str {
    let numbered = name.strip_prefix("zone-").and_then(|rest| rest.split_once('-'));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbered.filter(|(zone, _)| number(zone)).map_or(name, |(_, name)| name)
}

/// Returns the package and the part in names such as `package-0-die-1` and `package-0-die-1-dram`.
fn die_of(name: &str) -> Option<(&str, &str)> {
    let (package, die) = name.split_once("-die-")?;
    Some((package, die.trim_start_matches(|c: char| c.is_ascii_digit())))
}

impl Attributor {
    /// Notes which earlier devices may have the counter of the last device that was added.
    pub(crate) fn compare_last_device(&mut self) {
        let Some(last) = self.devices.len().checked_sub(1) else { return };
        let of = |device: usize| (&self.devices[device].info, self.counted_part(device));
        let by_values: Compare = |one, other, has_ended| sameness(&one.values, &other.values, has_ended);
        let pair_with = |other: usize| {
            if may_be_one(of(other), of(last)) {
                return Some((other, last, by_values));
            }
            // Which of two numbered counters is taken to repeat the other does not depend on their order in the trace.
            let is_first = self.order(other) < self.order(last);
            let (first, second) = if is_first { (other, last) } else { (last, other) };
            let differ_only_in_numbers = differ_only_in_numbers(&self.devices[other], &self.devices[last]);
            differ_only_in_numbers.then_some((first, second, sameness_by_values_alone as Compare))
        };
        for (first, second, compare) in (0..last).filter_map(pair_with).collect::<Vec<_>>() {
            self.devices[first].first_readings.is_wanted = true;
            self.devices[second].first_readings.is_wanted = true;
            let others = &self.devices[second].first_readings.others;
            let at = others.partition_point(|(other, _)| self.order(*other) <= self.order(first));
            self.devices[second].first_readings.others.insert(at, (first, compare));
            self.set_standing(second, Standing::Undecided);
        }
    }

    /// Returns a key that sorts devices by the numbers in their names.
    fn order(&self, device: usize) -> (usize, &str) {
        let counter = self.devices[device].info.counter.as_str();
        (counter.len(), counter)
    }

    /// Decides which devices show another one's counter.
    pub fn judge_repeated(&mut self, has_ended: bool) {
        for device in 0..self.devices.len() {
            if self.devices[device].standing == Standing::Undecided {
                let standing = self.standing_of_repeated(device, has_ended);
                self.set_standing(device, standing);
            }
        }
        self.learn_repeated();
    }

    /// Whether a device shows another one's counter.
    pub fn is_repeated(&self, device: usize) -> bool {
        matches!(self.devices[device].standing, Standing::Repeats(_))
    }

    /// Decides which devices count, by what they have shown so far. `has_ended`: no more readings come.
    pub fn judge_devices(&mut self, has_ended: bool) {
        self.judge_repeated(has_ended);
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
            let disproof = agreement::disproof(self, whole, has_ended);
            self.set_standing(whole, disproof.map_or(Standing::Counts, Standing::Disproved));
        }
    }

    fn set_standing(&mut self, device: usize, standing: Standing) {
        let before = std::mem::replace(&mut self.devices[device].standing, standing);
        if std::mem::discriminant(&before) != std::mem::discriminant(&self.devices[device].standing) {
            self.counting_version += 1;
        }
    }

    /// Returns a number that changes whenever the set of devices that count changes.
    pub fn counting_version(&self) -> u64 {
        self.counting_version
    }

    fn standing_of_repeated(&self, device: usize, has_ended: bool) -> Standing {
        let own = &self.devices[device].first_readings;
        let mut standing = Standing::Counts;
        for (other, compare) in &own.others {
            match compare(&self.devices[*other].first_readings, own, has_ended) {
                Sameness::One => {
                    return match self.devices[*other].standing {
                        Standing::Repeats(first) => Standing::Repeats(first),
                        _ => Standing::Repeats(*other),
                    };
                }
                Sameness::Unknown if !has_ended => standing = Standing::Undecided,
                Sameness::Two | Sameness::Unknown => {}
            }
        }
        standing
    }

    /// Whether a device's joules are its own, and a part of its node's.
    pub fn counts(&self, device: usize) -> bool {
        self.devices[device].standing == Standing::Counts
    }

    /// Whether a device's joules are known not to be a part of its node's. Consumers draw from a device that is undecided.
    pub fn is_left_out(&self, device: usize) -> bool {
        matches!(self.devices[device].standing, Standing::Repeats(_) | Standing::Disproved(_))
    }

    /// Returns one line for each device that is left out, and whether that makes the run incomplete.
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
    use crate::attributor::{FoundDevice, Recorded};
    use crate::topology::CounterEvidence;
    use ampere_model::Quality;
    use ampere_settings::Config;

    type Shows = fn(u64) -> u64;
    type Counter<'a> = (&'a str, &'a str, &'a str, Shows);

    /// Returns which devices of a node count after 2 s: each has a metric, a PCI address, a model and a counter.
    fn counts(devices: &[Counter]) -> Vec<bool> {
        let mut attributor = Attributor::new(Config::default(), 1000);
        for (number, (metric, pci, model, _)) in devices.iter().enumerate() {
            let found = FoundDevice {
                node: "n".to_owned(),
                metric: (*metric).to_owned(),
                source: "made up".to_owned(),
                quality: Quality::Measured,
                joules_per_unit: Some(1e-3),
            };
            let evidence = CounterEvidence {
                pci: (!pci.is_empty()).then(|| (*pci).to_owned()),
                model: (*model).to_owned(),
                ..CounterEvidence::default()
            };
            assert_eq!(attributor.add_recorded(found, evidence, Recorded::default()), Some(number));
        }
        for time in (0..2000).step_by(10) {
            for (device, (.., shows)) in devices.iter().enumerate() {
                attributor.read_now(device, time + device as u64, shows(time));
            }
            attributor.judge_devices(false);
        }
        attributor.judge_devices(true);
        (0..devices.len()).map(|device| attributor.counts(device)).collect()
    }

    #[test]
    fn partitions_and_dies_with_one_counter_count_once_and_others_each() {
        const MI300: &str = "AMD Instinct MI300X";
        const MI250: &str = "AMD Instinct MI250X";
        let gpu = |number: u32| format!("rocm_smi:::energy_count:device={number}");
        let [g0, g1, g2, g3] = [0, 1, 2, 3].map(gpu);
        let [g0, g1, g2, g3] = [&g0, &g1, &g2, &g3].map(String::as_str);
        let one: Shows = |time| 70_000 + 300 * time;
        let other: Shows = |time| 90_000 + 300 * time;
        let slower: Shows = |time| 70_000 + 280 * time;
        let still: Shows = |_| 70_000;
        let cases: [(&str, &[Counter], &[bool]); 11] = [
            (
                "partitions of one package",
                &[
                    (g0, "0000:c1:00.0", MI300, one),
                    (g1, "0000:c1:00.1", MI300, one),
                    (g2, "0000:c1:00.2", MI300, one),
                ],
                &[true, false, false],
            ),
            (
                "two partitions each of two packages under one load",
                &[
                    (g0, "0000:c1:00.0", MI300, one),
                    (g1, "0000:c1:00.1", MI300, one),
                    (g2, "0000:c2:00.0", MI300, other),
                    (g3, "0000:c2:00.1", MI300, other),
                ],
                &[true, false, true, false],
            ),
            (
                "partitions with a counter each",
                &[
                    (g0, "0000:c1:00.0", MI300, one),
                    (g1, "0000:c1:00.1", MI300, slower),
                    (g2, "0000:c1:00.2", MI300, other),
                ],
                &[true, true, true],
            ),
            (
                "the second partition's own counter, which the third one shows, too",
                &[
                    (g0, "0000:c1:00.0", MI300, one),
                    (g1, "0000:c1:00.1", MI300, other),
                    (g2, "0000:c1:00.2", MI300, other),
                ],
                &[true, true, false],
            ),
            (
                "a partition whose counter stands still",
                &[(g0, "0000:c1:00.0", MI300, one), (g1, "0000:c1:00.1", MI300, still)],
                &[true, true],
            ),
            (
                "packages of one kind that show the same",
                &[(g0, "0000:c1:00.0", MI300, one), (g1, "0000:c2:00.0", MI300, one)],
                &[true, true],
            ),
            (
                "both dies of two MI250X",
                &[
                    (g0, "0000:c1:00.0", MI250, one),
                    (g1, "0000:c6:00.0", MI250, one),
                    (g2, "0000:c9:00.0", MI250, one),
                    (g3, "0000:ce:00.0", MI250, one),
                ],
                &[true, false, true, false],
            ),
            (
                "dies of an MI250X with a counter each",
                &[(g0, "0000:c1:00.0", MI250, one), (g1, "0000:c6:00.0", MI250, slower)],
                &[true, true],
            ),
            (
                "dies of two MI250X that show the same",
                &[(g1, "0000:c6:00.0", MI250, one), (g2, "0000:c9:00.0", MI250, one)],
                &[true, true],
            ),
            (
                "two zones of one name",
                &[
                    ("rapl:::energy:package-0", "", "", one),
                    ("rapl:::energy:zone-2-package-0", "", "", one),
                    ("rapl:::energy:zone-2-package-0-dram", "", "", one),
                ],
                &[true, false, true],
            ),
            (
                "two zones of one name with a counter each",
                &[
                    ("rapl:::energy:package-0", "", "", one),
                    ("rapl:::energy:zone-2-package-0", "", "", other),
                ],
                &[true, true],
            ),
        ];
        for (case, devices, expected) in cases {
            assert_eq!(counts(devices), expected, "{case}");
        }
    }

    /// Returns which of three counters with equal values count, if they are added in this order.
    fn counting_of_equal(order: [usize; 3], is_by_other_tool: bool) -> Vec<usize> {
        let mut attributor = Attributor::new(Config::default(), 1000);
        for number in order {
            let found = FoundDevice {
                node: "n".to_owned(),
                metric: format!("rocm_smi:::energy_count:device={number}"),
                source: "trace".to_owned(),
                quality: Quality::Measured,
                joules_per_unit: Some(1e-3),
            };
            let recorded = Recorded { is_by_other_tool, ..Recorded::default() };
            attributor.add_recorded(found, CounterEvidence::default(), recorded);
        }
        for time in (0..2000u64).step_by(10) {
            (0..3).for_each(|device| attributor.read_now(device, time, 300 * time + time * time * 97 % 211));
        }
        attributor.judge_devices(true);
        (0..3).filter(|device| attributor.counts(*device)).map(|device| order[device]).collect()
    }

    #[test]
    fn in_any_order_the_first_of_equal_numbered_counters_counts() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            assert_eq!(counting_of_equal(order, true), [0], "{order:?}");
        }
        assert_eq!(counting_of_equal([0, 1, 2], false), [0, 1, 2], "ampere reads each counter once");
    }

    #[test]
    fn dies_of_one_package_may_have_one_counter() {
        assert_eq!(die_of("package-0-die-1"), Some(("package-0", "")));
        assert_eq!(die_of("package-1-die-10-dram"), Some(("package-1", "-dram")));
        assert_eq!(die_of("package-1"), None);
    }
}
