//! A recorded run that is played: the stand-ins show the readings of its counters one after the other, and its kernels begin and
//! end at the same places between these readings. So the joules of its kernels must be those of the record.

use crate::Hip;
use ampere_tests::jobs::run;
use ampere_tests::runs::{attribute, json, list, number, recorded_trace, relative};
use ampere_tests::skip_unless;
use otf2::{EventHandler, Flow, LocationRef, LocationType, MetricRef, MetricValue, RegionRef, Trace};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// The largest error of a reading's time, in seconds. A reading counts for the middle of the time that it took, and is repeated
/// if it was interrupted for longer than this.
const READING_ERROR_MAX: f64 = 100e-6;

/// A kernel: its name, and the times of its start and end.
type Kernel = (String, u64, u64);

/// The data of one GPU in a trace.
#[derive(Debug, Default)]
struct Gpu {
    /// The readings that differ from the one before: times in ticks, and microjoules.
    readings: Vec<(u64, u64)>,
    kernels: Vec<Kernel>,
}

/// A trace's GPUs by their numbers.
struct Gpus {
    trace: LocationNames,
    found: BTreeMap<u32, Gpu>,
    ticks_per_second: f64,
}

/// The locations, metrics and regions that the events refer to.
struct LocationNames {
    /// The numbers of the GPUs of streams.
    streams: BTreeMap<LocationRef, u32>,
    /// The numbers of the GPUs of counters, and how many units are a microjoule.
    counters: BTreeMap<MetricRef, (u32, u64)>,
    kernels: BTreeMap<RegionRef, String>,
}

impl Gpus {
    fn of(path: &Path) -> Gpus {
        let mut trace = Trace::open(path).expect("a trace");
        let names = LocationNames::of(&trace);
        let ticks_per_second = trace.definitions().clock.timer_resolution as f64;
        let mut gpus = Gpus { trace: names, found: BTreeMap::new(), ticks_per_second };
        trace.read_events(&mut gpus).expect("events");
        gpus
    }
}

/// Returns the number after a text.
fn number_after(name: &str, text: &str) -> Option<u32> {
    let rest = &name[name.find(text)? + text.len()..];
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

impl LocationNames {
    fn of(trace: &Trace) -> LocationNames {
        let definitions = trace.definitions();
        let streams =
            definitions.locations.iter().filter(|(_, of)| of.kind == LocationType::AcceleratorStream);
        // Score-P names streams HIP[0:0], and ampere names them HIP[gpu0:0].
        let gpu = |name: &str| number_after(name, "HIP[gpu").or_else(|| number_after(name, "HIP["));
        let classes = definitions.metric_classes.iter().filter_map(|(class, of)| {
            let member = definitions.metric_members.get(*of.members.first()?)?;
            let units = if member.exponent == -9 { 1000 } else { 1 };
            Some((class, (number_after(&member.name, "energy_count:device=")?, units)))
        });
        let classes: BTreeMap<_, _> = classes.collect();
        let instances = definitions.metric_instances.iter();
        let of_instance = |(instance, of): (_, &otf2::MetricInstance)| {
            Some((MetricRef { class: of.class, instance: Some(instance) }, *classes.get(&of.class)?))
        };
        let direct = classes.iter().map(|(class, of)| (MetricRef::from(*class), *of));
        LocationNames {
            streams: streams.filter_map(|(at, of)| Some((at, gpu(&of.name)?))).collect(),
            counters: direct.chain(instances.filter_map(of_instance)).collect(),
            kernels: definitions.regions.iter().map(|(at, of)| (at, of.canonical_name.clone())).collect(),
        }
    }
}

impl EventHandler for Gpus {
    fn enter(&mut self, location: LocationRef, time: u64, region: RegionRef, _: Option<u64>) -> Flow {
        if let Some(gpu) = self.trace.streams.get(&location) {
            let name = self.trace.kernels[&region].clone();
            self.found.entry(*gpu).or_default().kernels.push((name, time, 0));
        }
        ControlFlow::Continue(())
    }

    fn leave(&mut self, location: LocationRef, time: u64, _: RegionRef) -> Flow {
        if let Some(gpu) = self.trace.streams.get(&location) {
            let kernels = &mut self.found.entry(*gpu).or_default().kernels;
            kernels.last_mut().expect("an enter before").2 = time;
        }
        ControlFlow::Continue(())
    }

    fn metric(&mut self, _: LocationRef, time: u64, metric: MetricRef, values: &[MetricValue]) -> Flow {
        if let (Some((gpu, units)), [MetricValue::U64(value)]) = (self.trace.counters.get(&metric), values) {
            assert_eq!(value % units, 0);
            let readings = &mut self.found.entry(*gpu).or_default().readings;
            if readings.last().is_none_or(|(_, last)| *last != value / units) {
                readings.push((time, value / units));
            }
        }
        ControlFlow::Continue(())
    }
}

impl Gpu {
    /// Returns the place of a time between two readings: the number of the reading before it, and a fraction.
    fn place(&self, time: u64) -> f64 {
        let next = self.readings.partition_point(|(at, _)| *at <= time);
        let [(from, _), (to, _)] = self.readings[next - 1..=next] else {
            panic!("no readings around {time}")
        };
        (next - 1) as f64 + (time - from) as f64 / (to - from) as f64
    }

    /// Returns the places of kernels. They are moved away from the readings, because the order of a reading and of the start of a
    /// kernel at the same moment is not known.
    fn places(&self) -> Vec<(&str, f64, f64)> {
        let inside = |place: f64| place.floor() + place.fract().clamp(0.05, 0.95);
        let place = |time| inside(self.place(time));
        self.kernels.iter().map(|(name, begin, end)| (name.as_str(), place(*begin), place(*end))).collect()
    }

    /// Whether there are readings before and after all kernels, and no interval between two readings has parts of two kernels.
    /// The joules of such an interval are divided by exact times, which differ when the kernels are played.
    fn is_seen_well(&self) -> bool {
        let next = |time: u64| self.readings.partition_point(|(at, _)| *at <= time);
        let all: Vec<_> = self.kernels.iter().map(|(_, begin, end)| (next(*begin), next(*end))).collect();
        !all.is_empty()
            && all.iter().all(|(begin, end)| *begin > 0 && *end < self.readings.len())
            && all.windows(2).all(|two| two[0].1 < two[1].0)
    }

    /// Returns the joules from the first reading to a time.
    fn joules(&self, time: u64) -> f64 {
        let place = self.place(time);
        let [(_, from), (_, to)] = self.readings[place as usize..=place as usize + 1] else { unreachable!() };
        let first = self.readings[0].1;
        ((from - first) as f64 + place.fract() * (to - from) as f64) * 1e-6
    }
}

/// Writes the files that the stand-ins play.
fn write(record: &Gpus, directory: &Path) {
    std::fs::create_dir(directory).expect("a directory");
    let mut kernels: Vec<(f64, String)> = Vec::new();
    for (gpu, of) in &record.found {
        let values: Vec<String> = of.readings.iter().map(|(_, value)| value.to_string()).collect();
        std::fs::write(directory.join(format!("values.{gpu}")), values.join("\n")).expect("room");
        let line = |(name, from, to)| (from, format!("{gpu} {from} {to} {name}\n"));
        kernels.extend(of.places().into_iter().map(line));
    }
    kernels.sort_by(|one, other| one.0.total_cmp(&other.0));
    let lines: String = kernels.into_iter().map(|(_, line)| line).collect();
    std::fs::write(directory.join("kernels"), lines).expect("room");
}

/// Joules of the kernels of each device by their names, of its idle time, and of both.
fn joules(summary: &Value) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for device in list(summary, "devices") {
        let name = device["name"].as_str().expect("a name");
        let Some(view) = list(device, "views").iter().find(|view| view["view"] == "kernels") else {
            continue;
        };
        all.insert(format!("{name} total"), number(device, "total_joules"));
        all.insert(format!("{name} idle"), number(view, "idle_joules"));
        for row in list(view, "regions") {
            let kernel = row["region"].as_str().expect("a name");
            // Calls of the host have rows without joules of their own.
            if number(row, "exclusive_seconds") > 0.0 {
                all.insert(format!("{name} {kernel}"), number(row, "exclusive_joules"));
            }
        }
    }
    all
}

#[track_caller]
fn assert_equal(one: &BTreeMap<String, f64>, other: &BTreeMap<String, f64>) {
    assert!(one.keys().eq(other.keys()), "{one:#?} {other:#?}");
    for (name, joules) in one {
        assert!(relative(*joules, other[name]) < 1e-9, "{name}: {joules} and {}", other[name]);
    }
}

/// Plays the kernels and readings of a trace, and compares: the values of all readings, the kernels, and their joules. With the
/// policy `busy_only`, these depend on the readings between which a kernel begins and ends, and must be equal. With
/// `time_sliced`, they depend on the exact moments, so each trace is compared with its own moments.
#[track_caller]
fn assert_played_is_recorded(hip: &Hip, recorded: &Path) {
    let record = Gpus::of(recorded);
    let directory = hip.place.path("play");
    write(&record, &directory);
    let gpus = record.found.len();
    let mut command = hip.measured(&["play"]);
    let script = format!("devices={gpus};resolution=1;play={}", directory.display());
    command.env("STAND_IN_ROCM_SMI", script).env("STAND_IN_PLAY", &directory);
    let done = run(command.env("STAND_IN_GPUS", gpus.to_string()).env("AMPERE_POLICY", "busy_only"));
    assert_eq!(done.code, 0, "{done:#?}");
    let live = json(&hip.place.path("out/summary.json"));
    let ours = hip.place.path("out/traces.otf2");
    assert_equal(&joules(&attribute(recorded, &["--policy", "busy_only"])), &joules(&live));
    assert_equal(&joules(&attribute(&ours, &["--policy", "busy_only"])), &joules(&live));

    let played = Gpus::of(&ours);
    let sliced = joules(&attribute(&ours, &["--policy", "time_sliced"]));
    let sliced_record = joules(&attribute(recorded, &["--policy", "time_sliced"]));
    assert!(sliced.keys().eq(sliced_record.keys()), "{sliced:#?} {sliced_record:#?}");
    for (number, gpu) in &played.found {
        let record = &record.found[number];
        let values = |gpu: &Gpu| gpu.readings.iter().map(|(_, value)| *value).collect::<Vec<_>>();
        assert!(values(gpu) == values(record), "GPU {number}");
        let names = |gpu: &Gpu| gpu.kernels.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(gpu), names(record));
        for ((_, begin, end), (name, from, to)) in gpu.kernels.iter().zip(record.places()) {
            for (time, place) in [(*begin, from), (*end, to)] {
                let at = gpu.place(time);
                let step = gpu.readings[at as usize + 1].0 - gpu.readings[at as usize].0;
                let error = (at - place).abs() * step as f64 / played.ticks_per_second;
                assert!(error < READING_ERROR_MAX, "{name}: {at} and {place}, {error} s");
            }
        }
        for (gpu, joules) in [(gpu, &sliced), (record, &sliced_record)] {
            let kernels = gpu.kernels.iter().map(|(_, begin, end)| gpu.joules(*end) - gpu.joules(*begin));
            let (all, name) = (kernels.sum::<f64>(), format!("GPU-{number}"));
            let attributed = joules[&format!("{name} total")] - joules[&format!("{name} idle")];
            assert!(relative(all, attributed) < 1e-9, "{name}: {all} and {attributed}");
        }
    }
}

#[test]
fn a_run_that_is_played_has_the_joules_of_the_recorded_one() {
    let hip = Hip::new();
    let recorded = hip.place.path("recorded");
    let trace = recorded.join("traces.otf2");
    // On a busy machine, the time between two readings may be longer than the pause between two kernels.
    let is_recorded_well = |_| {
        let _ = std::fs::remove_dir_all(&recorded);
        let mut command = hip.measured(&["two_gpus"]);
        command.env("STAND_IN_ROCM_SMI", "watts=400/150@0.1,90/300@0.03;resolution=1;step_ms=15");
        let done = run(command.env("STAND_IN_GPUS", "2"));
        assert_eq!(done.code, 0, "{done:#?}");
        std::fs::rename(hip.place.path("out"), &recorded).expect("the result");
        let gpus = Gpus::of(&trace).found;
        assert_eq!(gpus.len(), 2, "{gpus:#?}");
        gpus.values().all(Gpu::is_seen_well)
    };
    assert!((0..10).any(is_recorded_well), "in each of ten runs, no reading was between two kernels");
    assert_played_is_recorded(&hip, &trace);
}

#[test]
fn the_recorded_run_on_two_mi300a_has_the_same_joules_when_it_is_played() {
    let recorded = recorded_trace();
    skip_unless!(recorded.is_some(), "no ../shared/traces/mi300a-two-kernels");
    assert_played_is_recorded(&Hip::new(), &recorded.expect("checked"));
}
