//! Reads the node's energy counters, in a thread of the collector, into a ring of its own.
//!
//! In the collector and not in the application: no library of a vendor and no thread of ours inside somebody's job, one
//! reader per node (the libraries are not safe for more) whichever ranks come and go, and samples that outlive them.
//!
//! A reading is written down when the counter has moved. A counter that moves every 15 ms is read 15 times in that time at
//! the default period; were each reading a sample, all the energy of the 15 ms would go to who ran in the last of them.
//! One that stands still is written down once a second.

use crate::clock::Timer;
use crate::config::Config;
use ampere_counters::{Settings, Source};
use ampere_model::{Definition, Device, Quality};
use ampere_ring::samples::{MOST_SAMPLES, SampleWriter};
use ampere_ring::{Error, EventWriter, LogWriter, RingProducer, SMALLEST_RING_RECORDS};
use crossbeam_channel::Receiver;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Eight devices at 1 kHz fill this in four seconds.
const RING_RECORDS: u64 = 1 << 16;
/// A counter that stands still is written down this often.
const STANDING_STILL: Duration = Duration::from_secs(1);

/// What the sampler counts about itself.
#[derive(Debug, Default)]
pub struct SamplerFigures {
    pub readings: AtomicU64,
    pub failed_readings: AtomicU64,
    /// Readings that began more than one period late.
    pub missed_deadlines: AtomicU64,
}

/// What was found to sample.
pub struct Found {
    pub devices: Vec<Device>,
    /// One line each: what was not found or cannot be used, and what to do.
    pub notes: Vec<String>,
}

pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    found: Receiver<Result<Found, String>>,
    pub figures: Arc<SamplerFigures>,
}

pub const RING_NAME: &str = "sampler.0.ring";
const LOG_NAME: &str = "sampler.defs";
const NOTES_NAME: &str = "sampler.notes";

impl Sampler {
    /// Opens the counters and samples all their devices, in a thread: opening can take a second, and rings have to be
    /// drained meanwhile. The ring is in `directory`, and so is a log that names the devices.
    pub fn start(
        directory: &Path,
        timer: Timer,
        period: Duration,
        settings: Settings,
    ) -> Result<Sampler, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let figures = Arc::new(SamplerFigures::default());
        let (tell, found) = crossbeam_channel::bounded(1);
        let (stopped, counted, directory) = (stop.clone(), figures.clone(), directory.to_owned());
        let work = move || match Work::open(&directory, timer, settings, counted) {
            Ok((mut work, found)) => {
                let _ = tell.send(Ok(found));
                work.run(period, &stopped);
            }
            Err(why) => {
                let _ = tell.send(Err(why));
            }
        };
        let thread = std::thread::Builder::new()
            .name("ampere-sampler".to_owned())
            .spawn(work)
            .map_err(|e| format!("cannot start the sampler: {e}"))?;
        Ok(Sampler { stop, thread: Some(thread), found, figures })
    }

    /// What was found, once: when the counters are open and the ring can be read.
    pub fn found(&self) -> Option<Result<Found, String>> {
        self.found.try_recv().ok()
    }

    /// Takes a last sample of every device and ends.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What to open, by the configuration and the environment. Values that make no sense are left out, with a note.
pub fn settings(config: &Config, notes: &mut Vec<String>) -> Settings {
    let mut settings = Settings::default();
    settings.estimate_idle_watts = config.estimate_idle_watts.unwrap_or(settings.estimate_idle_watts);
    settings.estimate_watts_per_core =
        config.estimate_watts_per_core.unwrap_or(settings.estimate_watts_per_core);
    settings.apply_environment(notes);
    settings
}

/// A smaller one where there is no room: it is emptied every few milliseconds, and the size is for when it is not.
fn make_ring(path: &Path) -> Result<RingProducer, String> {
    let mut records = RING_RECORDS;
    loop {
        match RingProducer::create(path, records, 0) {
            Ok(ring) => return Ok(ring),
            Err(Error::NoSpace { .. }) if records > SMALLEST_RING_RECORDS => records /= 2,
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// All devices, numbered across the sources.
fn list(sources: &[Box<dyn Source>]) -> Vec<Device> {
    let all = sources.iter().flat_map(|source| source.devices());
    all.enumerate()
        .map(|(index, device)| Device {
            index: index as u32,
            name: device.name.clone(),
            metric: device.metric.clone(),
            source: device.source.to_owned(),
            quality: match device.quality {
                ampere_counters::Quality::Measured => Quality::Measured,
                ampere_counters::Quality::Estimated => Quality::Estimated,
                ampere_counters::Quality::Simulated => Quality::Simulated,
            },
            resolution_joules: device.resolution_joules,
            description: device.description.clone(),
        })
        .collect()
}

struct Work {
    sources: Vec<Box<dyn Source>>,
    /// Value and time of each device's last sample.
    last: Vec<Option<(u64, Instant)>>,
    writer: EventWriter,
    /// The same samples, for a metric plugin.
    series: SampleWriter,
    timer: Timer,
    figures: Arc<SamplerFigures>,
}

impl Work {
    fn open(
        directory: &Path,
        timer: Timer,
        settings: Settings,
        figures: Arc<SamplerFigures>,
    ) -> Result<(Work, Found), String> {
        let opened = ampere_counters::open_sources(&settings);
        let devices = list(&opened.sources);
        // Who finds the ring finds the devices, all of them, and the notes: it goes first and comes last.
        let _ = std::fs::remove_file(directory.join(RING_NAME));
        let _ = std::fs::write(directory.join(NOTES_NAME), opened.notes.join("\n"));
        let _ = std::fs::remove_file(directory.join(LOG_NAME));
        let mut log = LogWriter::create(&directory.join(LOG_NAME)).map_err(|e| e.to_string())?;
        for device in &devices {
            log.append(&Definition::Device(device.clone()));
        }
        let ring = make_ring(&directory.join(RING_NAME))?;
        let work = Work {
            sources: opened.sources,
            last: vec![None; devices.len()],
            writer: EventWriter::new(ring),
            series: SampleWriter::new(directory, devices.len(), MOST_SAMPLES),
            timer,
            figures,
        };
        Ok((work, Found { devices, notes: opened.notes }))
    }

    fn run(&mut self, period: Duration, stop: &AtomicBool) {
        let mut deadline = Instant::now();
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            self.read_all(stopping);
            if stopping {
                self.series.flush(Timer::usual().now());
                self.writer.close();
                return;
            }
            self.series.flush_if_due(|| Timer::usual().now());
            deadline += period;
            let now = Instant::now();
            if now > deadline + period {
                self.figures.missed_deadlines.fetch_add(1, Ordering::Relaxed);
                deadline = now;
            }
            std::thread::sleep(deadline.saturating_duration_since(now));
        }
    }

    fn read_all(&mut self, always: bool) {
        let mut index = 0;
        for source in &mut self.sources {
            for device in 0..source.devices().len() {
                let before = self.timer.now();
                let reading = source.read(device);
                let time = before + (self.timer.now().saturating_sub(before)) / 2;
                match reading {
                    Ok(reading) => {
                        self.figures.readings.fetch_add(1, Ordering::Relaxed);
                        let now = Instant::now();
                        let news = self.last[index].is_none_or(|(value, at)| {
                            value != reading.nanojoules || now.duration_since(at) >= STANDING_STILL
                        });
                        if news || always {
                            self.last[index] = Some((reading.nanojoules, now));
                            self.writer.sample(time, index as u32, reading.nanojoules);
                            let usual = Timer::usual();
                            let time = if self.timer == usual { time } else { usual.now() };
                            self.series.add(index, time, reading.nanojoules);
                        }
                    }
                    Err(_) => {
                        self.figures.failed_readings.fetch_add(1, Ordering::Relaxed);
                    }
                }
                index += 1;
            }
        }
    }
}
