//! Signals to `ampere run` and its command: the command's exit status is kept, and what was measured is written.

use ampere_tests::jobs::{Place, Running, ignored_signals, run, start, until};
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that works until it gets a signal. With an argument, it handles SIGTERM and SIGINT and exits with 9.
const WAITS: &str = r#"
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    static volatile sig_atomic_t over;
    __attribute__((no_instrument_function)) static void end(int number) { over = number; }
    __attribute__((noinline)) void step(void) { usleep(1000); }
    int main(int argc, char **argv) {
        if (argc > 1) { signal(SIGTERM, end); signal(SIGINT, end); }
        for (int i = 0; i < 60; i++) step();
        fclose(fopen("ready", "w"));
        while (!over) step();
        puts("ended in order");
        return 9;
    }
"#;

fn program(place: &Place) -> PathBuf {
    place.compile("cc", "waits", WAITS, &["-finstrument-functions"])
}

/// Starts the program under `ampere run`, and waits until it is measured.
fn under_way(place: &Place, program: &Path, arguments: &[&str]) -> Running {
    let mut command = place.ampere_run("out", [program]);
    let running = start(command.args(arguments));
    until("the program has made some calls", || place.path("ready").exists());
    running
}

/// Returns the process of the program.
fn waits(place: &Place) -> Pid {
    let name = place.path("waits");
    let is_it = |(_, command): &(u32, String)| command.starts_with(name.to_str().expect("UTF-8"));
    let (pid, _) = place.processes().into_iter().find(is_it).expect("it runs");
    Pid::from_raw(pid as i32).expect("a pid")
}

/// Checks the results. `complete`: the process could end its measurement.
#[track_caller]
fn check_results(place: &Place, complete: bool) {
    place.assert_clean();
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], complete, "{}", summary["run"]);
    let regions = summary["devices"][0]["views"][0]["regions"].as_array().expect("regions");
    let step = regions.iter().find(|region| region["region"] == "step").expect("step");
    assert!(step["calls"].as_u64() > Some(50), "{step}");
    let again = run(place.ampere(["attribute", "--json"]).arg(place.path("out/traces.otf2")));
    assert_eq!(again.code, 0, "{again:#?}");
    assert!(!place.path("out/collector.json").exists());
    assert!(!place.path("out/spool").exists());
}

#[test]
fn a_command_that_a_signal_kills_has_the_exit_status_128_plus_its_number() {
    for signal in [Signal::KILL, Signal::SEGV] {
        let place = Place::new();
        let running = under_way(&place, &program(&place), &[]);
        let pid = waits(&place);
        rustix::process::kill_process(pid, signal).expect("a signal");
        let done = running.wait();
        assert_eq!(done.code, 128 + signal.as_raw(), "{done:#?}");
        done.said_nothing();
        check_results(&place, false);
        let notes = place.summary("out")["run"]["notes"].to_string();
        assert!(notes.contains(&format!("process {}", pid.as_raw_nonzero())), "{notes}");
    }
}

#[test]
fn a_signal_is_passed_to_the_command_and_its_results_are_written() {
    for signal in [Signal::TERM, Signal::ABORT, Signal::VTALARM] {
        let place = Place::new();
        let running = under_way(&place, &program(&place), &[]);
        running.signal(signal);
        let done = running.wait();
        assert_eq!(done.code, 128 + signal.as_raw(), "{done:#?}");
        done.said_nothing();
        check_results(&place, false);
        place.no_process_left();
    }
}

/// The command gets the signal when it unblocks it, or finds it among its pending signals. dash unblocks all signals when it
/// starts, so the command is bash.
#[test]
fn a_signal_that_is_blocked_from_the_start_is_passed_on() {
    let place = Place::new();
    let waits = "echo > ready; until grep -q '^ShdPnd:.*4000$' /proc/$$/status; do sleep 0.01; done; exit 5";
    let ampere = place.ampere_run("out", ["bash", "-c", waits]);
    let mut blocking = place.command("env");
    blocking.arg("--block-signal=TERM").arg(ampere.get_program()).args(ampere.get_args());
    let running = start(&mut blocking);
    until("the command runs", || place.path("ready").exists());
    running.signal(Signal::TERM);
    let done = running.wait();
    assert_eq!(done.code, 5, "{done:#?}");
}

/// Returns the state of a process, such as `T` if it is stopped.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_run_is_stopped_and_continued_with_its_command() {
    let place = Place::new();
    let running = under_way(&place, &program(&place), &["handles"]);
    let ampere = running.pid().as_raw_nonzero().get();
    let waits = waits(&place).as_raw_nonzero().get();
    let are_stopped = || [ampere, waits].map(|pid| state(pid) == Some('T'));
    running.signal(Signal::TSTP);
    until("both are stopped", || are_stopped() == [true, true]);
    running.signal(Signal::CONT);
    until("both run again", || are_stopped() == [false, false]);
    running.signal_group(Signal::TSTP);
    until("both are stopped again", || are_stopped() == [true, true]);
    running.signal_group(Signal::CONT);
    until("both run once more", || are_stopped() == [false, false]);
    running.signal(Signal::TERM);
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (9, "ended in order\n"), "{done:#?}");
    check_results(&place, true);
}

/// A tool that holds and releases the command does not know of `ampere run`.
#[test]
fn a_run_goes_on_while_its_command_is_held_by_sigstop() {
    let place = Place::new();
    let running = under_way(&place, &program(&place), &["handles"]);
    let command = waits(&place);
    let stopped = || state(command.as_raw_nonzero().get()) == Some('T');
    rustix::process::kill_process(command, Signal::STOP).expect("a signal");
    until("the command is stopped", stopped);
    rustix::process::kill_process(command, Signal::CONT).expect("a signal");
    until("it runs again", || !stopped());
    rustix::process::kill_process(command, Signal::TERM).expect("a signal");
    let done = running.wait();
    assert_eq!(done.code, 9, "{done:#?}");
    check_results(&place, true);
}

#[test]
fn a_command_that_handles_sigterm_decides_the_exit_status() {
    let place = Place::new();
    let running = under_way(&place, &program(&place), &["handles"]);
    running.signal(Signal::TERM);
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (9, "ended in order\n"), "{done:#?}");
    check_results(&place, true);
}

/// `nohup` ignores SIGHUP, a shell's background commands ignore SIGINT and SIGQUIT, and services SIGPIPE.
#[test]
fn signals_that_are_ignored_without_ampere_are_ignored() {
    let place = Place::new();
    let ignored = |command: &Command| {
        let mut ignoring = place.command("env");
        ignoring
            .arg("--ignore-signal=HUP,INT,QUIT,USR1,PIPE")
            .arg(command.get_program())
            .args(command.get_args());
        ignored_signals(&run(ignoring.args(["grep", "SigIgn", "/proc/self/status"])).stdout)
    };
    assert_eq!(ignored(&place.command("env")), Some(0x1207));
    for sample in ["off", "1ms"] {
        let ampere = place.ampere(["run", "--sample", sample, "-o", sample, "--"]);
        assert_eq!(ignored(&ampere), Some(0x1207), "--sample {sample}");
    }
}

fn interrupts_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_signals(&status).unwrap_or(0) & (1 << (Signal::INT.as_raw() - 1)) != 0
}

#[test]
fn an_interrupt_from_the_terminal_ends_the_command_and_not_the_collector() {
    for (arguments, code, complete) in [(&["handles"][..], 9, true), (&[], 128 + 2, false)] {
        if arguments.is_empty() && interrupts_are_ignored() {
            return println!(
                "skipped: interrupts are ignored, as in background jobs of a shell, also by all child processes"
            );
        }
        let place = Place::new();
        let running = under_way(&place, &program(&place), arguments);
        running.signal_group(Signal::INT);
        let done = running.wait();
        assert_eq!(done.code, code, "{done:#?}");
        done.said_nothing();
        check_results(&place, complete);
    }
}

/// A shell ends its script only if the command has died of the signal.
#[test]
fn an_interrupt_ends_the_script_that_started_the_run() {
    if interrupts_are_ignored() {
        return println!("skipped: interrupts are ignored");
    }
    let place = Place::new();
    let ampere = place.ampere_run("out", [program(&place)]);
    let mut script = place.command("bash");
    script.args(["-c", "\"$@\"; echo went on", "bash"]).arg(ampere.get_program()).args(ampere.get_args());
    let running = start(&mut script);
    until("the program has made some calls", || place.path("ready").exists());
    running.signal_group(Signal::INT);
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (130, ""), "{done:#?}");
    check_results(&place, false);
}

#[test]
fn if_ampere_run_itself_is_killed_the_command_continues_and_its_results_are_written() {
    let place = Place::new();
    let mut running = under_way(&place, &program(&place), &["handles"]);
    running.signal(Signal::KILL);
    until("`ampere run` is dead", || running.has_ended());
    rustix::process::kill_process(waits(&place), Signal::TERM).expect("a signal");
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (128 + 9, "ended in order\n"), "{done:#?}");
    check_results(&place, true);
}

#[test]
fn a_process_that_the_command_leaves_running_is_measured_to_the_commands_end() {
    let place = Place::new();
    let program = program(&place);
    // The command ends soon; a process of it continues, and is measured up to the command's end.
    let script = format!(
        "{} handles >/dev/null 2>&1 & while [ ! -e ready ]; do sleep 0.01; done; exit 3",
        program.display()
    );
    let done = run(&mut place.ampere_run("out", ["bash", "-c", &script]));
    assert_eq!(done.code, 3, "{done:#?}");
    done.no_panic();
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], false);
    assert!(summary["run"]["notes"].to_string().contains("still run"), "{}", summary["run"]);
    // The results are there a moment before the collector has ended.
    until("ampere's processes have ended", || place.collectors().is_empty() && place.processes().len() <= 1);
    let left = place.processes();
    assert_eq!(left.len(), 1, "ampere must not end a process of the command: {left:?}");
}
