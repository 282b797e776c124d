//! All events other than enter, leave and metric. Only their names and times are read.
//!
//! Each event has a callback type of its own, with its own number and types of arguments. The callbacks here are generic over
//! the types of the arguments, which they ignore: there is one callback for each number of arguments.

use super::batch::{Event, Kind, push};
use otf2_sys as sys;
use std::ffi::c_void;

macro_rules! callbacks {
    ($($name:ident($($argument:ident),*);)*) => { $(
        /// # Safety
        /// Must be called only by OTF2, registered with a batch as user data.
        #[allow(improper_ctypes_definitions, clippy::too_many_arguments)]
        unsafe extern "C" fn $name<const NUMBER: u32, $($argument),*>(
            _location: sys::OTF2_LocationRef,
            time: sys::OTF2_TimeStamp,
            _position: u64,
            user_data: *mut c_void,
            _attributes: *mut sys::OTF2_AttributeList,
            $(_: $argument),*
        ) -> sys::OTF2_CallbackCode {
            let event = Event::new(time, NUMBER, Kind::Other);
            // SAFETY: see the function's contract.
            unsafe { push(user_data, event) }
        }
    )* };
}

callbacks! {
    other0();
    other1(A);
    other2(A, B);
    other3(A, B, C);
    other4(A, B, C, D);
    other5(A, B, C, D, E);
    other6(A, B, C, D, E, F);
}

/// A callback of the required type: the types of the ignored arguments follow from the setter.
macro_rules! as_callback {
    (other0, $number:expr) => {
        Some(other0::<{ $number }>)
    };
    (other1, $number:expr) => {
        Some(other1::<{ $number }, _>)
    };
    (other2, $number:expr) => {
        Some(other2::<{ $number }, _, _>)
    };
    (other3, $number:expr) => {
        Some(other3::<{ $number }, _, _, _>)
    };
    (other4, $number:expr) => {
        Some(other4::<{ $number }, _, _, _, _>)
    };
    (other5, $number:expr) => {
        Some(other5::<{ $number }, _, _, _, _, _>)
    };
    (other6, $number:expr) => {
        Some(other6::<{ $number }, _, _, _, _, _, _>)
    };
}

macro_rules! others {
    ($($name:ident $callback:ident $set:ident;)*) => {
        #[allow(clippy::upper_case_acronyms)]
        enum Number { $($name,)* Unknown }

        /// OTF2's names of the events, indexed by their number in a batch.
        const NAMES: &[&str] = &[$(stringify!($name),)* "Unknown"];

        /// Sets the callbacks of all events here.
        ///
        /// # Safety
        /// The table must be one that OTF2 made, and be used with batches as user data.
        pub(super) unsafe fn register(callbacks: *mut sys::OTF2_EvtReaderCallbacks) {
            // SAFETY: see the function's contract.
            unsafe {
                $(sys::$set(callbacks, as_callback!($callback, Number::$name as u32));)*
                sys::OTF2_EvtReaderCallbacks_SetUnknownCallback(
                    callbacks,
                    as_callback!(other0, Number::Unknown as u32),
                );
            }
        }
    };
}

/// Returns the name of an event of kind [`Kind::Other`].
pub(crate) fn name(number: u32) -> &'static str {
    NAMES.get(number as usize).copied().unwrap_or("Unknown")
}

others! {
    BufferFlush other1 OTF2_EvtReaderCallbacks_SetBufferFlushCallback;
    MeasurementOnOff other1 OTF2_EvtReaderCallbacks_SetMeasurementOnOffCallback;
    MpiSend other4 OTF2_EvtReaderCallbacks_SetMpiSendCallback;
    MpiIsend other5 OTF2_EvtReaderCallbacks_SetMpiIsendCallback;
    MpiIsendComplete other1 OTF2_EvtReaderCallbacks_SetMpiIsendCompleteCallback;
    MpiIrecvRequest other1 OTF2_EvtReaderCallbacks_SetMpiIrecvRequestCallback;
    MpiRecv other4 OTF2_EvtReaderCallbacks_SetMpiRecvCallback;
    MpiIrecv other5 OTF2_EvtReaderCallbacks_SetMpiIrecvCallback;
    MpiRequestTest other1 OTF2_EvtReaderCallbacks_SetMpiRequestTestCallback;
    MpiRequestCancelled other1 OTF2_EvtReaderCallbacks_SetMpiRequestCancelledCallback;
    MpiCollectiveBegin other0 OTF2_EvtReaderCallbacks_SetMpiCollectiveBeginCallback;
    MpiCollectiveEnd other5 OTF2_EvtReaderCallbacks_SetMpiCollectiveEndCallback;
    OmpFork other1 OTF2_EvtReaderCallbacks_SetOmpForkCallback;
    OmpJoin other0 OTF2_EvtReaderCallbacks_SetOmpJoinCallback;
    OmpAcquireLock other2 OTF2_EvtReaderCallbacks_SetOmpAcquireLockCallback;
    OmpReleaseLock other2 OTF2_EvtReaderCallbacks_SetOmpReleaseLockCallback;
    OmpTaskCreate other1 OTF2_EvtReaderCallbacks_SetOmpTaskCreateCallback;
    OmpTaskSwitch other1 OTF2_EvtReaderCallbacks_SetOmpTaskSwitchCallback;
    OmpTaskComplete other1 OTF2_EvtReaderCallbacks_SetOmpTaskCompleteCallback;
    ParameterString other2 OTF2_EvtReaderCallbacks_SetParameterStringCallback;
    ParameterInt other2 OTF2_EvtReaderCallbacks_SetParameterIntCallback;
    ParameterUnsignedInt other2 OTF2_EvtReaderCallbacks_SetParameterUnsignedIntCallback;
    RmaWinCreate other1 OTF2_EvtReaderCallbacks_SetRmaWinCreateCallback;
    RmaWinDestroy other1 OTF2_EvtReaderCallbacks_SetRmaWinDestroyCallback;
    RmaCollectiveBegin other0 OTF2_EvtReaderCallbacks_SetRmaCollectiveBeginCallback;
    RmaCollectiveEnd other6 OTF2_EvtReaderCallbacks_SetRmaCollectiveEndCallback;
    RmaGroupSync other3 OTF2_EvtReaderCallbacks_SetRmaGroupSyncCallback;
    RmaRequestLock other4 OTF2_EvtReaderCallbacks_SetRmaRequestLockCallback;
    RmaAcquireLock other4 OTF2_EvtReaderCallbacks_SetRmaAcquireLockCallback;
    RmaTryLock other4 OTF2_EvtReaderCallbacks_SetRmaTryLockCallback;
    RmaReleaseLock other3 OTF2_EvtReaderCallbacks_SetRmaReleaseLockCallback;
    RmaSync other3 OTF2_EvtReaderCallbacks_SetRmaSyncCallback;
    RmaWaitChange other1 OTF2_EvtReaderCallbacks_SetRmaWaitChangeCallback;
    RmaPut other4 OTF2_EvtReaderCallbacks_SetRmaPutCallback;
    RmaGet other4 OTF2_EvtReaderCallbacks_SetRmaGetCallback;
    RmaAtomic other6 OTF2_EvtReaderCallbacks_SetRmaAtomicCallback;
    RmaOpCompleteBlocking other2 OTF2_EvtReaderCallbacks_SetRmaOpCompleteBlockingCallback;
    RmaOpCompleteNonBlocking other2 OTF2_EvtReaderCallbacks_SetRmaOpCompleteNonBlockingCallback;
    RmaOpTest other2 OTF2_EvtReaderCallbacks_SetRmaOpTestCallback;
    RmaOpCompleteRemote other2 OTF2_EvtReaderCallbacks_SetRmaOpCompleteRemoteCallback;
    ThreadFork other2 OTF2_EvtReaderCallbacks_SetThreadForkCallback;
    ThreadJoin other1 OTF2_EvtReaderCallbacks_SetThreadJoinCallback;
    ThreadTeamBegin other1 OTF2_EvtReaderCallbacks_SetThreadTeamBeginCallback;
    ThreadTeamEnd other1 OTF2_EvtReaderCallbacks_SetThreadTeamEndCallback;
    ThreadAcquireLock other3 OTF2_EvtReaderCallbacks_SetThreadAcquireLockCallback;
    ThreadReleaseLock other3 OTF2_EvtReaderCallbacks_SetThreadReleaseLockCallback;
    ThreadTaskCreate other3 OTF2_EvtReaderCallbacks_SetThreadTaskCreateCallback;
    ThreadTaskSwitch other3 OTF2_EvtReaderCallbacks_SetThreadTaskSwitchCallback;
    ThreadTaskComplete other3 OTF2_EvtReaderCallbacks_SetThreadTaskCompleteCallback;
    ThreadCreate other2 OTF2_EvtReaderCallbacks_SetThreadCreateCallback;
    ThreadBegin other2 OTF2_EvtReaderCallbacks_SetThreadBeginCallback;
    ThreadWait other2 OTF2_EvtReaderCallbacks_SetThreadWaitCallback;
    ThreadEnd other2 OTF2_EvtReaderCallbacks_SetThreadEndCallback;
    CallingContextEnter other2 OTF2_EvtReaderCallbacks_SetCallingContextEnterCallback;
    CallingContextLeave other1 OTF2_EvtReaderCallbacks_SetCallingContextLeaveCallback;
    CallingContextSample other3 OTF2_EvtReaderCallbacks_SetCallingContextSampleCallback;
    IoCreateHandle other4 OTF2_EvtReaderCallbacks_SetIoCreateHandleCallback;
    IoDestroyHandle other1 OTF2_EvtReaderCallbacks_SetIoDestroyHandleCallback;
    IoDuplicateHandle other3 OTF2_EvtReaderCallbacks_SetIoDuplicateHandleCallback;
    IoSeek other4 OTF2_EvtReaderCallbacks_SetIoSeekCallback;
    IoChangeStatusFlags other2 OTF2_EvtReaderCallbacks_SetIoChangeStatusFlagsCallback;
    IoDeleteFile other2 OTF2_EvtReaderCallbacks_SetIoDeleteFileCallback;
    IoOperationBegin other5 OTF2_EvtReaderCallbacks_SetIoOperationBeginCallback;
    IoOperationTest other2 OTF2_EvtReaderCallbacks_SetIoOperationTestCallback;
    IoOperationIssued other2 OTF2_EvtReaderCallbacks_SetIoOperationIssuedCallback;
    IoOperationComplete other3 OTF2_EvtReaderCallbacks_SetIoOperationCompleteCallback;
    IoOperationCancelled other2 OTF2_EvtReaderCallbacks_SetIoOperationCancelledCallback;
    IoAcquireLock other2 OTF2_EvtReaderCallbacks_SetIoAcquireLockCallback;
    IoReleaseLock other2 OTF2_EvtReaderCallbacks_SetIoReleaseLockCallback;
    IoTryLock other2 OTF2_EvtReaderCallbacks_SetIoTryLockCallback;
    ProgramBegin other3 OTF2_EvtReaderCallbacks_SetProgramBeginCallback;
    ProgramEnd other1 OTF2_EvtReaderCallbacks_SetProgramEndCallback;
    NonBlockingCollectiveRequest other1 OTF2_EvtReaderCallbacks_SetNonBlockingCollectiveRequestCallback;
    NonBlockingCollectiveComplete other6 OTF2_EvtReaderCallbacks_SetNonBlockingCollectiveCompleteCallback;
    CommCreate other1 OTF2_EvtReaderCallbacks_SetCommCreateCallback;
    CommDestroy other1 OTF2_EvtReaderCallbacks_SetCommDestroyCallback;
}
