//! `ampere attribute --calls`: writes a table of calls in addition to the summary.

use crate::terminal::interrupt::remove_when_interrupted;
#[cfg(feature = "parquet")]
use ampere_collector::run_directory::files::WriteError;
use ampere_collector::run_directory::files::write_named_with;
use ampere_report::call_table::{CallRow, Names, Paths};
#[cfg(feature = "parquet")]
use ampere_report::call_table::{CallsFile, write_paths};
use ampere_ring::files::unfinished;
use ampere_trace::calls::{CallSink, CallTable, unlinked_file};
use ampere_trace::offline::{self, AttributionOptions};
use ampere_trace::share_figures::Attributed;
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{self, BufWriter, Seek};
use std::path::{Path, PathBuf};

/// Returns the path of the file with the call paths of a file of calls.
fn paths_next_to(calls: &Path) -> PathBuf {
    calls.with_extension("callpaths.parquet")
}

/// Does the same as `offline::attribute_as` and writes a row for each call. The file of calls, and that of call paths, are
/// written completely or not at all.
pub fn attribute(trace: &Path, options: AttributionOptions, calls: &Path) -> anyhow::Result<Attributed> {
    if std::fs::symlink_metadata(calls).is_ok_and(|there| !there.is_file()) {
        bail!("cannot write {}: it exists and is not a regular file: name another file", calls.display());
    }
    let paths = paths_next_to(calls);
    let form = match calls.extension().and_then(|of| of.to_str()) {
        Some("csv") => Form::Csv,
        None | Some("parquet") => Form::Parquet(&paths),
        Some(_) => {
            bail!("{}: calls are written as .csv or .parquet: choose one of these names", calls.display())
        }
    };
    remove_when_interrupted(vec![unfinished(calls), unfinished(&paths)])
        .context("cannot wait for signals")?;
    let mut attributed = None;
    let written = write_named_with(calls, |file| {
        let done = attribute_into(trace, options, file.get_mut(), calls, form);
        let is_done = done.is_ok();
        attributed = Some(done);
        if is_done { Ok(()) } else { Err(io::Error::other("no calls")) }
    });
    match attributed {
        // The error that kept the file from being complete is reported first.
        Some(Err(why)) => Err(why),
        Some(Ok(attributed)) => Ok(written.map(|()| attributed).inspect_err(|_| form.remove_paths())?),
        None => bail!("{}", written.err().map_or_else(String::new, |why| why.to_string())),
    }
}

/// The kind of file to which the calls are written.
#[derive(Clone, Copy)]
enum Form<'a> {
    Csv,
    /// A Parquet file, and the path of a second file for the call paths.
    Parquet(&'a Path),
}

impl Form<'_> {
    fn remove_paths(self) {
        if let Form::Parquet(paths) = self {
            let _ = std::fs::remove_file(paths);
        }
    }
}

fn attribute_into(
    trace: &Path,
    options: AttributionOptions,
    file: &mut File,
    calls: &Path,
    form: Form,
) -> anyhow::Result<Attributed> {
    let only = options.only;
    let directory = calls.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let spill_file = unfinished(&directory.join("waiting calls"));
    let about = vec![("trace", trace.display().to_string())];
    let begin_pass = |clock| {
        // Each pass writes the file from its beginning.
        file.set_len(0)?;
        file.rewind()?;
        let out = BufWriter::with_capacity(1 << 16, file.try_clone()?);
        let sink: Box<dyn CallSink> = match form {
            Form::Csv => Box::new(CsvSink::new(out)?),
            Form::Parquet(paths) => parquet_sink(out, &about, paths)?,
        };
        let spill_file = spill_file.clone();
        let table = CallTable::new(sink, clock, only, Box::new(move || unlinked_file(&spill_file)));
        Ok(Box::new(table) as _)
    };
    let AttributionOptions { config, threads, progress, .. } = options;
    offline::attribute_as(
        trace,
        AttributionOptions {
            config,
            only,
            waits: false,
            recorder: Some(Box::new(begin_pass)),
            threads,
            progress,
        },
    )
}

#[cfg(feature = "parquet")]
fn parquet_sink(
    out: BufWriter<File>,
    about: &[(&str, String)],
    paths: &Path,
) -> io::Result<Box<dyn CallSink>> {
    let file = CallsFile::new(out, about).map_err(io::Error::other)?;
    Ok(Box::new(ParquetSink { file, paths: paths.to_owned() }))
}

#[cfg(not(feature = "parquet"))]
fn parquet_sink(_: BufWriter<File>, _: &[(&str, String)], _: &Path) -> io::Result<Box<dyn CallSink>> {
    Err(io::Error::other(ampere_report::ReportError::NoParquet))
}

#[cfg(feature = "parquet")]
struct ParquetSink {
    file: CallsFile<BufWriter<File>>,
    paths: PathBuf,
}

#[cfg(feature = "parquet")]
impl CallSink for ParquetSink {
    fn push(&mut self, row: &CallRow, names: &Names, paths: &Paths) -> io::Result<()> {
        self.file.push(row, names, paths).map_err(io::Error::other)
    }

    fn finish(self: Box<Self>, names: Names, paths: Paths) -> io::Result<()> {
        self.file.finish(&names, &paths).map_err(io::Error::other)?;
        write_named_with(&self.paths, |file| write_paths(file, &names, &paths).map_err(io::Error::other))
            .map_err(|why: WriteError| io::Error::other(why))
    }
}

/// The columns of a CSV file of calls. They are those of Parquet, but the call path is written as its regions, the outermost
/// first.
const COLUMNS: [&str; 16] = [
    "node",
    "rank",
    "thread",
    "device",
    "view",
    "region",
    "callpath",
    "depth",
    "start",
    "end",
    "calls",
    "exclusive_joules",
    "inclusive_joules",
    "resolved_joules",
    "dynamic_joules",
    "inclusive_dynamic_joules",
];

struct CsvSink(csv::Writer<BufWriter<File>>);

impl CsvSink {
    fn new(out: BufWriter<File>) -> io::Result<CsvSink> {
        let mut file = csv::Writer::from_writer(out);
        file.write_record(COLUMNS)?;
        Ok(CsvSink(file))
    }
}

impl CallSink for CsvSink {
    fn push(&mut self, row: &CallRow, names: &Names, paths: &Paths) -> io::Result<()> {
        let (name, paths_of) = (|number: u32| names.all()[number as usize].as_str(), paths.all());
        let region = |path: u32| name(paths_of[path as usize].region);
        let mut callpath: Vec<&str> = paths.up(row.path).map(region).collect();
        callpath.reverse();
        let (place, device) = (row.place, row.device);
        let dynamic = row.dynamic_joules.map(|parts| parts.map(|joules| joules.to_string()));
        let [dynamic, inclusive_dynamic] = dynamic.unwrap_or_default();
        let text = [place.node, place.rank, place.thread, device.device, device.view].map(name);
        self.0.write_record([
            text[0],
            text[1],
            text[2],
            text[3],
            text[4],
            region(row.path),
            &callpath.join(" > "),
            &paths_of[row.path as usize].depth.to_string(),
            &row.start.to_string(),
            &row.end.to_string(),
            &row.calls.map_or_else(String::new, |calls| calls.to_string()),
            &row.exclusive_joules.to_string(),
            &row.inclusive_joules.to_string(),
            &row.resolved_joules.to_string(),
            &dynamic,
            &inclusive_dynamic,
        ])?;
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: Names, _: Paths) -> io::Result<()> {
        self.0.flush()
    }
}
