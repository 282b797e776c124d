//! Writes rows as a Parquet file, which pandas, DuckDB, Spark and similar programs read by columns.

use super::rows::{COLUMNS, Row, rows};
use ampere_figures::summary::Summary;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::sync::Arc;

/// The number of rows in a row group. Readers may skip a row group as a whole, and its columns are in memory while it is written.
const ROWS_A_GROUP: usize = 1 << 16;

/// The type of a column, with its values.
enum Column {
    Text(fn(&Row) -> ByteArray),
    Count(fn(&Row) -> Option<i64>),
    Figure(fn(&Row) -> Option<f64>),
}

/// Makes a column with the name of a field of [`Row`].
macro_rules! column {
    (Text $field:ident) => {
        (stringify!($field), Column::Text(|row| ByteArray::from(&*row.$field)))
    };
    (Count $field:ident) => {
        (
            stringify!($field),
            Column::Count(|row| row.$field.map(|count| i64::try_from(count).unwrap_or(i64::MAX))),
        )
    };
    (Figure $field:ident) => {
        (stringify!($field), Column::Figure(|row| row.$field.into()))
    };
}

const ALL: [(&str, Column); COLUMNS.len()] = [
    column!(Text node),
    column!(Text device),
    column!(Text energy),
    column!(Text unit),
    column!(Text view),
    column!(Text location_group),
    column!(Text location),
    column!(Text path),
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
];

pub fn render(summary: &Summary) -> Result<Vec<u8>, ParquetError> {
    let of_the_run = |key: &str, value: &str| KeyValue::new(format!("ampere.{key}"), value.to_owned());
    let mut properties = WriterProperties::builder();
    // Hardly two rows have the same joules: a dictionary of them takes a quarter of the time, and is given up.
    for (name, _) in ALL.iter().filter(|(_, column)| matches!(column, Column::Figure(_))) {
        properties = properties.set_column_dictionary_enabled((*name).into(), false);
    }
    let properties = properties
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("ampere {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![
            of_the_run("run", &summary.run.id),
            of_the_run("complete", &summary.run.complete.to_string()),
            of_the_run("energy", &summary.run.energy),
        ]))
        .build();
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema()?), Arc::new(properties))?;
    let mut all = rows(summary);
    loop {
        let group: Vec<Row> = all.by_ref().take(ROWS_A_GROUP).collect();
        if group.is_empty() {
            return file.into_inner();
        }
        let mut writer = file.next_row_group()?;
        for (_, column) in &ALL {
            write_column(&mut writer, column, &group)?;
        }
        writer.close()?;
    }
}

fn schema() -> Result<Type, ParquetError> {
    let fields = ALL.iter().map(|(name, column)| {
        let of = |physical| Type::primitive_type_builder(name, physical);
        let field = match column {
            Column::Text(_) => of(Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String))
                .with_repetition(Repetition::REQUIRED),
            Column::Count(_) => of(Physical::INT64).with_repetition(Repetition::OPTIONAL),
            Column::Figure(_) => of(Physical::DOUBLE).with_repetition(Repetition::OPTIONAL),
        };
        field.build().map(Arc::new)
    });
    Type::group_type_builder("callpaths").with_fields(fields.collect::<Result<_, _>>()?).build()
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    column: &Column,
    rows: &[Row],
) -> Result<(), ParquetError> {
    let Some(mut out) = group.next_column()? else {
        return Err(ParquetError::General("fewer columns than in the schema".to_owned()));
    };
    /// Returns the values that exist, and for each row whether it has one.
    fn split<T>(values: impl Iterator<Item = Option<T>>) -> (Vec<T>, Vec<i16>) {
        let (mut there, mut levels) = (Vec::new(), Vec::new());
        for value in values {
            levels.push(i16::from(value.is_some()));
            there.extend(value);
        }
        (there, levels)
    }
    match column {
        Column::Text(value) => {
            let values: Vec<ByteArray> = rows.iter().map(value).collect();
            out.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        Column::Count(value) => {
            let (values, levels) = split(rows.iter().map(value));
            out.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
        }
        Column::Figure(value) => {
            let (values, levels) = split(rows.iter().map(value));
            out.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
        }
    }
    out.close()
}
