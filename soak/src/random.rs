//! Numbers that look random, the same for the same seed (splitmix64).

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The seed of a round: the first one's is the run's own, so that one round can be repeated.
pub fn of_round(seed: u64, round: u64) -> u64 {
    if round == 0 { seed } else { Random::new(seed ^ round.rotate_left(32)).next() }
}
