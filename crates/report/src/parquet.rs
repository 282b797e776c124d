//! Writes rows as a Parquet file, which pandas, DuckDB, Spark and similar programs read by columns.

use super::call_table::{field, properties, put};
use super::rows::{COLUMNS, Row, rows};
use super::text_column::Dictionary;
use ampere_figures::summary::{Name, Summary};
use parquet::basic::{Repetition, Type as Physical};
use parquet::data_type::{DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnDescPtr, Type};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// The maximum number of rows in a row group. Readers may skip a row group as a whole, and its columns are in memory while it is
/// written.
const ROWS_PER_GROUP: usize = 1 << 17;
/// A row group ends when its names have more bytes than this. The format limits those of a column to 2 GiB.
const NAME_BYTES_PER_GROUP: usize = 1 << 28;

/// A column of a row group: where a row has its value, and the values so far.
enum Column<'a> {
    Text(for<'r> fn(&Row<'r>) -> &'r str, Texts<&'a str>),
    /// The names of call paths, with the index of each path's name: different paths without their middle can have the same name.
    Path(HashMap<Option<u32>, u32>, Texts<Name>),
    Count(fn(&Row) -> Option<i64>, Values<i64>),
    Figure(fn(&Row) -> Option<f64>, Values<f64>),
}

/// The names of a column, and the index of each row's name. Each name is there once, which readers of dictionaries rely on.
#[derive(Default)]
struct Texts<N> {
    names: Vec<N>,
    index_of: HashMap<N, u32>,
    rows: Vec<u32>,
    /// The bytes of all names.
    bytes: usize,
}

impl<N: AsRef<str> + Clone + Eq + Hash> Texts<N> {
    fn index(&mut self, name: N) -> u32 {
        if let Some(last) = self.rows.last().filter(|last| self.names[**last as usize] == name) {
            return *last;
        }
        let new = self.names.len() as u32;
        let index = *self.index_of.entry(name.clone()).or_insert(new);
        if index == new {
            self.bytes += name.as_ref().len();
            self.names.push(name);
        }
        index
    }
}

/// The values that exist, and for each row whether it has one.
#[derive(Default)]
struct Values<T>(Vec<T>, Vec<i16>);

impl<T> Values<T> {
    fn push(&mut self, value: Option<T>) {
        self.1.push(value.is_some().into());
        self.0.extend(value);
    }
}

impl<'a> Column<'a> {
    fn field(&self, name: &str) -> Result<Arc<Type>, ParquetError> {
        match self {
            Column::Text(..) | Column::Path(..) => field(name, Physical::BYTE_ARRAY, Repetition::REQUIRED),
            Column::Count(..) => field(name, Physical::INT64, Repetition::OPTIONAL),
            Column::Figure(..) => field(name, Physical::DOUBLE, Repetition::OPTIONAL),
        }
    }

    /// Adds a row. Returns the bytes of all names of the column.
    fn push(&mut self, row: &Row<'a>) -> usize {
        match self {
            Column::Text(of, texts) => {
                let index = texts.index(of(row));
                texts.rows.push(index);
                return texts.bytes;
            }
            Column::Path(known, texts) => {
                let path = row.path;
                let index = *known.entry(path.number()).or_insert_with(|| texts.index(path.text().into()));
                texts.rows.push(index);
                return texts.bytes;
            }
            Column::Count(of, values) => values.push(of(row)),
            Column::Figure(of, values) => values.push(of(row)),
        }
        0
    }

    fn write(
        self,
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
        kind: ColumnDescPtr,
        dictionary: &mut Dictionary,
    ) -> Result<(), ParquetError> {
        match self {
            Column::Text(_, texts) => dictionary.write(group, kind, &texts.names, texts.rows.into_iter()),
            Column::Path(_, texts) => dictionary.write(group, kind, &texts.names, texts.rows.into_iter()),
            Column::Count(_, Values(values, levels)) => put::<Int64Type, _>(group, &values, Some(&levels)),
            Column::Figure(_, Values(values, levels)) => put::<DoubleType, _>(group, &values, Some(&levels)),
        }
    }
}

/// Makes a column with the name of a field of [`Row`].
macro_rules! column {
    (Text $field:ident) => {
        (stringify!($field), Column::Text(|row| row.$field, Texts::default()))
    };
    (Count $field:ident) => {
        (
            stringify!($field),
            Column::Count(
                |row| row.$field.map(|count| i64::try_from(count).unwrap_or(i64::MAX)),
                Values::default(),
            ),
        )
    };
    (Figure $field:ident) => {
        (stringify!($field), Column::Figure(|row| row.$field.into(), Values::default()))
    };
}

type Columns<'a> = [(&'static str, Column<'a>); COLUMNS.len()];

fn columns<'a>() -> Columns<'a> {
    [
        column!(Text node),
        column!(Text device),
        column!(Text energy),
        column!(Text unit),
        column!(Text view),
        column!(Text location_group),
        column!(Text location),
        ("path", Column::Path(HashMap::new(), Texts::default())),
        column!(Text region),
        column!(Count calls),
        column!(Figure exclusive_joules),
        column!(Figure inclusive_joules),
        column!(Figure resolved_joules),
        column!(Figure possible_joules),
        column!(Figure exclusive_seconds),
        column!(Figure mean_watts),
        column!(Figure sampled_error_joules),
        column!(Figure static_joules),
        column!(Figure dynamic_joules),
        column!(Figure inclusive_dynamic_joules),
        column!(Figure waited_joules),
        column!(Figure caused_waiting_joules),
    ]
}

pub fn render(summary: &Summary) -> Result<Vec<u8>, ParquetError> {
    let fields = columns().iter().map(|(name, column)| column.field(name)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("callpaths").with_fields(fields).build()?;
    let run = &summary.run;
    let about =
        [("run", run.id.clone()), ("complete", run.complete.to_string()), ("energy", run.energy.clone())];
    let mut file =
        SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties(&about).build()))?;
    let kinds = file.schema_descr().columns().to_vec();
    let mut dictionary = Dictionary::default();
    // One thread collects the values of the next row group while another one encodes those of the last.
    std::thread::scope(|scope| {
        let (collected, groups) = std::sync::mpsc::sync_channel(1);
        scope.spawn(move || {
            let mut all = rows(summary);
            while let Some(group) = next_group(&mut all)
                && collected.send(group).is_ok()
            {}
        });
        for columns in groups {
            let mut group = file.next_row_group()?;
            for ((_, column), kind) in columns.into_iter().zip(&kinds) {
                column.write(&mut group, kind.clone(), &mut dictionary)?;
            }
            group.close()?;
        }
        file.into_inner()
    })
}

fn next_group<'a>(rows: &mut impl Iterator<Item = Row<'a>>) -> Option<Columns<'a>> {
    let (mut columns, mut count, mut names) = (columns(), 0, 0);
    while count < ROWS_PER_GROUP
        && names < NAME_BYTES_PER_GROUP
        && let Some(row) = rows.next()
    {
        count += 1;
        names = columns.iter_mut().map(|(_, column)| column.push(&row)).sum();
    }
    (count > 0).then_some(columns)
}
