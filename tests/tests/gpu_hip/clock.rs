//! The clock of a GPU's records drifts, and most readings of it are interrupted.

use crate::Hip;
use ampere_tests::jobs::run;
use ampere_tests::runs::{json, number};
use otf2::{EventHandler, Flow, LocationRef, LocationType, RegionRef, Trace};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

const ROUNDS: usize = 60;
const ERROR_MAX: f64 = 10e-6;

/// Starts and ends, in ticks.
type Spans = Vec<(u64, u64)>;

/// The kernels of the only stream, and the calls that launched them.
struct Found {
    streams: BTreeSet<LocationRef>,
    launch: RegionRef,
    kernels: Spans,
    launches: Spans,
}

impl Found {
    fn new(trace: &Trace) -> Found {
        let definitions = trace.definitions();
        let mut regions = definitions.regions.iter();
        let (launch, _) = regions.find(|(_, of)| of.name == "hipLaunchKernel").expect("launches");
        let streams =
            definitions.locations.iter().filter(|(_, of)| of.kind == LocationType::AcceleratorStream);
        let streams = streams.map(|(at, _)| at).collect();
        Found { streams, launch, kernels: Vec::new(), launches: Vec::new() }
    }

    fn spans(&mut self, location: LocationRef, region: RegionRef) -> Option<&mut Spans> {
        match self.streams.contains(&location) {
            true => Some(&mut self.kernels),
            false => (region == self.launch).then_some(&mut self.launches),
        }
    }
}

impl EventHandler for Found {
    fn enter(&mut self, location: LocationRef, time: u64, region: RegionRef, _: Option<u64>) -> Flow {
        self.spans(location, region).into_iter().for_each(|spans| spans.push((time, 0)));
        ControlFlow::Continue(())
    }

    fn leave(&mut self, location: LocationRef, time: u64, region: RegionRef) -> Flow {
        self.spans(location, region)
            .into_iter()
            .for_each(|spans| spans.last_mut().expect("an enter").1 = time);
        ControlFlow::Continue(())
    }
}

/// Each round launches a kernel of 30 ms on an idle stream, and one of 10 ms behind it. The first one begins during its launch.
#[test]
fn a_clock_that_drifts_is_followed_within_10_us_and_the_drift_is_shown() {
    for drift in [50, -50] {
        let hip = Hip::new();
        let mut command = hip.measured(&["three_to_one", &ROUNDS.to_string()]);
        let script = format!("drift={drift} interrupted");
        let done = run(command.env("STAND_IN_ROCPROFILER", script));
        assert_eq!(done.code, 0, "{done:#?}");

        let mut trace = Trace::open(&hip.place.path("out/traces.otf2")).expect("a trace");
        let mut found = Found::new(&trace);
        let ticks = trace.definitions().clock.timer_resolution as f64;
        trace.read_events(&mut found).expect("events");
        assert_eq!((found.kernels.len(), found.launches.len()), (2 * ROUNDS, 2 * ROUNDS));
        let error = |(kernel, launch): (&(u64, u64), &(u64, u64))| {
            let late = (kernel.0 as f64 - launch.1 as f64) / ticks;
            let short = 0.03 - (kernel.1 - kernel.0) as f64 / ticks;
            assert!(kernel.0 > launch.0);
            late.max(short.abs())
        };
        let errors = found.kernels.iter().zip(&found.launches).step_by(2).map(error);
        let mut errors: Vec<f64> = errors.collect();
        errors.sort_by(f64::total_cmp);
        println!(
            "{drift} us a second: errors of {:?} us",
            errors.iter().map(|error| error * 1e6).collect::<Vec<_>>()
        );
        // On a busy machine, all readings of the clock at one moment may be interrupted.
        assert!(errors[ROUNDS * 9 / 10] < ERROR_MAX, "{drift}: {errors:?}");

        let summary = json(&hip.place.path("out/summary.json"));
        let clocks = &summary["quality"]["gpu_clocks"];
        assert!((number(clocks, "drift_ratio") - 50e-6).abs() < 6e-6, "{clocks}");
        assert!(number(clocks, "error_seconds") > 0.0, "{clocks}");
        let text = std::fs::read_to_string(hip.place.path("out/summary.txt")).expect("a summary");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("times of GPUs right to ") && words.contains("; their clocks drift by "),
            "{text}"
        );
    }
}
