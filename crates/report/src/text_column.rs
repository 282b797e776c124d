//! Writes a Parquet column of text whose rows are given as indices into a list of names, so that each name is looked up once, not
//! once per row. The library's own writer hashes every value, which costs more than everything else that is done for a row.

use parquet::basic::{Compression, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::io::Write;

/// Numbers the names that a row group uses, from 0.
#[derive(Default)]
pub struct Dictionary {
    /// Each name's index in the dictionary of the row group, or [`NONE`] if the row group has not used it yet.
    index_of: Vec<u32>,
    /// The names in the dictionary, as indices into the list of names.
    used: Vec<u32>,
    /// The index of each row's name in the dictionary.
    values: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Dictionary {
    pub fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        column: ColumnDescPtr,
        names: &[impl AsRef<str>],
        rows: impl Iterator<Item = u32>,
    ) -> Result<()> {
        self.number(names.len(), rows);
        let (dictionary, indices) = (self.plain(names), self.indices());
        let (used, rows) = (self.used.len() as u32, self.values.len() as u32);
        let mut out = TrackedWrite::new(Vec::with_capacity(dictionary.len() + indices.len() + 64));
        let mut pages = SerializedPageWriter::new(&mut out);
        let uncompressed = dictionary.len();
        let page = Page::DictionaryPage {
            buf: dictionary.into(),
            num_values: used,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let first = pages.write_page(CompressedPage::new(page, uncompressed))?;
        let uncompressed = indices.len();
        let page = Page::DataPage {
            buf: indices.into(),
            num_values: rows,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let second = pages.write_page(CompressedPage::new(page, uncompressed))?;
        let written = out.into_inner()?;
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression(Compression::UNCOMPRESSED)
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
            .set_num_values(rows.into())
            .set_total_compressed_size(written.len() as i64)
            .set_total_uncompressed_size(written.len() as i64)
            .set_dictionary_page_offset(Some(first.offset as i64))
            .set_data_page_offset(second.offset as i64)
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: written.len() as u64,
            rows_written: rows.into(),
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        group.append_column(&bytes::Bytes::from(written), close)
    }

    fn number(&mut self, names: usize, rows: impl Iterator<Item = u32>) {
        for name in self.used.drain(..) {
            self.index_of[name as usize] = NONE;
        }
        self.index_of.resize(names, NONE);
        self.values.clear();
        self.values.extend(rows.map(|name| {
            let index = &mut self.index_of[name as usize];
            if *index == NONE {
                *index = self.used.len() as u32;
                self.used.push(name);
            }
            *index
        }));
    }

    /// Returns the names of the dictionary, each with its length in front of it.
    fn plain(&self, names: &[impl AsRef<str>]) -> Vec<u8> {
        let mut out = Vec::new();
        for name in &self.used {
            let name = names[*name as usize].as_ref().as_bytes();
            out.extend((name.len() as u32).to_le_bytes());
            out.extend(name);
        }
        out
    }

    /// Returns the rows' indices, in Parquet's RLE/bit-packed hybrid encoding. There must be at least one row.
    fn indices(&self) -> Vec<u8> {
        let bits = u32::BITS - (self.used.len() as u32 - 1).leading_zeros();
        let mut out = vec![bits as u8];
        let mut rest = &self.values[..];
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|value| *value == first).count();
            if run >= PACKED || run == rest.len() {
                put_number(&mut out, (run as u64) << 1);
                out.extend(&first.to_le_bytes()[..bits.div_ceil(8) as usize]);
                rest = &rest[run..];
            } else {
                rest = put_packed(&mut out, rest, bits);
            }
        }
        out
    }
}

/// The number of values that are packed together.
const PACKED: usize = 8;

/// Packs values up to the next long run. Only the last pack may be incomplete. Returns the remaining values.
fn put_packed<'a>(out: &mut Vec<u8>, values: &'a [u32], bits: u32) -> &'a [u32] {
    let is_run = |values: &[u32]| values.len() == PACKED && values.iter().all(|value| *value == values[0]);
    let packs = values.chunks(PACKED).take_while(|pack| !is_run(pack)).count();
    put_number(out, (packs as u64) << 1 | 1);
    let (packed, rest) = values.split_at(values.len().min(packs * PACKED));
    for pack in packed.chunks(PACKED) {
        let (mut waiting, mut count) = (0u64, 0);
        for at in 0..PACKED {
            waiting |= u64::from(pack.get(at).copied().unwrap_or(0)) << count;
            count += bits;
            while count >= 8 {
                out.push(waiting as u8);
                waiting >>= 8;
                count -= 8;
            }
        }
    }
    rest
}

/// Writes a number with seven bits in each byte, the lowest first.
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
