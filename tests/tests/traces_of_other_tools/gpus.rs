//! Which kernels draw from which GPU's counter, according to its scope, its recorder, and numbers.

use crate::*;

/// A node with one or two ranks, and two streams that each run a kernel, `k0` and `k1`.
struct Streams {
    trace: Trace,
    streams: [LocationRef; 2],
}

/// Where the streams are.
#[derive(Clone, Copy, PartialEq)]
enum In {
    Contexts,
    OneContext,
    Process,
    ContextsOfTwoRanks,
}

impl Streams {
    fn new(place: In, names: [&str; 2]) -> Streams {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let count = if place == In::ContextsOfTwoRanks { 2 } else { 1 };
        let ranks: Vec<LocationRef> = (0..count).map(|rank| trace.rank(rank, node)).collect();
        for rank in &ranks {
            trace.calls(*rank, &[(0, "+main"), (40, "-main")]);
        }
        let processes: Vec<_> =
            ranks.iter().filter_map(|rank| trace.definitions.locations.get(*rank)?.group).collect();
        let mut groups = Vec::new();
        for at in 0..2 {
            let process = *processes.get(at).unwrap_or(&processes[0]);
            let group = match place {
                In::Process => process,
                In::OneContext if at == 1 => groups[0],
                _ => trace.definitions.location_groups.push(LocationGroup {
                    name: format!("context {at}"),
                    kind: LocationGroupType::Accelerator,
                    system_tree_parent: Some(node),
                    creating_location_group: Some(process),
                    properties: Vec::new(),
                }),
            };
            groups.push(group);
        }
        let streams =
            [0, 1].map(|at: usize| trace.location(LocationType::AcceleratorStream, names[at], groups[at]));
        Streams { trace, streams }
    }

    /// Adds a counter that a stream has recorded. If `is_scope`, the stream is also the scope of the counter.
    fn counter(&mut self, name: &str, of: usize, is_scope: bool) -> (LocationRef, MetricRef) {
        let (class, stream) = (self.trace.class(&[(name, "J")]), self.streams[of]);
        match is_scope {
            true => (stream, self.trace.about(class, stream, MetricScope::Location, stream.0)),
            false => (stream, class.into()),
        }
    }

    /// Writes the kernels, each from one second to another, and 4 s of counters with these powers. Returns the summary and the
    /// joules of the kernels.
    fn run(
        mut self,
        spans: [(u64, u64); 2],
        counters: &[(LocationRef, MetricRef, f64)],
    ) -> (Value, [f64; 2]) {
        for (at, stream) in self.streams.into_iter().enumerate() {
            let kernel = self.trace.region(&format!("k{at}"));
            let mut writer = self.trace.writer(stream);
            for hundredth in 0..=400 {
                let time = hundredth * SECOND / 100;
                let (from, to) = spans[at];
                if hundredth == 100 * from {
                    writer.enter(time, kernel).expect("an event");
                }
                for (_, metric, watts) in counters.iter().filter(|(recorder, ..)| *recorder == stream) {
                    let value = MetricValue::F64(watts * hundredth as f64 / 100.0);
                    writer.metric(time, *metric, &[value]).expect("a sample");
                }
                if hundredth == 100 * to {
                    writer.leave(time, kernel).expect("an event");
                }
            }
            writer.close().expect("a location");
        }
        // The trace that `replay` writes has one GPU for all streams of a context.
        let [summary, live] = self.trace.attribute_and_replay();
        assert_same_figures(&live, &summary);
        let kernels = ["k0", "k1"].map(|name| of_region(&summary, "kernels", name));
        (summary, kernels)
    }
}

const DEVICES: [&str; 2] = ["rocm_smi:::energy_count:device=0", "rocm_smi:::energy_count:device=1"];

#[test]
fn streams_of_one_context_with_other_numbers_are_on_other_gpus() {
    for (names, is_scope) in [(DEVICES, false), (DEVICES, true), (["gpu energy"; 2], true)] {
        let mut streams = Streams::new(In::OneContext, ["HIP[0:0]", "HIP[1:0]"]);
        let counters = [(0, 100.0), (1, 300.0)].map(|(at, watts)| {
            let (recorder, metric) = streams.counter(names[at], at, is_scope);
            (recorder, metric, watts)
        });
        let (summary, kernels) = streams.run([(0, 4), (0, 2)], &counters);
        assert_joules_are(&kernels, &[400.0, 600.0]);
        assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
    }
}

#[test]
fn numbers_decide_if_one_stream_has_recorded_the_counters_of_all_gpus() {
    // Without a number 0, it is not known at which number the tool starts to count.
    for (names, expected) in [
        (DEVICES, Some([400.0, 1200.0])),
        (["GPU 0 energy", "GPU 1 energy"], Some([400.0, 1200.0])),
        (["GPU 1 energy", "GPU 2 energy"], None),
    ] {
        let mut streams = Streams::new(In::Contexts, ["HIP[0:0]", "HIP[1:0]"]);
        let counters = [(0, 100.0), (1, 300.0)].map(|(at, watts): (usize, f64)| {
            let (recorder, metric) = streams.counter(names[at], 0, false);
            (recorder, metric, watts)
        });
        let (summary, kernels) = streams.run([(0, 4), (0, 4)], &counters);
        assert_joules_are(&kernels, &expected.unwrap_or_default());
        assert_eq!(summary["run"]["complete"], expected.is_some(), "{}", notes(&summary));
    }
}

/// One stream runs after the other one. Only the first one has the counter.
#[test]
fn other_streams_may_be_on_the_gpu_of_a_counter() {
    for (place, names, expected) in [
        (In::Process, ["CUDA[0:7]", "CUDA[0:8]"], Some([200.0, 200.0])),
        (In::OneContext, ["stream 7", "stream 8"], Some([200.0, 200.0])),
        (In::Process, ["stream 7", "stream 8"], None),
        (In::ContextsOfTwoRanks, ["CUDA[0:7]", "CUDA[0:7]"], None),
    ] {
        for is_scope in [false, true] {
            let mut streams = Streams::new(place, names);
            let (recorder, metric) = streams.counter("gpu energy", 0, is_scope);
            let (summary, kernels) = streams.run([(0, 2), (2, 4)], &[(recorder, metric, 100.0)]);
            assert_joules_are(&kernels, &expected.unwrap_or([200.0, 0.0]));
            assert_eq!(summary["run"]["complete"], expected.is_some(), "{}", notes(&summary));
            let said = format!("the kernels of {} on a cannot be told", names[1]);
            assert_eq!(notes(&summary).contains(&said), expected.is_none(), "{}", notes(&summary));
        }
    }
}

/// Both streams are in one context, and each is the scope of a counter of the same name.
#[test]
fn two_counters_of_one_gpu_are_not_known_to_be_its() {
    let mut streams = Streams::new(In::OneContext, ["GPU 0", "GPU 1"]);
    let counters = [(0, 100.0), (1, 300.0)].map(|(at, watts)| {
        let (recorder, metric) = streams.counter("gpu energy", at, true);
        (recorder, metric, watts)
    });
    let (summary, kernels) = streams.run([(0, 4), (0, 2)], &counters);
    assert_joules_are(&kernels, &[0.0, 0.0]);
    assert!(
        notes(&summary).contains("the kernels of GPU 0, GPU 1 on a cannot be told"),
        "{}",
        notes(&summary)
    );
}
