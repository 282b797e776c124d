//! Writes an archive.

use crate::call::archive::{Archive, RawEventWriter};
use crate::call::{Doing, c_path};
use crate::communication::Communication;
use crate::definitions::{Definitions, MetricRef, MetricValue};
use crate::error::{Error, Otf2Error};
use crate::local::LocalDefinitions;
use crate::table::{AttributeRef, LocationRef, RegionRef, StringRef};
use crate::write_definitions::{self, Failure};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name of all archives that are written here: `traces.otf2`, `traces.def`, `traces/`.
const NAME: &str = "traces";

/// The bytes of a chunk of events, the smallest that OTF2 allows, because readers keep two or three chunks for each location. It
/// divides OTF2_FILE_BUFFER, so that OTF2's buffer is full at the end of a chunk. If the disk is full, writing then fails within
/// an event and not when the file is closed, where OTF2 would use freed memory.
const CHUNK_EVENTS: u64 = 256 * 1024;

/// The bytes of a chunk of definitions. A chunk as large as OTF2_FILE_BUFFER would be written before the content of that buffer.
const CHUNK_DEFINITIONS: u64 = 2 * 1024 * 1024;

/// The bytes that OTF2 collects for each file before it calls the operating system.
const OTF2_FILE_BUFFER: u64 = 4 * 1024 * 1024;

const _: () = assert!(OTF2_FILE_BUFFER.is_multiple_of(CHUNK_EVENTS) && CHUNK_DEFINITIONS < OTF2_FILE_BUFFER);

/// An archive that is being written by any number of event writers and then by [`finish`](ArchiveWriter::finish).
///
/// Only `finish` writes an anchor file (`traces.otf2`), and only when everything was written: an archive with an anchor file is
/// complete, and OTF2 cannot read one without. An open event writer needs 256 KiB of memory, and another 4 MiB once it has
/// written more than that. An archive that is not finished is not closed either, and some kilobytes of OTF2's memory are
/// leaked.
///
/// An archive belongs to one thread. To write from several threads, use an archive in each, and let one of them
/// [adopt](ArchiveWriter::adopt) the event files of the others, which do not depend on their archive.
pub struct ArchiveWriter {
    archive: Archive,
    directory: PathBuf,
    locations: RefCell<BTreeMap<u64, Written>>,
    /// The locations' own definitions, for those that have any.
    local: RefCell<BTreeMap<u64, LocalDefinitions>>,
}

/// The state of a location.
enum Written {
    Open,
    Closed { events: u64 },
    Failed(Otf2Error),
}

impl ArchiveWriter {
    /// Begins the archive `traces` in a directory, which must exist and must not contain one.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the directory does not exist, [`Error::Exists`] if it has an archive or a part of one.
    pub fn create(directory: &Path) -> Result<ArchiveWriter, Error> {
        if !directory.is_dir() {
            return Err(Error::NotFound(directory.to_owned()));
        }
        for part in ["traces.otf2", "traces.def", NAME] {
            let path = directory.join(part);
            if path.symlink_metadata().is_ok() {
                return Err(Error::Exists(path));
            }
        }
        let archive = Archive::create(&c_path(directory)?, &c_text(NAME), CHUNK_EVENTS, CHUNK_DEFINITIONS)
            .doing(|| format!("begin an archive in {}", directory.display()))?;
        Ok(ArchiveWriter {
            archive,
            directory: directory.to_owned(),
            locations: RefCell::default(),
            local: RefCell::default(),
        })
    }

    /// Sets the name and version of the writing program.
    pub fn set_creator(&self, text: &str) -> Result<(), Error> {
        self.archive.set_creator(&c_text(text)).doing(|| "set the creator".into())
    }

    /// Sets the name of the machine that was measured.
    pub fn set_machine_name(&self, text: &str) -> Result<(), Error> {
        self.archive.set_machine_name(&c_text(text)).doing(|| "set the machine name".into())
    }

    /// Sets the description of the measurement.
    pub fn set_description(&self, text: &str) -> Result<(), Error> {
        self.archive.set_description(&c_text(text)).doing(|| "set the description".into())
    }

    /// Returns the writer of one location's events. Several may be open at once.
    ///
    /// # Errors
    /// [`Error::LocationTaken`] for a location that already has one.
    pub fn event_writer(&self, location: LocationRef) -> Result<EventWriter<'_>, Error> {
        if self.locations.borrow().contains_key(&location.0) || location.0 == u64::MAX {
            return Err(Error::LocationTaken(location));
        }
        let writer = self
            .archive
            .event_writer(location.0)
            .doing(|| format!("write location {location} in {}", self.directory.display()))?;
        self.locations.borrow_mut().insert(location.0, Written::Open);
        Ok(EventWriter { writer, location, archive: self })
    }

    /// Takes over a location of another archive, in the directory `from`, by moving its event file.
    ///
    /// # Errors
    /// [`Error::LocationTaken`] for a location that already has a writer; [`Error::Io`] if the file cannot be moved.
    pub fn adopt(&self, location: LocationRef, events: u64, from: &Path) -> Result<(), Error> {
        if self.locations.borrow().contains_key(&location.0) || location.0 == u64::MAX {
            return Err(Error::LocationTaken(location));
        }
        let file = Path::new(NAME).join(format!("{}.evt", location.0));
        let moved = fs::rename(from.join(&file), self.directory.join(&file));
        moved.map_err(|source| Error::Io {
            doing: "move the events to",
            path: self.directory.join(&file),
            source,
        })?;
        self.locations.borrow_mut().insert(location.0, Written::Closed { events });
        Ok(())
    }

    /// Adds the local definitions of a location whose event file the caller provides.
    ///
    /// # Errors
    /// [`Error::LocationTaken`] for a location that already has a writer.
    pub fn define(&self, location: LocationRef, events: u64, local: LocalDefinitions) -> Result<(), Error> {
        if self.locations.borrow().contains_key(&location.0) || location.0 == u64::MAX {
            return Err(Error::LocationTaken(location));
        }
        self.locations.borrow_mut().insert(location.0, Written::Closed { events });
        self.local.borrow_mut().insert(location.0, local);
        Ok(())
    }

    /// Writes the definitions and then the anchor file, which makes the archive readable.
    ///
    /// # Errors
    /// [`Error::Definitions`] if they contradict each other or lack a location that has been written; the error of an event
    /// writer, if one failed. After an error there is no anchor file.
    pub fn finish(self, definitions: &Definitions) -> Result<(), Error> {
        self.write_definitions(definitions)?;
        let anchor = self.directory.join("traces.otf2");
        let closed = self.archive.close().doing(|| format!("write {}", anchor.display()));
        if closed.is_err() {
            // A part of the anchor file may have been written. If it cannot be removed, at least it must not look complete.
            let removed = fs::remove_file(&anchor);
            if removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
                let _ = fs::write(&anchor, b"");
            }
        }
        closed
    }

    fn write_definitions(&self, definitions: &Definitions) -> Result<(), Error> {
        write_definitions::validate(definitions)?;
        let locations = self.locations.borrow();
        for (&location, written) in locations.iter() {
            if let Written::Failed(error) = written {
                return Err(error.clone()).doing(|| self.doing(location));
            }
            if !definitions.locations.contains(LocationRef(location)) {
                return Err(Error::Definitions(format!("location {location} has events and is not defined")));
            }
        }
        self.archive.close_event_files().doing(|| "close the event files".into())?;
        let (local, none) = (self.local.borrow(), LocalDefinitions::default());
        let own = |location: &u64| (*location, local.get(location).unwrap_or(&none));
        self.archive
            .write_local_definitions(locations.keys().map(own))
            .doing(|| format!("write the local definitions in {}", self.directory.join(NAME).display()))?;
        let events = |location| match locations.get(&location) {
            Some(Written::Closed { events }) => Some(*events),
            _ => None,
        };
        self.archive
            .write_global_definitions(|writer| {
                write_definitions::write(definitions, events, writer)?;
                self.probe()
            })
            .map_err(|failure| match failure {
                Failure::Otf2(source) => {
                    let path = self.directory.join("traces.def");
                    Error::Otf2 { doing: format!("write {}", path.display()), source }
                }
                Failure::Other(error) => error,
            })
    }

    /// Makes sure that the rest of the definitions can be written if some have been written already: OTF2 crashes if the disk is
    /// full when it closes a file that is larger than one buffer. The function writes a file of the size that the definitions may
    /// have and removes it again. (Another process may still take that space afterwards.)
    fn probe(&self) -> Result<(), Failure> {
        let definitions = self.directory.join("traces.def");
        // Nothing has been written yet if all of it fits into OTF2's buffer.
        let written = definitions.metadata().map_or(0, |metadata| metadata.len());
        if written == 0 {
            return Ok(());
        }
        let path = self.directory.join(NAME).join("room.tmp");
        let result = fs::File::create_new(&path).and_then(|mut file| {
            let zeros = vec![0; 1 << 20];
            for _ in 0..(written + 2 * OTF2_FILE_BUFFER).div_ceil(1 << 20) {
                file.write_all(&zeros)?;
            }
            file.sync_all()
        });
        let _ = fs::remove_file(&path);
        result.map_err(|source| {
            Failure::Other(Error::Io { doing: "write the definitions", path: definitions, source })
        })
    }

    fn doing(&self, location: u64) -> String {
        format!("write location {location} in {}", self.directory.display())
    }
}

/// Writes the events of one location, in time order.
///
/// After a failure to write, for example because the disk is full, every further call returns the first error.
pub struct EventWriter<'a> {
    writer: RawEventWriter<'a>,
    location: LocationRef,
    archive: &'a ArchiveWriter,
}

impl EventWriter<'_> {
    /// Records that the location entered a region. Times are in ticks and must not decrease.
    ///
    /// # Errors
    /// A time before the last one is refused, and the writer remains usable.
    #[inline]
    pub fn enter(&mut self, time: u64, region: RegionRef) -> Result<(), Error> {
        match self.writer.enter(time, region.0) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Like [`enter`](EventWriter::enter), with an attribute.
    ///
    /// # Errors
    /// Those of [`enter`](EventWriter::enter).
    pub fn enter_with(
        &mut self,
        time: u64,
        region: RegionRef,
        attribute: AttributeRef,
        value: u64,
    ) -> Result<(), Error> {
        self.writer.enter_with(time, region.0, attribute.0, value).map_err(|error| self.fail(error))
    }

    /// Records that the location left a region.
    ///
    /// # Errors
    /// Those of [`enter`](EventWriter::enter).
    #[inline]
    pub fn leave(&mut self, time: u64, region: RegionRef) -> Result<(), Error> {
        match self.writer.leave(time, region.0) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Records the values of a metric, one for each member of its class, with the type of that member.
    ///
    /// # Errors
    /// [`Error::TooManyValues`] for more than 255 values, and those of [`enter`](EventWriter::enter).
    pub fn metric(
        &mut self,
        time: u64,
        metric: impl Into<MetricRef>,
        values: &[MetricValue],
    ) -> Result<(), Error> {
        if values.len() > usize::from(u8::MAX) {
            return Err(Error::TooManyValues(values.len()));
        }
        let metric = metric.into();
        let number = metric.instance.map_or(metric.class.0, |instance| instance.0);
        self.writer.metric(time, number, values).map_err(|error| self.fail(error))
    }

    /// Records the value of a metric with one member of type [`U64`](crate::MetricValueType::U64).
    ///
    /// # Errors
    /// Those of [`enter`](EventWriter::enter).
    pub fn metric_u64(&mut self, time: u64, metric: impl Into<MetricRef>, value: u64) -> Result<(), Error> {
        self.metric(time, metric, &[MetricValue::U64(value)])
    }

    /// Records a message, a collective, a request, or an event of a team of threads.
    ///
    /// # Errors
    /// Those of [`enter`](EventWriter::enter).
    pub fn communication(&mut self, time: u64, event: Communication) -> Result<(), Error> {
        self.writer.communication(time, event).map_err(|error| self.fail(error))
    }

    /// Records that the program begins.
    ///
    /// # Errors
    /// Those of [`enter`](EventWriter::enter).
    pub fn program_begin(
        &mut self,
        time: u64,
        name: StringRef,
        arguments: &[StringRef],
    ) -> Result<(), Error> {
        let arguments: Vec<u32> = arguments.iter().map(|argument| argument.0).collect();
        self.writer.program_begin(time, name.0, &arguments).map_err(|error| self.fail(error))
    }

    /// Records that the program ends, with its exit status if it is known.
    ///
    /// # Errors
    /// Those of [`enter`](EventWriter::enter).
    pub fn program_end(&mut self, time: u64, status: Option<i64>) -> Result<(), Error> {
        self.writer.program_end(time, status).map_err(|error| self.fail(error))
    }

    /// Writes the rest, closes the file and returns the number of events in it.
    ///
    /// # Errors
    /// The first failure to write. The archive cannot be finished then.
    pub fn close(mut self) -> Result<u64, Error> {
        match self.end() {
            Ok(events) => Ok(events),
            Err(error) => Err(error).doing(|| self.archive.doing(self.location.0)),
        }
    }

    fn end(&mut self) -> Result<u64, Otf2Error> {
        if let Some(Written::Failed(error)) = self.archive.locations.borrow().get(&self.location.0) {
            return Err(error.clone());
        }
        let events = self.writer.number_of_events();
        let closed = self.writer.close();
        let result = events.and_then(|events| closed.map(|()| events));
        let written = match &result {
            Ok(events) => Written::Closed { events: *events },
            Err(error) => Written::Failed(error.clone()),
        };
        self.archive.locations.borrow_mut().insert(self.location.0, written);
        result
    }

    /// Abandons the writer, except after a refused argument, which changes nothing.
    #[cold]
    fn fail(&mut self, error: Otf2Error) -> Error {
        let mut locations = self.archive.locations.borrow_mut();
        let source = match locations.get(&self.location.0) {
            Some(Written::Failed(first)) => first.clone(),
            _ if error.is_refusal() => error,
            _ => {
                self.writer.abandon();
                locations.insert(self.location.0, Written::Failed(error.clone()));
                error
            }
        };
        Error::Otf2 { doing: self.archive.doing(self.location.0), source }
    }
}

impl Drop for EventWriter<'_> {
    /// Closes the file; a failure is kept for [`ArchiveWriter::finish`].
    fn drop(&mut self) {
        if !self.writer.is_closed() {
            let _ = self.end();
        }
    }
}

/// Returns a text as a C string: up to the first zero byte.
fn c_text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}
