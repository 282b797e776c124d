//! The series of a counter's samples, for the metric plugin, which hands it to Score-P when the measurement ends.
//!
//! There is one file per device, `sampler.<device>.samples`, written once a process has asked for it
//! ([`Session::want_samples`]). It is not mapped, for the reasons given in [`crate::definitions`].
//!
//! ```text
//! byte  0   magic "AMPSAMP1"
//!       8   until            u64   every sample before this time is in the file
//!      16   latest sample    time u64, nanojoules u64; 0, 0 before the first sample
//!      32   samples          (time u64, nanojoules u64)*
//! ```
//!
//! Times are those of [`crate::clock::usual`], even if the session's events have another clock: the plugin converts to Score-P's
//! clock.
//!
//! **Limit.** When a file has [`SAMPLES_MAX`] samples, every other one is removed, and from then on only every second (fourth,
//! eighth ...) sample is written. Energy is cumulative, so this reduces the resolution in time but loses no joules. The
//! thinned file replaces the previous one by renaming, so that a reader always has a complete file.

use crate::error::Error;
use crate::session::Session;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAGIC: &[u8; 8] = b"AMPSAMP1";
const HEADER_BYTES: usize = 32;
const SAMPLE_BYTES: usize = 16;
/// The maximum number of samples in a file, which then has 4 MiB: four minutes with one per millisecond.
pub const SAMPLES_MAX: usize = 1 << 18;
/// The maximum number of bytes that are read from a file.
const READ_BYTES_MAX: u64 = 4 * (SAMPLES_MAX * SAMPLE_BYTES) as u64;
/// The time between two writes.
const FLUSH_PERIOD: Duration = Duration::from_millis(10);

/// A time and the cumulative nanojoules.
pub type Sample = (u64, u64);

/// Returns the file of a device's series.
pub fn path_of(directory: &Path, device: usize) -> PathBuf {
    directory.join(format!("sampler.{device}.samples"))
}

/// Writes the series of all devices. Does nothing until the session wants samples. Errors are not reported; the `until` of a
/// series that cannot be written stops advancing.
pub struct SampleWriter {
    session: Option<Session>,
    directory: PathBuf,
    devices: usize,
    limit: usize,
    series: Vec<Series>,
    flushed: Instant,
    /// Whether existing series are those of a dead sampler and are continued.
    continues: bool,
}

impl SampleWriter {
    /// Returns a writer for a session's directory. `limit` is [`SAMPLES_MAX`], except in tests.
    pub fn new(directory: &Path, devices: usize, limit: usize) -> SampleWriter {
        SampleWriter {
            session: Session::open(directory).ok(),
            directory: directory.to_owned(),
            devices,
            limit,
            series: Vec::new(),
            flushed: Instant::now(),
            continues: false,
        }
    }

    /// Continues the series of a dead sampler.
    pub fn continued(self) -> SampleWriter {
        SampleWriter { continues: true, ..self }
    }

    /// Adds a sample of a device.
    pub fn add(&mut self, device: usize, time: u64, nanojoules: u64) {
        if let Some(series) = self.series.get_mut(device) {
            series.add((time, nanojoules));
        }
    }

    /// Writes the files if the last write is long enough ago. `now` must be a time after every sample that was added.
    pub fn flush_if_due(&mut self, now: impl FnOnce() -> u64) {
        if self.flushed.elapsed() >= FLUSH_PERIOD {
            self.flush(now());
        }
    }

    /// Writes the files, and makes them first if the session wants samples.
    pub fn flush(&mut self, now: u64) {
        self.flushed = Instant::now();
        if self.series.is_empty() && self.session.as_ref().is_some_and(Session::samples_are_wanted) {
            let make = |device| {
                let path = path_of(&self.directory, device);
                let old = self.continues.then(|| Series::reopen(&path)).flatten();
                old.unwrap_or_else(|| Series::create(path))
            };
            self.series = (0..self.devices).map(make).collect();
        }
        for series in &mut self.series {
            series.flush(now, self.limit);
        }
    }
}

struct Series {
    path: PathBuf,
    /// `None` after a failed write: the file is not changed any more.
    file: Option<OwnedFd>,
    pending: Vec<u8>,
    written: usize,
    /// One of this many samples is kept.
    stride: u64,
    seen: u64,
    latest: Sample,
}

impl Series {
    fn create(path: PathBuf) -> Series {
        let _ = std::fs::remove_file(&path); // an earlier sampler's
        let file = create(&path).ok();
        Series { path, file, pending: Vec::new(), written: 0, stride: 1, seen: 0, latest: (0, 0) }
    }

    /// Continues a dead sampler's series. Its stride starts at 1 again.
    fn reopen(path: &Path) -> Option<Series> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let latest = sample_of(&read_header(&file, path).ok()?[16..]);
        let bytes = rustix::fs::fstat(&file).ok()?.st_size as usize;
        let written = bytes.saturating_sub(HEADER_BYTES) / SAMPLE_BYTES;
        let (path, pending) = (path.to_owned(), Vec::new());
        Some(Series { path, file: Some(file), pending, written, stride: 1, seen: 0, latest })
    }

    fn add(&mut self, sample: Sample) {
        if self.file.is_none() {
            return;
        }
        if self.seen.is_multiple_of(self.stride) {
            self.pending.extend_from_slice(&bytes_of(sample));
        }
        self.seen += 1;
        self.latest = sample;
    }

    fn flush(&mut self, until: u64, limit: usize) {
        let Some(file) = &self.file else { return };
        let at = HEADER_BYTES + self.written * SAMPLE_BYTES;
        // The samples are written first, because the header states that they are in the file.
        let done = write_all(file, &self.pending, at).and_then(|()| write_all(file, &self.header(until), 0));
        if done.is_err() {
            self.file = None;
            return;
        }
        self.written += self.pending.len() / SAMPLE_BYTES;
        self.pending.clear();
        if self.written >= limit && self.thin(until).is_none() {
            self.file = None;
        }
    }

    fn header(&self, until: u64) -> Vec<u8> {
        [&MAGIC[..], &until.to_le_bytes(), &bytes_of(self.latest)].concat()
    }

    /// Removes every other sample from the file.
    fn thin(&mut self, until: u64) -> Option<()> {
        let all = std::fs::read(&self.path).ok()?;
        let samples = all.get(HEADER_BYTES..)?.chunks_exact(SAMPLE_BYTES);
        let mut thinner = self.header(until);
        samples.step_by(2).for_each(|sample| thinner.extend_from_slice(sample));
        let making = self.path.with_extension("part");
        let _ = std::fs::remove_file(&making);
        let file = create(&making).ok()?;
        write_all(&file, &thinner, 0).ok()?;
        std::fs::rename(&making, &self.path).ok()?;
        self.written = (thinner.len() - HEADER_BYTES) / SAMPLE_BYTES;
        self.stride *= 2;
        self.file = Some(file);
        Some(())
    }
}

fn create(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
}

/// Writes everything or fails: tmpfs writes less than requested only when it is full.
fn write_all(file: &OwnedFd, bytes: &[u8], at: usize) -> Result<(), Errno> {
    match rustix::io::pwrite(file, bytes, at as u64)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(Errno::NOSPC),
    }
}

fn bytes_of((time, nanojoules): Sample) -> [u8; SAMPLE_BYTES] {
    let mut bytes = [0; SAMPLE_BYTES];
    bytes[..8].copy_from_slice(&time.to_le_bytes());
    bytes[8..].copy_from_slice(&nanojoules.to_le_bytes());
    bytes
}

fn sample_of(bytes: &[u8]) -> Sample {
    let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    (word(0), word(8))
}

/// A series of samples that was read.
#[derive(Debug, Default, PartialEq)]
pub struct SampleSeries {
    /// Every sample before this time is included, except those removed by thinning.
    pub until: u64,
    /// The samples in order of time. The newest one is always included.
    pub samples: Vec<Sample>,
}

/// Returns the time up to which a series is complete.
pub fn read_end(path: &Path) -> Result<u64, Error> {
    Ok(sample_of(&read_header(&open(path)?, path)?[8..]).0)
}

/// Reads a series. Nothing in it is trusted: samples out of order are left out.
pub fn read(path: &Path) -> Result<SampleSeries, Error> {
    let file = open(path)?;
    let header = read_header(&file, path)?;
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 18];
    loop {
        let at = (HEADER_BYTES + bytes.len()) as u64;
        match rustix::io::pread(&file, &mut chunk, at) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::io("read", path, e)),
        }
        if bytes.len() as u64 > READ_BYTES_MAX {
            return Err(Error::malformed(path, format!("more than {READ_BYTES_MAX} bytes")));
        }
    }
    let mut series = SampleSeries { until: sample_of(&header[8..]).0, samples: Vec::new() };
    let latest = std::iter::once(&header[16..]);
    for sample in bytes.chunks_exact(SAMPLE_BYTES).chain(latest).map(sample_of) {
        if sample.0 > series.samples.last().map_or(0, |last| last.0) {
            series.samples.push(sample);
        }
    }
    Ok(series)
}

fn open(path: &Path) -> Result<OwnedFd, Error> {
    crate::mapping::open_ours(path, OFlags::RDONLY).map(|(file, _)| file)
}

/// Reads the header until two readings agree, because the sampler may be changing it.
fn read_header(file: &OwnedFd, path: &Path) -> Result<[u8; HEADER_BYTES], Error> {
    let (mut before, mut length) = ([0; HEADER_BYTES], 0);
    for _ in 0..100 {
        let mut header = [0; HEADER_BYTES];
        match rustix::io::pread(file, &mut header, 0) {
            Ok(HEADER_BYTES) if header == before => {
                return if header.starts_with(MAGIC) {
                    Ok(header)
                } else {
                    Err(Error::malformed(path, "it does not begin with AMPSAMP1"))
                };
            }
            Ok(read) => (before, length) = (header, read),
            Err(e) => return Err(Error::io("read", path, e)),
        }
    }
    let is_short = length < HEADER_BYTES;
    let why = if is_short { "it is shorter than its header" } else { "its header changed at every reading" };
    Err(Error::malformed(path, why))
}
