//! Converts raw ticks to nanojoules without floating point.

/// The energy of one tick in attojoules (1e-18 J), which is fine enough to hold 15.3 uJ and 2^-16 J exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolution(u64);

impl Resolution {
    /// Converts microjoules. `None` unless they are above 1e-12 uJ and at most 1 J, which no real counter exceeds: a library of
    /// another ABI could write anything here.
    pub fn from_microjoules(microjoules: f64) -> Option<Resolution> {
        // The comparison is false for NaN too.
        if microjoules > 1e-12 && microjoules <= 1e6 {
            Some(Resolution((microjoules * 1e12).round() as u64))
        } else {
            None
        }
    }

    /// Converts a library's `float`. Its shortest decimal is used, which is what the library's authors wrote: 15.3, not the
    /// nearest float's 15.300000190734863. The two differ by at most 6e-8.
    pub fn from_float(microjoules: f32) -> Option<Resolution> {
        Resolution::from_microjoules(microjoules.to_string().parse().ok()?)
    }

    pub fn joules(self) -> f64 {
        self.0 as f64 / 1e18
    }

    /// Returns the energy of `raw` ticks in whole nanojoules, modulo 2^64.
    pub fn nanojoules(self, raw: u64) -> u64 {
        (u128::from(raw) * u128::from(self.0) / 1_000_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_published_resolutions_are_exact() {
        let library = Resolution::from_float(15.3).unwrap();
        assert_eq!(library.nanojoules(1_000_000), 15_300_000_000);
        assert_eq!(library.joules(), 15.3e-6);
        let kernel = Resolution::from_microjoules(1e6 / 65536.0).unwrap();
        assert_eq!(kernel.nanojoules(65536), 1_000_000_000);
    }

    #[test]
    fn rounding_does_not_accumulate() {
        let resolution = Resolution::from_microjoules(0.0015).unwrap(); // 1.5 nJ
        let mut sum = 0;
        let mut before = 0;
        for raw in 1..=100_001 {
            let now = resolution.nanojoules(raw);
            sum += now - before;
            before = now;
        }
        assert_eq!(sum, 150_001); // 100,001 * 1.5, rounded down once
    }

    #[test]
    fn the_whole_range_of_raw_is_defined() {
        let resolution = Resolution::from_float(15.3).unwrap();
        let last = resolution.nanojoules(u64::MAX);
        let before = resolution.nanojoules(u64::MAX - 1);
        assert_eq!(last.wrapping_sub(before), 15_300);
    }

    #[test]
    fn nonsense_is_refused() {
        for microjoules in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7, 1e-30] {
            assert_eq!(Resolution::from_microjoules(microjoules), None, "{microjoules}");
        }
        assert_eq!(Resolution::from_float(f32::NAN), None);
    }
}
