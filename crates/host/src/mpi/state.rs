//! The state that a thread keeps during an MPI call.

use super::communicators::UNKNOWN;
use crate::alloc;
use scorep_abi::AnyHandle;
use std::ptr::null_mut;

/// The room for a status that we pass. No library's `MPI_Status` is larger.
pub const STATUS_BYTES: usize = 32;
/// The largest number of requests in a call; those of a larger array are not recorded.
const IN_CALL_MAX: usize = 1 << 20;
/// The smallest number of elements for which memory is mapped.
const MAPPED_MIN: usize = 256;

/// The state that a thread keeps during its outermost MPI call.
pub struct CallState {
    /// The stack address of a later call that a walk of the stack has found inside this one; 0 if there was none.
    pub inside: usize,
    /// The MPI_Status for calls in which the program passes none.
    pub status: [usize; STATUS_BYTES / 8],
    /// If the program's call is from Fortran: the C function that the library will call with the same arguments. `None` after
    /// that call.
    pub expected: Option<u16>,
    /// The stack address of the call from C inside the program's call from Fortran; 0 if there is none.
    pub inner_stack: usize,
    /// The id of the request of the send that the call has started; 0 if it is not recorded.
    pub send: u64,
    /// The communicator of the collective that the call has begun; [`UNKNOWN`] if it is not recorded.
    pub communicator: AnyHandle,
    /// The places in the table of the requests that the call may complete: one, or those of an array.
    pub place: u32,
    pub places: Places,
    /// The first number that no request had before the call, if the places of an array's requests are looked up after it.
    pub next_id: u64,
}

impl CallState {
    pub const fn new() -> CallState {
        CallState {
            inside: 0,
            status: [0; STATUS_BYTES / 8],
            expected: None,
            inner_stack: 0,
            send: 0,
            communicator: UNKNOWN,
            place: 0,
            places: Places { memory: null_mut(), capacity: 0, used: 0 },
            next_id: 0,
        }
    }
}

/// For each element of a call's array of requests, its place in the table of requests, or its handle, and room for its status.
pub struct Places {
    /// The places in the table or the handles, and behind them the statuses.
    memory: *mut u8,
    capacity: usize,
    used: usize,
}

impl Places {
    const BYTES: usize = size_of::<usize>() + STATUS_BYTES;

    /// Makes room for `count` elements. Returns whether there is room; otherwise there are no elements.
    pub fn resize(&mut self, count: usize) -> bool {
        self.used = 0;
        if count > self.capacity && !self.grow(count) {
            return false;
        }
        self.used = count;
        true
    }

    #[cold]
    fn grow(&mut self, count: usize) -> bool {
        let capacity = count.max(MAPPED_MIN).next_power_of_two();
        if capacity > IN_CALL_MAX || !alloc::has_room(capacity * Places::BYTES) {
            return false;
        }
        let memory = alloc::map(capacity * Places::BYTES);
        if memory.is_null() {
            return false;
        }
        self.release();
        (self.memory, self.capacity) = (memory, capacity);
        true
    }

    /// Returns the place of each element.
    pub fn all(&mut self) -> &mut [u32] {
        if self.memory.is_null() {
            return &mut [];
        }
        // SAFETY: the memory begins at a page and has room for `capacity` places, at least `used`; zero is a valid place.
        unsafe { std::slice::from_raw_parts_mut(self.memory.cast(), self.used) }
    }

    /// Returns the handle of each element, in the memory of the places.
    pub fn handles(&mut self) -> &mut [usize] {
        if self.memory.is_null() {
            return &mut [];
        }
        // SAFETY: as in `all`, and the memory has room for as many handles.
        unsafe { std::slice::from_raw_parts_mut(self.memory.cast(), self.used) }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Returns the address of the room for statuses.
    pub fn statuses(&self) -> usize {
        self.memory as usize + self.capacity * size_of::<usize>()
    }

    fn release(&mut self) {
        if !self.memory.is_null() {
            // SAFETY: `grow` has mapped it with this size, and nothing refers to it.
            unsafe { alloc::unmap(self.memory, self.capacity * Places::BYTES) };
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.release();
    }
}
