//! A table of columns, as CSV, JSON or Parquet.

use crate::call_table::{NameNumber, Names};
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::path::Path;

/// A table. All columns have the same length.
#[derive(Default)]
pub struct Table {
    /// The names to which text columns refer.
    pub names: Names,
    pub columns: Vec<(&'static str, Column)>,
}

pub enum Column {
    /// Texts, as numbers of names.
    Text(Vec<NameNumber>),
    /// Whole numbers, as far as they are known.
    Count(Vec<Option<u64>>),
    /// Figures that are not counts.
    Figure(Vec<f64>),
    /// Figures that are not known in all rows.
    KnownFigure(Vec<Option<f64>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TableForm {
    Csv,
    /// An object that has the rows in `rows`.
    Json,
    Parquet,
}

impl TableForm {
    /// Returns the format that the extension of a file's name selects; CSV by default.
    pub fn of_file(path: &Path) -> TableForm {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => TableForm::Json,
            Some("parquet") => TableForm::Parquet,
            _ => TableForm::Csv,
        }
    }
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Column::Text(values) => values.len(),
            Column::Count(values) => values.len(),
            Column::Figure(values) => values.len(),
            Column::KnownFigure(values) => values.len(),
        }
    }

    fn value(&self, row: usize, names: &Names) -> Value {
        match self {
            Column::Text(values) => names.all()[values[row] as usize].as_str().into(),
            Column::Count(values) => values[row].into(),
            Column::Figure(values) => values[row].into(),
            Column::KnownFigure(values) => values[row].into(),
        }
    }
}

impl Table {
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// Writes the table. In JSON, the fields of `head` come before the rows.
    ///
    /// # Errors
    /// Fails if the table cannot be written, or this build has no Parquet.
    pub fn write(&self, form: TableForm, head: Map<String, Value>, out: &mut dyn Write) -> io::Result<()> {
        match form {
            TableForm::Csv => self.write_csv(out),
            TableForm::Json => self.write_json(head, out),
            #[cfg(feature = "parquet")]
            TableForm::Parquet => out.write_all(&self.parquet().map_err(io::Error::other)?),
            #[cfg(not(feature = "parquet"))]
            TableForm::Parquet => Err(io::Error::other(crate::ReportError::NoParquet)),
        }
    }

    fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        self.csv_to(out).map_err(|error| match error.into_kind() {
            // The kind of the error is kept, because callers check for a pipe that its reader has closed.
            ::csv::ErrorKind::Io(error) => error,
            kind => io::Error::other(format!("{kind:?}")),
        })
    }

    fn csv_to(&self, out: &mut dyn Write) -> ::csv::Result<()> {
        let mut out = ::csv::Writer::from_writer(out);
        out.write_record(self.columns.iter().map(|(name, _)| name))?;
        for row in 0..self.rows() {
            for (_, column) in &self.columns {
                match column {
                    Column::Text(values) => out.write_field(&self.names.all()[values[row] as usize])?,
                    Column::Count(values) => {
                        out.write_field(values[row].map(|count| count.to_string()).unwrap_or_default())?
                    }
                    Column::Figure(values) => out.write_field(values[row].to_string())?,
                    Column::KnownFigure(values) => {
                        out.write_field(values[row].map(|figure| figure.to_string()).unwrap_or_default())?
                    }
                }
            }
            out.write_record(None::<&[u8]>)?;
        }
        Ok(out.flush()?)
    }

    fn write_json(&self, head: Map<String, Value>, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"{\n")?;
        for (key, value) in head {
            writeln!(out, "  {}: {value},", Value::from(key))?;
        }
        out.write_all(b"  \"rows\": [")?;
        for row in 0..self.rows() {
            out.write_all(if row == 0 { b"\n    {" } else { b",\n    {" })?;
            for (at, (name, column)) in self.columns.iter().enumerate() {
                let separator = if at == 0 { "" } else { ", " };
                write!(out, "{separator}\"{name}\": {}", column.value(row, &self.names))?;
            }
            out.write_all(b"}")?;
        }
        out.write_all(b"\n  ]\n}\n")
    }

    #[cfg(feature = "parquet")]
    fn parquet(&self) -> parquet::errors::Result<Vec<u8>> {
        use crate::call_table::{field, properties, put};
        use parquet::basic::{Repetition, Type as Physical};
        use parquet::data_type::{DoubleType, Int64Type};
        use parquet::file::writer::SerializedFileWriter;
        let fields = self.columns.iter().map(|(name, column)| {
            let (kind, repetition) = match column {
                Column::Text(_) => (Physical::BYTE_ARRAY, Repetition::REQUIRED),
                Column::Count(_) => (Physical::INT64, Repetition::OPTIONAL),
                Column::Figure(_) => (Physical::DOUBLE, Repetition::REQUIRED),
                Column::KnownFigure(_) => (Physical::DOUBLE, Repetition::OPTIONAL),
            };
            field(name, kind, repetition)
        });
        let fields = fields.collect::<Result<_, _>>()?;
        let schema = parquet::schema::types::Type::group_type_builder("table").with_fields(fields).build()?;
        let mut file = SerializedFileWriter::new(Vec::new(), schema.into(), properties(&[]).build().into())?;
        let kinds = file.schema_descr().columns().to_vec();
        if self.rows() > 0 {
            let mut group = file.next_row_group()?;
            let mut dictionary = crate::text_column::Dictionary::default();
            for ((_, column), kind) in self.columns.iter().zip(kinds) {
                match column {
                    Column::Text(values) => {
                        let values = values.iter().copied();
                        dictionary.write(&mut group, kind, self.names.all(), values)?;
                    }
                    Column::Count(values) => {
                        let known: Vec<i64> = values.iter().flatten().map(|count| *count as i64).collect();
                        let levels: Vec<i16> = values.iter().map(|count| count.is_some().into()).collect();
                        put::<Int64Type, _>(&mut group, &known, Some(&levels))?;
                    }
                    Column::Figure(values) => put::<DoubleType, _>(&mut group, values, None)?,
                    Column::KnownFigure(values) => {
                        let known: Vec<f64> = values.iter().flatten().copied().collect();
                        let levels: Vec<i16> = values.iter().map(|figure| figure.is_some().into()).collect();
                        put::<DoubleType, _>(&mut group, &known, Some(&levels))?;
                    }
                }
            }
            group.close()?;
        }
        file.into_inner()
    }
}
