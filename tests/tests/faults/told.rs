//! Signals that a job is told things by: each reaches the program once, whoever was sent it, and nobody ends before it.

use ampere_tests::jobs::{Place, start, until};
use rustix::process::Signal;

const COUNTS: &str = r#"
    #include <signal.h>
    #include <stdio.h>
    #include <unistd.h>
    static volatile sig_atomic_t got[65];
    __attribute__((no_instrument_function)) static void count(int number) { got[number]++; }
    static void work(void) { usleep(1000); }
    int main(void) {
        const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
        for (int i = 0; i < 7; i++) signal(numbers[i], count);
        fclose(fopen("ready", "w"));
        while (access("go", F_OK)) work();
        for (int i = 0; i < 7; i++) printf("%d", got[numbers[i]]);
        puts("");
        return 7;
    }
"#;

const SIGNALS: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::XCPU];

#[test]
fn each_signal_reaches_the_program_once() {
    for to_all in [true, false] {
        let place = Place::new();
        let program = place.compile("cc", "counts", COUNTS, &["-finstrument-functions"]);
        let running = start(&mut place.ampere_run("out", [&program]));
        until("it waits for signals", || place.path("ready").exists());
        for signal in SIGNALS {
            if to_all {
                running.signal_group(signal);
            } else {
                running.signal(signal);
            }
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        std::thread::sleep(std::time::Duration::from_millis(400));
        place.write("go", "");
        let done = running.wait();
        assert_eq!((done.code, done.stdout.as_str()), (7, "1111111\n"), "to all: {to_all}: {done:#?}");
        assert_eq!(place.summary("out")["run"]["complete"], true);
        place.is_clean();
    }
}

/// A scheduler's signal to all that there is, the collector among it: what the program does with the time that it has left is measured.
#[test]
fn what_follows_a_signal_to_everybody_is_measured() {
    for (seconds, complete) in [("1", true), ("6", false)] {
        let place = Place::new();
        let source = r#"
            #include <signal.h>
            #include <stdio.h>
            #include <stdlib.h>
            #include <unistd.h>
            static volatile sig_atomic_t asked;
            __attribute__((no_instrument_function)) static void ask(int number) { (void)number; asked = 1; }
            static void step(void) { usleep(1000); }
            static void save(int seconds) { sleep(seconds); }
            static void after(void) { usleep(1000); }
            int main(int argc, char **argv) {
                signal(SIGTERM, ask);
                fclose(fopen("ready", "w"));
                while (!asked) step();
                save(atoi(argv[argc - 1]));
                after();
                puts("saved");
                return 7;
            }
        "#;
        let program = place.compile("cc", "saves", source, &["-finstrument-functions"]);
        let running = start(place.ampere_run("out", [&program]).arg(seconds));
        until("it works", || place.path("ready").exists());
        std::thread::sleep(std::time::Duration::from_millis(200));
        for collector in place.collectors() {
            let pid = rustix::process::Pid::from_raw(collector as i32).expect("a pid");
            rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
        }
        running.signal_group(Signal::TERM);
        let done = running.wait();
        assert_eq!((done.code, done.stdout.as_str()), (7, "saved\n"), "{done:#?}");
        let summary = place.summary("out");
        let (run, regions) = (&summary["run"], summary["devices"][0]["views"][0]["regions"].to_string());
        assert_eq!(run["complete"], complete, "{run}");
        assert!(regions.contains("\"save\""), "{regions}");
        assert_eq!(regions.contains("\"after\""), complete, "{regions}");
        assert_eq!(run["notes"].to_string().contains("asked to end"), !complete, "{run}");
        place.is_clean();
    }
}
