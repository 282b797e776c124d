//! Reads a trace.

use crate::anchor;
use crate::call::batch::Wanted;
use crate::call::reader::{Reader, WantedKinds, reading};
use crate::call::{OUT_OF_FILES, c_path, global_def_reader};
use crate::definitions::Definitions;
use crate::error::{Error, Otf2Error};
use crate::extent::{self, Content, Extent};
use crate::handler::{EventHandler, ReadReport};
use crate::merge::{self, Stream};
use crate::read_ahead;
use crate::read_definitions;
use crate::table::LocationRef;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The magic of an anchor file, which follows the first two bytes.
const MAGIC: &[u8; 5] = b"OTF2\0";

/// The maximum number of bytes of an anchor file that are read: the names and properties of a trace need far less.
const ANCHOR_BYTES_MAX: u64 = 16 << 20;

/// A trace with its global definitions read.
pub struct Trace {
    reader: Reader,
    /// The directory with the files of the locations.
    directory: PathBuf,
    definitions: Definitions,
    /// The locations that are read, in ascending order.
    locations: Vec<LocationRef>,
    /// The locations without an event file, in ascending order.
    missing: Vec<LocationRef>,
    /// The locations whose own definitions could not be read, with the reason. `None` until events are read for the first time.
    without_definitions: Option<BTreeMap<LocationRef, String>>,
}

impl Trace {
    /// Opens a trace by its anchor file (`traces.otf2`) and reads its definitions.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no anchor file, [`Error::NotOtf2`] if the file is not an anchor file, [`Error::Damaged`]
    /// if the definitions are missing or incomplete, [`Error::Io`] if a file cannot be read, or an error of OTF2.
    pub fn open(path: &Path) -> Result<Trace, Error> {
        Trace::open_as(path, false)
    }

    /// Like [`open`](Trace::open), and also reads all strings, in their order, so that the definitions can be written again.
    ///
    /// # Errors
    /// Those of [`open`](Trace::open), and [`Error::Definitions`] if the strings are not numbered as this crate numbers them.
    pub fn open_with_strings(path: &Path) -> Result<Trace, Error> {
        Trace::open_as(path, true)
    }

    fn open_as(path: &Path, with_strings: bool) -> Result<Trace, Error> {
        let target = target_of_link(path);
        let path = target.as_deref().unwrap_or(path);
        let not_otf2 = |reason: &str| Error::NotOtf2 { path: path.to_owned(), reason: reason.to_owned() };
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(not_otf2("it is a directory; name the file in it"));
            }
            Ok(metadata) if metadata.len() == 0 => return Err(not_otf2("it is empty")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NotFound(path.to_owned()));
            }
            Err(source) => return Err(Error::Io { doing: "read", path: path.to_owned(), source }),
        }
        if path.extension().is_none_or(|extension| extension != "otf2") {
            return Err(not_otf2("its name does not end in .otf2"));
        }
        let mut anchor = Vec::new();
        let opened = fs::File::open(path);
        let mut file = opened.map_err(|source| Error::Io { doing: "read", path: path.to_owned(), source })?;
        let read = file.by_ref().take(ANCHOR_BYTES_MAX).read_to_end(&mut anchor);
        read.map_err(|source| Error::Io { doing: "read", path: path.to_owned(), source })?;
        // The second byte is the byte order. OTF2 reads the first two bytes without checking that they exist.
        if !anchor.get(2..).is_some_and(|rest| rest.starts_with(MAGIC)) {
            return Err(not_otf2("it does not start like one"));
        }
        anchor::check(&anchor).map_err(not_otf2)?;
        let definitions_file = path.with_extension("def");
        check_are_files(&definitions_file, &path.with_extension(""))?;
        let reader = Reader::open(&c_path(path)?).map_err(|error| not_otf2(&error.to_string()))?;
        let definitions = read_global_definitions(&reader, &definitions_file, with_strings)?;
        let directory = path.with_extension("");
        let (mut locations, mut missing) = (Vec::new(), Vec::new());
        // A writer that does not count events defines 0 for all locations.
        let has_counts = definitions.locations.iter().any(|(_, location)| location.events > 0);
        for (number, location) in definitions.locations.iter() {
            let has_file = !reader.is_posix() || event_file(&directory, number).exists();
            if !has_file && has_counts && location.events == 0 {
                continue; // some tools make no file for a location without events
            }
            locations.push(number);
            if !has_file {
                missing.push(number);
            }
        }
        Ok(Trace { reader, directory, definitions, locations, missing, without_definitions: None })
    }

    /// Restricts the trace to these locations. Must be called before events are read.
    pub fn restrict(&mut self, wanted: impl Fn(LocationRef) -> bool) {
        self.locations.retain(|location| wanted(*location));
        self.missing.retain(|location| wanted(*location));
    }

    /// Returns the global definitions of the trace.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// Whether at least one location has an event file.
    pub fn has_event_file(&self) -> bool {
        self.locations.len() > self.missing.len()
    }

    /// Returns the locations that should have an event file and do not. Reading skips them.
    pub fn missing(&self) -> &[LocationRef] {
        &self.missing
    }

    /// Returns the number of events in all existing files, according to the definitions.
    pub fn events_expected(&self) -> u64 {
        let there = self.locations.iter().filter(|location| !self.is_missing(**location));
        let events =
            |location: &LocationRef| self.definitions.locations.get(*location).map_or(0, |l| l.events);
        there.map(events).fold(0, u64::saturating_add)
    }

    /// Returns the program that wrote the trace.
    pub fn creator(&self) -> String {
        self.reader.creator()
    }

    /// Returns the machine that was measured.
    pub fn machine_name(&self) -> String {
        self.reader.machine_name()
    }

    /// Returns the writer's description of the measurement.
    pub fn description(&self) -> String {
        self.reader.description()
    }

    /// Reads the events of all locations in time order.
    ///
    /// A damaged event file is read up to the damage and named in the report; the other locations are still read in full. A
    /// location whose own definitions are damaged is not read at all, because the meaning of its events is unknown. For each
    /// location, reading needs two to three chunks of memory (this crate writes chunks of 256 KiB, Score-P of 1 MiB) and one open
    /// file.
    ///
    /// # Errors
    /// [`Error::TooManyFiles`] if not all locations can be open at once, or an error of OTF2.
    pub fn read_events<H: EventHandler + ?Sized>(&mut self, handler: &mut H) -> Result<ReadReport, Error> {
        self.read_events_of(|_| true, handler)
    }

    /// Like [`read_events`](Trace::read_events), but the handler runs in a thread of its own, a few thousand events behind the
    /// reader. The result is the same. If no thread can be started, this is [`read_events`](Trace::read_events).
    ///
    /// # Errors
    /// Those of [`read_events`](Trace::read_events).
    pub fn read_events_ahead<H: EventHandler + Send + ?Sized>(
        &mut self,
        handler: &mut H,
    ) -> Result<ReadReport, Error> {
        match read_ahead::read(handler, |sender| self.read_events(sender)) {
            Some(report) => report,
            None => self.read_events(handler),
        }
    }

    /// Like [`read_events`](Trace::read_events), for these locations only.
    ///
    /// # Errors
    /// Those of [`read_events`](Trace::read_events).
    pub fn read_events_of<H: EventHandler + ?Sized>(
        &mut self,
        wanted: impl Fn(LocationRef) -> bool,
        handler: &mut H,
    ) -> Result<ReadReport, Error> {
        let mut truncated = BTreeMap::new();
        let present = self.present(&mut truncated)?;
        let without_definitions = match self.without_definitions.take() {
            Some(without_definitions) => without_definitions,
            None => self.read_local_definitions(&present)?,
        };
        for (location, reason) in self.without_definitions.insert(without_definitions) {
            truncated.insert(*location, reason.clone());
        }
        reading(self.reader.open_event_files(), "open the event files")?;
        let [first, second] =
            [handler.attribute(), handler.second_attribute()].map(|attribute| attribute.map(|own| own.0));
        let wanted_values = Wanted { first, second };
        let kinds =
            WantedKinds { communication: handler.wants_communication(), others: handler.wants_other() };
        let mut streams = Vec::with_capacity(present.len());
        for (location, extent) in present {
            if !wanted(location) {
                continue;
            }
            if self
                .without_definitions
                .as_ref()
                .is_some_and(|without_definitions| without_definitions.contains_key(&location))
            {
                continue;
            }
            if let Some(reason) = extent.truncated {
                truncated.insert(location, format!("{}: {reason}", self.event_file(location).display()));
            }
            if extent.events == Some(0) {
                continue;
            }
            match self.reader.event_reader(location.0, kinds, wanted_values) {
                Ok(reader) => streams.push(Stream::new(location, reader, extent.events)),
                Err(error) if error.code == OUT_OF_FILES => {
                    return Err(Error::TooManyFiles { locations: self.definitions.locations.len() });
                }
                Err(error) => {
                    let reason = || format!("{}: {error}", self.event_file(location).display());
                    truncated.entry(location).or_insert_with(reason);
                }
            }
        }
        let merged = merge::run(streams, &self.definitions, handler);
        for (location, reason) in merged.faults {
            let reason = || format!("{}: {reason}", self.event_file(location).display());
            truncated.entry(location).or_insert_with(reason);
        }
        Ok(ReadReport {
            delivered: merged.delivered,
            records: merged.records,
            truncated: truncated.into_iter().collect(),
            stopped: merged.stopped,
            nesting: merged.nesting,
            unended: merged.unended,
        })
    }

    /// Returns the locations that have an event file, with the extent of the file.
    fn present(
        &self,
        truncated: &mut BTreeMap<LocationRef, String>,
    ) -> Result<Vec<(LocationRef, Extent)>, Error> {
        let (chunk_bytes, _) = reading(self.reader.chunk_sizes(), "find the size of chunks")?;
        let mut present = Vec::new();
        for &location in &self.locations {
            if self.is_missing(location) {
                continue;
            }
            let extent = if self.reader.is_posix() {
                extent::of_file(&self.event_file(location), Content::Events, chunk_bytes)
            } else {
                Ok(Extent { events: None, truncated: None })
            };
            match extent {
                Ok(extent) => present.push((location, extent)),
                Err(error) => {
                    let path = self.event_file(location);
                    truncated.insert(location, format!("{}: cannot read: {error}", path.display()));
                }
            }
        }
        Ok(present)
    }

    /// Lets OTF2 read the mappings and clock offsets of each location. Returns the locations for which that failed.
    fn read_local_definitions(
        &self,
        present: &[(LocationRef, Extent)],
    ) -> Result<BTreeMap<LocationRef, String>, Error> {
        for (location, _) in present {
            reading(self.reader.select(location.0), "select a location")?;
        }
        let (_, chunk_bytes) = reading(self.reader.chunk_sizes(), "find the size of chunks")?;
        let mut without_definitions = BTreeMap::new();
        // Not all writers make these files.
        if self.reader.open_definition_files().is_err() {
            return Ok(without_definitions);
        }
        for &(location, _) in present {
            let path = self.directory.join(format!("{location}.def"));
            if self.reader.is_posix() && !path.exists() {
                continue;
            }
            let whole = match self.reader.is_posix() {
                true => check_whole(&path, chunk_bytes),
                false => Ok(()),
            };
            let read = || self.reader.read_local_definitions(location.0).map_err(Unusable::Otf2);
            if let Err(reason) = whole.and_then(|()| read()) {
                without_definitions
                    .insert(location, format!("{}: {reason}; its events are not read", path.display()));
            }
        }
        reading(self.reader.close_definition_files(), "close the local definitions")?;
        Ok(without_definitions)
    }

    fn is_missing(&self, location: LocationRef) -> bool {
        self.missing.binary_search(&location).is_ok()
    }

    fn event_file(&self, location: LocationRef) -> PathBuf {
        event_file(&self.directory, location)
    }
}

/// Returns the anchor file to which a link refers, if the other files of the trace are next to that file, and not next to the
/// link.
fn target_of_link(path: &Path) -> Option<PathBuf> {
    let has_definitions = |anchor: &Path| anchor.with_extension("def").exists();
    let target = fs::canonicalize(path).ok().filter(|_| !has_definitions(path))?;
    has_definitions(&target).then_some(target)
}

/// Checks that there is no pipe and no device among the files, which may be those of another user: OTF2 would wait forever for
/// the writer of a pipe.
fn check_are_files(definitions: &Path, directory: &Path) -> Result<(), Error> {
    let inside = fs::read_dir(directory).into_iter().flatten().flatten();
    let inside = inside.filter(|entry| !entry.file_type().is_ok_and(|kind| kind.is_file()));
    for path in inside.map(|entry| entry.path()).chain([definitions.to_owned()]) {
        if fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Err(Error::Damaged { path, reason: "it is not a regular file".to_owned() });
        }
    }
    Ok(())
}

fn event_file(directory: &Path, location: LocationRef) -> PathBuf {
    directory.join(format!("{location}.evt"))
}

/// The reason why a file of definitions cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    /// The file does not have its end marker.
    #[error("{0}")]
    Truncated(String),
    #[error("unreadable: {0}")]
    Unreadable(io::Error),
    #[error(transparent)]
    Otf2(Otf2Error),
}

/// Makes sure that a file of definitions has its end marker: OTF2 must not read one without it.
fn check_whole(path: &Path, chunk_bytes: u64) -> Result<(), Unusable> {
    match extent::of_file(path, Content::Definitions, chunk_bytes) {
        Ok(Extent { truncated: None, .. }) => Ok(()),
        Ok(Extent { truncated: Some(reason), .. }) => Err(Unusable::Truncated(reason)),
        Err(error) => Err(Unusable::Unreadable(error)),
    }
}

fn read_global_definitions(reader: &Reader, path: &Path, with_strings: bool) -> Result<Definitions, Error> {
    let damaged = |reason: String| Error::Damaged { path: path.to_owned(), reason };
    match fs::metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged(
                "the definitions are missing; the trace cannot be read without this file".into(),
            ));
        }
        Err(source) => return Err(Error::Io { doing: "read", path: path.to_owned(), source }),
    }
    if reader.is_posix() {
        let (_, chunk_bytes) = reading(reader.chunk_sizes(), "find the size of chunks")?;
        check_whole(path, chunk_bytes).map_err(|reason| damaged(format!("the definitions are {reason}")))?;
    }
    let expected = reading(reader.number_of_global_definitions(), "find the number of definitions")?;
    let (records, read) = global_def_reader::read(reader)
        .map_err(|error| damaged(format!("the definitions are cut short or damaged: {error}")))?;
    if read < expected {
        return Err(damaged(format!("the definitions are cut short: {read} of {expected}")));
    }
    let strings = if with_strings { read_definitions::strings(&records)? } else { Vec::new() };
    Ok(Definitions { strings, ..read_definitions::definitions(records) })
}
