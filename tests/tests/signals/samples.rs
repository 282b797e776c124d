//! Score-P with unwinding and sampling: samples come in signal handlers, and the first sample of a function defines it there.

use crate::{figures, play, watched, watched_but_for_system_calls};
use ampere_tests::jobs::Place;
use ampere_tests::runs::{attribute, json, list, number, relative};
use ampere_tests::stand_in_scorep::{HostLocation, Plugin, set_contexts, work};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Calls and seconds by region.
fn regions(summary: &Value) -> BTreeMap<String, (f64, f64)> {
    let view = &list(&list(summary, "devices")[0], "views")[0];
    let row = |row: &Value| {
        let name = row["region"].as_str().expect("a name").to_owned();
        (name, (number(row, "calls"), number(row, "exclusive_seconds")))
    };
    list(view, "regions").iter().map(row).collect()
}

const MAIN: u32 = 1;
const SOLVE: u32 = 2;
const MULTIPLY: u32 = 3;
const SEND: u32 = 4;

/// `main` and `send` are instrumented. `main` has a context for each place from which it calls something.
pub fn timeline() {
    const AT_START: u32 = 1;
    const SOLVE_MULTIPLY: u32 = 4;
    const LATER_SOLVE: u32 = 5;
    const LATER_SEND: u32 = 6;
    const SEND_RETURNS: u32 = 7;
    const RETURN: u32 = 8;
    set_contexts(&[
        (MAIN, 0),
        (MAIN, 0),
        (SOLVE, 1),
        (MULTIPLY, 3),
        (SOLVE, 2),
        (SEND, 2),
        (SEND, 2),
        (MAIN, 0),
    ]);
    let (plugin, location) = Plugin::begin();
    plugin.define_region(SEND);
    let after_work = |event: &dyn Fn() -> u64| {
        work();
        event()
    };
    let times = [
        plugin.context_enter(location, AT_START, 2),
        after_work(&|| plugin.sample(location, SOLVE_MULTIPLY, 3)),
        after_work(&|| plugin.sample(location, SOLVE_MULTIPLY, 3)), // the same call or another one, which a sample does not show
        after_work(&|| plugin.sample(location, LATER_SOLVE, 2)),
        after_work(&|| plugin.context_enter(location, LATER_SEND, 2)),
        after_work(&|| plugin.context_leave(location, SEND_RETURNS)),
        after_work(&|| plugin.context_leave(location, RETURN)),
    ];
    plugin.init_mpp(0, 1);
    plugin.program_end(location);
    plugin.sample(location, 0, 1); // as Score-P does when it deactivates the location
    plugin.finalize();
    println!("{{\"calls\": {times:?}}}");
}

#[test]
fn time_belongs_to_what_the_last_sample_found_as_in_score_ps_profile() {
    let place = Place::new();
    let played = figures(&play(&place, "timeline", &[]));
    let times: Vec<f64> = list(&played, "calls").iter().map(|time| 1e-9 * time.as_f64().unwrap()).collect();
    let between = |from: usize, to: usize| times[to] - times[from];
    let expected = [
        ("region_1", 1.0, between(0, 1) + between(5, 6)),
        ("region_2", 3.0, between(3, 4)),
        ("region_3", 2.0, between(1, 3)),
        ("region_4", 1.0, between(4, 5)),
    ];
    let live = place.summary("out");
    for summary in [&live, &attribute(&place.path("out/traces.otf2"), &[])] {
        let found = regions(summary);
        for (region, calls, seconds) in expected {
            assert_eq!(found[region].0, calls, "{region}: {found:?}");
            assert!(relative(found[region].1, seconds) < 1e-3, "{region}: {seconds} s expected, {found:?}");
        }
        assert_eq!(summary["quality"]["repaired_events"], 0, "{}", summary["quality"]);
    }
    assert_eq!(live["run"]["complete"], true, "{}", live["run"]);
}

/// The first and the last of the functions that are only seen in samples.
const FIRST: u32 = 10;
const LAST: u32 = 500;
static PLAYED: OnceLock<(Plugin, &'static HostLocation)> = OnceLock::new();
static SAMPLES: AtomicU32 = AtomicU32::new(0);
/// Score-P takes no sample while it is handling an event.
static IN_MEASUREMENT: AtomicBool = AtomicBool::new(false);

extern "C" fn handler(_signal: libc::c_int) {
    let Some((plugin, location)) = PLAYED.get() else { return };
    if IN_MEASUREMENT.load(Ordering::Relaxed) {
        return;
    }
    let number = SAMPLES.fetch_add(1, Ordering::Relaxed);
    let context = FIRST + number % (LAST + 1 - FIRST);
    if number <= LAST - FIRST {
        watched_but_for_system_calls(|| plugin.define_region(context));
    }
    watched(|| _ = plugin.sample(location, context, 2));
}

/// A program that does little more than allocate and free memory, and is sampled all the time.
pub fn sampled() {
    // The contexts have the numbers of their regions; `main` is the first.
    let contexts: Vec<(u32, u32)> = (1..=LAST).map(|region| (region, u32::from(region > 1))).collect();
    set_contexts(&contexts);
    let (plugin, location) = Plugin::begin();
    plugin.context_enter(location, MAIN, 2);
    assert!(PLAYED.set((plugin, location)).is_ok());
    let (plugin, location) = PLAYED.get().expect("just set");
    // SAFETY: the handler makes only calls that are permitted in one, which is what the test checks.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()), 0);
    }
    // SAFETY: this thread outlives the sender, which is joined.
    let target = unsafe { libc::pthread_self() };
    let sender = std::thread::spawn(move || {
        while SAMPLES.load(Ordering::Relaxed) < 2 * LAST {
            // SAFETY: as above.
            unsafe { libc::pthread_kill(target, libc::SIGPROF) };
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    });
    while !sender.is_finished() {
        drop(std::hint::black_box(vec![0u8; 100]));
        IN_MEASUREMENT.store(true, Ordering::Relaxed);
        plugin.context_enter(location, SOLVE, 2);
        plugin.context_leave(location, SOLVE);
        IN_MEASUREMENT.store(false, Ordering::Relaxed);
    }
    sender.join().expect("the sender");
    plugin.init_mpp(0, 1);
    plugin.end(location);
    println!("{{\"calls\": {}}}", SAMPLES.load(Ordering::Relaxed));
}

#[test]
fn a_sample_takes_no_memory_and_no_lock_even_if_it_is_a_functions_first() {
    for events in ["auto", "folded"] {
        let place = Place::new();
        let played = figures(&play(&place, "sampled", &[("AMPERE_EVENTS", events)]));
        let samples = played["calls"].as_f64().expect("a number");
        assert!(samples >= f64::from(2 * LAST), "{samples} samples");
        let summary = json(&place.path("out/summary.json"));
        let sampled: f64 = regions(&summary)
            .iter()
            .filter_map(|(name, (calls, _))| {
                Some((name.strip_prefix("region_")?.parse::<u32>().ok()?, calls))
            })
            .filter_map(|(number, calls)| (number >= FIRST).then_some(calls))
            .sum();
        assert_eq!(sampled, samples, "{events}");
        for key in ["dropped_records", "suppressed_calls", "damaged_records", "repaired_events"] {
            assert_eq!(summary["quality"][key], 0, "{key}, {events}");
        }
    }
}
