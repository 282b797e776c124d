//! Locations and devices of a run, which location draws from which device, and the engine that divides the joules. The live
//! collector and the offline reader fill in the same attributor.

pub use crate::device::{
    Device, DeviceInfo, FoundDevice, Recorded, Standing, Unit, ViewKind, Views, counter_name, watts_max_of,
};
pub use crate::linking::LocationInfo;

use crate::baseline::Baseline;
use crate::counter_traits::CounterTraits;
use crate::device::Interpretation;
use crate::events::EventCounts;
use crate::lanes::{Lane, Lanes};
use crate::launches::AllLaunches;
use crate::linking::{Links, Run, ThreadSeconds};
use crate::other_jobs::NodesJobs;
use crate::sampled::{Known, Role, SampledStacks};
use crate::time_device;
use crate::topology::visible::variable;
use crate::topology::{Assignment, CountedPart, CounterEvidence, Evidence};
use crate::waiting::{Ranks, Waiting};
use crate::work::CountedWork;
use ampere_attribution::{Engine, Increase, LocationIndex, NodeIndex, Policy, Step, ViewIndex};
use ampere_model::regions::Regions;
use ampere_model::{LocationKind, MetricValue, RegionRef, STACK_EVENTS, STACK_PERIOD, Timestamp};
use ampere_settings::{Config, Locations};
use scorep_abi::{paradigm, region_type};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of steps of a location that the engine takes at once while calls are recorded. After these, the recorder
/// may take the calls.
const STEPS_RECORDED_MAX: usize = 1 << 14;

fn role_of(regions: &Regions, region: RegionRef) -> Role {
    let region = regions.all().get(region.0 as usize);
    let (paradigm, region_type) = region
        .map_or((paradigm::MEASUREMENT, 0), |region| (region.paradigm.into(), region.region_type.into()));
    match paradigm {
        paradigm::MEASUREMENT => Role::Program,
        paradigm::USER | paradigm::COMPILER => Role::Function,
        paradigm::SAMPLING if region_type == region_type::ARTIFICIAL => Role::InCall,
        paradigm::SAMPLING if region_type == region_type::WRAPPER => Role::InCutCall,
        paradigm::CUDA | paradigm::HIP if region_type == region_type::USER => Role::Range,
        paradigm::CUDA | paradigm::HIP | paradigm::OPENCL => Role::RuntimeCall,
        _ => Role::Call,
    }
}

/// What is known about the regions and threads of a run.
struct KnownOfRun<'a> {
    regions: &'a Regions,
    engine: &'a Engine,
}

impl Known for KnownOfRun<'_> {
    fn role(&self, region: RegionRef) -> Role {
        role_of(self.regions, region)
    }

    fn is_unsampled(&self, region: RegionRef) -> bool {
        let region = self.regions.all().get(region.0 as usize);
        region.is_some_and(|region| match region.paradigm.into() {
            paradigm::USER => i32::from(region.region_type) == region_type::USER,
            paradigm::KOKKOS | paradigm::OPENMP | paradigm::OPENACC => true,
            _ => false,
        })
    }

    fn cpu_time(&self, location: LocationIndex, time: Timestamp) -> Option<f64> {
        self.engine.cpu_time_at(location, time)
    }
}

/// Receives what the engine records. The first failure ends the recording: [`Attributor::end_recording`] returns it.
pub trait Recorder: Send {
    /// Called for a new device, whose views have no consumers yet.
    fn begin_device(&mut self, engine: &mut Engine, number: usize, device: &Device);

    /// Whether [`Waiting::take_spans`] is to return the waits, if they are looked for.
    fn wants_waits(&self) -> bool {
        false
    }

    /// Called after a sample of a device's view, and of the twin of this view if it has one.
    fn take_sample(&mut self, attributor: &mut Attributor, view: ViewIndex) -> io::Result<()>;

    /// Called whenever many events have come since the last call.
    fn take_events(&mut self, attributor: &mut Attributor) -> io::Result<()>;

    /// Called when there are no more events and samples.
    fn end(&mut self, attributor: &mut Attributor) -> io::Result<()>;
}

/// A recorder, and the state of its recording.
pub(crate) struct Recording {
    pub recorder: Box<dyn Recorder>,
    /// The number of events since the last call of [`Recorder::take_events`].
    pub events: usize,
    pub failure: Option<io::Error>,
}

/// A run's locations, devices and figures.
pub struct Attributor {
    /// The engine that divides the joules.
    pub engine: Engine,
    pub regions: Regions,
    /// CPU time between two samples of a thread's stack, if stacks are sampled.
    pub stack_period: Option<Duration>,
    /// One entry for each location, by the engine's index.
    pub locations: Vec<LocationInfo>,
    /// Devices in the order in which they became known.
    pub devices: Vec<Device>,
    /// The resolution of all times.
    pub ticks_per_second: u64,
    /// Whether it is known when the run's threads used CPU time. It is set before the first device is added.
    pub knows_cpu_times: bool,
    /// Whether the joules of GPUs are divided by kernels. Otherwise they are divided as if no kernels were known, and
    /// [`Attributor::leaves_kernels_out`] returns whether the figures have to be computed again. It is set before the first
    /// device is added.
    pub divides_by_kernels: bool,
    links: Links,
    pub(crate) other_jobs: NodesJobs,
    config: Config,
    /// Time devices ([`crate::time_device`]) whose node has had no event yet.
    unstarted_times: Vec<usize>,
    pub(crate) recording: Option<Box<Recording>>,
    /// The energy that ranks use while they wait for each other, if that is wanted.
    pub waiting: Option<Box<Waiting>>,
    /// The units of work that were counted.
    pub work: CountedWork,
    /// The events that were counted with stack samples.
    pub events: EventCounts,
    sampled: SampledStacks,
    launches: AllLaunches,
    lanes: Lanes,
    /// The time at which a live run ended its sampling; until then, its counters should have been read.
    sampling_ended: Option<Timestamp>,
    /// The first and the last time at which functions ran on each node, while its counters should have been read.
    functions_ran: BTreeMap<String, (Timestamp, Timestamp)>,
    /// The number of changes of the set of devices that count.
    pub(crate) counting_version: u64,
}

const LEAVES_KERNELS_OUT: &str = "until the end of the run, the joules of a GPU are divided among functions of the host \
                                  by time, and its dynamic joules are not known";

/// If functions ran for at most this long before the first reading or after the last one, no energy counts as unknown.
const FUNCTIONS_APART_SECONDS: f64 = 0.1;

impl Attributor {
    /// Returns an attributor without locations and devices.
    pub fn new(config: Config, ticks_per_second: u64) -> Attributor {
        Attributor {
            engine: Engine::new(),
            regions: Regions::default(),
            stack_period: None,
            locations: Vec::new(),
            devices: Vec::new(),
            ticks_per_second: ticks_per_second.max(1),
            knows_cpu_times: false,
            divides_by_kernels: true,
            links: Links::default(),
            other_jobs: NodesJobs::default(),
            config,
            unstarted_times: Vec::new(),
            recording: None,
            waiting: None,
            work: CountedWork::default(),
            events: EventCounts::default(),
            sampled: SampledStacks::default(),
            launches: AllLaunches::default(),
            lanes: Lanes::default(),
            sampling_ended: None,
            functions_ran: BTreeMap::new(),
            counting_version: 0,
        }
    }

    /// Returns the settings of the attributor.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Converts seconds to ticks of this run.
    pub fn ticks_of(&self, seconds: f64) -> u64 {
        (seconds * self.ticks_per_second as f64).round() as u64
    }

    /// Adds a location about which nothing else is known.
    pub fn add_location(&mut self, info: LocationInfo) -> LocationIndex {
        self.add_location_with(info, Evidence::default())
    }

    /// Adds a location and links it to the devices that the evidence implies.
    pub fn add_location_with(&mut self, info: LocationInfo, evidence: Evidence) -> LocationIndex {
        if info.kind == LocationKind::CpuThread {
            self.add_time_device(&info.node);
        }
        let index = self.engine.add_location();
        self.lanes.add_location(info.kind == LocationKind::Gpu || self.is_rank(&info));
        self.locations.push(info);
        let (links, mut run) = self.links_and_run();
        links.add_location(&mut run, evidence);
        index
    }

    /// Adds a location whose frames are samples of a thread's stack.
    pub fn add_samples(&mut self, info: LocationInfo, evidence: Evidence) -> LocationIndex {
        let period = variable(&evidence.environment, STACK_PERIOD).and_then(|text| text.parse().ok());
        self.stack_period = self.stack_period.or(period.map(Duration::from_nanos));
        let events = variable(&evidence.environment, STACK_EVENTS).map(str::to_owned);
        let index = self.add_location_with(info, evidence);
        events.into_iter().for_each(|names| self.events.set_events(index, &names));
        self.sampled.add(index);
        index
    }

    /// Whether some of the program's own functions are recorded.
    pub fn records_functions(&self) -> bool {
        self.regions
            .all()
            .iter()
            .any(|region| matches!(region.paradigm.into(), paradigm::USER | paradigm::COMPILER))
    }

    /// Returns the time for which a location had a frame open.
    pub fn seconds_in_frames(&self, location: LocationIndex) -> f64 {
        let mut sum = 0u64;
        self.engine.each_callpath(location, |_, _, ticks| sum = sum.saturating_add(ticks));
        sum as f64 / self.ticks_per_second as f64
    }

    /// Returns the outermost open call of one of the program's own functions that are recorded: its call path, and how often that
    /// has been entered.
    pub fn open_function(&self, location: LocationIndex) -> Option<(NodeIndex, u64)> {
        let is_function = |region| role_of(&self.regions, region) == Role::Function;
        let open = self.engine.open_frames(location).filter(|(_, region, _)| is_function(*region));
        open.last().map(|(path, _, calls)| (path, calls))
    }

    /// Whether a location's frames are samples of a thread's stack.
    pub fn is_sampled(&self, location: usize) -> bool {
        self.sampled.is_sampled(LocationIndex(location as u32))
    }

    /// Records how often an event has happened since the last sample of a thread: an event of [`STACK_EVENTS`], by its number
    /// there. It belongs to the thread's innermost frame. Without a frame, it belongs to no call path.
    pub(crate) fn count_events(&mut self, location: LocationIndex, event: u32, count: u64) {
        let on = self.sampled.shown_on(location);
        if let Some(path) = self.engine.current(on) {
            self.events.add(location, event, count, (on, path));
        }
    }

    /// Whether all or some frames of a location are samples.
    pub fn has_samples(&self, location: LocationIndex) -> bool {
        self.sampled.has(location)
    }

    /// Puts the frames of `samples` on the location where calls of the same thread are recorded.
    pub(crate) fn put_samples_on(&mut self, samples: LocationIndex, recorded: LocationIndex) {
        let regions = &self.regions;
        let role = |region| role_of(regions, region);
        self.sampled.put_on(samples, recorded, self.engine.stack(recorded), role);
    }

    /// Sets the rank of a process, and with it the processes with which it shares devices.
    pub fn set_rank(&mut self, location: LocationIndex, rank: u32, group: String) {
        let info = &mut self.locations[location.0 as usize];
        info.rank = Some(rank);
        info.group = group;
        let (links, mut run) = self.links_and_run();
        links.update_location(&mut run, location.0 as usize);
    }

    /// Sets all variables of a location's process, because more of them are known than when the location was added.
    pub fn set_environment(&mut self, location: LocationIndex, environment: Arc<[String]>) {
        let (links, mut run) = self.links_and_run();
        links.set_environment(&mut run, location.0 as usize, environment);
    }

    /// Whether counters of GPUs have PCI addresses.
    pub fn distinguishes_gpus(&self) -> bool {
        let mut parts = (0..self.devices.len()).map(|device| self.counted_part(device));
        parts.any(|part| part.is_gpu() && part.evidence.pci.is_some())
    }

    /// Whether the settings count a location's frames as a rank's.
    pub fn is_rank(&self, info: &LocationInfo) -> bool {
        let all = self.config.attribution.locations == Locations::All;
        info.kind == LocationKind::CpuThread && (info.main || all)
    }

    /// Adds a device of which only the metric is known. Returns `None` if the metric does not count a device's energy, because
    /// the metric is defined as something else and no setting matches it.
    pub fn add_device(&mut self, found: FoundDevice) -> Option<usize> {
        self.add_recorded(found, CounterEvidence::default(), Recorded::default())
    }

    /// Adds a device of which more than the metric is known. Returns `None` in the same case as [`Attributor::add_device`].
    pub fn add_recorded(
        &mut self,
        found: FoundDevice,
        evidence: CounterEvidence,
        recorded: Recorded,
    ) -> Option<usize> {
        let ticks_per_second = self.ticks_per_second;
        let interpretation =
            Interpretation::new(&self.config, &found, evidence, &recorded, ticks_per_second)?;
        let info = DeviceInfo {
            name: self.unique_name(&interpretation, &found),
            quality: interpretation.quality(found.quality),
            node: found.node,
            counter: recorded.counter(&found.metric),
            metric: found.metric,
            source: found.source,
            is_by_other_tool: recorded.is_by_other_tool,
            unit: Unit::Joules,
            traits: CounterTraits::default(),
        };
        let (sharing, locations) = (self.config.attribution.sharing, self.config.attribution.locations);
        let is_gpu = interpretation.part.is_known_gpu();
        let [ranks, kernels] =
            ViewKind::BOTH.map(|kind| self.engine.add_view(self.policy_of(kind, is_gpu), sharing));
        if is_gpu && self.divides_by_kernels && self.may_divide_by_kernels() {
            self.engine.divide_by_kernels(ranks, kernels);
        }
        if self.waiting.is_some() {
            self.engine.record_prices(ranks);
        }
        let views = Views { ranks, threads: None, kernels, locations };
        let part = interpretation.part.clone();
        let device = Device::interpreted(info, views, interpretation, ticks_per_second);
        if let Some(recording) = &mut self.recording {
            recording.recorder.begin_device(&mut self.engine, self.devices.len(), &device);
        }
        self.devices.push(device);
        let number = self.link_last_device(part);
        self.apply_baseline(number);
        self.share_with_other_jobs(number);
        self.compare_last_device();
        Some(number)
    }

    /// Starts to find the energy that these ranks use while they wait for each other. This must be called before the engine takes
    /// events of them.
    pub fn find_waits(&mut self, ranks: Ranks) {
        let mut waiting = Waiting::new(ranks, &mut self.engine);
        let energies = self.devices.iter().filter(|device| device.info.unit == Unit::Joules);
        energies.for_each(|device| self.engine.record_prices(device.views.ranks));
        if self.recording.as_ref().is_some_and(|recording| recording.recorder.wants_waits()) {
            waiting.record_spans();
        }
        self.waiting = Some(Box::new(waiting));
    }

    /// Settles the waits about which everything is known: at once if `is_due`, otherwise only when many have accumulated. The
    /// engine has been given everything before `until`.
    pub fn settle_waits(&mut self, until: Timestamp, is_due: bool) {
        let Attributor { waiting, engine, devices, .. } = self;
        if let Some(waiting) = waiting {
            let energies = devices.iter().filter(|device| device.info.unit == Unit::Joules);
            let views = energies.map(|device| device.views.ranks);
            match is_due {
                true => waiting.settle_now(engine, views, until),
                false => waiting.settle(engine, views, until),
            }
        }
    }

    /// Settles all waits at the end of a run.
    pub fn end_waits(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.end(&mut self.engine);
        }
    }

    /// Returns the policy of a view before kernels are known. A rank may wait on its CPU while its kernels run, so CPU time does
    /// not show which rank used a GPU.
    fn policy_of(&self, kind: ViewKind, is_gpu: bool) -> Policy {
        let is_known = kind == ViewKind::Ranks && self.knows_cpu_times;
        match self.config.attribution.policy {
            Some(Policy::Active) | None
                if is_gpu && (kind == ViewKind::Ranks || !self.divides_by_kernels) =>
            {
                Policy::TimeSliced
            }
            None if is_known => Policy::Active,
            policy => policy.unwrap_or_default(),
        }
    }

    fn apply_baseline(&mut self, device: usize) {
        let device = &self.devices[device];
        let watts = device.baseline().map_or(0.0, |baseline| baseline.watts);
        for view in [device.views.ranks, device.views.kernels] {
            self.engine.set_baseline(view, watts / self.ticks_per_second as f64);
        }
    }

    /// Sets the power that a device drew while nothing of the run was active. It applies if no setting and no source has another
    /// figure.
    pub fn learn_baseline(&mut self, device: usize, baseline: Baseline) {
        self.devices[device].learnt_baseline = Some(baseline);
        self.apply_baseline(device);
    }

    /// Sets the power that each device has drawn until now while nothing of the run was active.
    pub fn learn_baselines(&mut self) {
        for device in 0..self.devices.len() {
            if let Some(baseline) = self.idle_baseline(device) {
                self.learn_baseline(device, baseline);
            }
        }
    }

    /// Whether a baseline has been learned while joules were attributed: earlier joules were divided without it.
    pub fn has_learned_baselines(&self) -> bool {
        self.devices.iter().any(|device| device.learnt_baseline.is_some())
    }

    /// Returns the power of a device while nothing of the run is active, if no setting and no source has another figure.
    pub fn idle_baseline(&self, device: usize) -> Option<Baseline> {
        let device = &self.devices[device];
        if self.has_gpu(device) {
            return None; // kernels may run while no thread is on a CPU
        }
        let learnt = device.learnt_baseline;
        let is_other = device.baseline().is_some_and(|baseline| Some(baseline) != learnt);
        let views = [device.views.ranks, device.views.kernels];
        let view = views.into_iter().find(|view| self.engine.report_policy(*view) == Policy::Active)?;
        Baseline::of_idle(self.engine.idle_intervals(view), self.ticks_per_second).filter(|_| !is_other)
    }

    /// Whether a device's joules include those of a GPU, but are not only those of a GPU.
    fn has_gpu(&self, device: &Device) -> bool {
        let DeviceInfo { node, traits, .. } = &device.info;
        let gpus = || self.devices.iter().filter(|other| other.info.traits.kind == "gpu");
        let has_stream = || {
            let mut locations = self.locations.iter();
            locations.any(|location| location.kind == LocationKind::Gpu && location.node == *node)
        };
        match traits.kind.as_str() {
            "gpu" => false,
            "node" => gpus().any(|gpu| gpu.info.node == *node) || has_stream(),
            _ => gpus().any(|gpu| gpu.info.node == *node && device.info.contains(&gpu.info)),
        }
    }

    /// Returns the name for a new device. Libraries may give two counters of a node the same name, such as `GPU-0`: a later one
    /// gets its library as a suffix. Names from the settings stay as they are.
    fn unique_name(&self, interpretation: &Interpretation, found: &FoundDevice) -> String {
        let name = &interpretation.name;
        let mut of_node = self.devices.iter().filter(|device| device.info.node == found.node);
        let library = found.metric.split_once(":::").map(|(library, _)| library);
        match library.filter(|_| interpretation.setting.is_none()) {
            Some(library) if of_node.any(|device| device.info.name == *name) => format!("{name}-{library}"),
            _ => name.clone(),
        }
    }

    fn link_last_device(&mut self, part: CountedPart) -> usize {
        let (links, mut run) = self.links_and_run();
        links.add_device(&mut run, part);
        self.devices.len() - 1
    }

    fn links_and_run(&mut self) -> (&mut Links, Run<'_>) {
        let run = Run {
            engine: &mut self.engine,
            locations: &self.locations,
            devices: &mut self.devices,
            by_local_rank: self.config.by_local_rank,
        };
        (&mut self.links, run)
    }

    /// Sets the properties of a device's counter.
    pub fn set_traits(&mut self, device: usize, traits: CounterTraits) {
        self.devices[device].set_traits(traits);
        self.apply_baseline(device);
    }

    /// Returns the names of the devices that a device contains: its joules include theirs.
    pub fn parts(&self, device: usize) -> Vec<String> {
        let info = &self.devices[device].info;
        self.counting(&info.node)
            .filter(|other| info.contains(other))
            .map(|other| other.name.clone())
            .collect()
    }

    /// Returns the outermost device that contains a device, if there is one. A sum over all devices counts the joules of the
    /// inner device only as a part of the outer one's.
    pub fn whole(&self, device: usize) -> Option<&DeviceInfo> {
        let info = &self.devices[device].info;
        let is_topmost = |whole: &&DeviceInfo| !self.counting(&info.node).any(|other| other.contains(whole));
        self.counting(&info.node).filter(|other| other.contains(info)).find(is_topmost)
    }

    /// Adds a time in which functions ran on a node to the time in which its devices should have been read.
    pub fn extend_run(&mut self, node: &str, (first, last): (Timestamp, Timestamp)) {
        let span = self.functions_ran.entry(node.to_owned()).or_insert((first, last));
        *span = (span.0.min(first), span.1.max(last));
    }

    /// Sets the time at which sampling ended. Until then the devices should have been read, even if their last readings are
    /// earlier.
    pub fn end_sampling(&mut self, time: Timestamp) {
        self.sampling_ended = Some(time);
    }

    /// Returns the span of time in which a node's devices should have been read: from their first reading to their last, and
    /// beyond these while functions ran on the node ([`Attributor::extend_run`]) or sampling had not ended.
    pub fn sampled_span(&self, node: &str) -> Option<(Timestamp, Timestamp)> {
        let energies = self.devices.iter().filter(|d| d.info.node == node && d.info.unit == Unit::Joules);
        let spans = energies.filter_map(|device| {
            let figures = device.counter_figures();
            // A sensor's delay makes samples earlier than their readings.
            let read_at = |time: Timestamp| time.saturating_add(device.delay_ticks);
            figures.first.map(read_at).zip(figures.last.map(read_at))
        });
        let span = spans.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        let apart = self.ticks_of(FUNCTIONS_APART_SECONDS);
        let span = span.map(|(first, last)| {
            let (ran_first, ran_last) = self.functions_ran.get(node).copied().unwrap_or((first, last));
            let first = if ran_first.saturating_add(apart) < first { ran_first } else { first };
            (first, if last.saturating_add(apart) < ran_last { ran_last } else { last })
        });
        span.map(|(first, last)| (first, last.max(self.sampling_ended.unwrap_or(0))))
    }

    /// Returns the devices of a node whose joules are part of the node's sum.
    fn counting<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a DeviceInfo> {
        let devices = self.devices.iter().filter(|device| device.standing == Standing::Counts);
        devices.map(|device| &device.info).filter(move |info| info.node == node)
    }

    fn on_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a DeviceInfo> {
        self.devices.iter().map(|device| &device.info).filter(move |info| info.node == node)
    }

    /// Starts a call of a region.
    pub fn enter(&mut self, location: LocationIndex, time: Timestamp, region: RegionRef) {
        self.step(location, Step::enter(time, region, 1));
    }

    /// Ends the innermost call of a location.
    pub fn leave(&mut self, location: LocationIndex, time: Timestamp) {
        self.step(location, Step::leave(time));
    }

    /// Processes an enter or a leave. The first enter of a node's ranks starts the node's time device.
    pub(crate) fn step(&mut self, location: LocationIndex, step: Step) {
        if !self.unstarted_times.is_empty() && step.is_enter() {
            self.start_time(location, step.time);
        }
        self.steps(location, &[step]);
    }

    /// Processes an enter that has a correlation id. On a thread, it is a launch, whose call path is remembered. On a GPU's
    /// stream, the work begins with the call path of its launch; returns `false` if that launch is not known.
    pub(crate) fn correlated_step(&mut self, location: LocationIndex, step: Step, id: u64) -> bool {
        let process = self.links.process_of(location);
        if self.locations[location.0 as usize].kind != LocationKind::Gpu {
            self.step(location, step);
            if let Some(process) = process {
                self.launches.add(process, id, (location, step.time), &self.engine);
            }
            return true;
        }
        let path = process
            .and_then(|process| self.launches.path_on(location, process, (id, step.time), &mut self.engine));
        path.into_iter().for_each(|path| self.engine.begin_in(location, path));
        self.step(location, step);
        path.is_some()
    }

    /// Processes steps of one location, in order.
    #[inline]
    pub(crate) fn steps(&mut self, location: LocationIndex, steps: &[Step]) {
        if self.sampled.has(location) {
            return self.sampled_steps(location, steps);
        }
        self.engine_steps(location, steps);
    }

    fn sampled_steps(&mut self, location: LocationIndex, steps: &[Step]) {
        let mut passed: Vec<(LocationIndex, Step)> = Vec::with_capacity(steps.len());
        for step in steps {
            self.pass(location, *step, &mut |location, step| passed.push((location, step)));
        }
        for (location, step) in passed {
            self.engine_steps(location, &[step]);
        }
    }

    /// Translates a step of a location, some or all of whose frames are samples. `each` is called with the resulting steps for
    /// the engine, and the location of each.
    pub fn pass(&mut self, location: LocationIndex, step: Step, each: &mut impl FnMut(LocationIndex, Step)) {
        let known = KnownOfRun { regions: &self.regions, engine: &self.engine };
        self.sampled.pass(location, step, &known, each);
    }

    #[inline]
    fn engine_steps(&mut self, location: LocationIndex, steps: &[Step]) {
        if steps.last().is_some_and(|last| self.lanes.is_due(location, last.time)) {
            return self.steps_in_lane(location, steps);
        }
        self.recorded_steps(location, steps);
    }

    /// Processes the events of a location, and ends the time steps of its lane that end between two of these events.
    #[cold]
    fn steps_in_lane(&mut self, location: LocationIndex, mut steps: &[Step]) {
        while let Some(at) = steps.iter().position(|step| self.lanes.is_due(location, step.time)) {
            let (before, after) = steps.split_at(at);
            self.recorded_steps(location, before);
            self.advance_lane(location, after[0].time);
            steps = after;
        }
        self.recorded_steps(location, steps);
    }

    /// Ends the time steps of a location's lane up to `time`. All earlier events of the location have been processed.
    pub(crate) fn advance_lane(&mut self, location: LocationIndex, time: Timestamp) {
        self.lanes.advance(&self.engine, location, time, self.ticks_per_second);
    }

    /// Ends all lanes with the last events of their locations.
    pub(crate) fn end_lanes(&mut self) {
        for location in 0..self.locations.len() as u32 {
            self.lanes.end(&self.engine, LocationIndex(location), self.ticks_per_second);
        }
    }

    /// Calls `each` with (region, calls, exclusive ticks) for every call path of a location, in the order of [`Engine::nodes`].
    /// An open call counts up to the last sample of the devices from which the location may draw.
    pub fn each_callpath(&self, location: LocationIndex, each: impl FnMut(RegionRef, u64, u64)) {
        let info = &self.locations[location.0 as usize];
        let kind = if info.kind == LocationKind::Gpu { ViewKind::Kernels } else { ViewKind::Ranks };
        let of_kind = self.kernel_devices_of(location);
        let is_possible = |(at, device): &(usize, &Device)| {
            device.info.node == info.node && (kind == ViewKind::Ranks || of_kind.contains(at))
        };
        let devices = self.devices.iter().enumerate().filter(is_possible);
        let last = devices
            .filter_map(|(_, device)| self.engine.last_sample(device.views.sampled(kind)))
            .max_by_key(|last| last.0);
        let until = last.map_or(0, |(time, _)| time);
        self.engine.each_time_until(location, until, each);
    }

    /// Returns what ran on a location; `None` if nothing did, or if it is neither a rank nor a GPU stream.
    pub fn lane(&self, location: usize) -> Option<&Lane> {
        self.lanes.of(location)
    }

    #[inline]
    fn recorded_steps(&mut self, location: LocationIndex, steps: &[Step]) {
        if self.recording.is_none() {
            return self.engine.steps(location, steps);
        }
        for steps in steps.chunks(STEPS_RECORDED_MAX) {
            self.engine.steps(location, steps);
            self.record_events(steps.len());
        }
    }

    /// Processes a sample of a device's view.
    pub(crate) fn sample(&mut self, view: ViewIndex, time: Timestamp, increase: Increase) {
        self.engine.sample(view, time, increase);
        self.record_sample(view);
    }

    /// Queues a sample, with the promises that [`Engine::enqueue_sample`] requires.
    pub(crate) fn enqueue_sample(&mut self, view: ViewIndex, time: Timestamp, increase: Increase) -> bool {
        self.engine.enqueue_sample(view, time, increase)
    }

    pub(crate) fn take_queued_samples(&mut self) {
        while let Some(view) = self.engine.take_queued_sample() {
            self.record_sample(view);
        }
    }

    /// Processes a reading that is accepted at once, without waiting for later ones to confirm it, and hands its sample to both
    /// views.
    pub fn read_now(&mut self, device: usize, time: Timestamp, value: u64) {
        self.devices[device].read(time, MetricValue::U64(value), 0);
        self.end_readings(device);
    }

    /// Ends a device's readings, and hands their samples to both views.
    pub fn end_readings(&mut self, device: usize) {
        self.devices[device].counter_mut().end();
        while let Some(sample) = self.devices[device].sample() {
            let views = self.devices[device].views;
            for view in [views.ranks, views.kernels] {
                self.sample(view, sample.time, sample.increase);
            }
        }
    }

    /// Returns the earliest time that a later sample of any device can have.
    pub fn undecided_since(&self) -> Timestamp {
        let all = self.devices.iter().filter_map(|device| device.counter().undecided_since());
        all.min().unwrap_or(Timestamp::MAX).min(self.other_jobs.known_until())
    }

    /// Whether samples were handed out that would be different now.
    pub fn samples_are_revised(&self) -> bool {
        self.devices.iter().any(|device| device.counter().is_revised())
    }

    fn may_divide_by_kernels(&self) -> bool {
        matches!(self.config.attribution.policy, None | Some(Policy::Active))
    }

    /// Whether the joules of a GPU should have been divided by kernels, because these are known.
    pub fn leaves_kernels_out(&self) -> bool {
        let has_kernels = |stream: usize| {
            let devices = self.kernel_devices_of(LocationIndex(stream as u32));
            devices.iter().any(|device| self.counted_part(*device).is_known_gpu())
        };
        let mut streams =
            (0..self.locations.len()).filter(|at| self.locations[*at].kind == LocationKind::Gpu);
        !self.divides_by_kernels && self.may_divide_by_kernels() && streams.any(has_kernels)
    }

    /// Returns a note for readers of figures that leave kernels out.
    pub fn note_of_kernels(&self) -> Option<&'static str> {
        self.leaves_kernels_out().then_some(LEAVES_KERNELS_OUT)
    }

    /// Returns the longest delay of a device's samples, in ticks.
    pub fn longest_delay_ticks(&self) -> u64 {
        self.devices.iter().map(|device| device.delay_ticks).max().unwrap_or(0)
    }

    /// Adds a node's time as a device, if that is wanted and has not been done. This must be called before the node's ranks are
    /// added.
    fn add_time_device(&mut self, node: &str) {
        let is_there = self.on_node(node).any(|info| info.unit == Unit::Seconds);
        if !self.config.attribution.time || is_there {
            return;
        }
        let device = time_device::new(
            node,
            &mut self.engine,
            self.config.attribution.locations,
            self.ticks_per_second,
        );
        self.unstarted_times.push(self.devices.len());
        self.devices.push(device);
        self.link_last_device(CountedPart::new(time_device::TIME, CounterEvidence::default(), None));
    }

    fn start_time(&mut self, location: LocationIndex, time: Timestamp) {
        let info = &self.locations[location.0 as usize];
        if !self.is_rank(info) {
            return;
        }
        let is_here = |device: &usize| self.devices[*device].info.node == info.node;
        let Some(at) = self.unstarted_times.iter().position(is_here) else { return };
        let device = self.unstarted_times.swap_remove(at);
        self.read_now(device, time, time);
    }

    /// Attributes time up to each node's last event, at the end of the run.
    pub fn end_time(&mut self) {
        for device in 0..self.devices.len() {
            let info = &self.devices[device].info;
            if info.unit != Unit::Seconds || self.unstarted_times.contains(&device) {
                continue;
            }
            let is_here =
                |(_, location): &(usize, &LocationInfo)| location.node == info.node && self.is_rank(location);
            let ranks = self.locations.iter().enumerate().filter(is_here);
            let last = ranks.map(|(at, _)| self.engine.last_change(LocationIndex(at as u32))).max();
            if let Some(last) = last {
                self.read_now(device, last, last);
            }
        }
    }

    /// Updates links now that some counters have never shown anything but 0: another counter may count their GPU.
    pub fn learn_silence(&mut self) {
        let (links, mut run) = self.links_and_run();
        links.learn(&mut run, |device, evidence| {
            device.is_silent() && !std::mem::replace(&mut evidence.silent, true)
        });
    }

    /// Updates links now that some counters have risen: they count their GPU themselves.
    pub fn learn_rises(&mut self) {
        let (links, mut run) = self.links_and_run();
        links.learn(&mut run, |device, evidence| {
            device.rises() && !std::mem::replace(&mut evidence.rises, true)
        });
    }

    /// Updates links now that some counters are known to repeat others.
    pub(crate) fn learn_repeated(&mut self) {
        let mut counted: Vec<(String, String, u32)> = Vec::new();
        for (at, device) in self.devices.iter().enumerate() {
            let Standing::Repeats(first) = device.standing else { continue };
            let info = &self.devices[first].info;
            counted.extend(
                self.counted_part(at).number().map(|number| (info.node.clone(), info.metric.clone(), number)),
            );
        }
        if counted.is_empty() {
            return;
        }
        let (links, mut run) = self.links_and_run();
        links.learn(&mut run, |device, evidence| {
            let is_own =
                |of: &&(String, String, u32)| (&of.0, &of.1) == (&device.info.node, &device.info.metric);
            let numbers: Vec<u32> = counted.iter().filter(is_own).map(|of| of.2).collect();
            let has_changed = evidence.counts != numbers;
            evidence.counts = numbers;
            has_changed
        });
    }

    /// Sets how much CPU time the threads of a process have used.
    pub fn set_cpu_seconds(&mut self, process: u64, seconds: ThreadSeconds) {
        self.links.set_cpu_seconds(process, seconds);
    }

    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// Whether some location's links changed after joules had been attributed by the old ones.
    pub fn links_changed_late(&self) -> bool {
        self.links.changed_late()
    }

    /// Returns the devices that a location draws from, with reasons.
    pub fn assignment(&self, location: usize) -> &Assignment {
        self.links.assignment(location)
    }

    /// Whether no process of its node may use a GPU, according to their variables. Another job may use it.
    pub fn is_hidden(&self, device: usize) -> bool {
        let node = &self.devices[device].info.node;
        let here =
            self.locations.iter().enumerate().filter(|(_, location)| location.main && location.node == *node);
        let mut kept = here.map(|(at, _)| self.assignment(at).is_kept_from(device)).peekable();
        kept.peek().is_some() && kept.all(|is_kept| is_kept)
    }

    /// Returns the part of the machine that a device counts, as far as the assignment depends on it.
    pub fn counted_part(&self, device: usize) -> &CountedPart {
        self.links.counted_part(device)
    }

    /// Returns the location group of the process that a GPU stream belongs to, or else of its context.
    pub fn owner_of(&self, stream: usize) -> &str {
        self.links.owner_of(&self.locations, stream)
    }

    /// Returns the devices whose kernels view a location draws from.
    pub fn kernel_devices_of(&self, location: LocationIndex) -> Vec<usize> {
        let at = location.0 as usize;
        let is_gpu = self.locations[at].kind == LocationKind::Gpu;
        let links = self.assignment(at).links.iter().filter(|_| is_gpu);
        links.map(|link| link.device).collect()
    }
}
