//! Rows as a Parquet file, which pandas, DuckDB, Spark and the like read by columns.

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

/// A row group is what a reader may skip as a whole; its columns are in memory while it is written.
const ROWS_A_GROUP: usize = 1 << 16;

/// A column's value, by its name's place among [`COLUMNS`].
enum Column {
    Text(fn(&Row) -> ByteArray),
    Count(fn(&Row) -> Option<i64>),
    Figure(fn(&Row) -> Option<f64>),
}

const VALUES: [Column; COLUMNS.len()] = [
    Column::Text(|row| row.node.into()),
    Column::Text(|row| row.device.into()),
    Column::Text(|row| row.energy.into()),
    Column::Text(|row| row.unit.into()),
    Column::Text(|row| row.view.into()),
    Column::Text(|row| row.location_group.into()),
    Column::Text(|row| row.location.into()),
    Column::Text(|row| row.path.as_str().into()),
    Column::Text(|row| row.region.into()),
    Column::Count(|row| row.calls.map(|calls| i64::try_from(calls).unwrap_or(i64::MAX))),
    Column::Figure(|row| Some(row.exclusive_joules)),
    Column::Figure(|row| Some(row.inclusive_joules)),
    Column::Figure(|row| row.resolved_joules),
    Column::Figure(|row| row.possible_joules),
    Column::Figure(|row| row.exclusive_seconds),
    Column::Figure(|row| row.mean_watts),
    Column::Figure(|row| row.sampled_error_joules),
    Column::Figure(|row| row.static_joules),
    Column::Figure(|row| row.dynamic_joules),
];

pub fn render(summary: &Summary) -> Result<Vec<u8>, ParquetError> {
    let of_the_run = |key: &str, value: &str| KeyValue::new(format!("ampere.{key}"), value.to_owned());
    let properties = WriterProperties::builder()
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
        for column in &VALUES {
            write_column(&mut writer, column, &group)?;
        }
        writer.close()?;
    }
}

fn schema() -> Result<Type, ParquetError> {
    let fields = COLUMNS.iter().zip(&VALUES).map(|(name, column)| {
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
    /// The values that there are, and which rows have one.
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
