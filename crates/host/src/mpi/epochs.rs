//! Epochs of one-sided communication between some ranks of a window: MPI_Win_post allows access, which lasts from MPI_Win_start
//! to MPI_Win_complete, and MPI_Win_wait ends the permission. They are recorded as messages without data, which end at once: one
//! from MPI_Win_post to MPI_Win_start of each rank that may access the window, and one from MPI_Win_complete to MPI_Win_wait of
//! each rank that was accessed. OTF2's records of such synchronization do not name these ranks.

use super::communicators::handle_of_window;
use super::completions;
use super::frame::Frame;
use super::library::Library;
use super::neighbours::send_at_once;
use crate::communication::{self, Message};
use crate::guard::on_own_stack_uninterrupted;
use crate::thread::Thread;
use std::ffi::c_int;
use std::sync::Mutex;

/// The tags of these messages. No program can use them, because they are negative.
const POSTED: u32 = c_int::MIN as u32 + 1;
const COMPLETED: u32 = c_int::MIN as u32 + 2;

/// The side of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// From MPI_Win_start to MPI_Win_complete, this process may access the windows of others.
    Access,
    /// From MPI_Win_post to MPI_Win_wait or MPI_Win_test, others may access the window of this process.
    Exposure,
}

/// An epoch that has begun: MPI's handle of the window, and the numbers of the other ranks in it.
struct Epoch {
    window: usize,
    side: Side,
    ranks: Vec<c_int>,
}

static OPEN: Mutex<Vec<Epoch>> = Mutex::new(Vec::new());

/// Begins an epoch, before MPI_Win_post or after MPI_Win_start.
pub fn begin(library: &Library, side: Side, frame: Frame, thread: &Thread) {
    let [group, window] = [0, 2].map(|at| library.handle(frame.word(at)));
    let ranks = on_own_stack_uninterrupted(None, || {
        let ranks = library.ranks_in_window(group, window)?;
        let mut open = OPEN.lock().ok()?;
        open.retain(|epoch| (epoch.window, epoch.side) != (window, side));
        open.push(Epoch { window, side, ranks: ranks.clone() });
        Some(ranks)
    });
    match ranks {
        Some(ranks) => pass(library, side == Side::Exposure, (frame.word(2), &ranks, POSTED), thread),
        None => completions::not_recorded(thread.location),
    }
}

/// Ends an epoch, before MPI_Win_complete, or after MPI_Win_wait or MPI_Win_test.
pub fn end(library: &Library, side: Side, frame: Frame, thread: &Thread) {
    let window = library.handle(frame.word(0));
    let epoch = on_own_stack_uninterrupted(None, || {
        let mut open = OPEN.lock().ok()?;
        let at = open.iter().position(|epoch| (epoch.window, epoch.side) == (window, side))?;
        Some(open.swap_remove(at))
    });
    match epoch {
        Some(epoch) => pass(library, side == Side::Access, (frame.word(0), &epoch.ranks, COMPLETED), thread),
        None => completions::not_recorded(thread.location),
    }
}

/// Records a message to each rank (`is_sent`), or one from each.
fn pass(library: &Library, is_sent: bool, (window, ranks, tag): (usize, &[c_int], u32), thread: &Thread) {
    let communicator = handle_of_window(library, window);
    // MPI_PROC_NULL and MPI_UNDEFINED are negative.
    for rank in ranks.iter().filter_map(|rank| u32::try_from(*rank).ok()) {
        let message = Message { is_sent, rank, communicator, tag, bytes: 0 };
        match is_sent {
            true => send_at_once(thread, &message),
            false => communication::message(thread.location, &message),
        }
    }
}
