//! A mutator without guidance, for the few seconds of each test run. The same seed number gives the same inputs.

pub struct Mutator(u64);

/// Numbers that often uncover errors of readers.
const ODD: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    1 << 60,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

impl Mutator {
    pub fn new(seed: u64) -> Mutator {
        Mutator(seed | 1)
    }

    /// Returns the next number of an xorshift generator, which gives the same numbers on every machine.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.draw() % limit.max(1) as u64) as usize
    }

    /// Takes a seed and changes, inserts or removes some bytes, or replaces a part by another seed's.
    pub fn mutate(&mut self, seeds: &[Vec<u8>], bytes_max: usize) -> Vec<u8> {
        let mut data = seeds.get(self.below(seeds.len())).cloned().unwrap_or_default();
        for _ in 0..1 + self.below(8) {
            let at = self.below(data.len() + 1);
            match self.below(7) {
                0 => data.insert(at, self.draw() as u8),
                1 if at < data.len() => data[at] = self.draw() as u8,
                2 if at < data.len() => data[at] ^= 1 << self.below(8),
                3 => {
                    let odd = ODD[self.below(ODD.len())].to_le_bytes();
                    let width = 1 << self.below(4);
                    for (to, from) in data[at..].iter_mut().zip(&odd[..width]) {
                        *to = *from;
                    }
                }
                4 if !data.is_empty() => {
                    let to = at + self.below(data.len() - at + 1);
                    data.drain(at..to);
                }
                5 => {
                    let to = at + self.below(data.len() - at + 1);
                    let part = data[at..to].to_vec();
                    data.splice(at..at, part);
                }
                _ => {
                    let other = &seeds.get(self.below(seeds.len())).map_or(&[][..], |seed| seed);
                    let from = self.below(other.len() + 1);
                    data.splice(at.., other[from..].iter().copied());
                }
            }
        }
        data.truncate(bytes_max);
        data
    }
}
