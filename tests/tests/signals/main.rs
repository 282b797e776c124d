//! The event path in the worst situation: in a signal handler, in the middle of another event.
//!
//! Each test imitates a measurement system in another process. This process runs the test program again, with a preloaded
//! library that ends it when it allocates memory or takes a lock while an event is being written.

mod samples;

use ampere_tests::jobs::Place;
use ampere_tests::runs::{json, list, succeed, text};
use ampere_tests::stand_in_scorep::{HostLocation, Plugin};
use ampere_tests::{root, skip_unless};
use serde_json::Value;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CHILD: &str = "SIGNALS_CHILD";
const OUTER: u32 = 1;
const INNER: u32 = 2;
const HANDLED: u32 = 3;
/// Number of further regions, which have more call paths than are kept.
const MANY: u32 = 3000;
/// Number of records in the smallest ring.
const DEEP: u32 = 4096;
const STORM: Duration = Duration::from_millis(1500);
/// A storm lasts until more signals than these have been handled, which takes longer on a busy machine.
const HANDLED_MIN: u64 = 100;

static PLUGIN: OnceLock<(Plugin, &'static HostLocation)> = OnceLock::new();
static HANDLED_CALLS: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

/// Runs `body` and forbids everything that the event path must not do.
fn watched(body: impl FnOnce()) {
    forbidding(1, body);
}

/// Forbids memory allocation and locks, but permits system calls: a definition is written to a file.
fn watched_but_for_system_calls(body: impl FnOnce()) {
    forbidding(2, body);
}

fn forbidding(what: i32, body: impl FnOnce()) {
    // SAFETY: this looks a name up; the shim's function has this type, and returns its thread's own variable.
    let forbidden = unsafe {
        static SHIM: OnceLock<usize> = OnceLock::new();
        let function =
            *SHIM.get_or_init(|| libc::dlsym(libc::RTLD_DEFAULT, c"ampere_test_forbidden".as_ptr()) as usize);
        assert!(function != 0, "the shim is not there");
        &mut *std::mem::transmute::<usize, extern "C" fn() -> *mut i32>(function)()
    };
    // If this runs in a signal handler, the interrupted code may already have forbidden something.
    let before = std::mem::replace(forbidden, what);
    body();
    *forbidden = before;
}

fn event(region: u32) {
    let Some((plugin, location)) = PLUGIN.get() else { return };
    watched(|| plugin.enter(location, region));
    watched(|| plugin.leave(location, region));
}

fn begin() {
    let (plugin, location) = Plugin::begin();
    (HANDLED + 1..=HANDLED + MANY).for_each(|region| plugin.define_region(region));
    assert!(PLUGIN.set((plugin, location)).is_ok());
    event(OUTER); // this makes all lookups that happen only once
}

fn end() {
    let (plugin, location) = PLUGIN.get().expect("a plugin");
    plugin.end(location);
}

extern "C" fn handler(_signal: libc::c_int) {
    HANDLED_CALLS.fetch_add(1, Ordering::Relaxed);
    event(HANDLED);
}

/// Sends signals as fast as possible, while the thread that gets them only writes events.
fn storm() {
    begin();
    // SAFETY: the handler makes only calls that are permitted in one, which is what the test checks.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()), 0);
    }
    // SAFETY: this thread outlives the sender, which is joined.
    let target = unsafe { libc::pthread_self() };
    let sender = std::thread::spawn(move || {
        while !OVER.load(Ordering::Relaxed) {
            // SAFETY: the thread exists until `OVER` is seen.
            unsafe { libc::pthread_kill(target, libc::SIGPROF) };
            (0..50).for_each(|_| std::hint::spin_loop());
        }
    });
    let (begun, mut calls) = (Instant::now(), 1u64);
    let (plugin, location) = PLUGIN.get().expect("a plugin");
    while begun.elapsed() < STORM || HANDLED_CALLS.load(Ordering::Relaxed) <= HANDLED_MIN {
        for _ in 0..1000 {
            watched(|| plugin.enter(location, OUTER));
            event(INNER);
            watched(|| plugin.leave(location, OUTER));
            calls += 1;
        }
    }
    OVER.store(true, Ordering::Relaxed);
    sender.join().expect("the sender");
    end();
    println!("{{\"calls\": {calls}, \"handled\": {}}}", HANDLED_CALLS.load(Ordering::Relaxed));
}

/// Permits only these system calls: from here on, all others of this thread end the process.
fn allow_only(calls: [libc::c_long; 2]) {
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    const LOAD: u16 = 0x20; // the call's number, which is the first field of a filter's input
    const IS: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let mut steps = [
        step(LOAD, 0, 0, 0),
        step(IS, calls[0] as u32, 2, 0),
        step(IS, calls[1] as u32, 1, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the filter is complete, and the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

/// Records, coalesces and suppresses calls in a thread to which the kernel permits only to write to a pipe and to end.
fn strict() {
    begin();
    let (mut from, to) = std::io::pipe().expect("a pipe");
    let thread = std::thread::spawn(move || {
        use std::os::fd::AsRawFd;
        let pipe = to.as_raw_fd();
        allow_only([libc::SYS_write, libc::SYS_exit]);
        let Some((plugin, location)) = PLUGIN.get() else { return };
        // This is deeper than the capacity of a ring.
        for depth in 0..2 * DEEP {
            watched(|| plugin.enter(location, HANDLED + 1 + depth % MANY));
        }
        for depth in (0..2 * DEEP).rev() {
            watched(|| plugin.leave(location, HANDLED + 1 + depth % MANY));
        }
        // This is longer than a collector takes to start, so that there is room for calls again.
        let begun = Instant::now();
        for round in 0u32.. {
            if round % 1000 == 0 && begun.elapsed() > STORM {
                break;
            }
            event(INNER);
            if round % 4 == 0 {
                let region = HANDLED + 1 + round % MANY;
                watched(|| plugin.enter(location, OUTER));
                watched(|| plugin.enter(location, region));
                watched(|| plugin.leave(location, region));
                watched(|| plugin.leave(location, OUTER));
            }
        }
        // SAFETY: both calls are permitted; the thread ends here and nothing of it is used again.
        unsafe {
            libc::write(pipe, b"done".as_ptr().cast(), 4);
            libc::syscall(libc::SYS_exit, 0);
        }
    });
    let mut word = [0; 4];
    std::io::Read::read_exact(&mut from, &mut word).expect("the thread came to its end");
    std::mem::forget(thread);
    end();
}

/// Makes a system call, which the filter must stop.
fn calls() {
    allow_only([libc::SYS_write, libc::SYS_exit]);
    // SAFETY: the call has no effect.
    unsafe { libc::getppid() };
    println!("nothing was noticed");
}

/// Allocates memory, which the shim must stop.
fn allocates() {
    watched(|| drop(std::hint::black_box(vec![0u8; 100])));
    println!("nothing was noticed");
}

#[test]
#[ignore = "a process that other tests start"]
fn child_process() {
    match std::env::var(CHILD).as_deref() {
        Ok("storm") => storm(),
        Ok("strict") => strict(),
        Ok("calls") => calls(),
        Ok("allocates") => allocates(),
        Ok("timeline") => samples::timeline(),
        Ok("sampled") => samples::sampled(),
        _ => {}
    }
}

fn play(place: &Place, what: &str, more: &[(&str, &str)]) -> Output {
    let shim = place.path("shim.so");
    let source = root().join("tests/tests/signals/shim.c");
    succeed(Command::new("gcc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&shim).arg(source));
    let mut command = place.command(std::env::current_exe().expect("this program"));
    command
        .args(["child_process", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, what);
    command.env("AMPERE_OUTPUT", place.path("out")).env("LD_PRELOAD", &shim).envs(more.iter().copied());
    command.output().expect("it runs")
}

fn figures(output: &Output) -> Value {
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout);
    let line = said.lines().find_map(|line| line.find("{\"calls\"").map(|at| line[at..].to_owned()));
    serde_json::from_str(&line.unwrap_or_else(|| panic!("{said}"))).expect("JSON")
}

fn calls_of(summary: &Value, region: u32) -> u64 {
    let view = &list(&list(summary, "devices")[0], "views")[0];
    let rows = list(view, "regions").iter().filter(|row| row["region"] == format!("region_{region}"));
    rows.map(|row| row["calls"].as_u64().expect("a number")).sum()
}

#[test]
fn events_in_handlers_are_written_or_counted() {
    for events in ["auto", "folded"] {
        let place = Place::new();
        let played = figures(&play(&place, "storm", &[("AMPERE_EVENTS", events)]));
        let summary = json(&place.path("out/summary.json"));
        let number = |value: &Value| value.as_u64().expect("a number");
        let (calls, handled) = (number(&played["calls"]), number(&played["handled"]));
        let lost = number(&summary["quality"]["dropped_records"]);
        println!("{events}: {calls} calls, {handled} signals, {lost} events lost");
        assert!(handled > HANDLED_MIN, "{played}");
        assert!(
            lost > 0 && lost < 2 * handled,
            "a handler interrupts events, now and then: {lost} of {handled}"
        );
        // No record is damaged: every call is present, and every call of the handler, except those that are counted as lost.
        let quality = &summary["quality"];
        assert_eq!(
            (number(&quality["damaged_records"]), number(&quality["suppressed_calls"])),
            (0, 0),
            "{quality}"
        );
        assert_eq!(calls_of(&summary, OUTER), calls);
        assert_eq!(calls_of(&summary, INNER), calls - 1);
        assert_eq!(calls_of(&summary, HANDLED), handled - lost / 2);
        assert!(list(&summary["run"], "notes").iter().all(|note| !note.to_string().contains("damaged")));
    }
}

#[test]
fn the_event_path_makes_no_system_call() {
    let clock = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let clock = clock.unwrap_or_default();
    skip_unless!(
        ["tsc", "kvm-clock"].contains(&clock.trim()),
        "this machine's clock cannot be read without the kernel"
    );
    let place = Place::new();
    // The ring is small and soon full, so that calls are coalesced and suppressed.
    let output = play(&place, "strict", &[("AMPERE_RING_BYTES", "65536")]);
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    let summary = json(&place.path("out/summary.json"));
    let number = |key: &str| summary["quality"][key].as_u64().expect("a number");
    println!("{} coalesced, {} suppressed", number("coalesced_calls"), number("suppressed_calls"));
    assert!(number("events") > 1000 && number("coalesced_calls") > 1000, "{}", summary["quality"]);
    assert!(number("suppressed_calls") > 0, "more call paths than are kept: {}", summary["quality"]);
    assert_eq!(number("damaged_records"), 0);
}

/// Checks that the other tests can fail.
#[test]
fn forbidden_calls_are_detected() {
    let output = play(&Place::new(), "calls", &[]);
    assert!(!output.status.success() && !text(&output.stdout).contains("nothing was noticed"));
    let output = play(&Place::new(), "allocates", &[]);
    assert!(!output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("the event path calls "), "{}", text(&output.stderr));
}
