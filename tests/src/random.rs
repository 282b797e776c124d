//! Tests that choose their actions at random and can be repeated exactly from a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A generator of pseudorandom numbers (splitmix64). The same seed gives the same numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Draws any 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// Returns `true` once in `times` draws on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Draws one of these values.
    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// Reads a number from the environment.
///
/// # Panics
/// Panics if the variable has another value than a number.
pub fn setting(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number"))
}

/// `AMPERE_TEST_SEED`, or a seed that is new each time.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    setting("AMPERE_TEST_SEED", now.as_nanos() as u64)
}

/// Repeats `round` `AMPERE_TEST_ROUNDS` times, by default `usual` times, each time with other random numbers. A failing round
/// does not stop the others.
///
/// # Panics
/// Panics if a round has panicked. The message has the seed of each such round: `AMPERE_TEST_ROUNDS=1 AMPERE_TEST_SEED=...`
/// repeats that round alone.
#[track_caller]
pub fn rounds(usual: u64, mut round: impl FnMut(&mut Random)) {
    let (count, seed) = (setting("AMPERE_TEST_ROUNDS", usual), seed());
    let mut failed = Vec::new();
    for number in 0..count {
        // The first round uses the seed unchanged, so that the seed alone repeats it.
        let own = if number == 0 { seed } else { Random::new(seed ^ number.rotate_left(32)).draw() };
        if catch_unwind(AssertUnwindSafe(|| round(&mut Random::new(own)))).is_err() {
            println!("this was AMPERE_TEST_ROUNDS=1 AMPERE_TEST_SEED={own}");
            failed.push(own);
        }
    }
    println!("{} of {count} rounds succeeded, AMPERE_TEST_SEED={seed}", count - failed.len() as u64);
    assert!(failed.is_empty(), "failed with AMPERE_TEST_ROUNDS=1 and AMPERE_TEST_SEED= {failed:?}");
}
