//! Tests that choose what they do at random, and repeat it exactly from a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Numbers that look random, the same for the same seed (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// One of these.
    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// A number from the environment.
///
/// # Panics
/// Where the variable is set to something else.
pub fn setting(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number"))
}

/// `AMPERE_TEST_SEED`, or one that is new each time.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    setting("AMPERE_TEST_SEED", now.as_nanos() as u64)
}

/// Does `round` as often as `AMPERE_TEST_ROUNDS` says, by default `usual` times, each time with other random numbers. All
/// rounds are done, whether some fail or not.
///
/// # Panics
/// Where a round has panicked. The message has the seed of each of these: with it, `AMPERE_TEST_ROUNDS=1 AMPERE_TEST_SEED=...`
/// repeats that round alone.
#[track_caller]
pub fn rounds(usual: u64, mut round: impl FnMut(&mut Random)) {
    let (count, seed) = (setting("AMPERE_TEST_ROUNDS", usual), seed());
    let mut failed = Vec::new();
    for number in 0..count {
        // The first round has the seed as it is, so that it can be repeated by it.
        let own = if number == 0 { seed } else { Random::new(seed ^ number.rotate_left(32)).draw() };
        if catch_unwind(AssertUnwindSafe(|| round(&mut Random::new(own)))).is_err() {
            println!("this was AMPERE_TEST_ROUNDS=1 AMPERE_TEST_SEED={own}");
            failed.push(own);
        }
    }
    println!("{} of {count} rounds succeeded, AMPERE_TEST_SEED={seed}", count - failed.len() as u64);
    assert!(failed.is_empty(), "failed with AMPERE_TEST_ROUNDS=1 and AMPERE_TEST_SEED= {failed:?}");
}
