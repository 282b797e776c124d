//! A file for calls that wait for a sample. If a counter is read very rarely, memory may be too small for all calls in between.

use ampere_attribution::Call;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

/// The waiting calls. The file is created for the first of them.
#[derive(Default)]
pub struct SpillFile {
    file: Option<File>,
    /// The number of calls in the file.
    calls: usize,
}

/// The number of calls that are read at once.
const PIECE: usize = 1 << 12;
const WORD: usize = size_of::<u64>();

impl SpillFile {
    /// Adds calls. `file` makes the file for the first of them.
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

    /// Starts to read the calls, in order.
    pub fn rewind(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.rewind())
    }

    /// Returns the next calls. After the last one, returns `None` and empties the file.
    pub fn next(&mut self) -> io::Result<Option<Vec<Call>>> {
        let Some(file) = &mut self.file else { return Ok(None) };
        if self.calls == 0 {
            file.set_len(0)?;
            file.rewind()?;
            return Ok(None);
        }
        let count = self.calls.min(PIECE);
        self.calls -= count;
        let mut input = BufReader::with_capacity(1 << 16, file.take((count * Call::WORDS * WORD) as u64));
        let mut words = [0; Call::WORDS];
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
