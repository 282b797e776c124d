//! The sampler's thread: opens the counters, reads each when it is due, and writes samples.

use crate::sampling::clock::Timer;
use crate::sampling::gauges::{GaugeSchedule, GaugeStatistics, PowerReading};
use crate::sampling::predecessor::{LOG_NAME, Predecessor, RING_NAME};
use crate::sampling::read_schedule::{Pause, ReadSchedule, UpdateInterval};
use crate::sampling::sampler_figures::{DeviceFigures, SamplerFigures};
use crate::sampling::work::WorkSeries;
use ampere_counters::{
    Kind, OtherJobs, Quantity, ReadError, Reading, Settings, SharedRunCpu, Source, thread_cpu_time,
};
use ampere_model::{Definition, Device, OTHER_JOBS_CPU_TIME, Quality};
use ampere_ring::samples::{SAMPLES_MAX, SampleWriter};
use ampere_ring::{Error, EventWriter, Headroom, LogWriter, RING_RECORDS_MIN, RingProducer, Session};
use crossbeam_channel::Sender;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The size of the ring: eight devices at 1 kHz fill it in four seconds.
const RING_RECORDS: u64 = 1 << 16;
/// The time between two samples of an unchanged counter.
const UNCHANGED_PERIOD: Duration = Duration::from_secs(1);
/// The delay from which waking up counts as a missed deadline.
const LATENESS_MAX: Duration = Duration::from_millis(1);
/// The number of failed readings in a row after which a device is reported, and read less often.
const FAILURES_MAX: u32 = 3;
const RETRY_PERIOD: Duration = Duration::from_millis(100);
/// The number of times that a counter is read until a reading is not interrupted.
const READ_TRIES_MAX: u32 = 4;
/// A reading was interrupted if it took this much longer, in nanoseconds, than ten times the shortest one.
const INTERRUPTION_MIN: u64 = 100_000;
/// A reading that took longer than this, in nanoseconds, is not repeated: a driver may be stuck.
const REPEATED_MAX: u64 = 1_000_000_000;
/// The time between two requests to sources for messages.
const NEWS_PERIOD: Duration = Duration::from_secs(1);
/// The time between two requests to a GPU's library for its users.
const USERS_PERIOD: Duration = Duration::from_secs(1);
/// The time between two records of the thread's CPU time.
const CPU_TIME_PERIOD: Duration = Duration::from_millis(100);
/// The time between two readings of an estimate whose joules are divided by CPU time.
const ESTIMATE_PERIOD: Duration = Duration::from_millis(50);
/// The time between two samples of other jobs' CPU time. It is long compared with the ticks in which the kernel counts.
const OTHER_JOBS_PERIOD: Duration = Duration::from_millis(100);
/// The log of the sources' notes, which the plugin prints.
const NOTES_NAME: &str = "sampler.notes";

/// The counters that the sampler has found.
pub struct Found {
    pub devices: Vec<Device>,
    /// One line for each source that was not found or cannot be used, with what to do.
    pub notes: Vec<String>,
    /// Whether a counter cannot be read and no other counter includes its joules.
    pub is_incomplete: bool,
}

/// The reason why there is no sampler, as a message of one line.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// The thread cannot be started.
    #[error("cannot start the sampler: {0}")]
    Thread(std::io::Error),
    /// The ring or log cannot be made or taken over.
    #[error(transparent)]
    Ring(#[from] ampere_ring::Error),
}

#[derive(Default)]
pub struct SamplerOptions {
    /// The time between two readings of a counter that changes fast.
    pub period: Duration,
    /// The time in which each gauge is read once; `None` for never.
    pub gauges: Option<Duration>,
    /// The settings of the counters to open.
    pub settings: Settings,
    /// The sampler of a killed collector, whose ring is continued.
    pub predecessor: Option<Predecessor>,
    /// The CPU time of the run, for estimates of its energy.
    pub run_cpu: Option<SharedRunCpu>,
    /// Whether the CPU time of other jobs is wanted for counters that measure what these draw, too.
    pub other_jobs: bool,
    /// Whether dynamic joules are divided by CPU time. If so, an estimate is exact however rarely it is read.
    pub by_cpu_time: bool,
}

/// The CPU time of other jobs as one more series.
struct OtherJobsSeries {
    jobs: OtherJobs,
    due: Instant,
}

/// The thread's reports to the collector.
pub(super) struct Reports {
    pub figures: Arc<SamplerFigures>,
    pub news: Sender<String>,
    pub powers: Sender<PowerReading>,
    pub is_calm: Arc<AtomicBool>,
    pub users: Arc<Mutex<GpuUsers>>,
    /// The series of work that was counted for the first time.
    pub work: Sender<Device>,
}

/// The pids of the processes that use a GPU, by its PCI address, for GPUs whose library reports them.
pub(super) type GpuUsers = BTreeMap<String, Vec<u32>>;

/// One device and its state.
#[derive(Default)]
struct Slot {
    last: Option<(u64, Instant)>,
    schedule: ReadSchedule,
    /// The tick at which the device is read next.
    due: u64,
    /// Failed readings since the last successful one.
    failures: u32,
    /// Whether the failures were reported.
    is_reported: bool,
    /// The time that the shortest reading took.
    shortest_read_ns: Option<u64>,
}

/// A source and its devices.
struct Counters {
    source: Box<dyn Source>,
    interval: UpdateInterval,
    pause: Pause,
    slots: Vec<Slot>,
    /// The number of its first device among all devices.
    first: usize,
}

/// The targets of samples: the ring and, for a metric plugin, series.
struct Samples {
    ring: EventWriter,
    series: SampleWriter,
    timer: Timer,
    /// The number of each device in the ring, by the sampler's number.
    numbers: Vec<u32>,
    /// A sample that is put into the ring when the next one follows: the device by the sampler's number, the time, and
    /// nanojoules. The ring has the samples of all devices in time order.
    held: Option<(usize, u64, u64)>,
}

impl Counters {
    /// Returns the tick of the next reading.
    fn due(&self) -> Option<u64> {
        let due = self.slots.iter().map(|slot| slot.due).min()?;
        Some(due.max(self.pause.until()))
    }

    /// Returns the device that is to be read at a tick: the one that has waited longest.
    fn device_at(&self, tick: u64) -> Option<usize> {
        self.due().filter(|due| *due <= tick)?;
        (0..self.slots.len()).min_by_key(|device| self.slots[*device].due)
    }
}

impl Samples {
    fn add(&mut self, number: usize, time: u64, nanojoules: u64) {
        self.release();
        self.ring.sample(time, self.numbers[number], nanojoules);
        self.add_to_series(number, time, nanojoules);
    }

    /// Puts the sample into the ring only when the next one follows.
    fn hold(&mut self, number: usize, time: u64, nanojoules: u64) {
        self.release();
        self.held = Some((number, time, nanojoules));
        self.add_to_series(number, time, nanojoules);
    }

    /// Puts the held sample into the ring.
    fn release(&mut self) {
        if let Some((number, time, nanojoules)) = self.held.take() {
            self.ring.sample(time, self.numbers[number], nanojoules);
        }
    }

    /// Discards the held sample of a device, because the next sample replaces it.
    fn drop_held(&mut self, device: usize) {
        self.held.take_if(|(number, ..)| *number == device);
    }

    fn add_to_series(&mut self, number: usize, time: u64, nanojoules: u64) {
        let usual = Timer::usual();
        let time = if self.timer == usual { time } else { usual.now() };
        self.series.add(self.numbers[number] as usize, time, nanojoules);
    }

    fn close(&mut self) {
        self.release();
        self.series.flush(Timer::usual().now());
        self.ring.close();
    }
}

pub(super) struct SamplerThread {
    counters: Vec<Counters>,
    gauges: GaugeSchedule,
    users: UsersSchedule,
    other_jobs: Option<OtherJobsSeries>,
    work: WorkSeries,
    period: Duration,
    by_cpu_time: bool,
    samples: Samples,
    reports: Reports,
}

/// The schedule of asking libraries which processes use their GPUs. The GPUs are asked one after the other, so that a counter
/// is delayed by one GPU and never by all.
struct UsersSchedule {
    /// The index of each GPU's source, its device there, and its PCI address.
    gpus: Vec<(usize, usize, String)>,
    next: usize,
    due: Instant,
}

impl SamplerThread {
    /// Opens counters, ring and log.
    pub(super) fn open(
        directory: &Path,
        timer: Timer,
        options: SamplerOptions,
        reports: Reports,
    ) -> Result<(SamplerThread, Found), SamplerError> {
        let SamplerOptions { period, gauges, settings, predecessor, run_cpu, other_jobs, by_cpu_time } =
            options;
        let mut opened = ampere_counters::open_sources(&settings);
        let sources = &mut opened.sources;
        run_cpu.iter().for_each(|run| sources.iter_mut().for_each(|source| source.count_for(run)));
        if let Some(before) = &predecessor {
            before.remove_new_estimates(sources);
        }
        let mut devices = list(sources);
        let mut other_jobs =
            run_cpu.filter(|_| other_jobs).and_then(|run| add_other_jobs(&run, sources, &mut devices));
        // The notes include absent sources, because the settings may name them.
        let notes: Vec<&str> = opened.notes.iter().chain(&opened.absent).map(String::as_str).collect();
        let write_notes =
            || ampere_ring::files::write_private(&directory.join(NOTES_NAME), &notes.join("\n"));
        let ring = match &predecessor {
            Some(before) => {
                let _ = write_notes();
                before.take_over(directory, timer, (sources, other_jobs.as_mut()), &mut devices)?
            }
            None => {
                // The plugin takes the ring as the sign that devices and notes are complete, so it is made last.
                let _ = std::fs::remove_file(directory.join(RING_NAME));
                let _ = write_notes();
                write_log(&directory.join(LOG_NAME), &devices)?;
                make_ring(&directory.join(RING_NAME))?
            }
        };
        // This is enough for the numbers of a predecessor's devices, too.
        let count = devices.iter().map(|device| device.index as usize + 1).max().unwrap_or(0);
        let before = predecessor.iter().flat_map(|before| &before.devices);
        let work = WorkSeries::new(directory, &devices.iter().chain(before).cloned().collect::<Vec<_>>());
        let series = SampleWriter::new(directory, count, SAMPLES_MAX);
        let series = if predecessor.is_some() { series.continued() } else { series };
        let figures = sources.iter().flat_map(|source| figures_of(source.as_ref()));
        let _ = reports.figures.devices.set(figures.collect());
        let ticks = |time: Duration| time.as_nanos() / period.as_nanos().max(1);
        let samples = Samples {
            ring: EventWriter::new(ring),
            series,
            timer,
            numbers: devices.iter().map(|device| device.index).collect(),
            held: None,
        };
        let thread = SamplerThread {
            users: UsersSchedule {
                gpus: ask_who_uses_gpus(sources, &reports.users),
                next: 0,
                due: Instant::now(),
            },
            gauges: GaugeSchedule::new(sources, gauges.map(|time| ticks(time) as u64)),
            other_jobs: other_jobs.map(|jobs| OtherJobsSeries { jobs, due: Instant::now() }),
            work,
            counters: counters_of(opened.sources, period),
            period,
            by_cpu_time,
            samples,
            reports,
        };
        Ok((thread, Found { devices, notes: opened.notes, is_incomplete: opened.is_incomplete }))
    }

    /// Reads each counter once, at the start.
    pub(super) fn read_first(&mut self) {
        self.read_other_jobs(Instant::now(), true);
        self.read_all(0, false);
    }

    /// Samples until `stop` is set, and then takes a last sample of every device.
    pub(super) fn run(&mut self, stop: &AtomicBool) {
        let start = Instant::now();
        let mut tick = 0;
        let mut news_at = start + NEWS_PERIOD;
        let mut cpu_at = start;
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            match stopping {
                true => {
                    self.counters.iter_mut().for_each(|counters| counters.source.finish());
                    self.read_all(tick, true);
                }
                false => self.read_due(tick),
            }
            let now = Instant::now();
            self.read_other_jobs(now, stopping);
            self.read_work(now, stopping);
            if now >= cpu_at || stopping {
                cpu_at = now + CPU_TIME_PERIOD;
                self.record_cpu_time(now.duration_since(start));
            }
            if stopping {
                self.samples.close();
                return;
            }
            self.samples.series.flush_if_due(|| Timer::usual().now());
            self.read_gauges(tick);
            self.read_users(now);
            if now >= news_at {
                news_at = now + NEWS_PERIOD;
                let news = self.counters.iter_mut().filter_map(|counters| counters.source.news());
                news.for_each(|line| drop(self.reports.news.try_send(line)));
            }
            let due = self.counters.iter().filter_map(Counters::due).chain(self.gauges.due()).min();
            // Without devices, the thread only waits for the end, which wakes it.
            let due = due.unwrap_or(tick + self.ticks(NEWS_PERIOD)).max(tick + 1);
            let others = self.other_jobs.as_ref().map(|series| series.due).into_iter().chain(self.work.due());
            let others = others.map(|due| tick + self.ticks(due.saturating_duration_since(now)));
            let due = others.fold(due, u64::min);
            let deadline = start + tick_time(self.period, due);
            sleep_until(deadline, stop);
            let late = Instant::now().saturating_duration_since(deadline);
            // Ticks are skipped if reading took too long or the thread did not get a core.
            tick = due + (late.as_nanos() / self.period.as_nanos().max(1)) as u64;
            if !stop.load(Ordering::Relaxed) {
                self.record_lateness(late);
            }
        }
    }

    fn record_cpu_time(&self, run: Duration) {
        self.reports.figures.cpu_ns.store(thread_cpu_time().as_nanos() as u64, Ordering::Relaxed);
        self.reports.figures.run_ns.store(run.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Samples the CPU time of other jobs, if that is due.
    fn read_other_jobs(&mut self, now: Instant, is_last: bool) {
        let Some(series) = self.other_jobs.as_mut().filter(|series| is_last || series.due <= now) else {
            return;
        };
        series.due = now + OTHER_JOBS_PERIOD;
        let cpu_ns = series.jobs.cpu_ns();
        let number = self.samples.numbers.len() - 1;
        self.samples.release();
        self.samples.ring.sample(self.samples.timer.now(), self.samples.numbers[number], cpu_ns);
    }

    /// Samples the units of work that processes have counted, if that is due.
    fn read_work(&mut self, now: Instant, is_last: bool) {
        let Samples { ring, timer, held, numbers, .. } = &mut self.samples;
        let define = |device| drop(self.reports.work.send(device));
        self.work.read(now, is_last, define, |number, units| {
            if let Some((device, time, nanojoules)) = held.take() {
                ring.sample(time, numbers[device], nanojoules);
            }
            ring.sample(timer.now(), number, units.to_bits());
        });
    }

    fn record_lateness(&self, late: Duration) {
        let figures = &self.reports.figures;
        add(&figures.deadlines, 1);
        add(&figures.missed_deadlines, u64::from(late > LATENESS_MAX));
        add(&figures.late_ns, late.as_nanos() as u64);
        raise(&figures.latest_ns, late.as_nanos() as u64);
    }

    /// Returns the ticks in a time, at least one.
    fn ticks(&self, time: Duration) -> u64 {
        (time.as_nanos().div_ceil(self.period.as_nanos().max(1)) as u64).max(1)
    }

    /// Reads all counters. `is_last` makes a sample of each.
    fn read_all(&mut self, tick: u64, is_last: bool) {
        for at in 0..self.counters.len() {
            for device in 0..self.counters[at].slots.len() {
                self.read(at, device, tick, is_last);
            }
        }
    }

    /// Reads the counters that are due.
    fn read_due(&mut self, tick: u64) {
        for at in 0..self.counters.len() {
            while let Some(device) = self.counters[at].device_at(tick) {
                self.read(at, device, tick, false);
            }
        }
    }

    /// Reads the gauges that are due, after the counters, which must not wait for them.
    fn read_gauges(&mut self, tick: u64) {
        let count = self.gauges.count_at(tick);
        if count == 0 {
            return;
        }
        let figures = self.reports.figures.clone();
        let timer = self.samples.timer;
        let begun = Instant::now();
        for _ in 0..count {
            let Some(place) = self.gauges.next_gauge() else { break };
            let statistics = &figures.devices()[place.number].gauges[place.gauge];
            let before = timer.now();
            let value = self.counters[place.source].source.gauge(place.device, statistics.gauge);
            let time = halfway(before, timer.now());
            statistics.add(time, value);
            if statistics.gauge.quantity() == Quantity::Power {
                let which = statistics.gauge.which();
                // If these readings are lost, the comparison with the counter has a longer step.
                let reading = PowerReading { device: place.number, which, time, watts: value };
                let _ = self.reports.powers.try_send(reading);
            }
        }
        let took = begun.elapsed();
        add(&figures.gauges_ns, took.as_nanos() as u64);
        raise(&figures.longest_gauge_ns, took.as_nanos() as u64);
        self.gauges.record_duration(tick, took, self.period);
    }

    /// Asks the next GPU's library which processes use it, if that is due.
    fn read_users(&mut self, now: Instant) {
        let UsersSchedule { gpus, next, due } = &mut self.users;
        if now < *due || gpus.is_empty() {
            return;
        }
        let (source, device, pci) = &gpus[*next];
        if let Some(pids) = self.counters[*source].source.processes(*device) {
            lock(&self.reports.users).insert(pci.clone(), pids);
        }
        (*next, *due) = ((*next + 1) % gpus.len(), now + USERS_PERIOD / gpus.len() as u32);
    }

    /// Reads a counter, and repeats the reading if it was interrupted, because it is then unknown at which moment the value was
    /// true. With a wrong time, one interval would be too short and seem to have too much power, and the next one too little.
    /// Returns the time of the reading, and how long it took.
    fn read_undisturbed(&mut self, at: usize, device: usize) -> (u64, Result<Reading, ReadError>, u64) {
        let mut tries = READ_TRIES_MAX;
        loop {
            let begun = Instant::now();
            let before = self.samples.timer.now();
            let reading = self.counters[at].source.read(device);
            let time = halfway(before, self.samples.timer.now());
            let took = begun.elapsed().as_nanos() as u64;
            let known = &mut self.counters[at].slots[device].shortest_read_ns;
            // How long a reading takes is not known before the second one.
            let is_doubtful = known.is_none_or(|known| is_interrupted(took, known.min(took)));
            *known = Some(known.map_or(took, |known| known.min(took)));
            tries -= 1;
            let comes_once = self.counters[at].source.is_polled();
            if tries == 0 || comes_once || !is_doubtful {
                return (time, reading, took);
            }
        }
    }

    fn read(&mut self, at: usize, device: usize, tick: u64, is_last: bool) {
        let (time, reading, took) = self.read_undisturbed(at, device);
        let now = Instant::now();
        let shortest = self.shortest_period(at, device);
        // The CPU time of the run's last processes becomes known in the last reading, whose interval must contain their work.
        let is_held = self.is_estimate_by_cpu_time(at, device);
        let counters = &mut self.counters[at];
        let planned = counters.slots[device].due.max(counters.pause.until());
        counters.pause.add(tick, took);
        let pause = counters.pause.ticks_for_each(counters.slots.len());
        let slot = &mut counters.slots[device];
        let number = counters.first + device;
        let figures = &self.reports.figures.devices()[number];
        add(&figures.read_ns, took);
        raise(&figures.longest_read_ns, took);
        match reading {
            Ok(reading) => {
                add(&figures.readings, 1);
                (slot.failures, slot.is_reported) = (0, false);
                let changed = slot.last.is_none_or(|(value, _)| value != reading.nanojoules);
                let is_due = slot.last.is_some_and(|(_, at)| now.duration_since(at) >= UNCHANGED_PERIOD);
                if changed || is_due || is_last {
                    let is_first = slot.last.replace((reading.nanojoules, now)).is_none();
                    if is_held && is_last {
                        self.samples.drop_held(number);
                    }
                    match is_held && !is_first && !is_last {
                        true => self.samples.hold(number, time, reading.nanojoules),
                        false => self.samples.add(number, time, reading.nanojoules),
                    }
                }
                slot.due = if shortest > 1 {
                    tick + shortest
                } else {
                    let late = tick > planned;
                    let due = slot.schedule.next(&mut counters.interval, tick, late, changed, pause);
                    let update = self.period.as_nanos() as u64 * counters.interval.ticks().unwrap_or(0);
                    figures.update_ns.store(update, Ordering::Relaxed);
                    due
                };
            }
            // The source reads at intervals of its own, and the value is known already.
            Err(ReadError::NotYet) => slot.due = tick + shortest,
            Err(error) => self.record_failure(at, device, tick, &error),
        }
    }

    /// Counts a failed reading, and reports the third in a row. A source that reads at intervals of its own passes each failed
    /// reading on only once, so its first failed reading is reported.
    fn record_failure(&mut self, at: usize, device: usize, tick: u64, error: &ReadError) {
        let retry = self.ticks(RETRY_PERIOD);
        let counters = &mut self.counters[at];
        let failures_max = if counters.source.is_polled() { 1 } else { FAILURES_MAX };
        let slot = &mut counters.slots[device];
        add(&self.reports.figures.devices()[counters.first + device].failed_readings, 1);
        self.samples.release();
        slot.failures = slot.failures.saturating_add(1);
        slot.schedule.forget();
        slot.due = tick + if slot.failures < FAILURES_MAX { 1 } else { retry };
        if slot.failures >= failures_max && !slot.is_reported {
            slot.is_reported = true;
            let name = &counters.source.devices()[device].name;
            let line =
                format!("{name} cannot be read: {error}; sampling continues when it can be read again");
            let _ = self.reports.news.try_send(line);
        }
    }

    /// Returns the ticks that a source requires between two readings; 1 if that depends on how often its counter changes.
    fn shortest_period(&self, at: usize, device: usize) -> u64 {
        let source = &self.counters[at].source;
        let is_calm = self.reports.is_calm.load(Ordering::Relaxed);
        let period =
            if is_calm { source.shortest_calm_period(device) } else { source.shortest_period(device) };
        let is_estimate = self.is_estimate_by_cpu_time(at, device);
        self.ticks(if is_estimate { period.max(ESTIMATE_PERIOD) } else { period })
    }

    fn is_estimate_by_cpu_time(&self, at: usize, device: usize) -> bool {
        self.by_cpu_time && self.counters[at].source.devices()[device].quality == Quality::Estimated
    }
}

/// Asks the libraries of all GPUs which processes use them, and stores the answers in `users`. Returns the GPUs whose library
/// reports it, in the form of [`UsersSchedule::gpus`].
fn ask_who_uses_gpus(
    sources: &mut [Box<dyn Source>],
    users: &Mutex<GpuUsers>,
) -> Vec<(usize, usize, String)> {
    let mut reporting = Vec::new();
    for (at, source) in sources.iter_mut().enumerate() {
        for device in 0..source.devices().len() {
            let Some(pci) = source.devices()[device].pci.clone() else { continue };
            if let Some(pids) = source.processes(device) {
                lock(users).insert(pci.clone(), pids);
                reporting.push((at, device, pci));
            }
        }
    }
    reporting
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds to a figure that only one thread writes.
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// Raises a maximum that only one thread writes.
fn raise(to: &AtomicU64, value: u64) {
    if value > to.load(Ordering::Relaxed) {
        to.store(value, Ordering::Relaxed);
    }
}

/// Whether a reading was interrupted, by its duration and the duration of the shortest reading, in nanoseconds.
fn is_interrupted(took: u64, shortest: u64) -> bool {
    took > shortest.saturating_mul(10).saturating_add(INTERRUPTION_MIN) && took <= REPEATED_MAX
}

fn halfway(before: u64, after: u64) -> u64 {
    before + after.saturating_sub(before) / 2
}

/// Returns the time of a tick, at most 584 years after the start.
fn tick_time(period: Duration, tick: u64) -> Duration {
    Duration::from_nanos((period.as_nanos().saturating_mul(u128::from(tick))).min(u64::MAX.into()) as u64)
}

/// Sleeps until the deadline, or until a stop wakes the thread.
fn sleep_until(deadline: Instant, stop: &AtomicBool) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::park_timeout(left);
    }
}

fn figures_of(source: &dyn Source) -> Vec<DeviceFigures> {
    let gauges = (0..source.devices().len()).map(|device| GaugeStatistics::of_device(source, device));
    gauges.map(|gauges| DeviceFigures { gauges, ..DeviceFigures::default() }).collect()
}

fn counters_of(sources: Vec<Box<dyn Source>>, period: Duration) -> Vec<Counters> {
    let mut first = 0;
    let counters = sources.into_iter().map(|source| {
        let slots: Vec<Slot> = source.devices().iter().map(|_| Slot::default()).collect();
        let pause = Pause::new(period.as_nanos() as u64);
        let counters = Counters { first, source, interval: UpdateInterval::default(), pause, slots };
        first += counters.slots.len();
        counters
    });
    counters.collect()
}

/// Whether a source measures what other jobs draw, too.
fn counts_others(source: &dyn Source) -> bool {
    source.devices().iter().any(|device| {
        matches!(device.quality, Quality::Measured | Quality::Integrated) && device.kind != Kind::Gpu
    })
}

/// Adds the series of other jobs' CPU time to the devices, if some source measures what these draw.
fn add_other_jobs(
    run: &SharedRunCpu,
    sources: &[Box<dyn Source>],
    devices: &mut Vec<Device>,
) -> Option<OtherJobs> {
    let is_wanted = sources.iter().any(|source| counts_others(source.as_ref()));
    let jobs = OtherJobs::new(run).filter(|_| is_wanted)?;
    devices.push(other_jobs_series(devices.len() as u32));
    Some(jobs)
}

/// Makes the series of other jobs' CPU time, which is not a device.
fn other_jobs_series(index: u32) -> Device {
    Device {
        index,
        name: OTHER_JOBS_CPU_TIME.to_owned(),
        metric: OTHER_JOBS_CPU_TIME.to_owned(),
        source: "proc".to_owned(),
        quality: Quality::Measured,
        resolution_joules: 0.0,
        kind: String::new(),
        pci: String::new(),
        description: "the CPU time that other jobs have used on this node".to_owned(),
        contains: Vec::new(),
        wraps_at: None,
        baseline_microwatts: None,
    }
}

/// Makes the log that names the devices.
fn write_log(path: &Path, devices: &[Device]) -> Result<(), Error> {
    let _ = std::fs::remove_file(path);
    let mut log = LogWriter::create(path)?;
    for device in devices {
        log.append(&Definition::Device(device.clone()));
    }
    Ok(())
}

/// Makes the ring, a smaller one if there is little memory: it is drained ten times a second, and its size matters only if the
/// collector is delayed.
fn make_ring(path: &Path) -> Result<RingProducer, Error> {
    let session = path.parent().and_then(|directory| Session::open(directory).ok());
    let mut records = RING_RECORDS;
    loop {
        let is_least = records <= RING_RECORDS_MIN;
        let headroom = session.as_ref().filter(|_| !is_least).map_or(Headroom::NONE, Session::headroom);
        match RingProducer::create_with_headroom(path, records, 0, headroom) {
            Err(Error::NoSpace { .. }) if !is_least => records /= 2,
            made => return made,
        }
    }
}

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
            baseline_microwatts: device.baseline_microwatts,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_interrupted_if_it_took_much_longer_than_the_shortest_one() {
        assert!(!is_interrupted(20_000, 20_000) && !is_interrupted(150_000, 20_000));
        assert!(is_interrupted(400_000, 20_000));
        // All readings of this driver are slow, so they are not repeated.
        assert!(!is_interrupted(3_000_000, 2_500_000) && is_interrupted(40_000_000, 2_500_000));
        assert!(!is_interrupted(5_000_000_000, 20_000), "the driver is stuck");
    }
}
