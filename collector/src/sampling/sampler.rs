//! Reads the node's energy counters, in a thread of the collector, into a ring of its own.
//!
//! In the collector and not in the application: no library of a vendor and no thread of ours inside somebody's job, one
//! reader per node (the libraries are not safe for more) whichever ranks come and go, and samples that outlive them.
//!
//! A reading is written down when the counter has moved. A counter that moves every 15 ms is read 15 times in that time at
//! the default period; were each reading a sample, all the energy of the 15 ms would go to who ran in the last of them.
//! One that stands still is written down once a second. When a counter is read next is `pace.rs`' matter.
//!
//! Between the readings, devices are asked for what else they say of themselves (`gauges.rs`), about once a second.
//!
//! One that cannot be read is said once, and tried again now and then: when it can be read again, its samples go on.

use crate::sampling::clock::Timer;
use crate::sampling::gauges::{PowerReading, Seen, Turns};
use crate::sampling::pace::{Pace, Rhythm};
use ampere_counters::{LastReading, Quantity, Settings, SharedRunCpu, Source};
use ampere_model::{Definition, Device, Quality};
use ampere_report::summary::{Readings, SamplerOverhead};
use ampere_ring::samples::{self, MOST_SAMPLES, Sample, SampleWriter};
use ampere_ring::{
    Error, EventWriter, Kind, LogWriter, Record, RingProducer, SMALLEST_RING_RECORDS, Session, ToLeave,
};
use crossbeam_channel::{Receiver, Sender};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Eight devices at 1 kHz fill this in four seconds.
const RING_RECORDS: u64 = 1 << 16;
/// A counter that stands still is written down this often.
const STANDING_STILL: Duration = Duration::from_secs(1);
/// Waking up later than this is a deadline missed.
const LATE: Duration = Duration::from_millis(1);
/// Readings that fail one after the other before a device is taken to be gone, and how often it is then tried.
const FAILURES: u32 = 3;
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Who has not ended for so long hangs in a reading: a device that has gone may never answer.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// Powers that wait to be taken: half a minute's of eight GPUs with two each.
const MOST_POWERS: usize = 512;
/// How often sources are asked for news, and the thread's CPU time is looked at.
const NEWS: Duration = Duration::from_secs(1);
const CPU_TIME: Duration = Duration::from_millis(100);

/// What the sampler counts about itself.
#[derive(Debug, Default)]
pub struct SamplerFigures {
    /// Times that it had to wake up, and those that were more than [`LATE`] too late.
    pub deadlines: AtomicU64,
    pub missed_deadlines: AtomicU64,
    /// How late it woke up: sum and most, in nanoseconds.
    pub late_ns: AtomicU64,
    pub latest_ns: AtomicU64,
    /// CPU time of its thread, and the time that it has run.
    pub cpu_ns: AtomicU64,
    pub run_ns: AtomicU64,
    /// The time that asking for gauges took: sum and most.
    pub gauges_ns: AtomicU64,
    pub longest_gauge_ns: AtomicU64,
    devices: OnceLock<Vec<DeviceFigures>>,
}

/// The same of one device.
#[derive(Debug, Default)]
pub struct DeviceFigures {
    pub readings: AtomicU64,
    pub failed_readings: AtomicU64,
    /// The time that readings took: sum and most.
    pub read_ns: AtomicU64,
    pub longest_read_ns: AtomicU64,
    /// From change to change, as the source's counters were seen to move; 0 where that is not known yet.
    pub update_ns: AtomicU64,
    /// What it says beside its energy.
    pub gauges: Vec<Seen>,
}

impl SamplerFigures {
    /// By the sampler's numbers; none before the counters are open.
    pub fn devices(&self) -> &[DeviceFigures] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }

    pub fn failed_readings(&self) -> u64 {
        self.devices().iter().map(|device| device.failed_readings.load(Ordering::Relaxed)).sum()
    }
}

/// Written by one thread only.
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

fn raise(to: &AtomicU64, value: u64) {
    if value > to.load(Ordering::Relaxed) {
        to.store(value, Ordering::Relaxed);
    }
}

/// What was found to sample.
pub struct Found {
    pub devices: Vec<Device>,
    /// One line each: what was not found or cannot be used, and what to do.
    pub notes: Vec<String>,
}

/// What a sampler that is dead has left beside its ring and its log.
pub struct GoOn {
    /// As its log names them. Numbers are kept; devices that are new get further ones.
    pub devices: Vec<Device>,
    pub ticks_per_second: u64,
}

pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    found: Receiver<Result<Found, String>>,
    news: Receiver<String>,
    powers: Receiver<PowerReading>,
    is_calm: Arc<AtomicBool>,
    pub figures: Arc<SamplerFigures>,
}

pub const RING_NAME: &str = "sampler.0.ring";
pub const LOG_NAME: &str = "sampler.defs";
const NOTES_NAME: &str = "sampler.notes";

impl Sampler {
    /// Opens the counters and samples all their devices, in a thread: opening can take a second, and rings have to be
    /// drained meanwhile. The ring is in `directory`, and so is a log that names the devices. `gauges`: how often these are
    /// asked for, if at all.
    /// `go_on`: in the place of a sampler that is dead. `run_cpu`: CPU time of the run that is sampled for.
    pub fn start(
        directory: &Path,
        timer: Timer,
        periods: (Duration, Option<Duration>),
        settings: Settings,
        go_on: Option<GoOn>,
        run_cpu: Option<SharedRunCpu>,
    ) -> Result<Sampler, String> {
        let (stop, is_calm) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let figures = Arc::new(SamplerFigures::default());
        let (tell, found) = crossbeam_channel::bounded(1);
        let (tell_news, news) = crossbeam_channel::bounded(64);
        let (tell_power, powers) = crossbeam_channel::bounded(MOST_POWERS);
        let (stopped, counted, directory) = (stop.clone(), figures.clone(), directory.to_owned());
        let parts = (counted, (tell_news, tell_power), is_calm.clone());
        let work = move || match Work::open(&directory, timer, periods, settings, parts, (go_on, run_cpu)) {
            Ok((mut work, found)) => {
                let _ = tell.send(Ok(found));
                work.run(&stopped);
            }
            Err(why) => {
                let _ = tell.send(Err(why));
            }
        };
        let thread = std::thread::Builder::new()
            .name("ampere-sampler".to_owned())
            .spawn(work)
            .map_err(|e| format!("cannot start the sampler: {e}"))?;
        Ok(Sampler { stop, thread: Some(thread), found, news, powers, is_calm, figures })
    }

    /// What was found, once: when the counters are open and the ring can be read.
    pub fn found(&self) -> Option<Result<Found, String>> {
        self.found.try_recv().ok()
    }

    /// One line about something that happened to a counter, if there is one.
    pub fn news(&self) -> Option<String> {
        self.news.try_recv().ok()
    }

    /// A power that a device has shown, the oldest that was not taken yet.
    pub fn power(&self) -> Option<PowerReading> {
        self.powers.try_recv().ok()
    }

    /// Whether nothing happens, and nobody looks: what is only estimated is then estimated less often.
    pub fn set_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Ordering::Relaxed);
    }

    /// Takes a last sample of every device and ends. `false`: a library does not come back from a reading; the thread is left
    /// to itself.
    #[must_use]
    pub fn stop(&mut self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return true };
        let begun = Instant::now();
        while !thread.is_finished() {
            thread.thread().unpark();
            if begun.elapsed() > STOP_LIMIT {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let _ = thread.join();
        true
    }
}

/// Makes log and ring. Who finds the ring finds the devices, all of them, and the notes: it goes first and comes last.
fn begin(directory: &Path, devices: &[Device], notes: &str) -> Result<RingProducer, String> {
    let _ = std::fs::remove_file(directory.join(RING_NAME));
    let _ = ampere_ring::files::write_private(&directory.join(NOTES_NAME), notes);
    let _ = std::fs::remove_file(directory.join(LOG_NAME));
    let mut log = LogWriter::create(&directory.join(LOG_NAME)).map_err(|e| e.to_string())?;
    for device in devices {
        log.append(&Definition::Device(device.clone()));
    }
    make_ring(&directory.join(RING_NAME))
}

impl GoOn {
    /// Where counters that were read cannot be found any more, an estimate in their place would be added to what they had
    /// measured.
    fn keep_to_what_was_measured(&self, sources: &mut Vec<Box<dyn Source>>) {
        let is_known = |metric: &str| self.devices.iter().any(|before| before.metric == metric);
        let is_in_place = |device: &ampere_counters::Device| {
            device.quality != Quality::Estimated || is_known(&device.metric)
        };
        sources.retain(|source| source.devices().iter().all(is_in_place));
    }

    /// Takes ring and log over: devices get the numbers that they had, and sources that count by themselves hear of what they
    /// had counted.
    fn take_over(
        &self,
        directory: &Path,
        timer: Timer,
        sources: &mut [Box<dyn Source>],
        devices: &mut [Device],
    ) -> Result<RingProducer, String> {
        let mut log = LogWriter::reopen(&directory.join(LOG_NAME)).map_err(|e| e.to_string())?;
        let mut next = self.devices.len() as u32;
        for device in &mut *devices {
            let before = self.devices.iter().find(|before| before.metric == device.metric);
            device.index = before.map_or(next, |before| before.index);
            if before.is_none() {
                next += 1;
                log.append(&Definition::Device(device.clone()));
            }
        }
        let (ring, kept) = RingProducer::take_over(&directory.join(RING_NAME)).map_err(|e| e.to_string())?;
        let mut last = self.last_readings(&kept, timer.now());
        let series = if timer == Timer::usual() {
            self.last_of_series(directory, timer.now())
        } else {
            HashMap::new()
        };
        for (device, reading) in series {
            if last.get(&device).is_none_or(|in_ring| in_ring.ago > reading.ago) {
                last.insert(device, reading);
            }
        }
        let places = sources.iter().enumerate().flat_map(|(at, source)| {
            (0..source.devices().len()).map(move |device| (at, device)).collect::<Vec<_>>()
        });
        let places: Vec<_> = places.collect();
        for ((source, at), device) in places.into_iter().zip(&*devices) {
            if let Some(last) = last.get(&device.index) {
                sources[source].go_on(at, *last);
            }
        }
        Ok(ring)
    }

    /// By number, from what is left in the ring's memory.
    fn last_readings(&self, kept: &[Record], now: u64) -> HashMap<u32, LastReading> {
        let mut last: HashMap<u32, (u64, LastReading)> = HashMap::new();
        for pair in kept.windows(2) {
            let [head, value] = pair else { continue };
            if (head.kind(), value.kind()) != (Some(Kind::Sample), Some(Kind::Value)) {
                continue;
            }
            let sample = (head.word0, value.word0);
            let reading = self.reading(last.get(&head.argument()), sample, now);
            last.insert(head.argument(), (sample.0, reading));
        }
        last.into_iter().map(|(number, (_, reading))| (number, reading)).collect()
    }

    /// The same of the series that are kept for a metric plugin: where nobody empties the ring, they have what it had no room
    /// for.
    fn last_of_series(&self, directory: &Path, now: u64) -> HashMap<u32, LastReading> {
        let last_of = |device: &Device| {
            let series = samples::read(&samples::path_of(directory, device.index as usize)).ok()?;
            let mut last = None;
            for sample in series.samples.iter().skip(series.samples.len().saturating_sub(2)) {
                last = Some((sample.0, self.reading(last.as_ref(), *sample, now)));
            }
            last.map(|(_, reading)| (device.index, reading))
        };
        self.devices.iter().filter_map(last_of).collect()
    }

    /// What a device had said by then. `before`: the time of its sample before, and what it had said.
    fn reading(
        &self,
        before: Option<&(u64, LastReading)>,
        (time, nanojoules): Sample,
        now: u64,
    ) -> LastReading {
        let seconds = |ticks: u64| ticks as f64 / self.ticks_per_second.max(1) as f64;
        let watts = before.map_or(0.0, |(then, reading)| {
            let joules = nanojoules.wrapping_sub(reading.nanojoules) as f64 * 1e-9;
            let passed = seconds(time.saturating_sub(*then));
            if passed > 0.0 { joules / passed } else { reading.watts }
        });
        let ago = Duration::try_from_secs_f64(seconds(now.saturating_sub(time))).unwrap_or_default();
        LastReading { nanojoules, watts, ago }
    }
}

/// A smaller one where there is no room: it is emptied every few milliseconds, and the size is for when it is not.
fn make_ring(path: &Path) -> Result<RingProducer, String> {
    let session = path.parent().and_then(|directory| Session::open(directory).ok());
    let mut records = RING_RECORDS;
    loop {
        let is_least = records <= SMALLEST_RING_RECORDS;
        let to_leave = session.as_ref().filter(|_| !is_least).map_or(ToLeave::NOTHING, Session::to_leave);
        match RingProducer::create_leaving(path, records, 0, to_leave) {
            Ok(ring) => return Ok(ring),
            Err(Error::NoSpace { .. }) if records > SMALLEST_RING_RECORDS => records /= 2,
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// All devices, numbered across the sources.
fn list(sources: &[Box<dyn Source>]) -> Vec<Device> {
    let all = || sources.iter().flat_map(|source| source.devices());
    let metrics_of = |names: &[String]| {
        let named = all().filter(|device| names.contains(&device.name));
        named.map(|device| device.metric.clone()).collect()
    };
    all()
        .enumerate()
        .map(|(index, device)| Device {
            index: index as u32,
            name: device.name.clone(),
            metric: device.metric.clone(),
            source: device.source.to_owned(),
            quality: device.quality,
            resolution_joules: device.resolution_joules,
            kind: device.kind.as_str().to_owned(),
            pci: device.pci.clone().unwrap_or_default(),
            description: device.description.clone(),
            contains: metrics_of(&device.contains),
            wraps_at: device.wraps_at_nanojoules,
        })
        .collect()
}

/// One device and what is remembered of it.
#[derive(Default)]
struct Slot {
    /// Value and time of its last sample.
    last: Option<(u64, Instant)>,
    pace: Pace,
    /// The tick at which it is read next.
    due: u64,
    /// Readings that failed since the last good one.
    failures: u32,
    told: bool,
}

/// Where the sampler's news go, and the powers that it was shown.
type Tells = (Sender<String>, Sender<PowerReading>);

struct Work {
    sources: Vec<Box<dyn Source>>,
    rhythms: Vec<Rhythm>,
    /// By source and device.
    slots: Vec<Vec<Slot>>,
    turns: Turns,
    period: Duration,
    writer: EventWriter,
    /// What devices are called in the ring, by the number of the slot.
    numbers: Vec<u32>,
    /// The same samples, for a metric plugin.
    series: SampleWriter,
    timer: Timer,
    figures: Arc<SamplerFigures>,
    news: Sender<String>,
    powers: Sender<PowerReading>,
    is_calm: Arc<AtomicBool>,
}

impl Work {
    fn open(
        directory: &Path,
        timer: Timer,
        (period, gauges): (Duration, Option<Duration>),
        settings: Settings,
        (figures, (news, powers), is_calm): (Arc<SamplerFigures>, Tells, Arc<AtomicBool>),
        (go_on, run_cpu): (Option<GoOn>, Option<SharedRunCpu>),
    ) -> Result<(Work, Found), String> {
        let mut opened = ampere_counters::open_sources(&settings);
        run_cpu.iter().for_each(|run| opened.sources.iter_mut().for_each(|source| source.count_for(run)));
        if let Some(before) = &go_on {
            before.keep_to_what_was_measured(&mut opened.sources);
        }
        let mut devices = list(&opened.sources);
        // Also what is simply not there: who asks for it by name is told.
        let lines: Vec<&str> = opened.notes.iter().chain(&opened.absent).map(String::as_str).collect();
        let notes = lines.join("\n");
        let ring = match &go_on {
            Some(before) => {
                let _ = ampere_ring::files::write_private(&directory.join(NOTES_NAME), &notes);
                before.take_over(directory, timer, &mut opened.sources, &mut devices)?
            }
            None => begin(directory, &devices, &notes)?,
        };
        // A number for each: those of a sampler before, of devices that are gone, among them.
        let numbers = devices.iter().map(|device| device.index as usize + 1).max().unwrap_or(0);
        let series = SampleWriter::new(directory, numbers, MOST_SAMPLES);
        let series = if go_on.is_some() { series.continued() } else { series };
        let figures_of = |source: &dyn Source| {
            let gauges = (0..source.devices().len()).map(|device| Seen::of_device(source, device));
            gauges.map(|gauges| DeviceFigures { gauges, ..DeviceFigures::default() }).collect::<Vec<_>>()
        };
        let all = opened.sources.iter().flat_map(|source| figures_of(source.as_ref()));
        let _ = figures.devices.set(all.collect());
        let ticks = |time: Duration| time.as_nanos() / period.as_nanos().max(1);
        let turns = Turns::new(&opened.sources, gauges.map(|time| ticks(time) as u64));
        let slots = opened.sources.iter().map(|source| {
            let slots = source.devices().iter().map(|_| Slot::default());
            slots.collect()
        });
        let work = Work {
            slots: slots.collect(),
            rhythms: vec![Rhythm::default(); opened.sources.len()],
            turns,
            sources: opened.sources,
            period,
            writer: EventWriter::new(ring),
            numbers: devices.iter().map(|device| device.index).collect(),
            series,
            timer,
            figures,
            news,
            powers,
            is_calm,
        };
        Ok((work, Found { devices, notes: opened.notes }))
    }

    fn run(&mut self, stop: &AtomicBool) {
        let start = Instant::now();
        let (mut tick, mut news_at, mut cpu_at) = (0, start + NEWS, start);
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            self.read_due(tick, stopping);
            let now = Instant::now();
            if now >= cpu_at || stopping {
                cpu_at = now + CPU_TIME;
                let cpu = clock_gettime(ClockId::ThreadCPUTime);
                let cpu = Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32);
                self.figures.cpu_ns.store(cpu.as_nanos() as u64, Ordering::Relaxed);
                self.figures.run_ns.store(now.duration_since(start).as_nanos() as u64, Ordering::Relaxed);
            }
            if stopping {
                self.series.flush(Timer::usual().now());
                self.writer.close();
                return;
            }
            self.series.flush_if_due(|| Timer::usual().now());
            self.ask_for_gauges(tick);
            if now >= news_at {
                news_at = now + NEWS;
                let news = self.sources.iter_mut().filter_map(|source| source.news());
                news.for_each(|line| drop(self.news.try_send(line)));
            }
            let due = self.slots.iter().flatten().map(|slot| slot.due).chain(self.turns.due()).min();
            // With nothing to read there is nothing to wake up for but the end, which wakes us.
            let due = due.unwrap_or(tick + self.ticks(NEWS)).max(tick + 1);
            let deadline = start + tick_time(self.period, due);
            sleep_until(deadline, stop);
            let late = Instant::now().saturating_duration_since(deadline);
            // Reading took longer than there was time, or the thread did not get its core.
            tick = due + (late.as_nanos() / self.period.as_nanos().max(1)) as u64;
            if !stop.load(Ordering::Relaxed) {
                add(&self.figures.deadlines, 1);
                add(&self.figures.missed_deadlines, u64::from(late > LATE));
                add(&self.figures.late_ns, late.as_nanos() as u64);
                raise(&self.figures.latest_ns, late.as_nanos() as u64);
            }
        }
    }

    /// Ticks in a time, one at least.
    fn ticks(&self, time: Duration) -> u64 {
        (time.as_nanos().div_ceil(self.period.as_nanos().max(1)) as u64).max(1)
    }

    /// Reads what is due; everything, and writes it down, if it is the last time.
    fn read_due(&mut self, tick: u64, always: bool) {
        let mut number = 0;
        for source in 0..self.sources.len() {
            for device in 0..self.slots[source].len() {
                if always || self.slots[source][device].due <= tick {
                    self.read(source, device, number, tick, always);
                }
                number += 1;
            }
        }
    }

    /// After the readings of the tick, which are not to wait for it.
    fn ask_for_gauges(&mut self, tick: u64) {
        let now = self.turns.at(tick);
        if now == 0 {
            return;
        }
        let begun = Instant::now();
        for _ in 0..now {
            let Some([source, device, number, at]) = self.turns.turn() else { break };
            let seen = &self.figures.devices()[number].gauges[at];
            let before = self.timer.now();
            let value = self.sources[source].gauge(device, seen.gauge);
            seen.add(value);
            if seen.gauge.quantity() == Quantity::Power {
                let time = before + (self.timer.now().saturating_sub(before)) / 2;
                let which = seen.gauge.which();
                // Where nobody takes them, the check has a longer step.
                let _ = self.powers.try_send(PowerReading { device: number, which, time, watts: value });
            }
        }
        let took = begun.elapsed();
        add(&self.figures.gauges_ns, took.as_nanos() as u64);
        raise(&self.figures.longest_gauge_ns, took.as_nanos() as u64);
        self.turns.took(tick, took, self.period);
    }

    fn read(&mut self, source: usize, device: usize, number: usize, tick: u64, always: bool) {
        let begun = Instant::now();
        let before = self.timer.now();
        let reading = self.sources[source].read(device);
        let time = before + (self.timer.now().saturating_sub(before)) / 2;
        let now = Instant::now();
        let took = now.duration_since(begun).as_nanos() as u64;
        let shortest = if self.is_calm.load(Ordering::Relaxed) {
            self.sources[source].shortest_calm_period(device)
        } else {
            self.sources[source].shortest_period(device)
        };
        let (again, shortest) = (self.ticks(TRY_AGAIN), self.ticks(shortest));
        let slot = &mut self.slots[source][device];
        let figures = &self.figures.devices()[number];
        add(&figures.read_ns, took);
        raise(&figures.longest_read_ns, took);
        match reading {
            Ok(reading) => {
                add(&figures.readings, 1);
                (slot.failures, slot.told) = (0, false);
                let changed = slot.last.is_none_or(|(value, _)| value != reading.nanojoules);
                let still = slot.last.is_some_and(|(_, at)| now.duration_since(at) >= STANDING_STILL);
                if changed || still || always {
                    slot.last = Some((reading.nanojoules, now));
                    self.writer.sample(time, self.numbers[number], reading.nanojoules);
                    let usual = Timer::usual();
                    let time = if self.timer == usual { time } else { usual.now() };
                    self.series.add(self.numbers[number] as usize, time, reading.nanojoules);
                }
                slot.due = if shortest > 1 {
                    tick + shortest
                } else {
                    let (rhythm, late) = (&mut self.rhythms[source], tick > slot.due);
                    let due = slot.pace.next(rhythm, tick, late, changed);
                    let update = self.period.as_nanos() as u64 * rhythm.period().unwrap_or(0);
                    figures.update_ns.store(update, Ordering::Relaxed);
                    due
                };
            }
            Err(error) => {
                add(&figures.failed_readings, 1);
                slot.failures = slot.failures.saturating_add(1);
                slot.pace.forget();
                slot.due = tick + if slot.failures < FAILURES { 1 } else { again };
                if slot.failures >= FAILURES && !slot.told {
                    slot.told = true;
                    let name = &self.sources[source].devices()[device].name;
                    let line =
                        format!("{name} cannot be read: {error}; its samples go on when it can be again");
                    let _ = self.news.try_send(line);
                }
            }
        }
    }
}

/// The time of a tick. Beyond what the arithmetic holds, in ages, it stays where it is.
fn tick_time(period: Duration, tick: u64) -> Duration {
    Duration::from_nanos((period.as_nanos().saturating_mul(u128::from(tick))).min(u64::MAX.into()) as u64)
}

/// Until the deadline, or until somebody who wants the end wakes us.
fn sleep_until(deadline: Instant, stop: &AtomicBool) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::park_timeout(left);
    }
}

impl From<&DeviceFigures> for Readings {
    fn from(figures: &DeviceFigures) -> Readings {
        let seconds = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64 * 1e-9;
        Readings {
            readings: figures.readings.load(Ordering::Relaxed),
            failed_readings: figures.failed_readings.load(Ordering::Relaxed),
            read_seconds: seconds(&figures.read_ns),
            longest_read_seconds: seconds(&figures.longest_read_ns),
            update_seconds: seconds(&figures.update_ns),
        }
    }
}

impl From<&SamplerFigures> for SamplerOverhead {
    fn from(figures: &SamplerFigures) -> SamplerOverhead {
        let seconds = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64 * 1e-9;
        let (cpu_seconds, run) = (seconds(&figures.cpu_ns), seconds(&figures.run_ns));
        let deadlines = figures.deadlines.load(Ordering::Relaxed);
        SamplerOverhead {
            cpu_seconds,
            // It is told now and then; one that hangs has not told how long it has run.
            cpu_share: if run > 0.0 { (cpu_seconds / run).min(1.0) } else { 0.0 },
            deadlines,
            missed_deadlines: figures.missed_deadlines.load(Ordering::Relaxed),
            mean_late_seconds: seconds(&figures.late_ns) / deadlines.max(1) as f64,
            longest_late_seconds: seconds(&figures.latest_ns),
            gauges_seconds: seconds(&figures.gauges_ns),
            longest_gauge_seconds: seconds(&figures.longest_gauge_ns),
        }
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
