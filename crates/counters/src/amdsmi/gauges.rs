//! The calls into libamd_smi for gauges. Signatures, enumerators and units are those of `amd_smi/amdsmi.h` in ROCm 6.0 to 7; a
//! function that a version lacks is a gauge that it lacks.
#![allow(unsafe_code)]

use super::library::Handle;
use crate::Gauge;
use crate::vendor::Symbols;

type PowerFn = unsafe extern "C" fn(processor: Handle, info: *mut RawPower) -> u32;
/// The result is in degrees Celsius: ROCm 6's header has thousandths, but its functions divide. The two numbers are enumerations.
type TemperatureFn =
    unsafe extern "C" fn(processor: Handle, sensor_type: u32, metric: u32, temperature: *mut i64) -> u32;
type ActivityFn = unsafe extern "C" fn(processor: Handle, usage: *mut RawUsage) -> u32;
/// The result is in bytes. `mem_type` is an enumeration.
type MemoryFn = unsafe extern "C" fn(processor: Handle, mem_type: u32, bytes: *mut u64) -> u32;

/// The header's name is `AMDSMI_TEMP_CURRENT`.
const TEMP_CURRENT: u32 = 0;
/// The header's names are `AMDSMI_TEMPERATURE_TYPE_EDGE`, `_JUNCTION` (also called hotspot) and `_VRAM`.
const EDGE: u32 = 0;
const JUNCTION: u32 = 1;
const MEMORY: u32 = 2;
/// The header's name is `AMDSMI_MEM_TYPE_VRAM`.
const VRAM: u32 = 0;
/// An unknown value has all bits set, in 16 bits (ROCm 6) or in 32.
const NOT_KNOWN: u32 = 0xffff;

/// `amdsmi_power_info_t`, the first fields of which have had two layouts, with more room than any release has needed.
#[repr(C, align(8))]
struct RawPower([u32; 512]);

/// `amdsmi_engine_usage_t`: graphics, memory controller, video, in percent; with more room, too.
#[repr(C, align(8))]
struct RawUsage([u32; 64]);

/// Finds the present and the average watts in either of two layouts:
///
/// - ROCm 6.0 to 6.3: present, average (32 bits each), voltages.
/// - later: a power (64 bits) that equals one of the two following, present, average (32 bits each), voltages.
///
/// In the later layout the upper half of the 64 bits is 0, and the lower half is repeated. In the first layout this is true only
/// by chance, and then with the right figure: an average of 0 W, and a voltage in millivolts that equals the power in watts.
fn powers(words: &[u32]) -> [Option<f64>; 2] {
    let [first, second, third, fourth] = [words[0], words[1], words[2], words[3]];
    let is_repeated = second == 0 && (first == third || first == fourth);
    let both = if is_repeated { [third, fourth] } else { [first, second] };
    both.map(|watts| (watts < NOT_KNOWN).then_some(f64::from(watts)))
}

pub(super) struct GaugeFunctions {
    power: Option<PowerFn>,
    temperature: Option<TemperatureFn>,
    activity: Option<ActivityFn>,
    memory_used: Option<MemoryFn>,
    memory_size: Option<MemoryFn>,
    known: Vec<Gauge>,
}

impl GaugeFunctions {
    /// # Safety
    /// The library is libamd_smi, and stays loaded.
    pub unsafe fn find(library: &Symbols) -> GaugeFunctions {
        // SAFETY: the types are those of amdsmi.h for these names.
        let mut found = unsafe {
            GaugeFunctions {
                power: library.get("amdsmi_get_power_info").ok(),
                temperature: library.get("amdsmi_get_temp_metric").ok(),
                activity: library.get("amdsmi_get_gpu_activity").ok(),
                memory_used: library.get("amdsmi_get_gpu_memory_usage").ok(),
                memory_size: library.get("amdsmi_get_gpu_memory_total").ok(),
                known: Vec::new(),
            }
        };
        for (there, gauges) in [
            (found.power.is_some(), &[Gauge::AveragePower, Gauge::CurrentPower][..]),
            (
                found.temperature.is_some(),
                &[Gauge::EdgeTemperature, Gauge::JunctionTemperature, Gauge::MemoryTemperature],
            ),
            (found.activity.is_some(), &[Gauge::Busy]),
            (found.memory_used.is_some(), &[Gauge::MemoryUsed]),
            (found.memory_size.is_some(), &[Gauge::MemorySize]),
        ] {
            found.known.extend(gauges.iter().filter(|_| there));
        }
        found
    }

    /// Before ROCm 6.0 (23.4) power has another layout, which cannot be distinguished from these.
    pub fn without_power_before_rocm_6(&mut self, numbers: [u32; 4]) {
        if numbers[0] == 23 && numbers[1] < 4 {
            self.power = None;
            self.known.retain(|gauge| !matches!(gauge, Gauge::AveragePower | Gauge::CurrentPower));
        }
    }

    pub fn known(&self) -> &[Gauge] {
        &self.known
    }

    /// Returns the value in base units; `None` if the status is not success.
    ///
    /// # Safety
    /// The library is initialised, not ended, is not called from elsewhere meanwhile, and the handle is the library's.
    pub unsafe fn ask(&self, processor: Handle, gauge: Gauge) -> Option<f64> {
        let (mut bytes, mut celsius) = (0u64, 0i64);
        // SAFETY: the caller's, and what is pointed to are locals of the header's types or larger.
        let (status, value) = unsafe {
            match gauge {
                Gauge::AveragePower | Gauge::CurrentPower => {
                    let mut info = RawPower([u32::MAX; 512]);
                    let status = self.power?(processor, &mut info);
                    let [now, average] = powers(&info.0);
                    (status, if gauge == Gauge::CurrentPower { now? } else { average? })
                }
                Gauge::EdgeTemperature | Gauge::JunctionTemperature | Gauge::MemoryTemperature => {
                    let sensor = match gauge {
                        Gauge::EdgeTemperature => EDGE,
                        Gauge::JunctionTemperature => JUNCTION,
                        _ => MEMORY,
                    };
                    (self.temperature?(processor, sensor, TEMP_CURRENT, &mut celsius), celsius as f64)
                }
                Gauge::Busy => {
                    let mut usage = RawUsage([u32::MAX; 64]);
                    (self.activity?(processor, &mut usage), f64::from(usage.0[0]) * 1e-2)
                }
                Gauge::MemoryUsed => (self.memory_used?(processor, VRAM, &mut bytes), bytes as f64),
                Gauge::MemorySize => (self.memory_size?(processor, VRAM, &mut bytes), bytes as f64),
                _ => return None,
            }
        };
        (status == 0).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_of_power_are_distinguished() {
        const NONE16: u32 = 0xffff;
        const NONE32: u32 = u32::MAX;
        for (words, expected) in [
            // In ROCm 6.0 to 6.3 an MI300 has no average, an MI200 no present power.
            ([717, NONE16, 800, 850], [Some(717.0), None]),
            ([NONE16, 94, 800, 850], [None, Some(94.0)]),
            ([717, 0, 800, 850], [Some(717.0), Some(0.0)]),
            ([NONE16, NONE16, NONE16, NONE16], [None, None]),
            // This is the later layout.
            ([717, 0, 717, NONE32], [Some(717.0), None]),
            ([94, 0, NONE32, 94], [None, Some(94.0)]),
            ([NONE32, 0, NONE32, NONE32], [None, None]),
        ] {
            assert_eq!(powers(&words), expected, "{words:?}");
        }
    }
}
