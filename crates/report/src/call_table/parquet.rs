//! Writes calls as a Parquet file, in row groups, so that memory does not grow with their number.

use super::paths::{Names, Paths};
use super::{CallRow, DeviceView, Place};
use crate::text_column::Dictionary;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};
use std::io::Write;
use std::sync::Arc;

/// The number of rows in a row group, whose columns are in memory until it is written.
const ROWS_PER_GROUP: usize = 1 << 17;

const TEXT: [&str; 6] = ["node", "rank", "thread", "device", "view", "region"];
const INTEGERS: [(&str, Physical, Repetition); 5] = [
    ("callpath", Physical::INT32, Repetition::REQUIRED),
    ("depth", Physical::INT32, Repetition::REQUIRED),
    ("start", Physical::INT64, Repetition::REQUIRED),
    ("end", Physical::INT64, Repetition::REQUIRED),
    ("calls", Physical::INT64, Repetition::OPTIONAL),
];
const FIGURES: [&str; 3] = ["exclusive_joules", "inclusive_joules", "resolved_joules"];
/// Columns that are empty where the joules are unknown.
const DYNAMIC: [&str; 2] = ["dynamic_joules", "inclusive_dynamic_joules"];

pub struct CallsFile<W: Write + Send> {
    file: SerializedFileWriter<W>,
    /// The rows of the current row group.
    places: Vec<Place>,
    devices: Vec<DeviceView>,
    paths: Vec<u32>,
    times: [Vec<i64>; 2],
    /// The known numbers of calls, and for each row whether it has one.
    calls: (Vec<i64>, Vec<i16>),
    figures: [Vec<f64>; 3],
    /// The known dynamic joules, and for each row whether it has them.
    dynamic: ([Vec<f64>; 2], Vec<i16>),
    dictionary: Dictionary,
}

impl<W: Write + Send> CallsFile<W> {
    /// Starts a file. `about` is the file's metadata, as keys and values.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(out: W, about: &[(&str, String)]) -> Result<CallsFile<W>> {
        let text = TEXT.iter().map(|name| field(name, Physical::BYTE_ARRAY, Repetition::REQUIRED));
        let integers = INTEGERS.iter().map(|(name, kind, repetition)| field(name, *kind, *repetition));
        let figures = FIGURES.iter().map(|name| field(name, Physical::DOUBLE, Repetition::REQUIRED));
        let dynamic = DYNAMIC.iter().map(|name| field(name, Physical::DOUBLE, Repetition::OPTIONAL));
        let fields = text.chain(integers).chain(figures).chain(dynamic).collect::<Result<_>>()?;
        let schema = Type::group_type_builder("calls").with_fields(fields).build()?;
        let delta = |builder: WriterPropertiesBuilder, column: &str| {
            builder.set_column_encoding(ColumnPath::from(column), Encoding::DELTA_BINARY_PACKED)
        };
        let properties = ["start", "end", "calls"].into_iter().fold(properties(about), delta).build();
        Ok(CallsFile {
            file: SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?,
            places: Vec::new(),
            devices: Vec::new(),
            paths: Vec::new(),
            times: Default::default(),
            calls: Default::default(),
            figures: Default::default(),
            dynamic: Default::default(),
            dictionary: Dictionary::default(),
        })
    }

    /// Adds a call.
    ///
    /// # Errors
    /// It cannot be written.
    #[inline]
    pub fn push(&mut self, row: &CallRow, names: &Names, paths: &Paths) -> Result<()> {
        self.places.push(row.place);
        self.devices.push(row.device);
        self.paths.push(row.path);
        self.times[0].push(row.start);
        self.times[1].push(row.end);
        self.calls.0.extend(row.calls.map(i64::from));
        self.calls.1.push(row.calls.is_some().into());
        for (column, value) in
            self.figures.iter_mut().zip([row.exclusive_joules, row.inclusive_joules, row.resolved_joules])
        {
            column.push(value);
        }
        for (column, value) in self.dynamic.0.iter_mut().zip(row.dynamic_joules.into_iter().flatten()) {
            column.push(value);
        }
        self.dynamic.1.push(row.dynamic_joules.is_some().into());
        if self.paths.len() == ROWS_PER_GROUP { self.end_group(names, paths) } else { Ok(()) }
    }

    fn end_group(&mut self, names: &Names, paths: &Paths) -> Result<()> {
        let CallsFile { file, places, devices, times, calls, figures, dynamic, dictionary, .. } = self;
        let schema = file.schema_descr().columns().to_vec();
        let mut group = file.next_row_group()?;
        let (names, all) = (names.all(), paths.all());
        let text: [&dyn Fn(usize) -> u32; TEXT.len()] = [
            &|row| places[row].node,
            &|row| places[row].rank,
            &|row| places[row].thread,
            &|row| devices[row].device,
            &|row| devices[row].view,
            &|row| all[self.paths[row] as usize].region,
        ];
        for (value, column) in text.iter().zip(schema) {
            dictionary.write(&mut group, column, names, (0..places.len()).map(value))?;
        }
        let numbers: Vec<i32> = self.paths.iter().map(|path| *path as i32).collect();
        put::<Int32Type, W>(&mut group, &numbers, None)?;
        let depths: Vec<i32> = self.paths.iter().map(|path| all[*path as usize].depth).collect();
        put::<Int32Type, W>(&mut group, &depths, None)?;
        for column in &*times {
            put::<Int64Type, W>(&mut group, column, None)?;
        }
        put::<Int64Type, W>(&mut group, &calls.0, Some(&calls.1))?;
        for column in &*figures {
            put::<DoubleType, W>(&mut group, column, None)?;
        }
        for column in &dynamic.0 {
            put::<DoubleType, W>(&mut group, column, Some(&dynamic.1))?;
        }
        group.close()?;
        self.places.clear();
        self.devices.clear();
        self.paths.clear();
        self.calls.0.clear();
        self.calls.1.clear();
        self.times.iter_mut().for_each(Vec::clear);
        self.figures.iter_mut().chain(&mut self.dynamic.0).for_each(Vec::clear);
        self.dynamic.1.clear();
        Ok(())
    }

    /// Writes the remaining rows.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self, names: &Names, paths: &Paths) -> Result<()> {
        if !self.paths.is_empty() {
            self.end_group(names, paths)?;
        }
        self.file.close().map(drop)
    }
}

/// Writes the table of call paths, to which the column `callpath` of calls refers.
///
/// # Errors
/// They cannot be written.
pub fn write_paths<W: Write + Send>(out: W, names: &Names, paths: &Paths) -> Result<()> {
    let fields = vec![
        field("callpath", Physical::INT32, Repetition::REQUIRED)?,
        field("caller", Physical::INT32, Repetition::OPTIONAL)?,
        field("region", Physical::BYTE_ARRAY, Repetition::REQUIRED)?,
        field("depth", Physical::INT32, Repetition::REQUIRED)?,
        field("path", Physical::BYTE_ARRAY, Repetition::REQUIRED)?,
    ];
    let schema = Type::group_type_builder("callpaths").with_fields(fields).build()?;
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties(&[]).build()))?;
    let (names, all) = (names.all(), paths.all());
    for first in (0..all.len()).step_by(ROWS_PER_GROUP) {
        let group_paths = &all[first..all.len().min(first + ROWS_PER_GROUP)];
        let mut group = file.next_row_group()?;
        let numbers: Vec<i32> = (first..first + group_paths.len()).map(|number| number as i32).collect();
        put::<Int32Type, W>(&mut group, &numbers, None)?;
        let levels: Vec<i16> = group_paths.iter().map(|path| i16::from(path.caller.is_some())).collect();
        let callers: Vec<i32> = group_paths.iter().filter_map(|path| Some(path.caller? as i32)).collect();
        put::<Int32Type, W>(&mut group, &callers, Some(&levels))?;
        let region = |path: u32| names[all[path as usize].region as usize].as_str();
        let regions: Vec<_> = numbers.iter().map(|number| region(*number as u32).into()).collect();
        put::<parquet::data_type::ByteArrayType, W>(&mut group, &regions, None)?;
        let depths: Vec<i32> = group_paths.iter().map(|path| path.depth).collect();
        put::<Int32Type, W>(&mut group, &depths, None)?;
        let whole = numbers.iter().map(|number| {
            let up: Vec<u32> = paths.up(*number as u32).collect();
            crate::rows::without_middle(&up, region).join(" > ").as_str().into()
        });
        put::<parquet::data_type::ByteArrayType, W>(&mut group, &whole.collect::<Vec<_>>(), None)?;
        group.close()?;
    }
    file.close().map(drop)
}

pub(crate) fn properties(about: &[(&str, String)]) -> WriterPropertiesBuilder {
    let about = about.iter().map(|(key, value)| KeyValue::new(format!("ampere.{key}"), value.clone()));
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("ampere {}", env!("CARGO_PKG_VERSION")))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(about.collect()))
}

pub(crate) fn field(name: &str, kind: Physical, repetition: Repetition) -> Result<Arc<Type>> {
    let is_text = kind == Physical::BYTE_ARRAY;
    let field = Type::primitive_type_builder(name, kind)
        .with_repetition(repetition)
        .with_logical_type(is_text.then_some(LogicalType::String));
    field.build().map(Arc::new)
}

pub(crate) fn put<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<()> {
    let Some(mut column) = group.next_column()? else {
        return Err(parquet::errors::ParquetError::General("fewer columns than in the schema".to_owned()));
    };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::super::CallRow;
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    /// The columns have long, short and no repetitions, few and many names, and more than one row group.
    #[test]
    fn a_file_is_read_as_it_was_written() {
        for (names_used, run) in [(1, 1), (2, 1), (3, 9), (300, 1), (300, 7), (5000, 20), (70_000, 1)] {
            let (mut names, mut paths) = (Names::default(), Paths::default());
            let empty = names.number("");
            let outer = paths.number(None, names.number("main"));
            let regions: Vec<u32> = (0..names_used).map(|at| names.number(&format!("region {at}"))).collect();
            let rows = ROWS_PER_GROUP + 1003;
            let expected = |row: usize| (row / run * 7919) % names_used;
            let mut file = CallsFile::new(Vec::new(), &[("trace", "here".to_owned())]).unwrap();
            for row in 0..rows {
                let region = regions[expected(row)];
                let place = Place { node: region, rank: empty, thread: names.number("thread") };
                let row = CallRow {
                    place,
                    device: DeviceView { device: empty, view: empty },
                    path: paths.number(Some(outer), region),
                    start: row as i64 * 1000,
                    end: row as i64 * 1000 + 7,
                    exclusive_joules: row as f64,
                    inclusive_joules: 0.0,
                    resolved_joules: 0.0,
                    dynamic_joules: None,
                    calls: (row % 3 > 0).then_some(row as u32),
                };
                file.push(&row, &names, &paths).unwrap();
            }
            file.end_group(&names, &paths).unwrap();
            let bytes = bytes::Bytes::from(file.file.into_inner().unwrap());
            let reader = SerializedFileReader::new(bytes).unwrap();
            assert_eq!(reader.metadata().num_row_groups(), 2);
            for (at, row) in reader.get_row_iter(None).unwrap().enumerate() {
                let row = row.unwrap();
                let region = format!("region {}", expected(at));
                assert_eq!((row.get_string(0).unwrap(), row.get_string(5).unwrap()), (&region, &region));
                assert_eq!((row.get_string(2).unwrap().as_str(), row.get_int(7).unwrap()), ("thread", 2));
                assert_eq!(row.get_long(10).ok(), (at % 3 > 0).then_some(at as i64));
                assert_eq!(
                    (row.get_long(8).unwrap(), row.get_double(11).unwrap()),
                    (at as i64 * 1000, at as f64)
                );
            }
        }
    }
}
