//! The CPU time of everything that a process starts, as one number that the kernel provides at any time.

use crate::events::{count_commands, threads_of};
use std::os::fd::OwnedFd;

/// Counts the CPU time of the programs that a process executes, and of everything that these start. Programs that have ended are
/// included at once, whether or not their parents wait for them. Time that a hypervisor took from a CPU is included, too.
pub struct TaskClock(Vec<OwnedFd>);

impl TaskClock {
    /// Starts to count the CPU time of the programs that `launcher` executes from now on. Returns `None` if the kernel does not
    /// allow it.
    pub fn of_commands(launcher: u32) -> Option<TaskClock> {
        // Threads that have ended in the meantime start nothing.
        let events = threads_of(launcher).ok()?.into_iter().filter_map(|thread| count_commands(thread).ok());
        let events: Vec<OwnedFd> = events.collect();
        (!events.is_empty()).then_some(TaskClock(events))
    }

    /// Returns the CPU time so far in nanoseconds; `None` if it cannot be read.
    pub fn read(&self) -> Option<u64> {
        let read = |event: &OwnedFd| {
            let mut bytes = [0; 8];
            (rustix::io::read(event, &mut bytes).ok()? == bytes.len()).then(|| u64::from_ne_bytes(bytes))
        };
        self.0.iter().map(read).sum()
    }
}
