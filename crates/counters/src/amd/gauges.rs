//! The calls into AMD's libraries for gauges. Signatures, enumerators and units are those of `rocm_smi/rocm_smi.h`, 5.2.3 to 6,
//! and of `amd_smi/amdsmi.h` in ROCm 6.0 to 7. If a version lacks a function, the function's gauge is not offered. The two
//! libraries differ in the type that identifies a device (`H`), in the functions for power, and in the unit of temperatures.
#![allow(unsafe_code)]

use crate::Gauge;
use crate::vendor::Symbols;

/// The result is in microwatts. Sensors are numbered.
type AveragePowerFn<H> = unsafe extern "C" fn(device: H, sensor_ind: u32, power: *mut u64) -> u32;
/// The result is in microwatts. The function exists since ROCm 6.
type SocketPowerFn<H> = unsafe extern "C" fn(device: H, socket_power: *mut u64) -> u32;
/// The two numbers are enumerations of the width of an int.
type TemperatureFn<H> =
    unsafe extern "C" fn(device: H, sensor_type: u32, metric: u32, temperature: *mut i64) -> u32;
/// The result is in bytes. `mem_type` is an enumeration.
type MemoryFn<H> = unsafe extern "C" fn(device: H, mem_type: u32, bytes: *mut u64) -> u32;
/// Writes a number, or a structure that starts with 32-bit numbers.
type WordsFn<H> = unsafe extern "C" fn(device: H, words: *mut Words) -> u32;

/// `RSMI_TEMP_CURRENT` and `AMDSMI_TEMP_CURRENT`.
const TEMP_CURRENT: u32 = 0;
/// `RSMI_TEMP_TYPE_EDGE` and so on; `AMDSMI_TEMPERATURE_TYPE_EDGE`, `_JUNCTION` (also called hotspot) and `_VRAM`.
const EDGE: u32 = 0;
const JUNCTION: u32 = 1;
const MEMORY: u32 = 2;
/// `RSMI_MEM_TYPE_VRAM` and `AMDSMI_MEM_TYPE_VRAM`.
const VRAM: u32 = 0;
/// An unknown value has all bits set, in 16 bits (ROCm 6) or in 32.
const NOT_KNOWN: u32 = 0xffff;

/// Room for the percentage of librocm_smi64, or for `amdsmi_engine_usage_t` (graphics, memory controller and video, in percent)
/// or `amdsmi_power_info_t`, whose first fields have had two layouts. The buffer is larger than any release has needed.
#[repr(C, align(8))]
struct Words([u32; 512]);

/// Finds the present and the average watts in either of two layouts of `amdsmi_power_info_t`:
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

pub(crate) struct GaugeFunctions<H> {
    average_power: Option<AveragePowerFn<H>>,
    socket_power: Option<SocketPowerFn<H>>,
    /// The function that writes both powers into one structure.
    power_info: Option<WordsFn<H>>,
    temperature: Option<TemperatureFn<H>>,
    celsius_per_unit: f64,
    busy: Option<WordsFn<H>>,
    memory_used: Option<MemoryFn<H>>,
    memory_size: Option<MemoryFn<H>>,
    known: Vec<Gauge>,
}

impl<H: Copy> GaugeFunctions<H> {
    /// # Safety
    /// The library is librocm_smi64, and stays loaded; `H` is `u32`.
    pub unsafe fn of_rocm_smi(library: &Symbols) -> GaugeFunctions<H> {
        // SAFETY: the types are those of rocm_smi.h for these names, or point to larger memory.
        let found = unsafe {
            GaugeFunctions {
                average_power: library.get("rsmi_dev_power_ave_get").ok(),
                socket_power: library.get("rsmi_dev_current_socket_power_get").ok(),
                power_info: None,
                temperature: library.get("rsmi_dev_temp_metric_get").ok(),
                celsius_per_unit: 1e-3,
                busy: library.get("rsmi_dev_busy_percent_get").ok(),
                memory_used: library.get("rsmi_dev_memory_usage_get").ok(),
                memory_size: library.get("rsmi_dev_memory_total_get").ok(),
                known: Vec::new(),
            }
        };
        found.with_known()
    }

    /// # Safety
    /// The library is libamd_smi, and stays loaded; `H` is its handle of a processor.
    pub unsafe fn of_amdsmi(library: &Symbols) -> GaugeFunctions<H> {
        // SAFETY: the types are those of amdsmi.h for these names, or point to larger memory.
        let found = unsafe {
            GaugeFunctions {
                average_power: None,
                socket_power: None,
                power_info: library.get("amdsmi_get_power_info").ok(),
                temperature: library.get("amdsmi_get_temp_metric").ok(),
                celsius_per_unit: 1.0, // ROCm 6's header has thousandths, but its functions return degrees
                busy: library.get("amdsmi_get_gpu_activity").ok(),
                memory_used: library.get("amdsmi_get_gpu_memory_usage").ok(),
                memory_size: library.get("amdsmi_get_gpu_memory_total").ok(),
                known: Vec::new(),
            }
        };
        found.with_known()
    }

    fn with_known(mut self) -> GaugeFunctions<H> {
        for (there, gauges) in [
            (self.average_power.is_some() || self.power_info.is_some(), &[Gauge::AveragePower][..]),
            (self.socket_power.is_some() || self.power_info.is_some(), &[Gauge::CurrentPower]),
            (
                self.temperature.is_some(),
                &[Gauge::EdgeTemperature, Gauge::JunctionTemperature, Gauge::MemoryTemperature],
            ),
            (self.busy.is_some(), &[Gauge::Busy]),
            (self.memory_used.is_some(), &[Gauge::MemoryUsed]),
            (self.memory_size.is_some(), &[Gauge::MemorySize]),
        ] {
            self.known.extend(gauges.iter().filter(|_| there));
        }
        self
    }

    /// Removes the gauges of power if the library is older than ROCm 6.0 (version 23.4): its layout cannot be distinguished
    /// from the two later ones.
    pub fn without_power_before_rocm_6(&mut self, numbers: [u32; 4]) {
        if numbers[0] == 23 && numbers[1] < 4 {
            self.power_info = None;
            self.known.retain(|gauge| !matches!(gauge, Gauge::AveragePower | Gauge::CurrentPower));
        }
    }

    pub fn known(&self) -> &[Gauge] {
        &self.known
    }

    /// Returns the value in base units; `None` if the status is not success.
    ///
    /// # Safety
    /// The library is initialised, not ended, and not called from elsewhere in the meantime; a handle is the library's.
    pub unsafe fn ask(&self, device: H, gauge: Gauge) -> Option<f64> {
        let mut unsigned = 0u64;
        let mut signed = 0i64;
        let mut words = Words([u32::MAX; 512]);
        // SAFETY: the caller guarantees the conditions above, and the three pointers are to locals of the headers' types or
        // larger. An index out of bounds is answered with a status.
        let (status, value) = unsafe {
            match gauge {
                Gauge::AveragePower | Gauge::CurrentPower if self.power_info.is_some() => {
                    let status = self.power_info?(device, &mut words);
                    let [now, average] = powers(&words.0);
                    (status, if gauge == Gauge::CurrentPower { now? } else { average? })
                }
                Gauge::AveragePower => {
                    (self.average_power?(device, 0, &mut unsigned), unsigned as f64 * 1e-6)
                }
                Gauge::CurrentPower => (self.socket_power?(device, &mut unsigned), unsigned as f64 * 1e-6),
                Gauge::EdgeTemperature | Gauge::JunctionTemperature | Gauge::MemoryTemperature => {
                    let sensor = match gauge {
                        Gauge::EdgeTemperature => EDGE,
                        Gauge::JunctionTemperature => JUNCTION,
                        _ => MEMORY,
                    };
                    let status = self.temperature?(device, sensor, TEMP_CURRENT, &mut signed);
                    (status, signed as f64 * self.celsius_per_unit)
                }
                Gauge::Busy => (self.busy?(device, &mut words), f64::from(words.0[0]) * 1e-2),
                Gauge::MemoryUsed => (self.memory_used?(device, VRAM, &mut unsigned), unsigned as f64),
                Gauge::MemorySize => (self.memory_size?(device, VRAM, &mut unsigned), unsigned as f64),
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
