use crate::attributor::{Attributor, FoundDevice, LocationInfo, ViewKind};
use crate::launches::LAUNCHES_KEPT;
use crate::pipeline::{GpuStreams, Pipeline};
use crate::topology::Evidence;
use ampere_attribution::{LocationIndex, Policy};
use ampere_model::{LocationKind, MetricValue, Quality, Region, RegionHandle, RegionRef, Timestamp};
use ampere_settings::Config;
use proptest::collection::vec;
use proptest::prelude::*;
use scorep_abi::{paradigm, region_type};
use std::collections::BTreeMap;

/// A process with some threads, which launch kernels on two streams of a GPU. A tick is a millisecond.
struct Machine {
    pipeline: Pipeline,
    threads: Vec<LocationIndex>,
    streams: [LocationIndex; 2],
    regions: BTreeMap<String, RegionRef>,
}

impl Machine {
    fn new(threads: usize, when: GpuStreams) -> Machine {
        let mut config = Config::default();
        config.attribution.policy = Some(Policy::TimeSliced);
        let mut attributor = Attributor::new(config, 1000);
        attributor.add_device(FoundDevice {
            node: "n".to_owned(),
            metric: "rocm_smi:::energy_count:device=0".to_owned(),
            source: "rocm_smi".to_owned(),
            quality: Quality::Measured,
            joules_per_unit: Some(1.0),
        });
        let location = |name: &str, kind, main| LocationInfo {
            node: "n".to_owned(),
            group: if main { "MPI Rank 0" } else { "HIP Context 0" }.to_owned(),
            name: name.to_owned(),
            kind,
            rank: Some(0),
            main,
        };
        let evidence = || Evidence { process: Some(5), ..Evidence::default() };
        let mut add = |info| attributor.add_location_with(info, evidence());
        let threads: Vec<_> =
            (0..threads).map(|at| add(location("thread", LocationKind::CpuThread, at == 0))).collect();
        let streams = ["HIP[0:0]", "HIP[0:1]"].map(|name| add(location(name, LocationKind::Gpu, false)));
        let mut pipeline = Pipeline::new(attributor, when);
        threads.iter().chain(&streams).for_each(|location| pipeline.add_stream(*location));
        pipeline.place_streams();
        Machine { pipeline, threads, streams, regions: BTreeMap::new() }
    }

    fn region_of(&mut self, name: &str, paradigm: i32, kind: i32) -> RegionRef {
        let regions = &mut self.pipeline.attributor.regions;
        *self.regions.entry(name.to_owned()).or_insert_with(|| {
            regions.add(&Region {
                handle: RegionHandle(0),
                name: name.to_owned(),
                canonical_name: name.to_owned(),
                source_file: String::new(),
                begin_line: 0,
                end_line: 0,
                region_type: kind as u8,
                paradigm: paradigm as u8,
            })
        })
    }

    fn region(&mut self, name: &str) -> RegionRef {
        self.region_of(name, paradigm::HIP, region_type::FUNCTION)
    }

    fn enter(&mut self, location: LocationIndex, time: Timestamp, name: &str, id: u64) {
        let region = self.region(name);
        let stream = self.pipeline.stream(location).expect("it is in a view");
        match id {
            0 => stream.enter(time, region, 1),
            _ => stream.enter_correlated(time, region, 1, id),
        }
    }

    fn leave(&mut self, location: LocationIndex, time: Timestamp) {
        self.pipeline.stream(location).expect("it is in a view").leave(time);
    }

    fn call(&mut self, location: LocationIndex, (begin, end): (Timestamp, Timestamp), name: &str, id: u64) {
        self.enter(location, begin, name, id);
        self.leave(location, end);
    }

    fn read(&mut self, time: Timestamp, joules: u64) {
        self.pipeline.attributor.devices[0].read(time, MetricValue::U64(joules), 0);
        self.pipeline.queue_samples(0);
    }

    fn end(&mut self) {
        self.pipeline.end_samples();
        self.pipeline.advance_to_the_end();
        assert_eq!((self.pipeline.late(), self.pipeline.waiting()), (0, 0));
    }

    /// Returns exclusive and inclusive joules and the calls in the kernels view, by call path.
    fn by_path(&self) -> BTreeMap<String, (f64, f64, u64)> {
        let attributor = &self.pipeline.attributor;
        let report = attributor.engine.report(attributor.devices[0].view(ViewKind::Kernels));
        let mut all: BTreeMap<String, (f64, f64, u64)> = BTreeMap::new();
        for row in report.callpaths {
            let names: Vec<_> = row.path.iter().map(|region| attributor.regions.name(*region)).collect();
            let sum = all.entry(names.join(" > ")).or_default();
            *sum = (sum.0 + row.exclusive_joules, sum.1 + row.inclusive_joules, sum.2 + row.calls);
        }
        all
    }
}

/// Returns the exclusive joules of the rows in `all` whose call paths are wanted.
fn sum_of(all: &BTreeMap<String, (f64, f64, u64)>, wanted: impl Fn(&str) -> bool) -> f64 {
    all.iter().filter(|(path, _)| wanted(path)).map(|(_, row)| row.0).sum::<f64>() + 0.0
}

#[test]
fn a_kernels_call_path_begins_with_that_of_its_launch() {
    let mut machine = Machine::new(1, GpuStreams::Late);
    let (thread, [first, second]) = (machine.threads[0], machine.streams);
    machine.read(0, 0);
    machine.enter(thread, 10, "main", 0);
    machine.enter(thread, 11, "solve", 0);
    machine.call(thread, (12, 13), "hipLaunchKernel", 7);
    machine.call(thread, (14, 15), "hipGraphLaunch", 8);
    machine.leave(thread, 20);
    machine.leave(thread, 900);
    machine.read(1000, 1000);
    machine.pipeline.advance_ranks(1000);
    // Streams report late. The kernels of a graph have the same id; a kernel may have frames inside it.
    machine.enter(first, 100, "dgemm", 7);
    machine.call(first, (150, 160), "part", 0);
    machine.leave(first, 200);
    machine.call(first, (200, 300), "dgemm", 8);
    machine.call(second, (400, 500), "scale", 8);
    machine.end();
    let solve = "main > solve";
    let expected = [
        ("main".to_owned(), 0.0, 300.0, 0),
        (solve.to_owned(), 0.0, 300.0, 0),
        (format!("{solve} > hipGraphLaunch"), 0.0, 200.0, 0),
        (format!("{solve} > hipGraphLaunch > dgemm"), 100.0, 100.0, 1),
        (format!("{solve} > hipGraphLaunch > scale"), 100.0, 100.0, 1),
        (format!("{solve} > hipLaunchKernel"), 0.0, 100.0, 0),
        (format!("{solve} > hipLaunchKernel > dgemm"), 90.0, 100.0, 1),
        (format!("{solve} > hipLaunchKernel > dgemm > part"), 10.0, 10.0, 1),
    ];
    let found = machine.by_path();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.iter().map(|row| &row.0).collect::<Vec<_>>());
    for (path, exclusive, inclusive, calls) in expected {
        let row = found[&path];
        assert!((row.0 - exclusive).abs() < 1e-9 && (row.1 - inclusive).abs() < 1e-9, "{path}: {row:?}");
        assert_eq!(row.2, calls, "{path}");
    }
    assert_eq!(machine.pipeline.all_without_launch(), 0);
    assert!(machine.pipeline.attributor.engine.stack(first).is_empty());
    // Only what ran on the GPU is a kernel.
    let attributor = &machine.pipeline.attributor;
    let mut names = Vec::new();
    let view = attributor.devices[0].view(ViewKind::Kernels);
    attributor.engine.each_entered_account(view, |region, _| names.push(attributor.regions.name(region)));
    names.sort();
    names.dedup();
    assert_eq!(names, ["dgemm", "part", "scale"]);
}

/// A kernel that is still running has its whole call path, and its open frames are its own.
#[test]
fn a_running_kernel_is_charged_below_its_launch() {
    let mut machine = Machine::new(1, GpuStreams::InTime);
    let (thread, stream) = (machine.threads[0], machine.streams[0]);
    machine.read(0, 0);
    machine.call(thread, (10, 11), "hipLaunchKernel", 1);
    machine.enter(stream, 20, "dgemm", 1);
    for time in [50, 100] {
        machine.read(time, time);
    }
    machine.pipeline.decide_before(100);
    machine.pipeline.advance_ranks(90);
    let found = machine.by_path()["hipLaunchKernel > dgemm"];
    assert!((found.0 - 30.0).abs() < 1e-9, "{found:?}");
    assert_eq!(machine.pipeline.attributor.engine.stack(stream).len(), 1);
    machine.leave(stream, 95);
    machine.call(stream, (96, 97), "own", 0);
    machine.end();
    assert_eq!(
        machine.by_path().keys().collect::<Vec<_>>(),
        ["hipLaunchKernel", "hipLaunchKernel > dgemm", "own"]
    );
}

#[test]
fn kernels_without_a_launch_keep_a_path_of_their_own_and_are_counted() {
    let mut machine = Machine::new(1, GpuStreams::InTime);
    let (thread, [stream, other]) = (machine.threads[0], machine.streams);
    machine.call(stream, (1, 2), "before ids", 0);
    machine.call(thread, (10, 11), "launch", 1);
    machine.call(stream, (10, 15), "at its launch", 1);
    machine.call(stream, (20, 25), "after", 1);
    machine.call(stream, (30, 35), "unknown", 99);
    machine.call(stream, (40, 45), "no id", 0);
    machine.call(other, (40, 45), "a stream without ids", 0);
    machine.end();
    let found = machine.by_path();
    let expected =
        ["a stream without ids", "after", "at its launch", "before ids", "launch", "launch > after", "no id"];
    let expected: Vec<_> = expected.into_iter().filter(|name| *name != "after").chain(["unknown"]).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected);
    assert_eq!((machine.pipeline.without_launch(stream), machine.pipeline.without_launch(other)), (3, 0));
    assert_eq!(machine.pipeline.all_without_launch(), 3);
}

/// The launches of a process are forgotten in halves, the oldest first.
#[test]
fn the_latest_launches_are_remembered() {
    let mut machine = Machine::new(1, GpuStreams::InTime);
    let (thread, stream) = (machine.threads[0], machine.streams[0]);
    let launches = 2 * LAUNCHES_KEPT as u64 + 1;
    for id in 1..=launches {
        machine.call(thread, (10 * id, 10 * id + 1), "launch", id);
        if id % 1000 == 0 {
            machine.pipeline.advance_ranks(10 * id);
        }
    }
    let end = 10 * launches + 10;
    let kept = launches - LAUNCHES_KEPT as u64;
    for (at, id) in [1, LAUNCHES_KEPT as u64, kept, launches].into_iter().enumerate() {
        let begin = end + 10 * at as u64;
        machine.call(stream, (begin, begin + 5), "dgemm", id);
    }
    machine.end();
    assert_eq!(machine.by_path()["launch > dgemm"].2, 2);
    assert_eq!((machine.by_path()["dgemm"].2, machine.pipeline.all_without_launch()), (2, 2));
}

/// A thread whose stack is sampled shows which function launched a kernel.
#[test]
fn the_sampled_frames_around_a_launch_are_on_its_path() {
    let mut machine = Machine::new(1, GpuStreams::InTime);
    let (thread, stream) = (machine.threads[0], machine.streams[0]);
    let program = machine.region_of("a.out", paradigm::MEASUREMENT, region_type::ARTIFICIAL);
    let solve = machine.region_of("solve", paradigm::SAMPLING, 0);
    let in_call = machine.region_of("(recorded call)", paradigm::SAMPLING, region_type::ARTIFICIAL);
    let info = LocationInfo {
        name: "sampled".to_owned(),
        ..machine.pipeline.attributor.locations[thread.0 as usize].clone()
    };
    let samples = machine.pipeline.attributor.add_samples(info, Evidence::default());
    machine.pipeline.add_stream(samples);
    machine.pipeline.put_samples_on(samples, thread);
    machine.enter(thread, 1, "a.out", 0);
    let sampled = machine.pipeline.stream(samples).unwrap();
    for (time, region) in [(5, program), (5, solve), (12, in_call)] {
        sampled.enter(time, region, 0);
    }
    sampled.leave(20);
    machine.call(thread, (10, 15), "hipLaunchKernel", 1);
    machine.call(thread, (30, 31), "hipLaunchKernel", 2);
    machine.call(stream, (40, 50), "dgemm", 2);
    machine.end();
    let found = machine.by_path();
    assert_eq!(found["a.out > solve > hipLaunchKernel > dgemm"].2, 1, "{found:?}");
}

/// A launch: the thread, the function that makes it, its delay after the previous one, the stream, the kernel, and how long the
/// kernel waits and runs. Some ids are unknown, and some kernels have none.
type Launch = (usize, usize, u64, usize, usize, u64, u64);

/// Hands over the events of these launches. `named` returns the id and the name of a launched kernel. Its arguments are the
/// number of the launch, and the numbers of the function and the kernel in it.
fn run_of(
    launches: &[Launch],
    when: GpuStreams,
    batch: usize,
    named: &dyn Fn(u64, usize, usize) -> (u64, String),
) -> Machine {
    let mut machine = Machine::new(3, when);
    let (threads, streams) = (machine.threads.clone(), machine.streams);
    threads.iter().for_each(|thread| machine.enter(*thread, 1, "main", 0));
    let mut now = 10;
    let mut free_at = [0u64; 2];
    let mut late = Vec::new();
    machine.read(0, 0);
    for (at, (thread, function, delay, stream, kernel, wait, runs)) in launches.iter().copied().enumerate() {
        now += 4 + delay;
        let (thread, number) = (threads[thread], at as u64 + 1);
        machine.enter(thread, now - 3, &format!("f{function}"), 0);
        let (id, kernel) = named(number, function, kernel);
        machine.call(thread, (now - 2, now - 1), "launch", if id == 0 { 0 } else { number });
        machine.leave(thread, now);
        let begin = (now - 1 + wait).max(free_at[stream]);
        free_at[stream] = begin + 1 + runs;
        late.push((streams[stream], (begin, begin + 1 + runs), kernel, id));
        machine.read(now, 3 * now + at as u64 % 7);
        if at % batch == 0 && when == GpuStreams::Late {
            let until = (now - 4).min(machine.pipeline.attributor.undecided_since());
            machine.pipeline.advance_ranks(until);
            late.drain(..).for_each(|(stream, span, kernel, id)| machine.call(stream, span, &kernel, id));
            machine.pipeline.advance_late(until, 1_000_000, true);
        }
    }
    late.drain(..).for_each(|(stream, span, kernel, id)| machine.call(stream, span, &kernel, id));
    let last = now.max(free_at[0]).max(free_at[1]) + 1;
    machine.read(last, 3 * last);
    threads.iter().for_each(|thread| machine.leave(*thread, last));
    machine.end();
    machine
}

fn launches() -> impl Strategy<Value = Vec<Launch>> {
    vec((0usize..3, 0usize..4, 0u64..20, 0usize..2, 0usize..3, 0u64..40, 0u64..60), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
    ))]

    /// The joules of a kernel do not depend on whether its launch is known, and those below a function of the host are those of
    /// the kernels that it launched.
    #[test]
    fn a_launch_moves_no_joules(launches in launches()) {
        let with = run_of(&launches, GpuStreams::InTime, 1, &|id, _, kernel| (id, format!("k{kernel}"))).by_path();
        let without = run_of(&launches, GpuStreams::InTime, 1, &|_, _, kernel| (0, format!("k{kernel}"))).by_path();
        let apart = run_of(&launches, GpuStreams::InTime, 1, &|_, function, kernel| (0, format!("k{kernel} of f{function}")));
        let apart = apart.by_path();
        let equal = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs().max(1.0);
        for kernel in ["k0", "k1", "k2"] {
            let (own, alone) = (sum_of(&with, |path| path.ends_with(kernel)), sum_of(&without, |path| path == kernel));
            prop_assert!(equal(own, alone), "{kernel}: {own} and {alone}");
        }
        for function in ["f0", "f1", "f2", "f3"] {
            let own = with.get(&format!("main > {function}")).map_or(0.0, |row| row.1);
            let kernels = sum_of(&apart, |path| path.ends_with(&format!("of {function}")));
            prop_assert!(equal(own, kernels), "{function}: {own} and {kernels}");
        }
    }

    /// A live run, which gets the events of streams late and in batches, finds the same launches as its trace.
    #[test]
    fn late_streams_find_the_same_launches(launches in launches(), batch in 1usize..40, lost in 1u64..9) {
        let named = |number: u64, _: usize, kernel: usize| {
            let id = if number.is_multiple_of(lost) { (number + 1) * (number % 2) } else { number };
            (id, format!("k{kernel}"))
        };
        let [live, trace] = [GpuStreams::Late, GpuStreams::InTime].map(|when| run_of(&launches, when, batch, &named));
        prop_assert_eq!(live.pipeline.all_without_launch(), trace.pipeline.all_without_launch());
        prop_assert_eq!(live.by_path(), trace.by_path());
    }
}
