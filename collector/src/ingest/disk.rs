//! Handles a disk that is nearly full: records are written elsewhere, or the trace of all processes ends early.

use super::Ingest;
use crate::notes::Notes;
use crate::run_directory::spool_place;
use ampere_trace::spool::Spool;
use std::path::Path;

impl Ingest {
    /// If the records are in `directory` and little space is left there, writes further records to the output directory, in the
    /// run's claim.
    pub fn leave_full_directory(&mut self, directory: Option<&Path>, notes: &mut Notes) {
        let mut store = self.spool.store();
        let is_there = |path: &Path| directory.is_some_and(|directory| path.parent() == Some(directory));
        let Some(path) = store.path().filter(|path| is_there(path)).map(Path::to_owned) else { return };
        let is_full = store.bytes_of_part() > 0 && directory.is_some_and(spool_place::is_full);
        if is_full && store.leave_part() {
            let next = store.path().unwrap_or(&path).display();
            notes.add(format!(
                "{} has little space left: further records are written to {next}",
                path.display()
            ));
        }
    }

    /// Returns the free bytes if the disk has only the space that the trace needs.
    pub fn shortage(&mut self) -> Option<u64> {
        let spools = || self.locations().filter_map(|location| location.reader.spool.as_ref());
        let recorded = spools().map(Spool::bytes).sum();
        let is_written = spools().any(|spool| !spool.is_cut());
        let is_here = self.spool.store().path().is_some_and(|path| path.starts_with(&self.spool.directory));
        self.disk.shortage(recorded, is_here).filter(|_| is_written)
    }

    /// Ends the trace of all processes, with a note.
    pub fn end_trace(&mut self, samples: Option<&mut Spool>, output: &Path, left: u64, notes: &mut Notes) {
        let locations = self.processes.iter_mut().flat_map(|process| &mut process.locations);
        let spools = locations.filter_map(|location| location.reader.spool.as_mut()).chain(samples);
        spools.for_each(|spool| spool.cut());
        notes.add_loss(format!(
            "{} has only {} MB left: the trace ends early, so that there is room for it; the figures continue",
            output.display(),
            left / 1_000_000
        ));
    }
}
