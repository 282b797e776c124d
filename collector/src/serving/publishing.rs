//! Decides when a snapshot of the live figures is made, and makes it.

use crate::ingest::Ingest;
use crate::live_timeline::LiveTimeline;
use crate::node_watch::NodeWatch;
use crate::options::Options;
use crate::overhead;
use crate::run_directory::output::user_text;
use crate::sampling::Sampling;
use crate::sampling::gauges::{self, GaugeStatistics};
use crate::serving::history::History;
use crate::serving::latest::Latest;
use crate::serving::power::Power;
use ampere_counters::thread_cpu_time;
use ampere_figures::clock_text::rfc3339;
use ampere_figures::snapshot::{self, Limits, RankFigures, Snapshot};
use ampere_figures::summary::{Readings, SamplerOverhead};
use ampere_model::Timestamp;
use ampere_model::text::short;
use ampere_report::page::live::LiveTables;
use ampere_stacks::foreign;
use std::time::{Duration, Instant};

/// The shortest time between two snapshots: a scrape gets a new one if the last one is older.
const SNAPSHOT_PERIOD: Duration = Duration::from_millis(100);
/// The period while there are no scrapes.
const UNASKED_PERIOD: Duration = Duration::from_secs(1);
/// After this time without a scrape, rings are drained less often.
const UNASKED_AFTER: Duration = Duration::from_millis(1500);
/// A longer command is shortened in the middle.
const COMMAND_CHARS_MAX: usize = 200;
/// The time over which power is averaged.
const POWER_WINDOW: Duration = Duration::from_secs(1);

/// Makes the snapshots that are served.
pub(crate) struct Publisher {
    pub latest: Latest,
    limits: Limits,
    power: Power,
    /// The power since the start of the run, for a page that is opened later.
    pub history: History,
    pub tables: LiveTables,
    /// The hints of the last summary on disk, which has the tables that they need.
    pub hints: Option<Vec<String>>,
    /// The name of the user whose run it is, or else the number.
    user: String,
    due: Instant,
    /// The time before which there is no other snapshot, even if one is wanted.
    next: Instant,
    /// The time of the last scrape.
    asked: Instant,
}

/// The sources of a snapshot.
pub(crate) struct Published<'a> {
    pub options: &'a Options,
    pub timeline: &'a LiveTimeline,
    pub ingest: &'a mut Ingest,
    pub sampling: &'a Sampling,
    pub node: Option<&'a NodeWatch>,
    pub now: Timestamp,
    /// The time since the start of the run.
    pub elapsed: Duration,
}

impl Publisher {
    pub fn new(latest: Latest, most_series: usize) -> Publisher {
        let user = rustix::process::geteuid().as_raw();
        latest.made_by(std::thread::current());
        // A thread looks up the name, because it may come from a directory service that does not answer.
        let name = foreign::in_time(move || user_text(user)).unwrap_or_else(|| user.to_string());
        Publisher {
            user: name,
            latest,
            limits: Limits::new(most_series),
            power: Power::default(),
            history: History::default(),
            tables: LiveTables::default(),
            hints: None,
            due: Instant::now(),
            next: Instant::now(),
            asked: Instant::now(),
        }
    }

    pub fn is_due(&self) -> bool {
        let due = if self.latest.is_wanted() { self.next } else { self.due };
        due <= Instant::now()
    }

    /// Whether there has been no scrape for a while.
    pub fn is_unwatched(&self) -> bool {
        self.asked.elapsed() > UNASKED_AFTER
    }

    /// Discards the power so far, because times from now on come from another clock.
    pub fn forget_power(&mut self) {
        self.power.clear();
        self.history.clear();
        self.tables = LiveTables::default();
    }

    /// Publishes a snapshot. `of` is `None` before the run has a clock. `is_last`: the run has ended.
    pub fn publish(&mut self, of: Option<Published>, is_last: bool) {
        let (begun, cpu_before) = (Instant::now(), thread_cpu_time());
        let mut snapshot = of.map_or_else(Snapshot::default, |of| self.snapshot(of));
        snapshot.is_last = is_last;
        if self.latest.was_asked() {
            self.asked = begun;
        }
        // With very many call paths a snapshot takes long, so snapshots are made less often: they take at most a hundredth of the
        // time.
        let period_min = 100 * thread_cpu_time().saturating_sub(cpu_before);
        self.due = begun + UNASKED_PERIOD.max(period_min);
        self.next = begun + SNAPSHOT_PERIOD.max(period_min);
        self.latest.set(snapshot, self.next);
    }

    /// Adds the last sample of each device to the power so far.
    pub fn see_power(&mut self, timeline: &LiveTimeline) {
        let (attributor, clock) = (&timeline.pipeline.attributor, timeline.clock);
        for (number, device) in attributor.devices.iter().enumerate() {
            if let Some((time, joules)) = attributor.engine.last_sample(device.views.ranks) {
                self.power.add_sample(number, time, joules, clock.ticks(POWER_WINDOW));
                self.history.add_sample(number, clock.seconds(time), joules);
            }
        }
    }

    fn snapshot(&mut self, of: Published) -> Snapshot {
        self.see_power(of.timeline);
        let attributor = &of.timeline.pipeline.attributor;
        let clock = of.timeline.clock;
        let now = of.now;
        let mut snapshot = snapshot::of_attributor(attributor, &mut self.limits);
        (snapshot.node, snapshot.seconds) = match &of.options.replay {
            Some(replay) => {
                let played = now.min(replay.last).saturating_sub(replay.first);
                (replay.node(), clock.seconds(played))
            }
            None => (of.options.manifest.node.clone(), of.elapsed.as_secs_f64()),
        };
        (snapshot.run, snapshot.job) = (of.options.run_id.clone(), of.options.manifest.job.clone());
        snapshot.command = short(&of.options.command.join(" "), COMMAND_CHARS_MAX);
        snapshot.user.clone_from(&self.user);
        snapshot.start = rfc3339(of.options.manifest.started().realtime_ns);
        snapshot.collector.lag_seconds = clock.seconds(now.saturating_sub(of.timeline.done_until));
        snapshot.collector.node_cpu = of.node.and_then(NodeWatch::cpu);
        snapshot.notes.extend(of.node.iter().flat_map(|node| node.notes(attributor)));
        snapshot.collector.collector_cpu_seconds = overhead::cpu_seconds();
        snapshot.collector.collector_rss_bytes = overhead::resident_bytes();
        let sampler = of.sampling.sampler.as_ref();
        snapshot.collector.sampler = sampler.map(|sampler| SamplerOverhead::from(&*sampler.figures));
        self.add_power_and_readings(&of, &mut snapshot);
        snapshot.ranks = rank_figures(&of);
        of.ingest.locations_mut().for_each(|location| location.fullest = 0.0);
        snapshot
    }

    fn add_power_and_readings(&mut self, of: &Published, snapshot: &mut Snapshot) {
        let (attributor, clock) = (&of.timeline.pipeline.attributor, of.timeline.clock);
        let window = clock.ticks(POWER_WINDOW);
        let sampled = of.sampling.figures(attributor.devices.len());
        for (number, (device, figures)) in attributor.devices.iter().zip(sampled).enumerate() {
            let shown = snapshot.devices.iter_mut().find(|shown| shown.device == device.info.name);
            let Some(shown) = shown else { continue };
            // If several metrics have the same name, their known powers are added.
            let watts = self.power.per_tick(number, of.now, window).map(|joules| joules / clock.seconds(1));
            shown.watts = watts.map(|watts| shown.watts.unwrap_or(0.0) + watts).or(shown.watts);
            if let Some(figures) = figures {
                shown.readings.add(&Readings::from(figures));
                gauges::add_all(&mut shown.gauges, figures.gauges.iter().filter_map(GaugeStatistics::now));
            }
        }
    }
}

fn rank_figures(of: &Published) -> Vec<RankFigures> {
    let attributor = &of.timeline.pipeline.attributor;
    let late = of.timeline.pipeline.late();
    let processes = of.ingest.processes.iter().enumerate();
    let ranks = processes.map(|(at, process)| {
        let main = process.locations.iter().find(|location| location.definition.id.0 == 0);
        let current =
            main.and_then(|main| main.index).and_then(|index| attributor.engine.current_region(index));
        let mut losses = process.record_losses();
        // The pipeline counts lateness for the whole node; it is shown once.
        losses.late_events = if at == 0 { late } else { 0 };
        let indices = process.locations.iter().filter_map(|location| location.index);
        losses.kernels_without_launch =
            indices.map(|index| of.timeline.pipeline.without_launch(index)).fold(0, u64::saturating_add);
        let group = process.group();
        RankFigures {
            is_alone: group == "Process",
            rank: process.rank_number().map_or(group, |rank| rank.to_string()),
            losses,
            gpu_clocks: process.gpu_clocks(),
            ring_fill_ratio: process.locations.iter().map(|l| l.fullest).fold(0.0, f64::max),
            current_region: current.map_or_else(String::new, |r| attributor.regions.name(r).to_owned()),
        }
    });
    RankFigures::distinct(ranks)
}
