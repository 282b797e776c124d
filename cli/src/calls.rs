//! `ampere attribute --calls`: writes a table of calls in addition to the summary.

use crate::terminal::interrupt::remove_when_interrupted;
use ampere_collector::run_directory::files::{WriteError, write_whole_with};
use ampere_report::call_table::{CallRow, CallsFile, Names, Paths, write_paths};
use ampere_ring::files::unfinished;
use ampere_trace::calls::{CallSink, CallTable, unlinked_file};
use ampere_trace::offline::{self, How};
use ampere_trace::share_figures::Attributed;
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{self, BufWriter, Seek};
use std::path::{Path, PathBuf};

/// Returns the path of the file of call paths that goes with a file of calls.
fn paths_beside(calls: &Path) -> PathBuf {
    calls.with_extension("callpaths.parquet")
}

/// Does the same as `offline::attribute_as` and writes a row for each call. Both files are written completely or not at all.
pub fn attribute(trace: &Path, how: How, calls: &Path) -> anyhow::Result<Attributed> {
    if std::fs::symlink_metadata(calls).is_ok_and(|there| !there.is_file()) {
        bail!("cannot write {}: it exists and is not a regular file: name another file", calls.display());
    }
    let paths = paths_beside(calls);
    remove_when_interrupted(vec![unfinished(calls), unfinished(&paths)])
        .context("cannot wait for signals")?;
    let mut attributed = None;
    let written = write_whole_with(calls, |file| {
        let done = attribute_into(trace, how, file.get_mut(), &paths);
        let is_done = done.is_ok();
        attributed = Some(done);
        if is_done { Ok(()) } else { Err(io::Error::other("no calls")) }
    });
    match attributed {
        // The error that kept the file from being complete is reported first.
        Some(Err(why)) => Err(why),
        Some(Ok(attributed)) => Ok(written.map(|()| attributed).inspect_err(|_| remove(&paths))?),
        None => bail!("{}", written.err().map_or_else(String::new, |why| why.to_string())),
    }
}

fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

fn attribute_into(trace: &Path, how: How, file: &mut File, paths: &Path) -> anyhow::Result<Attributed> {
    let only = how.only;
    let directory = paths.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let spill_file = unfinished(&directory.join("calls that wait"));
    let about = vec![("trace", trace.display().to_string())];
    let begin_pass = |clock| {
        // Each pass starts anew.
        file.set_len(0)?;
        file.rewind()?;
        let out = BufWriter::with_capacity(1 << 16, file.try_clone()?);
        let file = CallsFile::new(out, &about).map_err(io::Error::other)?;
        let sink = ParquetSink { file, paths: paths.to_owned() };
        let spill_file = spill_file.clone();
        let table = CallTable::new(Box::new(sink), clock, only, Box::new(move || unlinked_file(&spill_file)));
        Ok(Box::new(table) as _)
    };
    let How { config, threads, progress, .. } = how;
    offline::attribute_as(
        trace,
        How { config, only, recorder: Some(Box::new(begin_pass)), threads, progress },
    )
}

struct ParquetSink {
    file: CallsFile<BufWriter<File>>,
    paths: PathBuf,
}

impl CallSink for ParquetSink {
    fn push(&mut self, row: &CallRow, names: &Names, paths: &Paths) -> io::Result<()> {
        self.file.push(row, names, paths).map_err(io::Error::other)
    }

    fn finish(self: Box<Self>, names: Names, paths: Paths) -> io::Result<()> {
        self.file.finish(&names, &paths).map_err(io::Error::other)?;
        write_whole_with(&self.paths, |file| write_paths(file, &names, &paths).map_err(io::Error::other))
            .map_err(|why: WriteError| io::Error::other(why))
    }
}
