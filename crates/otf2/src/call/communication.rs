//! Writes messages, collectives, requests and events of teams of threads.

use crate::communication::{Collective, Communication, Message, Root};
use otf2_sys as sys;
use std::ptr::null_mut;

fn root(of: Root) -> u32 {
    match of {
        Root::None => sys::OTF2_COLLECTIVE_ROOT_NONE,
        Root::ThisProcess => sys::OTF2_COLLECTIVE_ROOT_SELF,
        Root::ThisGroup => sys::OTF2_COLLECTIVE_ROOT_THIS_GROUP,
        Root::Rank(rank) => rank,
    }
}

/// Writes one event without attributes.
///
/// # Safety
/// The writer must be null or open.
pub(super) unsafe fn write(
    writer: *mut sys::OTF2_EvtWriter,
    time: u64,
    event: Communication,
) -> sys::OTF2_ErrorCode {
    let none = null_mut();
    // SAFETY: see the function's contract; all arguments are plain numbers.
    unsafe {
        match event {
            Communication::MpiSend(Message { peer, comm, tag, bytes }) => {
                sys::OTF2_EvtWriter_MpiSend(writer, none, time, peer, comm.0, tag, bytes)
            }
            Communication::MpiRecv(Message { peer, comm, tag, bytes }) => {
                sys::OTF2_EvtWriter_MpiRecv(writer, none, time, peer, comm.0, tag, bytes)
            }
            Communication::MpiIsend(Message { peer, comm, tag, bytes }, request) => {
                sys::OTF2_EvtWriter_MpiIsend(writer, none, time, peer, comm.0, tag, bytes, request)
            }
            Communication::MpiIrecv(Message { peer, comm, tag, bytes }, request) => {
                sys::OTF2_EvtWriter_MpiIrecv(writer, none, time, peer, comm.0, tag, bytes, request)
            }
            Communication::MpiIsendComplete(request) => {
                sys::OTF2_EvtWriter_MpiIsendComplete(writer, none, time, request)
            }
            Communication::MpiIrecvRequest(request) => {
                sys::OTF2_EvtWriter_MpiIrecvRequest(writer, none, time, request)
            }
            Communication::MpiRequestTest(request) => {
                sys::OTF2_EvtWriter_MpiRequestTest(writer, none, time, request)
            }
            Communication::MpiRequestCancelled(request) => {
                sys::OTF2_EvtWriter_MpiRequestCancelled(writer, none, time, request)
            }
            Communication::MpiCollectiveBegin => sys::OTF2_EvtWriter_MpiCollectiveBegin(writer, none, time),
            Communication::MpiCollectiveEnd(c) => {
                let Collective { operation, comm, bytes_sent, bytes_received, .. } = c;
                let (operation, root) = (operation.to_raw(), root(c.root));
                sys::OTF2_EvtWriter_MpiCollectiveEnd(
                    writer,
                    none,
                    time,
                    operation,
                    comm.0,
                    root,
                    bytes_sent,
                    bytes_received,
                )
            }
            Communication::NonBlockingCollectiveRequest(request) => {
                sys::OTF2_EvtWriter_NonBlockingCollectiveRequest(writer, none, time, request)
            }
            Communication::NonBlockingCollectiveComplete(c, request) => {
                let Collective { operation, comm, bytes_sent, bytes_received, .. } = c;
                let (operation, root) = (operation.to_raw(), root(c.root));
                sys::OTF2_EvtWriter_NonBlockingCollectiveComplete(
                    writer,
                    none,
                    time,
                    operation,
                    comm.0,
                    root,
                    bytes_sent,
                    bytes_received,
                    request,
                )
            }
            Communication::CommCreate(comm) => sys::OTF2_EvtWriter_CommCreate(writer, none, time, comm.0),
            Communication::CommDestroy(comm) => sys::OTF2_EvtWriter_CommDestroy(writer, none, time, comm.0),
            Communication::ThreadFork(paradigm, threads) => {
                sys::OTF2_EvtWriter_ThreadFork(writer, none, time, paradigm.to_raw(), threads)
            }
            Communication::MeasurementOnOff(is_on) => {
                let mode = if is_on { sys::OTF2_MEASUREMENT_ON } else { sys::OTF2_MEASUREMENT_OFF };
                sys::OTF2_EvtWriter_MeasurementOnOff(writer, none, time, mode as sys::OTF2_MeasurementMode)
            }
            Communication::ThreadJoin(paradigm) => {
                sys::OTF2_EvtWriter_ThreadJoin(writer, none, time, paradigm.to_raw())
            }
        }
    }
}
