//! Writing an archive.

use crate::call::archive::{Archive, RawEventWriter};
use crate::call::{Doing, c_path};
use crate::definitions::{Definitions, MetricRef, MetricValue};
use crate::error::{Error, Otf2Error};
use crate::table::{LocationRef, RegionRef};
use crate::write_definitions;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What all archives are called that are written here: `traces.otf2`, `traces.def`, `traces/`.
const NAME: &str = "traces";

/// Bytes of events that are kept for each open location before they are written, and the size of the pieces in the
/// file, which readers keep two or three of for each location: OTF2's smallest.
const CHUNK_EVENTS: u64 = 256 * 1024;

/// Bytes of definitions that are kept before they are written.
const CHUNK_DEFINITIONS: u64 = 4 * 1024 * 1024;

/// An archive that is being written: any number of event writers, then [`finish`](ArchiveWriter::finish).
///
/// Only `finish` leaves an anchor file (`traces.otf2`), and only when everything was written: an archive that has one is
/// complete, and one that has none is not readable with OTF2. Memory: 256 KiB for each event writer that is open.
/// For one thread: to write from several, use one archive for each.
pub struct ArchiveWriter {
    archive: Option<Archive>,
    directory: PathBuf,
    locations: RefCell<BTreeMap<u64, Written>>,
}

/// What became of a location.
enum Written {
    Open,
    Closed { events: u64 },
    Failed(Otf2Error),
}

impl ArchiveWriter {
    /// Begins the archive `traces` in a directory, which has to exist and must not have one.
    ///
    /// # Errors
    /// [`Error::NotFound`] without the directory, [`Error::Exists`] if there is an archive or a part of one.
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
            archive: Some(archive),
            directory: directory.to_owned(),
            locations: RefCell::new(BTreeMap::new()),
        })
    }

    /// Names the program that writes, with its version.
    pub fn set_creator(&self, text: &str) -> Result<(), Error> {
        self.archive().set_creator(&c_text(text)).doing(|| "set the creator".into())
    }

    /// Names the machine that was measured.
    pub fn set_machine_name(&self, text: &str) -> Result<(), Error> {
        self.archive().set_machine_name(&c_text(text)).doing(|| "set the machine name".into())
    }

    /// Says what was measured.
    pub fn set_description(&self, text: &str) -> Result<(), Error> {
        self.archive().set_description(&c_text(text)).doing(|| "set the description".into())
    }

    /// The writer of one location's events. Several may be open at once.
    ///
    /// # Errors
    /// [`Error::LocationTaken`] for a location that had one.
    pub fn event_writer(&self, location: LocationRef) -> Result<EventWriter<'_>, Error> {
        if self.locations.borrow().contains_key(&location.0) || location.0 == u64::MAX {
            return Err(Error::LocationTaken(location));
        }
        let writer = self
            .archive()
            .event_writer(location.0)
            .doing(|| format!("write location {location} in {}", self.directory.display()))?;
        self.locations.borrow_mut().insert(location.0, Written::Open);
        Ok(EventWriter { writer, location, archive: self })
    }

    /// Writes the definitions and then the anchor file, which makes the archive readable.
    ///
    /// # Errors
    /// [`Error::Definitions`] if they contradict themselves or lack a location that has been written. If any event writer
    /// failed, its error again. After an error there is no anchor file.
    pub fn finish(mut self, definitions: &Definitions) -> Result<(), Error> {
        let Some(archive) = self.archive.take() else { return Ok(()) };
        let written = self.write_definitions(&archive, definitions);
        let closed = archive.close().doing(|| format!("write {}", self.anchor().display()));
        let result = written.and(closed);
        if result.is_err() {
            self.remove_anchor();
        }
        result
    }

    fn write_definitions(&self, archive: &Archive, definitions: &Definitions) -> Result<(), Error> {
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
        archive.close_event_files().doing(|| "close the event files".into())?;
        archive
            .write_local_definitions(locations.keys().copied())
            .doing(|| format!("write the local definitions in {}", self.directory.join(NAME).display()))?;
        let events = |location| match locations.get(&location) {
            Some(Written::Closed { events }) => Some(*events),
            _ => None,
        };
        archive.write_global_definitions(|writer| write_definitions::write(definitions, events, writer))
    }

    fn archive(&self) -> &Archive {
        self.archive.as_ref().expect("only finish and drop take it, and both end the life of self")
    }

    fn anchor(&self) -> PathBuf {
        self.directory.join("traces.otf2")
    }

    /// OTF2 writes the anchor file whenever an archive is closed, also one that it failed to write.
    fn remove_anchor(&self) {
        match fs::remove_file(self.anchor()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // It cannot be removed; then at least it must not look complete.
                let _ = fs::write(self.anchor(), b"");
            }
            _ => {}
        }
    }

    fn doing(&self, location: u64) -> String {
        format!("write location {location} in {}", self.directory.display())
    }
}

impl Drop for ArchiveWriter {
    /// An archive that was not finished is left without an anchor file.
    fn drop(&mut self) {
        if let Some(archive) = self.archive.take() {
            drop(archive);
            self.remove_anchor();
        }
    }
}

/// The events of one location, in the order of time.
///
/// After a failure to write (a full disk, say) the file is closed, and every further call returns that first error.
pub struct EventWriter<'a> {
    writer: RawEventWriter<'a>,
    location: LocationRef,
    archive: &'a ArchiveWriter,
}

impl EventWriter<'_> {
    /// The location entered a region. Times are in ticks and never decrease.
    ///
    /// # Errors
    /// A time before the last is refused, and the writer stays usable.
    #[inline]
    pub fn enter(&mut self, time: u64, region: RegionRef) -> Result<(), Error> {
        match self.writer.enter(time, region.0) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// The location left a region.
    ///
    /// # Errors
    /// As for [`enter`](EventWriter::enter).
    #[inline]
    pub fn leave(&mut self, time: u64, region: RegionRef) -> Result<(), Error> {
        match self.writer.leave(time, region.0) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// The values of a metric, one for each member of its class and of that member's type.
    ///
    /// # Errors
    /// [`Error::TooManyValues`] for more than 255; else as for [`enter`](EventWriter::enter).
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

    /// The value of a metric with one member of type [`U64`](crate::MetricValueType::U64).
    ///
    /// # Errors
    /// As for [`enter`](EventWriter::enter).
    pub fn metric_u64(&mut self, time: u64, metric: impl Into<MetricRef>, value: u64) -> Result<(), Error> {
        self.metric(time, metric, &[MetricValue::U64(value)])
    }

    /// Writes what is left, closes the file and returns the number of events in it.
    ///
    /// # Errors
    /// Whatever kept it from being written. The archive cannot be finished then.
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

    /// Ends the writer, except after a refused argument, which changes nothing: OTF2 would write the same chunk again
    /// with every event after a failure.
    #[cold]
    fn fail(&mut self, error: Otf2Error) -> Error {
        let mut locations = self.archive.locations.borrow_mut();
        let source = match locations.get(&self.location.0) {
            Some(Written::Failed(first)) => first.clone(),
            _ if error.is_refusal() => error,
            _ => {
                let _ = self.writer.close();
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

/// A text as C wants it: up to the first zero byte.
fn c_text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}
