//! The program continues, and another collector replaces the one that was killed.

use super::*;
use ampere_tests::random::rounds;
use std::path::Path;

/// A shell command that prints the collector's pid from the session's page, in a script that gets a collector's arguments.
const READ_COLLECTOR: &str = "od -A n -t u4 -j 24 -N 4 \"$3/session\"";

/// Collectors are killed up to four times in a run, at random moments: while they start, sample, take over, or write.
#[test]
fn collectors_killed_at_random_moments_lose_nothing() {
    let (mut kills, mut gaps) = (0, 0);
    rounds(5, |random| {
        let place = Place::new();
        let program = program(&place, STEPS);
        let bare = random.below(2) == 0;
        let per_step = *random.choose(&[20, 400, 2000]);
        let mut command = match bare {
            true => place.bare("out", &program),
            false => place.ampere_run("out", [&program]),
        };
        // Every event must be in the trace, however small the ring is and however long it is not read.
        let ring = *random.choose(&[1 << 16, 1 << 20, 1 << 23]);
        with_gpus(&mut command).env("AMPERE_EVENTS", "all").env("AMPERE_RING_BYTES", ring.to_string());
        // Some kills follow each other closely, while a collector starts or takes over.
        let moments: Vec<u64> = (0..1 + random.below(4))
            .map(|_| if random.below(3) == 0 { random.below(20) } else { random.below(500) })
            .collect();
        println!("bare {bare}, {per_step} calls a step, ring of {ring}, after {moments:?} ms");
        let running = start(command.args(["800", &per_step.to_string()]));
        until("a collector runs", || !place.collectors().is_empty());
        for ms in moments {
            sleep_ms(ms);
            for pid in place.collectors() {
                kill(pid);
                kills += 1;
            }
        }
        let done = running.wait();
        check_steps(&place, "out", &done, 800, per_step);
        let summary = place.summary("out");
        check_conserved(&summary, true);
        gaps += summary["run"]["gaps"].as_array().map_or(0, Vec::len);
    });
    println!("{kills} collectors killed, {gaps} gaps in sampling");
}

/// The replacement starts when the command has already ended and much has been recorded. Each location must end after all of its
/// records and at the end of the program, even if another location, which is read later, has the record of that end.
#[test]
fn a_collector_that_takes_over_when_the_command_has_ended_loses_nothing() {
    const STEPS_BEFORE: u64 = 400;
    const CALLS_PER_STEP: u64 = 2000;
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <time.h>
        #include <unistd.h>
        double begun, begun_to_stay;
        __attribute__((no_instrument_function)) double now(void) {
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            return t.tv_sec + 1e-9 * t.tv_nsec;
        }
        __attribute__((noinline)) void tiny(void) { __asm__ volatile(""); }
        __attribute__((noinline)) void step(void) { for (int i = 0; i < 2000; i++) tiny(); usleep(500); }
        __attribute__((noinline)) void stays(void) { begun_to_stay = now(); for (;;) pause(); }
        __attribute__((noinline)) void waits(void) { while (access("go", F_OK)) usleep(500); }
        void *work(void *unused) { stays(); return unused; }
        int main(void) {
            begun = now();
            pthread_t worker;
            pthread_create(&worker, 0, work, 0);
            for (int i = 0; i < 400; i++) step();
            waits();
            printf("%.6f", begun_to_stay - begun);
            return 7;
        }
    "#;
    let place = Place::new();
    let program = place.compile("cc", "stays", source, &["-finstrument-functions", "-pthread"]);
    let mut command = place.ampere_run("out", [&program]);
    let settings = place.write("ampere.toml", "[attribution]\nlocations = \"all\"\n");
    command.env("AMPERE_EVENTS", "all").env("AMPERE_CONFIG", &settings);
    let running = start(with_gpus(&mut command));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 2 * STEPS_BEFORE * CALLS_PER_STEP);
    let directory = session_directory(&place);
    let session = ampere_ring::Session::open(&directory).expect("a session");
    running.signal(Signal::STOP);
    kill(first);
    let mut lock = None;
    until("the collector is dead", || {
        lock = session.lock_collector().expect("a lock");
        lock.is_some()
    });
    sleep_ms(2000); // the worker spends this time in its function, and no collector runs
    running.signal(Signal::CONT);
    place.write("go", "");
    until("the command has ended", || directory.join("command.end").exists());
    drop(lock);
    let done = running.wait();
    assert_eq!(done.code, 7, "{done:#?}");
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    for key in ["suppressed_calls", "dropped_records", "repaired_events", "damaged_records", "late_events"] {
        assert_eq!(summary["quality"][key], 0, "{key}");
    }
    let calls = calls(&summary);
    let seen = ["main", "step", "tiny", "work", "stays"].map(|region| calls[region]);
    assert_eq!(seen, [1, STEPS_BEFORE, STEPS_BEFORE * CALLS_PER_STEP, 1, 1]);
    let seconds = |region: &str| {
        let regions = list(&summary["devices"][0]["views"][0], "regions");
        let row = regions.iter().find(|row| row["region"] == region).expect("a row");
        number(row, "exclusive_seconds")
    };
    let of_main = ["main", "step", "tiny", "waits"].map(seconds).iter().sum::<f64>();
    let later: f64 = done.stdout.parse().expect("the seconds by which the worker began later");
    let of_worker = seconds("stays") + later;
    // A busy machine may have no CPU for the process between the end of `main` and its own end.
    assert!((of_main - of_worker).abs() < 1.0, "{of_main} s and {of_worker} s");
    check_conserved(&summary, true);
    let trace = place.path("out/traces.otf2");
    let again = attribute(&trace, &["--config", settings.to_str().expect("UTF-8")]);
    ampere_tests::runs::assert_same_figures(&summary, &again);
    place.assert_clean();
}

#[test]
fn under_mpi_every_call_of_each_rank_is_counted() {
    if !have_mpi() {
        return;
    }
    let place = Place::new();
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            int rank, sum = 0;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            for (int i = 0; i < 1000 + rank; i++) {
                int size;
                MPI_Comm_size(MPI_COMM_WORLD, &size);
                usleep(700);
                while (i == 900 && access("go", F_OK)) usleep(1000);
            }
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            if (rank == 0) printf("sum %d\n", sum);
            MPI_Finalize();
            return 0;
        }
    "#;
    let program = place.compile("mpicc.openmpi", "ranks", source, &[]);
    let mut command = place.ampere_run("out", place.mpi(&program));
    let running = start(with_gpus(&mut command));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 400);
    kill(first);
    let second = collector(&place, "out", &[first]);
    // The first collector is dead. A gap ends with the first reading after it.
    let samples = session_directory(&place).join(ampere_ring::SAMPLES_RING);
    let read = || ampere_ring::RingGauge::open(&samples).expect("a ring").positions().0;
    let before = read();
    until("the counters are read again", || read() > before);
    until_events(&place, "out", 800);
    kill(second);
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (0, "sum 1\n"), "{done:#?}");
    let mut said = done.said();
    said.retain(|line| !line.contains("  top: "));
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said.iter().all(|line| line.contains("was killed by signal 9 (SIGKILL); another one takes over")),
        "{said:?}"
    );
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    let paths = list(&summary["devices"][0]["views"][0], "callpaths");
    for (rank, expected) in [(0, 1000), (1, 1001)] {
        let of_rank = paths.iter().filter(|row| row["location_group"] == format!("MPI Rank {rank}"));
        let size = of_rank
            .filter(|row| row["path"].as_array().and_then(|p| p.last()) == Some(&"MPI_Comm_size".into()));
        assert_eq!(size.map(|row| number(row, "calls") as u64).sum::<u64>(), expected, "rank {rank}");
    }
    assert_eq!(list(&summary["run"], "gaps").len(), 2);
    check_conserved(&summary, true);
    check_trace(&place, "out");
    place.assert_clean();
}

#[test]
fn a_collector_killed_while_it_writes_the_trace_is_replaced() {
    let place = Place::new();
    let program = program(&place, STEPS);
    for bare in [false, true] {
        let output = if bare { "bare" } else { "run" };
        let mut command = match bare {
            true => place.bare(output, &program),
            false => place.ampere_run(output, [&program]),
        };
        with_gpus(&mut command).env("AMPERE_EVENTS", "all");
        let running = start(command.args(["300", "6000"]));
        let first = collector(&place, output, &[]);
        until("it writes", || place.path(output).join("traces").exists());
        kill(first);
        let done = running.wait();
        check_steps(&place, output, &done, 300, 6000);
        check_conserved(&place.summary(output), true);
    }
}

/// There is no `ampere run`, and the supervisor that would have restarted the collector is dead.
#[test]
fn the_last_process_replaces_a_collector_killed_with_its_supervisor() {
    let place = Place::new();
    let program = program(&place, STEPS);
    let mut command = place.bare("out", &program);
    with_gpus(&mut command).env("AMPERE_EVENTS", "folded");
    let running = start(command.args(["1000", "50", "300"]));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 100);
    processes_with(&place, "--supervise").into_iter().for_each(kill);
    kill(first);
    place.write("go", "");
    let done = running.wait();
    check_steps(&place, "out", &done, 1000, 50);
    let summary = place.summary("out");
    assert!(number(&list(&summary["run"], "gaps")[0], "seconds") > 0.3, "{}", summary["run"]);
    check_conserved(&summary, true);
}

#[test]
fn after_five_replacements_the_rest_is_left_to_ampere_recover() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_estimate(&mut command));
    // A program that starts while the collector is dead starts another one itself.
    until_events(&place, "out", 1);
    let mut killed = Vec::new();
    for _ in 0..6 {
        let pid = collector(&place, "out", &killed);
        sleep_ms(30);
        kill(pid);
        killed.push(pid);
    }
    let last = format!("/proc/{}", killed[5]);
    until("ampere run knows that the last collector is gone", || !Path::new(&last).exists());
    sleep_ms(100); // the joules of this time are unknown
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (7, "hello\n"), "{done:#?}");
    let said = done.said();
    assert_eq!(said.iter().filter(|line| line.contains("another one takes over")).count(), 5, "{said:?}");
    let out = place.path("out").display().to_string();
    assert!(said[5].contains("is not replaced"), "{said:?}");
    assert!(said[6].contains("ampere recover") && said[6].contains(&out), "{said:?}");
    let recovered = run(place.ampere(["recover", "out"]).current_dir(place.path("")));
    assert_eq!(recovered.code, 0, "{recovered:#?}");
    let summary = place.summary("out");
    // All its events are there; the joules after the last sample are unknown.
    assert!(calls(&summary)["step"] > 100, "{summary:#}");
    let gaps = list(&summary["run"], "gaps");
    assert!(gaps.last().is_some_and(|gap| gap["joules"].is_null()), "{gaps:?}");
    assert_eq!(summary["run"]["complete"], false);
    place.assert_clean();
}

#[test]
fn a_program_that_waits_for_room_in_a_ring_continues_when_nothing_reads_it() {
    let place = Place::new();
    let program = program(&place, STEPS);
    let mut command = place.bare("out", &program);
    with_estimate(&mut command).env("AMPERE_EVENTS", "all").env("AMPERE_RING_BYTES", "65536");
    let running = start(command.args(["300", "2000", "20"]));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 1);
    processes_with(&place, "--supervise").into_iter().for_each(kill);
    kill(first);
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (7, "300 steps\n"), "{done:#?}");
    assert!(done.took > Duration::from_secs(3), "it waits for another one: {:?}", done.took);
    let summary = place.summary("out");
    assert!(summary["quality"]["suppressed_calls"].as_u64() > Some(1000), "{}", summary["quality"]);
    check_trace(&place, "out");
    place.assert_clean();
}

#[test]
fn without_a_trace_a_note_reports_that_earlier_figures_are_lost() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_gpus(&mut command).env("AMPERE_TRACE", "off"));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 250);
    kill(first);
    collector(&place, "out", &[first]);
    until_events(&place, "out", 250);
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (7, "hello\n"), "{done:#?}");
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], false);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("everything measured before is lost"), "{notes}");
    assert!(calls(&summary)["step"] > 100);
    check_conserved(&summary, true);
    place.assert_clean();
}

#[test]
fn counters_of_metrics_do_not_decrease_over_a_replacement() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_gpus(&mut command));
    let energy = || -> Option<(f64, f64, String)> {
        let collector = announced(&place.path("out"))?;
        let body = ampere_tests::http::get(collector.address(), "/metrics").ok()?.body;
        let sum = |name: &str| -> f64 {
            let lines = body.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        Some((sum("ampere_device_energy_joules_total"), sum("ampere_events_total"), collector.url))
    };
    let mut killed = Vec::new();
    let mut before = (0.0, 0.0);
    let mut urls = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let pid = collector(&place, "out", &killed);
        let mut now = (0.0, 0.0, String::new());
        until("it has joules and events", || {
            now = energy().unwrap_or_default();
            now.0 > before.0 && now.1 > before.1
        });
        urls.insert(now.2);
        before = (now.0, now.1);
        kill(pid);
        killed.push(pid);
    }
    collector(&place, "out", &killed);
    // After the first answer, there is either no answer, or one with no less than before.
    let mut seen = 0;
    until("there are answers with figures", || {
        let Some((joules, events, url)) = energy() else { return false };
        if joules > 0.0 || events > 0.0 {
            assert!(joules >= before.0 && events >= before.1, "{joules} J, {events} events after {before:?}");
            seen += 1;
        }
        urls.insert(url);
        seen > 30
    });
    assert_eq!(urls.len(), 1, "the address stays: {urls:?}");
    place.write("go", "");
    assert_eq!(running.wait().code, 7);
}

#[test]
fn the_last_process_replaces_a_collector_killed_with_ampere_run() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_gpus(&mut command));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 700);
    kill_with_ampere_run(&place, &running, first);
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (128 + 9, "hello\n"), "{done:#?}");
    until("the results are written", || place.path("out/summary.json").exists());
    place.no_process_left();
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    assert_eq!(summary["run"]["command"][0], program.display().to_string());
    assert!(calls(&summary)["step"] > 300);
    check_conserved(&summary, true);
    check_trace(&place, "out");
    place.assert_clean();
}

/// The new collector takes the session's lock before it writes its entry into the session's page. Until then, the entry of the
/// dead collector must not be mistaken for it.
#[test]
fn a_replacement_is_ready_only_when_it_has_announced_itself() {
    let place = Place::new();
    let program = program(&place, WAITS);
    // When the starter returns, the page must name the new collector.
    let script = format!(
        "#!/bin/sh\ntouch '{0}/starts'\nwhile [ ! -e '{0}/locked' ]; do sleep 0.01; done\n'{1}' \"$@\"\ncode=$?\n\
         {READ_COLLECTOR} > '{0}/ready'\nexit $code\n",
        place.path("").display(),
        built().join("ampere-collector").display()
    );
    let mut command = place.ampere_run("out", [&program]);
    let starter = place.script("starter", &script);
    let running = start(with_gpus(&mut command).env("AMPERE_COLLECTOR", starter));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 100);
    let session = ampere_ring::Session::open(&session_directory(&place)).expect("a session");
    kill_with_ampere_run(&place, &running, first);
    place.write("go", "");
    until("another one is to be started", || place.path("starts").exists());
    // A slow collector holds its lock, and has not yet written anything.
    let lock = session.lock_collector().expect("a lock").expect("it is free");
    place.write("locked", "");
    until("it has been started", || !place.collectors().is_empty());
    sleep_ms(300);
    drop(lock);
    assert_eq!(running.wait().code, 128 + 9);
    until("the results are written", || place.path("out/report.html").exists());
    place.no_process_left();
    // If the page still exists, it names the new collector.
    let ready = std::fs::read_to_string(place.path("ready")).unwrap_or_default();
    assert_ne!(ready.trim(), first.to_string(), "the dead collector counted as ready");
    assert_eq!(place.summary("out")["run"]["complete"], true);
    place.assert_clean();
}

#[test]
fn a_collector_killed_as_soon_as_it_is_ready_is_replaced() {
    let place = Place::new();
    let program = program(&place, STEPS);
    let script = format!(
        "#!/bin/sh\n'{}' \"$@\" || exit\npid=$({READ_COLLECTOR})\nkill -9 $pid\n\
         while kill -0 $pid 2>/dev/null; do :; done\nexit 0\n",
        built().join("ampere-collector").display()
    );
    let starter = place.script("starter", &script);
    let mut command = place.bare("out", &program);
    let done = run(with_gpus(&mut command).env("AMPERE_COLLECTOR", starter).args(["800", "20"]));
    check_steps(&place, "out", &done, 800, 20);
}

#[test]
fn a_replay_continues_with_another_collector() {
    let place = Place::new();
    let program = program(&place, STEPS);
    let mut command = place.ampere_run("recorded", [&program]);
    let done = run(with_gpus(&mut command).args(["1500", "20"]));
    check_steps(&place, "recorded", &done, 1500, 20);
    let mut command = place.ampere(["replay", "recorded/traces.otf2", "-o", "out", "--speed", "0.2"]);
    let running = start(command.current_dir(place.path("")));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 1000);
    kill(first);
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(done.stderr.contains("another one takes over"), "{done:#?}");
    let (recorded, played) = (place.summary("recorded"), place.summary("out"));
    ampere_tests::runs::assert_same_figures(&recorded, &played);
    place.assert_clean();
}
