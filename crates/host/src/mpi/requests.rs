//! The requests that are open, by MPI's handles, in bounded memory.
//!
//! A handle may be in one of two buckets of eight places each, so that finding one reads two cache lines, and no thread waits
//! for another. Only the thread that completes a request changes it, as MPI demands. A library can give a handle to a new
//! request before the thread that has completed the old one removes it here. So if several requests have the same handle, the
//! newest is found, and a thread looks its requests up before it completes them. If few requests of a large array may be
//! complete, only those are looked up, after the call, among the requests that were there before it.

use crate::alloc;
use scorep_abi::AnyHandle;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// An open request, or a message that MPI_Mprobe has found.
#[derive(Clone, Copy)]
pub struct Request {
    pub operation: Operation,
    pub stage: Stage,
    /// The number in the trace.
    pub id: u64,
    pub communicator: AnyHandle,
    /// The peer's rank in the plugin's communicator, or the root of a collective. For a receive whose sender is only known from
    /// its status, this is the rank of the first possible sender in the plugin's communicator; the source in the status is
    /// added to it.
    pub rank: i32,
    pub tag: u32,
    /// The bytes that this rank sends; used for persistent sends and collectives.
    pub sent: u64,
    /// The bytes that this rank receives; used for collectives and [`Operation::KnownReceive`].
    pub received: u64,
}

impl Request {
    /// A receive about which nothing more is known.
    pub const NEW: Request = Request {
        operation: Operation::Receive,
        stage: Stage::Once,
        id: 0,
        communicator: 0,
        rank: 0,
        tag: 0,
        sent: 0,
        received: 0,
    };
}

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Send,
    Receive,
    /// A receive whose sender and size are known when its request is made, and are not taken from its status: a partitioned one,
    /// or one of a collective among neighbours.
    KnownReceive,
    /// A collective among neighbours, recorded as at most this many messages, which start and complete together. See [`parts`].
    Group(u32),
    /// A collective, by its value of Score-P's enum `SCOREP_CollectiveType`.
    Collective(i32),
    /// A message that was found, and that will be received.
    FoundMessage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The request ends when it completes.
    Once,
    /// A persistent request that is not started.
    Inactive,
    /// A persistent request that is started.
    Started,
    /// MPI_Request_get_status has reported the request as complete, but the program has not yet waited for it.
    Completed,
}

/// A place in the table, counted from 1; 0 stands for no place.
pub type Place = u32;
pub const NOWHERE: Place = 0;

const BUCKETS: usize = 1 << 15;
const IN_BUCKET: usize = 8;
/// The largest number of open requests.
const REQUESTS_MAX: usize = BUCKETS * IN_BUCKET;
const FREE: usize = 0;
/// The handle of a place that another thread is filling in. No library has a handle of this value.
const RESERVED: usize = usize::MAX;

struct Table {
    handles: *const AtomicUsize,
    requests: *mut Request,
}

// SAFETY: handles are atomic. A request is written by the thread that reserved its place, before its handle is, and then by the
// one thread that completes or starts it.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: OnceLock<Table> = OnceLock::new();
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Maps the table, whose pages are committed when they are used. Returns whether there is one.
pub fn prepare() -> bool {
    let bytes = REQUESTS_MAX * (size_of::<AtomicUsize>() + size_of::<Request>());
    if TABLE.get().is_none() {
        if !alloc::has_room(bytes) {
            return false;
        }
        let handles = alloc::map(REQUESTS_MAX * size_of::<AtomicUsize>());
        let requests = alloc::map(REQUESTS_MAX * size_of::<Request>());
        if handles.is_null() || requests.is_null() {
            return false;
        }
        let _ = TABLE.set(Table { handles: handles.cast(), requests: requests.cast() });
    }
    true
}

/// Returns the next number of a request. Numbers are unique in the process.
pub fn next_id() -> u64 {
    next_ids(1)
}

/// Takes the next `count` numbers of requests, and returns the first.
pub fn next_ids(count: u64) -> u64 {
    NEXT_ID.fetch_add(count, Ordering::Relaxed)
}

impl Table {
    fn handle(&self, place: Place) -> &AtomicUsize {
        // SAFETY: a place is at most REQUESTS_MAX, and zeroed pages are valid atomics.
        unsafe { &*self.handles.add(place as usize - 1) }
    }

    fn request(&self, place: Place) -> *mut Request {
        // SAFETY: as above.
        unsafe { self.requests.add(place as usize - 1) }
    }

    /// Returns the first places of the buckets in which a handle may be.
    fn buckets(handle: usize) -> [Place; 2] {
        let hash = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [hash >> 49, hash >> 30].map(|bucket| (bucket as usize % BUCKETS * IN_BUCKET + 1) as Place)
    }

    /// Returns the places that hold this handle.
    fn places_of(&self, handle: usize) -> impl Iterator<Item = Place> {
        let places = Table::buckets(handle).into_iter().flat_map(|first| first..first + IN_BUCKET as Place);
        places.filter(move |place| self.handle(*place).load(Ordering::Acquire) == handle)
    }

    /// Reserves a free place for a handle, in the emptier one of its buckets.
    fn reserve(&self, handle: usize) -> Option<Place> {
        let free_in = |first: Place| {
            (first..first + IN_BUCKET as Place)
                .filter(|place| self.handle(*place).load(Ordering::Relaxed) == FREE)
        };
        let [one, other] = Table::buckets(handle);
        let order = if free_in(one).count() < free_in(other).count() { [other, one] } else { [one, other] };
        order.into_iter().flat_map(free_in).find(|place| {
            let (expected, new) = (FREE, RESERVED);
            let taken =
                self.handle(*place).compare_exchange(expected, new, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        })
    }
}

/// Returns the number that the next request gets. All requests that are open now have smaller ones.
pub fn coming_id() -> u64 {
    NEXT_ID.load(Ordering::Relaxed)
}

/// Returns the place of the request with this handle, or [`NOWHERE`].
pub fn find(handle: usize) -> Place {
    find_below(handle, u64::MAX)
}

/// Returns the place of the request with this handle and a number below `end`, or [`NOWHERE`].
pub fn find_below(handle: usize, end: u64) -> Place {
    let Some(table) = TABLE.get() else { return NOWHERE };
    // SAFETY: a place with a handle has a request.
    let numbered = table.places_of(handle).map(|place| (unsafe { (*table.request(place)).id }, place));
    numbered.filter(|(id, _)| *id < end).max().map_or(NOWHERE, |(_, place)| place)
}

/// Returns the request at a place that [`find`] has returned; `None` if it has been removed.
pub fn get(place: Place) -> Option<Request> {
    let table = TABLE.get().filter(|_| place != NOWHERE)?;
    let handle = table.handle(place).load(Ordering::Acquire);
    // SAFETY: the place has a request, and only the calling thread completes or starts it.
    (handle != FREE && handle != RESERVED).then(|| unsafe { *table.request(place) })
}

/// Replaces the request at a place that [`find`] has returned.
pub fn set(place: Place, request: Request) {
    if let Some(table) = TABLE.get().filter(|_| place != NOWHERE) {
        // SAFETY: as in `get`.
        unsafe { table.request(place).write(request) };
    }
}

/// Removes the request at a place that [`find`] has returned, and those of its messages if it is a group.
pub fn remove(place: Place) {
    if let Some(table) = TABLE.get()
        && let Some(request) = get(place)
    {
        parts(&request).for_each(remove);
        table.handle(place).store(FREE, Ordering::Release);
    }
}

/// Returns the places of a group's messages, or [`NOWHERE`] where there is none. Other requests have no such messages.
pub fn parts(request: &Request) -> impl Iterator<Item = Place> + use<> {
    let count = if let Operation::Group(count) = request.operation { count } else { 0 };
    let first = request.id + 1;
    (first..first + u64::from(count)).map(|id| find(handle_of_part(id)))
}

/// Adds the request of a message of a group. Its number is greater than that of the group, by at most the number of messages of
/// the group. Returns whether there is room for it.
pub fn insert_part(request: Request) -> bool {
    insert(handle_of_part(request.id), request) == Inserted::Yes
}

/// Returns the handle under which a message of a group is kept, made from the number that it had when it was inserted: a
/// persistent request gets a new number at each start. MPI's handles are addresses or have 32 bits, so none of them has this bit.
fn handle_of_part(id: u64) -> usize {
    1 << 63 | id as usize
}

/// The result of adding a new request.
#[derive(Debug, PartialEq, Eq)]
pub enum Inserted {
    Yes,
    /// The request is a send that has completed: libraries return the same handle for all sends that complete immediately.
    IsComplete,
    /// There is no room for it.
    No,
}

/// Adds a request. It is open until it is removed.
pub fn insert(handle: usize, request: Request) -> Inserted {
    let Some(table) = TABLE.get() else { return Inserted::No };
    let is_plain_send =
        |request: &Request| request.operation == Operation::Send && request.stage == Stage::Once;
    // SAFETY: as in `find`.
    let is_open_send = |place: Place| is_plain_send(unsafe { &*table.request(place) });
    if is_plain_send(&request) && table.places_of(handle).any(is_open_send) {
        return Inserted::IsComplete;
    }
    // If there is no room, the place of a request with the same handle is used again: its end was not seen.
    let place = table.reserve(handle).or_else(|| table.places_of(handle).next());
    let Some(place) = place else { return Inserted::No };
    // SAFETY: the place is reserved for this thread, or holds an older request with the handle that MPI has given to the new one.
    // So no thread completes or starts the older one any more.
    unsafe { table.request(place).write(request) };
    table.handle(place).store(handle, Ordering::Release);
    Inserted::Yes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: Operation, id: u64) -> Request {
        Request { operation, id, ..Request::NEW }
    }

    /// All cases are in one test, because the process has one table.
    #[test]
    fn open_requests_are_found_by_their_handles() {
        assert!(prepare());
        let handle = |at: usize| 0x7f12_3456_0000 + at * 0x240;
        let open = 100_000;
        for at in 0..open {
            assert_eq!(insert(handle(at), request(Operation::Receive, next_id())), Inserted::Yes, "{at}");
        }
        for at in 0..open {
            let place = find(handle(at));
            assert_eq!(get(place).unwrap().id, at as u64 + 1);
            remove(place);
            assert_eq!((find(handle(at)), get(place).is_none()), (NOWHERE, true));
        }
        // A group is removed with its messages, of which there may be fewer than it has numbers for.
        let id = next_ids(4);
        let group = request(Operation::Group(3), id);
        assert_eq!(insert(handle(0), group), Inserted::Yes);
        assert!([id + 1, id + 3].into_iter().all(|id| insert_part(request(Operation::KnownReceive, id))));
        let kept = || parts(&group).map(|part| get(part).map_or(0, |part| part.id)).collect::<Vec<_>>();
        assert_eq!(kept(), [id + 1, 0, id + 3]);
        remove(find(handle(0)));
        assert_eq!(kept(), [0; 3]);
        // If two requests have the same handle, the newer one is found.
        for id in [5, 6] {
            insert(handle(0), request(Operation::Receive, id));
        }
        assert_eq!(get(find(handle(0))).unwrap().id, 6);
        assert_eq!(get(find_below(handle(0), 6)).unwrap().id, 5);
        // Sends that complete immediately have the same handle.
        assert_eq!(insert(handle(1), request(Operation::Send, 7)), Inserted::Yes);
        assert_eq!(insert(handle(1), request(Operation::Send, 8)), Inserted::IsComplete);
        // A full table takes no more, and keeps what it has.
        let mut refused = (2..4 * REQUESTS_MAX)
            .filter(|at| insert(handle(*at), request(Operation::Receive, 9)) == Inserted::No);
        assert!(refused.next().is_some_and(|at| at > open));
        assert_eq!(get(find(handle(1))).unwrap().id, 7);
    }
}
