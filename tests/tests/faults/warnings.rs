//! Signals with which a scheduler warns a job: each reaches the program once, and nothing ends before the program does.

use ampere_tests::jobs::{Place, signal, start, until};
use rustix::process::Signal;

const COUNTS: &str = r#"
    #include <signal.h>
    #include <stdio.h>
    #include <unistd.h>
    static volatile sig_atomic_t got[65];
    __attribute__((no_instrument_function)) static void count(int number) { got[number]++; }
    static void work(void) { usleep(1000); }
    int main(void) {
        const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU};
        for (int i = 0; i < 8; i++) signal(numbers[i], count);
        fclose(fopen("ready", "w"));
        for (int told = 0; access("go", F_OK); work()) {
            int sum = 0;
            for (int i = 0; i < 8; i++) sum += got[numbers[i]];
            /* This makes a file for each signal that has come. */
            for (; told < sum; told++) { char name[16]; sprintf(name, "got.%d", told + 1); fclose(fopen(name, "w")); }
        }
        for (int i = 0; i < 8; i++) printf("%d", got[numbers[i]]);
        puts("");
        return 7;
    }
"#;

const SIGNALS: [Signal; 8] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::ALARM,
    Signal::USR1,
    Signal::USR2,
    Signal::XCPU,
];

#[test]
fn each_signal_reaches_the_program_once() {
    for to_all in [true, false] {
        let place = Place::new();
        let program = place.compile("cc", "counts", COUNTS, &["-finstrument-functions"]);
        let running = start(&mut place.ampere_run("out", [&program]));
        until("it waits for signals", || place.path("ready").exists());
        for (sent, signal) in SIGNALS.into_iter().enumerate() {
            if to_all {
                running.signal_group(signal);
            } else {
                running.signal(signal);
            }
            until("the program has got it", || place.path(format!("got.{}", sent + 1)).exists());
        }
        // A second copy of a signal would come soon.
        std::thread::sleep(std::time::Duration::from_millis(200));
        place.write("go", "");
        let done = running.wait();
        assert_eq!((done.code, done.stdout.as_str()), (7, "11111111\n"), "to all: {to_all}: {done:#?}");
        assert_eq!(place.summary("out")["run"]["complete"], true);
        place.assert_clean();
    }
}

/// A scheduler signals all processes, the collector among them: what the program does in its remaining time is measured.
#[test]
fn work_after_a_signal_to_all_processes_is_measured() {
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
                for (int i = 0; i < 100; i++) step();
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
        place.collectors().into_iter().for_each(|collector| signal(collector, Signal::TERM));
        running.signal_group(Signal::TERM);
        let done = running.wait();
        assert_eq!((done.code, done.stdout.as_str()), (7, "saved\n"), "{done:#?}");
        let summary = place.summary("out");
        let (run, regions) = (&summary["run"], summary["devices"][0]["views"][0]["regions"].to_string());
        assert_eq!(run["complete"], complete, "{run}");
        assert!(regions.contains("\"save\""), "{regions}");
        assert_eq!(regions.contains("\"after\""), complete, "{regions}");
        assert_eq!(run["notes"].to_string().contains("asked to end"), !complete, "{run}");
        place.assert_clean();
    }
}
