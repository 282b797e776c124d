//! Reads messages, collectives and requests.

use super::batch::{Batch, Event, Kind, push};
use crate::communication::{Collective, Communication, Message, Root};
use crate::enums::CollectiveOp;
use crate::table::CommRef;
use otf2_sys as sys;
use std::ffi::c_void;

macro_rules! callbacks {
    ($($set:ident: $name:ident($($argument:ident: $type:ty),*) => $event:expr;)*) => {
        /// Sets the callbacks of these events, instead of those that read only their names.
        ///
        /// # Safety
        /// The table must be one that OTF2 made, and be used with batches as user data.
        pub(super) unsafe fn register(callbacks: *mut sys::OTF2_EvtReaderCallbacks) {
            // SAFETY: see the function's contract.
            unsafe {
                $(sys::$set(callbacks, Some($name));)*
            }
        }

        $(
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn $name(
                _location: sys::OTF2_LocationRef,
                time: sys::OTF2_TimeStamp,
                _position: u64,
                user_data: *mut c_void,
                _attributes: *mut sys::OTF2_AttributeList,
                $($argument: $type),*
            ) -> sys::OTF2_CallbackCode {
                // SAFETY: registered with a batch as user data and called only by OTF2.
                unsafe { add(user_data, time, $event) }
            }
        )*
    };
}

callbacks! {
    OTF2_EvtReaderCallbacks_SetMpiSendCallback: on_send(peer: u32, comm: u32, tag: u32, bytes: u64) =>
        Communication::MpiSend(message(peer, comm, tag, bytes));
    OTF2_EvtReaderCallbacks_SetMpiRecvCallback: on_receive(peer: u32, comm: u32, tag: u32, bytes: u64) =>
        Communication::MpiRecv(message(peer, comm, tag, bytes));
    OTF2_EvtReaderCallbacks_SetMpiIsendCallback:
        on_isend(peer: u32, comm: u32, tag: u32, bytes: u64, request: u64) =>
        Communication::MpiIsend(message(peer, comm, tag, bytes), request);
    OTF2_EvtReaderCallbacks_SetMpiIrecvCallback:
        on_ireceive(peer: u32, comm: u32, tag: u32, bytes: u64, request: u64) =>
        Communication::MpiIrecv(message(peer, comm, tag, bytes), request);
    OTF2_EvtReaderCallbacks_SetMpiIsendCompleteCallback: on_isend_complete(request: u64) =>
        Communication::MpiIsendComplete(request);
    OTF2_EvtReaderCallbacks_SetMpiIrecvRequestCallback: on_ireceive_request(request: u64) =>
        Communication::MpiIrecvRequest(request);
    OTF2_EvtReaderCallbacks_SetMpiRequestCancelledCallback: on_cancelled(request: u64) =>
        Communication::MpiRequestCancelled(request);
    OTF2_EvtReaderCallbacks_SetMpiCollectiveEndCallback:
        on_collective(op: u8, comm: u32, root: u32, sent: u64, received: u64) =>
        Communication::MpiCollectiveEnd(collective(op, comm, root, (sent, received)));
    OTF2_EvtReaderCallbacks_SetNonBlockingCollectiveRequestCallback: on_collective_request(request: u64) =>
        Communication::NonBlockingCollectiveRequest(request);
    OTF2_EvtReaderCallbacks_SetNonBlockingCollectiveCompleteCallback:
        on_collective_complete(op: u8, comm: u32, root: u32, sent: u64, received: u64, request: u64) =>
        Communication::NonBlockingCollectiveComplete(collective(op, comm, root, (sent, received)), request);
}

fn message(peer: u32, comm: u32, tag: u32, bytes: u64) -> Message {
    Message { peer, comm: CommRef(comm), tag, bytes }
}

fn collective(op: u8, comm: u32, root: u32, (bytes_sent, bytes_received): (u64, u64)) -> Collective {
    let root = match root {
        sys::OTF2_COLLECTIVE_ROOT_NONE => Root::None,
        sys::OTF2_COLLECTIVE_ROOT_SELF => Root::ThisProcess,
        sys::OTF2_COLLECTIVE_ROOT_THIS_GROUP => Root::ThisGroup,
        rank => Root::Rank(rank),
    };
    let operation = CollectiveOp::from_raw(op);
    Collective { operation, comm: CommRef(comm), root, bytes_sent, bytes_received }
}

/// Adds an event to the batch that a callback's user data points to.
///
/// # Safety
/// As for [`push`].
unsafe fn add(user_data: *mut c_void, time: u64, what: Communication) -> sys::OTF2_CallbackCode {
    // SAFETY: the user data is the batch, which only the callbacks access during read; the reference ends before push.
    let all = unsafe { &mut (*user_data.cast::<Batch>()).communications };
    let event = Event::new(time, all.len() as u32, Kind::Communication);
    all.push(what);
    // SAFETY: see the function's contract.
    unsafe { push(user_data, event) }
}
