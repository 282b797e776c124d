//! What a collector that replaces a killed one must know of the CPU times: up to when they are written, and what the kernel had
//! counted for each process until then. The rest of the kernel's count is the CPU time of the gap.

use crate::run_directory::files::write_result_privately;
use rustc_hash::FxHashMap;
use std::fmt::Write as _;
use std::path::Path;

/// The CPU times of all processes that are written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Handover {
    /// The time before which everything is written, in nanoseconds of the kernel's clock.
    pub until: u64,
    pub processes: FxHashMap<u32, Left>,
}

/// The CPU time of a process up to [`Handover::until`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Left {
    /// The kernel's count, in nanoseconds.
    pub counted: u64,
    /// The nanoseconds of CPU time in a second, as last measured. A process that ends in the gap is assumed to have continued at
    /// this rate.
    pub per_second: u64,
    /// Whether the process records its own functions.
    pub is_recorded: bool,
    pub program: String,
}

impl Handover {
    const FILE_NAME: &str = "cpu.written";
    const BYTES_MAX: u64 = 16 << 20;

    /// Saves it in the session's directory. If that fails, the CPU time of a gap is unknown.
    pub fn save(&self, session: &Path) {
        let mut text = format!("{}\n", self.until);
        for (process, Left { counted, per_second, is_recorded, program }) in &self.processes {
            let program = program.replace('\n', " ");
            let _ = writeln!(text, "{process} {counted} {per_second} {} {program}", u8::from(*is_recorded));
        }
        let _ = write_result_privately(&session.join(Handover::FILE_NAME), &text);
    }

    /// Returns what a killed collector has left, if anything.
    pub fn load(session: &Path) -> Option<Handover> {
        let text = ampere_owned::read(&session.join(Handover::FILE_NAME), Handover::BYTES_MAX).ok()?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        let until = lines.next()?.parse().ok()?;
        let left = |line: &str| {
            let mut fields = line.splitn(5, ' ');
            let mut number = || fields.next()?.parse::<u64>().ok();
            let (process, counted, per_second, is_recorded) =
                (number()?, number()?, number()?, number()? > 0);
            let program = fields.next()?.to_owned();
            Some((process.try_into().ok()?, Left { counted, per_second, is_recorded, program }))
        };
        Some(Handover { until, processes: lines.filter_map(left).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Handover::load(directory.path()), None);
        let left = |program: &str, is_recorded| Left {
            counted: 5_000_000_000,
            per_second: 700,
            is_recorded,
            program: program.to_owned(),
        };
        let processes = [(7, left("/usr/bin/a program", false)), (8, left("", true))].into_iter().collect();
        let handover = Handover { until: 1234, processes };
        handover.save(directory.path());
        assert_eq!(Handover::load(directory.path()), Some(handover));
    }
}
