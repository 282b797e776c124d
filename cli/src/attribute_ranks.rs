//! Lets a launcher start `ampere attribute` several times: `mpirun -n 8 ampere attribute TRACE -o DIR`. Each process attributes
//! some of the trace's nodes and leaves their figures in the output directory. The last process to finish joins them.
//!
//! If a process dies, the figures are not joined. The figures of the other processes are kept, and the same command uses them
//! when it is started again.

use crate::terminal::interrupt::remove_when_interrupted;
use ampere_collector::run_directory::files::write_named_with;
use ampere_model::launcher::{local_rank_and_size, rank_and_size};
use ampere_ring::files::unfinished;
use ampere_trace::offline::{AttributionOptions, attribute_share};
use ampere_trace::share_figures::{Attributed, Part, join};
use ampere_trace::shares::shares_of;
use anyhow::Context;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

/// The rank of this process, and the number of processes that the launcher started.
#[derive(Clone, Copy)]
pub struct LaunchedProcess {
    pub rank: u32,
    pub size: u32,
}

impl LaunchedProcess {
    /// Returns `None` if no launcher started this process.
    pub fn by_launcher() -> Option<LaunchedProcess> {
        let (rank, size) = rank_and_size(variable)?;
        Some(LaunchedProcess { rank, size })
    }

    /// Attributes this process' share. Returns the joined figures if all other shares have been attributed before, and otherwise
    /// `None`. Returns `None` also if this rank has no share.
    pub fn attribute(
        self,
        trace: &Path,
        options: AttributionOptions,
        directory: &Path,
    ) -> anyhow::Result<Option<Attributed>> {
        let shares = shares_of(trace, self.size as usize)?;
        let Some(share) = shares.get(self.rank as usize) else { return Ok(None) };
        ampere_owned::make_all(directory, ampere_owned::DIRECTORY_MODE)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let config = options.config;
        let files = Files { directory, key: key(trace, &options)?, count: shares.len() };
        let own = files.of(self.rank as usize);
        remove_when_interrupted(vec![unfinished(&own)]).context("cannot wait for signals")?;
        if !own.exists() {
            let local_size = local_rank_and_size(variable).map_or(1, |(_, size)| size.max(1));
            let threads = (options.threads / local_size as usize).max(1);
            let part = attribute_share(trace, AttributionOptions { threads, ..options }, share)?;
            write_named_with(&own, |file| serde_json::to_writer(file, &part).map_err(io::Error::other))?;
        }
        let Some(parts) = files.take()? else { return Ok(None) };
        join(trace, config, parts).map(Some)
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns a key for the inputs of the figures. Only figures with the same key are joined.
fn key(trace: &Path, options: &AttributionOptions) -> anyhow::Result<u64> {
    let mut hash = DefaultHasher::new();
    let anchor = std::fs::read(trace).with_context(|| format!("cannot read {}", trace.display()))?;
    let definitions = std::fs::read(trace.with_extension("def")).unwrap_or_default();
    (env!("CARGO_PKG_VERSION"), anchor, definitions, format!("{:?} {:?}", options.config, options.only))
        .hash(&mut hash);
    Ok(hash.finish())
}

/// The files in which the processes leave the figures of their shares.
struct Files<'a> {
    directory: &'a Path,
    key: u64,
    count: usize,
}

impl Files<'_> {
    fn of(&self, share: usize) -> PathBuf {
        self.directory.join(format!(".ampere-share-{:016x}-{share}-of-{}.json", self.key, self.count))
    }

    /// Returns all figures and removes their files; returns `None` if some are still missing, or if another process takes them.
    fn take(&self) -> anyhow::Result<Option<Vec<Part>>> {
        let all: Vec<PathBuf> = (0..self.count).map(|share| self.of(share)).collect();
        if !all.iter().all(|file| file.exists()) {
            return Ok(None);
        }
        // Only one process succeeds in renaming this file.
        let first = all[0].with_extension("joined");
        match std::fs::rename(&all[0], &first) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            renamed => renamed.with_context(|| format!("cannot rename {}", all[0].display()))?,
        }
        let read = std::iter::once(&first).chain(&all[1..]).map(|path| -> anyhow::Result<Part> {
            let read = ampere_owned::open_own(path).map(BufReader::new).map_err(anyhow::Error::from);
            let part = read.and_then(|file| Ok(serde_json::from_reader(file)?));
            part.with_context(|| {
                format!(
                    "cannot read {}: the figures of all processes were removed; start all of them again",
                    path.display()
                )
            })
        });
        let parts = read.collect::<anyhow::Result<_>>();
        for file in all.iter().chain([&first]) {
            let _ = std::fs::remove_file(file);
        }
        parts.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_taken_once_and_only_when_all_are_written() {
        let place = tempfile::tempdir().unwrap();
        let files = Files { directory: place.path(), key: 7, count: 2 };
        assert!(files.take().unwrap().is_none());
        std::fs::write(files.of(1), "no JSON").unwrap();
        assert!(files.take().unwrap().is_none());
        std::fs::write(files.of(0), "").unwrap();
        let why = files.take().err().unwrap().to_string();
        assert!(
            why.contains("share-0000000000000007-0-of-2") && why.contains("start all of them again"),
            "{why}"
        );
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        assert!(files.take().unwrap().is_none());
        // If one of these files is a pipe, reading it must not block.
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, files.of(0), kind, mode, 0).unwrap();
        std::fs::write(files.of(1), "").unwrap();
        assert!(files.take().err().unwrap().to_string().contains("cannot read"));
    }
}
