//! Reads bytes as numbers. Bytes that are missing at the end count as zero.

pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub fn new(data: &'a [u8]) -> Bytes<'a> {
        Bytes(data)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let head = self.take(N);
        bytes[..head.len()].copy_from_slice(head);
        bytes
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns a short text. Bytes that are not UTF-8 are replaced.
    pub fn text(&mut self) -> String {
        let length = usize::from(self.u8());
        String::from_utf8_lossy(self.take(length)).into_owned()
    }

    /// Returns a number that is small, close to a limit, or arbitrary.
    pub fn edge_u64(&mut self) -> u64 {
        match self.u8() {
            0..=127 => u64::from(self.u16()),
            128..=159 => u64::MAX - u64::from(self.u8()),
            160..=191 => (1 << (self.u8() % 64)) + u64::from(self.u8()),
            _ => self.u64(),
        }
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
