//! The calls into librocm_smi64 for gauges. Signatures, enumerators and units are those of `rocm_smi/rocm_smi.h`, 5.2.3 to 6; a
//! function that a version lacks is a gauge that it lacks.
#![allow(unsafe_code)]

use crate::Gauge;
use crate::vendor::Symbols;

/// The result is in microwatts. Sensors are numbered.
type AveragePowerFn = unsafe extern "C" fn(dv_ind: u32, sensor_ind: u32, power: *mut u64) -> u32;
/// The result is in microwatts. The function exists since ROCm 6.
type SocketPowerFn = unsafe extern "C" fn(dv_ind: u32, socket_power: *mut u64) -> u32;
/// The result is in thousandths of a degree Celsius. `metric` is an enumeration of the width of an int.
type TemperatureFn =
    unsafe extern "C" fn(dv_ind: u32, sensor_type: u32, metric: u32, temperature: *mut i64) -> u32;
/// The result is between 0 and 100.
type BusyFn = unsafe extern "C" fn(dv_ind: u32, busy_percent: *mut u32) -> u32;
/// The result is in bytes. `mem_type` is an enumeration.
type MemoryFn = unsafe extern "C" fn(dv_ind: u32, mem_type: u32, bytes: *mut u64) -> u32;

/// The header's name is `RSMI_TEMP_CURRENT`.
const TEMP_CURRENT: u32 = 0;
/// The header's names are `RSMI_TEMP_TYPE_EDGE`, `_JUNCTION` and `_MEMORY`.
const EDGE: u32 = 0;
const JUNCTION: u32 = 1;
const MEMORY: u32 = 2;
/// The header's name is `RSMI_MEM_TYPE_VRAM`.
const VRAM: u32 = 0;

pub(super) struct GaugeFunctions {
    average_power: Option<AveragePowerFn>,
    socket_power: Option<SocketPowerFn>,
    temperature: Option<TemperatureFn>,
    busy: Option<BusyFn>,
    memory_used: Option<MemoryFn>,
    memory_size: Option<MemoryFn>,
    known: Vec<Gauge>,
}

impl GaugeFunctions {
    /// # Safety
    /// The library is librocm_smi64, and stays loaded.
    pub unsafe fn find(library: &Symbols) -> GaugeFunctions {
        // SAFETY: the types are those of rocm_smi.h for these names.
        let mut found = unsafe {
            GaugeFunctions {
                average_power: library.get("rsmi_dev_power_ave_get").ok(),
                socket_power: library.get("rsmi_dev_current_socket_power_get").ok(),
                temperature: library.get("rsmi_dev_temp_metric_get").ok(),
                busy: library.get("rsmi_dev_busy_percent_get").ok(),
                memory_used: library.get("rsmi_dev_memory_usage_get").ok(),
                memory_size: library.get("rsmi_dev_memory_total_get").ok(),
                known: Vec::new(),
            }
        };
        for (there, gauges) in [
            (found.average_power.is_some(), &[Gauge::AveragePower][..]),
            (found.socket_power.is_some(), &[Gauge::CurrentPower]),
            (
                found.temperature.is_some(),
                &[Gauge::EdgeTemperature, Gauge::JunctionTemperature, Gauge::MemoryTemperature],
            ),
            (found.busy.is_some(), &[Gauge::Busy]),
            (found.memory_used.is_some(), &[Gauge::MemoryUsed]),
            (found.memory_size.is_some(), &[Gauge::MemorySize]),
        ] {
            found.known.extend(gauges.iter().filter(|_| there));
        }
        found
    }

    pub fn known(&self) -> &[Gauge] {
        &self.known
    }

    /// Returns the value in base units; `None` if the status is not success.
    ///
    /// # Safety
    /// The library is initialised, not ended, and not called from elsewhere meanwhile.
    pub unsafe fn ask(&self, device: u32, gauge: Gauge) -> Option<f64> {
        let (mut unsigned, mut signed, mut percent) = (0u64, 0i64, 0u32);
        // SAFETY: the caller's, and the three are locals of the header's types. An index out of bounds is answered with a
        // status.
        let (status, value) = unsafe {
            match gauge {
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
                    (status, signed as f64 * 1e-3)
                }
                Gauge::Busy => (self.busy?(device, &mut percent), f64::from(percent) * 1e-2),
                Gauge::MemoryUsed => (self.memory_used?(device, VRAM, &mut unsigned), unsigned as f64),
                Gauge::MemorySize => (self.memory_size?(device, VRAM, &mut unsigned), unsigned as f64),
                _ => return None,
            }
        };
        (status == 0).then_some(value)
    }
}
