//! Calls that wait for a sample, in a file: a counter may be read so seldom that memory has no room for them.

use ampere_attribution::Call;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

/// Empty until there is something to keep.
#[derive(Default)]
pub struct Aside {
    file: Option<File>,
    /// How many it has.
    calls: usize,
}

/// So many are read at once.
const PIECE: usize = 1 << 12;
const WORD: usize = size_of::<u64>();

impl Aside {
    /// Adds calls. `file`: makes the file for the first.
    pub fn put(&mut self, calls: &[Call], file: impl Fn() -> io::Result<File>) -> io::Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(file()?),
        };
        let mut out = BufWriter::with_capacity(1 << 16, file);
        for word in calls.iter().flat_map(Call::to_words) {
            out.write_all(&word.to_le_bytes())?;
        }
        self.calls += calls.len();
        out.flush()
    }

    /// From now on, the calls are read in order.
    pub fn rewind(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.rewind())
    }

    /// The next calls; `None` after the last, and the file is empty again.
    pub fn next(&mut self) -> io::Result<Option<Vec<Call>>> {
        let Some(file) = &mut self.file else { return Ok(None) };
        if self.calls == 0 {
            file.set_len(0)?;
            file.rewind()?;
            return Ok(None);
        }
        let count = self.calls.min(PIECE);
        self.calls -= count;
        let mut input = BufReader::with_capacity(1 << 16, file.take((count * 9 * WORD) as u64));
        let mut words = [0; 9];
        let mut calls = Vec::with_capacity(count);
        for _ in 0..count {
            for word in &mut words {
                let mut bytes = [0; WORD];
                input.read_exact(&mut bytes)?;
                *word = u64::from_le_bytes(bytes);
            }
            calls.push(Call::from_words(words));
        }
        Ok(Some(calls))
    }
}
