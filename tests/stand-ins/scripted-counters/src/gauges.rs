//! The gauges of a stand-in's devices, in addition to their energy.

/// The gauges of one device in the libraries' units: watts, degrees, percent, bytes. By default the power is that of the script.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauges {
    values: [f64; NAMES.len()],
    /// The status that reading each gauge returns; 0 for none.
    errors: [u32; NAMES.len()],
}

/// The names in `gauge=` and `gauge_error=`. `power` is the mean power, `socket` the present one; `gpu` is NVML's temperature,
/// and `clock` (in MHz), `limit` and the bits `reasons` are NVML's, too.
const NAMES: [&str; 12] = [
    "power", "socket", "edge", "junction", "memory", "gpu", "busy", "used", "total", "clock", "limit",
    "reasons",
];

impl Default for Gauges {
    fn default() -> Gauges {
        Gauges {
            values: [f64::NAN, f64::NAN, 41.0, 55.0, 48.0, 44.0, 37.0, 1e9, 64e9, 1500.0, 700.0, 0.0],
            errors: [0; NAMES.len()],
        }
    }
}

impl Gauges {
    /// Returns the value of a gauge, or its status. The power is `watts` unless the script sets it.
    ///
    /// # Panics
    /// Panics on an unknown name, which is a mistake of the stand-in.
    pub fn get(&self, name: &str, watts: f64) -> Result<f64, u32> {
        let at = NAMES.iter().position(|known| *known == name).expect("a gauge's name");
        let value = self.values[at];
        match self.errors[at] {
            0 => Ok(if value.is_nan() { watts } else { value }),
            status => Err(status),
        }
    }

    /// Applies a script's entry: `edge:41.5`, or with `error` `edge:2`.
    pub fn apply(&mut self, text: &str, error: bool) -> Result<(), String> {
        let (name, value) = text.split_once(':').ok_or_else(|| format!("gauge {text:?}: no NAME:VALUE"))?;
        let known = NAMES.iter().position(|known| *known == name);
        let at =
            known.ok_or_else(|| format!("gauge {name:?} is not known; there are {}", NAMES.join(", ")))?;
        if error {
            self.errors[at] = super::script::number(value)?;
        } else {
            self.values[at] = super::script::number(value)?;
        }
        Ok(())
    }
}
