//! The series of a counter's samples, for a reader beside the collector: the metric plugin, which hands it to Score-P when
//! the measurement ends.
//!
//! One file per device, `sampler.<device>.samples`, kept once a process has asked for it ([`Session::want_samples`]). Written
//! and not mapped, for the reasons that [`crate::definitions`] gives.
//!
//! ```text
//! byte  0   magic "AMPSAMP1"
//!       8   until            u64   every sample before this time is here
//!      16   latest sample    time u64, nanojoules u64; 0, 0 before the first
//!      32   samples          (time u64, nanojoules u64)*
//! ```
//!
//! Times are of [`crate::clock::usual`], whatever clock the session's events are of: the plugin knows Score-P's clock and
//! converts.
//!
//! **Bounded.** When a file has [`MOST_SAMPLES`], every second one is left out, and from then on only every second (fourth,
//! eighth ...) is written. Energy is cumulative: that loses when it was spent, never how much. The thinner file takes the
//! other's place by renaming, so that a reader has one or the other, whole.

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
/// 4 MiB per device: the first four minutes at every millisecond, an hour at every 14.
pub const MOST_SAMPLES: usize = 1 << 18;
/// What is read of a file at most, whatever its size.
const READ_BYTES_MAX: u64 = 4 * (MOST_SAMPLES * SAMPLE_BYTES) as u64;
/// How often the files are brought up to date.
const FLUSH_PERIOD: Duration = Duration::from_millis(10);

/// Time and cumulative nanojoules.
pub type Sample = (u64, u64);

/// Where a device's series is.
pub fn path_of(directory: &Path, device: usize) -> PathBuf {
    directory.join(format!("sampler.{device}.samples"))
}

/// The sampler's side. Does nothing until somebody wants samples, and never fails aloud: a series that cannot be written
/// any more says so by its `until`.
pub struct SampleWriter {
    session: Option<Session>,
    directory: PathBuf,
    devices: usize,
    most: usize,
    series: Vec<Series>,
    flushed: Instant,
    /// Series that are there already are a dead sampler's: they go on.
    goes_on: bool,
}

impl SampleWriter {
    /// For a session's directory. `most`: [`MOST_SAMPLES`], but for tests.
    pub fn new(directory: &Path, devices: usize, most: usize) -> SampleWriter {
        SampleWriter {
            session: Session::open(directory).ok(),
            directory: directory.to_owned(),
            devices,
            most,
            series: Vec::new(),
            flushed: Instant::now(),
            goes_on: false,
        }
    }

    /// Goes on with the series of a sampler that is dead.
    pub fn go_on(self) -> SampleWriter {
        SampleWriter { goes_on: true, ..self }
    }

    pub fn add(&mut self, device: usize, time: u64, nanojoules: u64) {
        if let Some(series) = self.series.get_mut(device) {
            series.add((time, nanojoules));
        }
    }

    /// Brings the files up to date, if it is time for that. `now`: no later sample has been added.
    pub fn flush_if_due(&mut self, now: impl FnOnce() -> u64) {
        if self.flushed.elapsed() >= FLUSH_PERIOD {
            self.flush(now());
        }
    }

    pub fn flush(&mut self, now: u64) {
        self.flushed = Instant::now();
        if self.series.is_empty() && self.session.as_ref().is_some_and(Session::samples_are_wanted) {
            let make = |device| {
                let path = path_of(&self.directory, device);
                let old = self.goes_on.then(|| Series::go_on(&path)).flatten();
                old.unwrap_or_else(|| Series::create(path))
            };
            self.series = (0..self.devices).map(make).collect();
        }
        for series in &mut self.series {
            series.flush(now, self.most);
        }
    }
}

struct Series {
    path: PathBuf,
    /// `None` once it could not be written: what is there stays.
    file: Option<OwnedFd>,
    pending: Vec<u8>,
    written: usize,
    /// One sample of so many is kept.
    stride: u64,
    seen: u64,
    latest: Sample,
}

impl Series {
    fn create(path: PathBuf) -> Series {
        let _ = std::fs::remove_file(&path); // an earlier sampler's, by another clock
        let file = create(&path).ok();
        Series { path, file, pending: Vec::new(), written: 0, stride: 1, seen: 0, latest: (0, 0) }
    }

    /// One that a dead sampler has left. It is thinned out again when it is full, whatever it was before.
    fn go_on(path: &Path) -> Option<Series> {
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

    fn flush(&mut self, until: u64, most: usize) {
        let Some(file) = &self.file else { return };
        let at = HEADER_BYTES + self.written * SAMPLE_BYTES;
        // The samples first: the header says that they are there.
        let done = write_all(file, &self.pending, at).and_then(|()| write_all(file, &self.header(until), 0));
        if done.is_err() {
            self.file = None;
            return;
        }
        self.written += self.pending.len() / SAMPLE_BYTES;
        self.pending.clear();
        if self.written >= most && self.thin(until).is_none() {
            self.file = None;
        }
    }

    fn header(&self, until: u64) -> Vec<u8> {
        [&MAGIC[..], &until.to_le_bytes(), &bytes_of(self.latest)].concat()
    }

    /// Leaves out every second sample.
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

/// All or an error: tmpfs writes less than asked only when it is full.
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

/// What a series is by now.
#[derive(Debug, Default, PartialEq)]
pub struct SampleSeries {
    /// Every sample before this time is among them, but for those left out because there are too many.
    pub until: u64,
    /// In order of time. The last one is the newest, whatever was left out.
    pub samples: Vec<Sample>,
}

/// Up to when a series is written.
pub fn read_until(path: &Path) -> Result<u64, Error> {
    Ok(sample_of(&read_header(&open(path)?, path)?[8..]).0)
}

/// Reads a series. Nothing in it is trusted: what is out of order is left out.
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

/// A header that two readings agree about: one could be in the middle of being written.
fn read_header(file: &OwnedFd, path: &Path) -> Result<[u8; HEADER_BYTES], Error> {
    let mut before = [0; HEADER_BYTES];
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
            Ok(_) => before = header,
            Err(e) => return Err(Error::io("read", path, e)),
        }
    }
    Err(Error::malformed(path, "its header changes all the time"))
}
