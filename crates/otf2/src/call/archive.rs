//! Handles of the C library for writing: one for an archive, and one for the event writer of a location.

use super::communication;
use super::global_def_writer::GlobalDefWriter;
use super::local_definitions;
use super::{capture_messages, check, failure, forget_message, memory, take_message};
use crate::communication::Communication;
use crate::definitions::MetricValue;
use crate::error::Otf2Error;
use crate::local::LocalDefinitions;
use otf2_sys as sys;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// An archive that is being written. It must not be shared between threads: no locking callbacks are set.
///
/// Closing an archive writes its anchor file, even if the archive is incomplete. After a failed write of events, OTF2 uses a
/// freed buffer when it closes the file. Therefore only a complete archive is closed ([`close`](Archive::close)); the memory of
/// any other is leaked.
pub(crate) struct Archive {
    handle: NonNull<sys::OTF2_Archive>,
}

impl Archive {
    /// Creates `directory` unless it exists, and the directory `name` in it, which must not exist.
    pub(crate) fn create(
        directory: &CStr,
        name: &CStr,
        chunk_events: u64,
        chunk_defs: u64,
    ) -> Result<Archive, Otf2Error> {
        capture_messages();
        // SAFETY: both strings live during the call, which copies them.
        let handle = unsafe {
            sys::OTF2_Archive_Open(
                directory.as_ptr(),
                name.as_ptr(),
                sys::OTF2_FILEMODE_WRITE as sys::OTF2_FileMode,
                chunk_events,
                chunk_defs,
                sys::OTF2_SUBSTRATE_POSIX as sys::OTF2_FileSubstrate,
                sys::OTF2_COMPRESSION_NONE as sys::OTF2_Compression,
            )
        };
        let handle = NonNull::new(handle).ok_or_else(|| failure(sys::OTF2_ERROR_INVALID_CALL))?;
        let archive = handle.as_ptr();
        // Closing writes an anchor file, perhaps over that of another archive: a handle that fails here is leaked.
        // SAFETY: the handle is the one just opened; the two callback tables are statics and outlive it.
        unsafe {
            check(sys::OTF2_Archive_SetFlushCallbacks(archive, &memory::FLUSH, null_mut()))?;
            check(sys::OTF2_Archive_SetMemoryCallbacks(archive, &memory::MEMORY, null_mut()))?;
            check(sys::OTF2_Archive_SetSerialCollectiveCallbacks(archive))?;
            check(sys::OTF2_Archive_OpenEvtFiles(archive))?;
        }
        Ok(Archive { handle })
    }

    pub(crate) fn set_creator(&self, text: &CStr) -> Result<(), Otf2Error> {
        // SAFETY: the handle is open until close, which consumes self; the text is copied.
        check(unsafe { sys::OTF2_Archive_SetCreator(self.handle.as_ptr(), text.as_ptr()) })
    }

    pub(crate) fn set_machine_name(&self, text: &CStr) -> Result<(), Otf2Error> {
        // SAFETY: see set_creator.
        check(unsafe { sys::OTF2_Archive_SetMachineName(self.handle.as_ptr(), text.as_ptr()) })
    }

    pub(crate) fn set_description(&self, text: &CStr) -> Result<(), Otf2Error> {
        // SAFETY: see set_creator.
        check(unsafe { sys::OTF2_Archive_SetDescription(self.handle.as_ptr(), text.as_ptr()) })
    }

    /// Must be called once for each location: a second call would return the same writer.
    pub(crate) fn event_writer(&self, location: u64) -> Result<RawEventWriter<'_>, Otf2Error> {
        forget_message();
        // SAFETY: the handle is open until close, which consumes self and cannot be called during the borrow in the result.
        let handle = unsafe { sys::OTF2_Archive_GetEvtWriter(self.handle.as_ptr(), location) };
        match handle.is_null() {
            true => Err(failure(sys::OTF2_ERROR_INVALID_CALL)),
            false => Ok(RawEventWriter {
                handle,
                attributes: null_mut(),
                archive: self.handle,
                lifetime: PhantomData,
            }),
        }
    }

    pub(crate) fn close_event_files(&self) -> Result<(), Otf2Error> {
        // SAFETY: see set_creator.
        check(unsafe { sys::OTF2_Archive_CloseEvtFiles(self.handle.as_ptr()) })
    }

    /// Writes a local definition file for each location, even if it is empty: OTF2's tools expect one.
    pub(crate) fn write_local_definitions<'a>(
        &self,
        locations: impl Iterator<Item = (u64, &'a LocalDefinitions)>,
    ) -> Result<(), Otf2Error> {
        forget_message();
        let archive = self.handle.as_ptr();
        // SAFETY: the handle is open; each writer is checked not to be null, used only while it is open, and closed once.
        unsafe {
            check(sys::OTF2_Archive_OpenDefFiles(archive))?;
            for (location, definitions) in locations {
                let writer = sys::OTF2_Archive_GetDefWriter(archive, location);
                if writer.is_null() {
                    return Err(failure(sys::OTF2_ERROR_INVALID_CALL));
                }
                local_definitions::write(writer, definitions)?;
                check_written(sys::OTF2_Archive_CloseDefWriter(archive, writer))?;
            }
            check(sys::OTF2_Archive_CloseDefFiles(archive))
        }
    }

    /// Runs `write` with a writer of the global definitions and closes the writer unless `write` failed.
    pub(crate) fn write_global_definitions<E: From<Otf2Error>>(
        &self,
        write: impl FnOnce(&GlobalDefWriter) -> Result<(), E>,
    ) -> Result<(), E> {
        forget_message();
        let archive = self.handle.as_ptr();
        // SAFETY: the handle is open until close, which consumes self.
        let handle = unsafe { sys::OTF2_Archive_GetGlobalDefWriter(archive) };
        let Some(handle) = NonNull::new(handle) else {
            return Err(failure(sys::OTF2_ERROR_INVALID_CALL).into());
        };
        write(&GlobalDefWriter::new(handle))?;
        // SAFETY: the writer belongs to this archive; `write` had only a reference to it, so it is not used again.
        let code = unsafe { sys::OTF2_Archive_CloseGlobalDefWriter(archive, handle.as_ptr()) };
        check_written(code).map_err(E::from)
    }

    /// Writes the anchor file and frees everything. Must be called only when everything else has been written.
    pub(crate) fn close(self) -> Result<(), Otf2Error> {
        forget_message();
        // SAFETY: self is consumed, so there are no borrows and the handle is not used again.
        check_written(unsafe { sys::OTF2_Archive_Close(self.handle.as_ptr()) })
    }
}

/// Returns the result of a call that closes a file. If the last bytes could not be written, OTF2 often reports that only in a
/// message.
fn check_written(code: sys::OTF2_ErrorCode) -> Result<(), Otf2Error> {
    match take_message() {
        Some(error) => Err(error),
        None => check(code),
    }
}

impl Drop for RawEventWriter<'_> {
    fn drop(&mut self) {
        if !self.attributes.is_null() {
            // SAFETY: the list is made in enter_with and deleted only here.
            unsafe { sys::OTF2_AttributeList_Delete(self.attributes) };
        }
    }
}

/// OTF2's writer of one location's events. After closing, its handle is null, for which OTF2 returns an error.
pub(crate) struct RawEventWriter<'a> {
    handle: *mut sys::OTF2_EvtWriter,
    /// The list for the attributes of the next event; null until an event has any.
    attributes: *mut sys::OTF2_AttributeList,
    archive: NonNull<sys::OTF2_Archive>,
    lifetime: PhantomData<&'a Archive>,
}

impl RawEventWriter<'_> {
    #[inline]
    pub(crate) fn enter(&mut self, time: u64, region: u32) -> Result<(), Otf2Error> {
        // SAFETY: the handle is null or belongs to the archive, which is open during the lifetime.
        check(unsafe { sys::OTF2_EvtWriter_Enter(self.handle, null_mut(), time, region) })
    }

    /// Writes an enter with an attribute.
    pub(crate) fn enter_with(
        &mut self,
        time: u64,
        region: u32,
        attribute: u32,
        value: u64,
    ) -> Result<(), Otf2Error> {
        // SAFETY: the list is made here and deleted in drop; writing an event empties it. For the rest, see enter.
        unsafe {
            if self.attributes.is_null() {
                self.attributes = sys::OTF2_AttributeList_New();
                if self.attributes.is_null() {
                    return Err(failure(sys::OTF2_ERROR_MEM_FAULT));
                }
            }
            check(sys::OTF2_AttributeList_AddUint64(self.attributes, attribute, value))?;
            let written = check(sys::OTF2_EvtWriter_Enter(self.handle, self.attributes, time, region));
            if written.is_err() {
                // OTF2 may have failed before it emptied the list.
                sys::OTF2_AttributeList_RemoveAllAttributes(self.attributes);
            }
            written
        }
    }

    #[inline]
    pub(crate) fn leave(&mut self, time: u64, region: u32) -> Result<(), Otf2Error> {
        // SAFETY: see enter.
        check(unsafe { sys::OTF2_EvtWriter_Leave(self.handle, null_mut(), time, region) })
    }

    /// Writes a metric event of at most 255 values.
    pub(crate) fn metric(&mut self, time: u64, metric: u32, values: &[MetricValue]) -> Result<(), Otf2Error> {
        const ON_STACK_MAX: usize = 8;
        if values.len() <= ON_STACK_MAX {
            self.metric_of::<ON_STACK_MAX>(time, metric, values)
        } else {
            self.metric_of::<255>(time, metric, values)
        }
    }

    /// Writes a metric event. OTF2 takes types and values in two arrays. `N` is at least the number of values and at most 255.
    fn metric_of<const N: usize>(
        &mut self,
        time: u64,
        metric: u32,
        values: &[MetricValue],
    ) -> Result<(), Otf2Error> {
        let mut types = [0_u8; N];
        let mut raw = [sys::OTF2_MetricValue { unsigned_int: 0 }; N];
        for ((value, kind), raw) in values.iter().zip(&mut types).zip(&mut raw) {
            (*kind, *raw) = match *value {
                MetricValue::U64(unsigned_int) => {
                    (sys::OTF2_TYPE_UINT64 as u8, sys::OTF2_MetricValue { unsigned_int })
                }
                MetricValue::I64(signed_int) => {
                    (sys::OTF2_TYPE_INT64 as u8, sys::OTF2_MetricValue { signed_int })
                }
                MetricValue::F64(floating_point) => {
                    (sys::OTF2_TYPE_DOUBLE as u8, sys::OTF2_MetricValue { floating_point })
                }
            };
        }
        let count = values.len().min(N) as u8;
        // SAFETY: see enter; both arrays have at least `count` elements, all initialised, which are only read.
        check(unsafe {
            sys::OTF2_EvtWriter_Metric(
                self.handle,
                null_mut(),
                time,
                metric,
                count,
                types.as_ptr(),
                raw.as_ptr(),
            )
        })
    }

    pub(crate) fn communication(&mut self, time: u64, event: Communication) -> Result<(), Otf2Error> {
        // SAFETY: see enter.
        check(unsafe { communication::write(self.handle, time, event) })
    }

    pub(crate) fn program_begin(&mut self, time: u64, name: u32, arguments: &[u32]) -> Result<(), Otf2Error> {
        let count = arguments.len() as u32;
        // SAFETY: see enter; there are `count` arguments, which are only read.
        check(unsafe {
            sys::OTF2_EvtWriter_ProgramBegin(self.handle, null_mut(), time, name, count, arguments.as_ptr())
        })
    }

    pub(crate) fn program_end(&mut self, time: u64, status: Option<i64>) -> Result<(), Otf2Error> {
        // OTF2_UNDEFINED_INT64
        let status = status.unwrap_or(i64::MIN);
        // SAFETY: see enter.
        check(unsafe { sys::OTF2_EvtWriter_ProgramEnd(self.handle, null_mut(), time, status) })
    }

    pub(crate) fn number_of_events(&self) -> Result<u64, Otf2Error> {
        let mut number = 0;
        // SAFETY: see enter; the number outlives the call.
        check(unsafe { sys::OTF2_EvtWriter_GetNumberOfEvents(self.handle, &mut number) })?;
        Ok(number)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.handle.is_null()
    }

    /// Abandons the writer after a failure: if it were closed, OTF2 would use freed memory.
    pub(crate) fn abandon(&mut self) {
        self.handle = null_mut();
    }

    /// Writes the rest and closes the file. Does nothing for a writer that is closed or abandoned.
    pub(crate) fn close(&mut self) -> Result<(), Otf2Error> {
        let handle = std::mem::replace(&mut self.handle, null_mut());
        if handle.is_null() {
            return Ok(());
        }
        forget_message();
        // SAFETY: the archive is open during the lifetime; the writer is one of its open writers, since there is one
        // RawEventWriter for each and it was not null; it is null from here on.
        check_written(unsafe { sys::OTF2_Archive_CloseEvtWriter(self.archive.as_ptr(), handle) })
    }
}
