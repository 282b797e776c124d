//! Events of communication and synchronisation, with OTF2's names.

use crate::enums::{CollectiveOp, ParadigmType};
use crate::table::CommRef;

/// A message: `peer` is the other side's rank in the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Message {
    pub peer: u32,
    pub comm: CommRef,
    pub tag: u32,
    pub bytes: u64,
}

/// A collective operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Collective {
    pub operation: CollectiveOp,
    pub comm: CommRef,
    pub root: Root,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// The root of a collective operation (`OTF2_CollectiveRoot`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The operation has no root.
    None,
    /// In an inter-communicator, this process.
    ThisProcess,
    /// In an inter-communicator, another process of this one's group.
    ThisGroup,
    /// The process with this rank.
    Rank(u32),
}

/// An event of communication. The numbers of requests are unique in their location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Communication {
    MpiSend(Message),
    MpiRecv(Message),
    MpiIsend(Message, u64),
    MpiIsendComplete(u64),
    MpiIrecvRequest(u64),
    MpiIrecv(Message, u64),
    MpiRequestTest(u64),
    MpiRequestCancelled(u64),
    MpiCollectiveBegin,
    MpiCollectiveEnd(Collective),
    NonBlockingCollectiveRequest(u64),
    NonBlockingCollectiveComplete(Collective, u64),
    CommCreate(CommRef),
    CommDestroy(CommRef),
    /// A fork, with the number of threads that were requested.
    ThreadFork(ParadigmType, u32),
    ThreadJoin(ParadigmType),
    /// Whether the location records from here on.
    MeasurementOnOff(bool),
}
