//! The program goes on, and another collector takes the place of the one that was killed.

use super::*;

/// Moments at which nothing special is: a generator, so that a seed tells them all.
struct Random(u64);

impl Random {
    fn new() -> Random {
        let given = std::env::var("AMPERE_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let seed = given.unwrap_or(now.as_nanos() as u64 | 1);
        println!("AMPERE_TEST_SEED={seed}");
        Random(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn rounds() -> u64 {
    std::env::var("AMPERE_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Whatever is seen of it first, and then so much later: a collector is killed, up to four times a run.
#[test]
fn at_any_moment() {
    let mut random = Random::new();
    let (mut kills, mut replaced) = (0, 0);
    for round in 0..rounds() {
        let place = Place::new();
        let program = program(&place, STEPS);
        let bare = random.below(2) == 0;
        let per_step = [20, 400, 2000][random.below(3) as usize];
        let mut command = match bare {
            true => place.bare("out", &program),
            false => place.ampere_run("out", [&program]),
        };
        // Every event is to be in the trace, however small the ring and however long nobody reads it.
        let ring = [1 << 16, 1 << 20, 1 << 23][random.below(3) as usize];
        with_gpus(&mut command).env("AMPERE_EVENTS", "all").env("AMPERE_RING_BYTES", ring.to_string());
        // Some of them right after another: while it begins, or takes over.
        let moments: Vec<u64> = (0..1 + random.below(4))
            .map(|_| if random.below(3) == 0 { random.below(20) } else { random.below(500) })
            .collect();
        println!("round {round}: bare {bare}, {per_step} calls a step, ring of {ring}, after {moments:?} ms");
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
        replaced += summary["run"]["gaps"].as_array().map_or(0, Vec::len);
    }
    println!("{kills} collectors killed, {replaced} gaps in sampling");
    assert!(replaced > 0, "no collector was killed while it sampled");
}

/// Each rank's calls are counted one by one.
#[test]
fn under_mpi_with_no_word_to_the_ranks() {
    if !have(&["mpirun.openmpi", "mpicc.openmpi"]) {
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
            for (int i = 0; i < 1000 + rank; i++) { int size; MPI_Comm_size(MPI_COMM_WORLD, &size); usleep(700); }
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
    sleep_ms(400);
    kill(first);
    let second = collector(&place, "out", &[first]);
    sleep_ms(200);
    kill(second);
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (0, "sum 1\n"), "{done:#?}");
    let said = done.said();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said.iter().all(|line| line.contains("was killed by signal 9 (SIGKILL): another one goes on")),
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
    place.is_clean();
}

/// While it writes what will be the results, and when it has said that it will.
#[test]
fn while_it_writes_the_trace() {
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

/// The plugin started it, and who would restart it is dead as well: the last process of the job does.
#[test]
fn with_its_supervisor() {
    let place = Place::new();
    let program = program(&place, STEPS);
    let mut command = place.bare("out", &program);
    with_gpus(&mut command).env("AMPERE_EVENTS", "folded");
    let running = start(command.args(["1000", "50"]));
    let first = collector(&place, "out", &[]);
    sleep_ms(200);
    processes_with(&place, "--supervise").into_iter().for_each(kill);
    kill(first);
    let done = running.wait();
    check_steps(&place, "out", &done, 1000, 50);
    let summary = place.summary("out");
    assert!(number(&list(&summary["run"], "gaps")[0], "seconds") > 0.3, "{}", summary["run"]);
    check_conserved(&summary, true);
}

/// Ends for good after so many: the results can be had from what is left.
#[test]
fn again_and_again_until_it_is_given_up() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_estimate(&mut command));
    let mut killed = Vec::new();
    for _ in 0..6 {
        let pid = collector(&place, "out", &killed);
        sleep_ms(30);
        kill(pid);
        killed.push(pid);
    }
    until("nobody collects", || place.collectors().is_empty());
    sleep_ms(100);
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (7, "hello\n"), "{done:#?}");
    let said = done.said();
    assert_eq!(said.iter().filter(|line| line.contains("another one goes on")).count(), 5, "{said:?}");
    let out = place.path("out").display().to_string();
    assert!(said[5].contains("is not replaced"), "{said:?}");
    assert!(said[6].contains("ampere recover") && said[6].contains(&out), "{said:?}");
    let recovered = run(place.ampere(["recover", "out"]).current_dir(place.path("")));
    assert_eq!(recovered.code, 0, "{recovered:#?}");
    let summary = place.summary("out");
    // All its events are there; of the time after the last sample the joules are not known.
    assert!(calls(&summary)["step"] > 100, "{summary:#}");
    let gaps = list(&summary["run"], "gaps");
    assert!(gaps.last().is_some_and(|gap| gap["joules"].is_null()), "{gaps:?}");
    assert_eq!(summary["run"]["complete"], false);
    place.is_clean();
}

/// Nobody reads any more, and nobody will: a program that waits for room does not wait for ever.
#[test]
fn and_a_program_that_waits_for_room_goes_on() {
    let place = Place::new();
    let program = program(&place, STEPS);
    let mut command = place.bare("out", &program);
    with_estimate(&mut command).env("AMPERE_EVENTS", "all").env("AMPERE_RING_BYTES", "65536");
    let running = start(command.args(["300", "2000"]));
    let first = collector(&place, "out", &[]);
    sleep_ms(50);
    processes_with(&place, "--supervise").into_iter().for_each(kill);
    kill(first);
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (7, "300 steps\n"), "{done:#?}");
    assert!(done.took > Duration::from_secs(3), "it waits for another one: {:?}", done.took);
    let summary = place.summary("out");
    assert!(summary["quality"]["suppressed_calls"].as_u64() > Some(1000), "{}", summary["quality"]);
    check_trace(&place, "out");
    place.is_clean();
}

/// Figures without a trace are not on disk: what was lost is said.
#[test]
fn without_records_on_disk_it_is_said_what_is_lost() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_gpus(&mut command).env("AMPERE_TRACE", "off"));
    let first = collector(&place, "out", &[]);
    sleep_ms(400);
    kill(first);
    collector(&place, "out", &[first]);
    sleep_ms(300);
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (7, "hello\n"), "{done:#?}");
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], false);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("what had been measured before is lost"), "{notes}");
    assert!(calls(&summary)["step"] > 100);
    check_conserved(&summary, true);
    place.is_clean();
}

/// What /metrics showed before, it shows at least after.
#[test]
fn and_no_counter_of_metrics_goes_back() {
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
        sleep_ms(600);
        before = energy()
            .map(|(joules, events, url)| {
                assert!(
                    joules >= before.0 && events >= before.1,
                    "{joules} J, {events} events after {before:?}"
                );
                urls.insert(url);
                (joules, events)
            })
            .expect("it serves");
        assert!(before.0 > 0.0 && before.1 > 0.0);
        kill(pid);
        killed.push(pid);
    }
    collector(&place, "out", &killed);
    // From the first answer on: either nothing at all, or no less than before.
    let mut seen = 0;
    for _ in 0..100 {
        let Some((joules, events, url)) = energy() else { continue };
        if joules > 0.0 || events > 0.0 {
            assert!(joules >= before.0 && events >= before.1, "{joules} J, {events} events after {before:?}");
            seen += 1;
        }
        urls.insert(url);
        sleep_ms(3);
    }
    assert!(seen > 10, "{seen}");
    assert_eq!(urls.len(), 1, "the address stays: {urls:?}");
    place.write("go", "");
    assert_eq!(running.wait().code, 7);
}

/// Events that the collector of a run has read.
fn calls_so_far(place: &Place, output: &str) -> u64 {
    let body = announced(&place.path(output))
        .and_then(|collector| ampere_tests::http::get(collector.address(), "/snapshot.json").ok());
    let json = body.and_then(|answer| serde_json::from_str::<Value>(&answer.body).ok()).unwrap_or_default();
    json["ranks"][0]["events"].as_u64().unwrap_or(0)
}

/// `ampere run` is dead as well: the program's last process sees to it.
#[test]
fn with_ampere_run() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_gpus(&mut command));
    let first = collector(&place, "out", &[]);
    until("the program has made 350 calls", || calls_so_far(&place, "out") > 700);
    running.signal(Signal::KILL);
    kill(first);
    until("nobody collects", || place.collectors().is_empty());
    sleep_ms(200);
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, done.stdout.as_str()), (128 + 9, "hello\n"), "{done:#?}");
    until("the results are there", || place.path("out/summary.json").exists());
    place.nobody_left();
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    assert_eq!(summary["run"]["command"][0], program.display().to_string());
    assert!(calls(&summary)["step"] > 300);
    check_conserved(&summary, true);
    check_trace(&place, "out");
    place.is_clean();
}

/// One that takes over has the session's lock before it says anything: what the dead one has said is not its word.
#[test]
fn a_collector_in_a_dead_ones_place_is_waited_for_until_it_is_ready() {
    let place = Place::new();
    let program = program(&place, WAITS);
    // The page names who is the collector when it is said that it is ready.
    let script = format!(
        "#!/bin/sh\ntouch '{0}/starts'\nwhile [ ! -e '{0}/locked' ]; do sleep 0.01; done\n'{1}' \"$@\"\ncode=$?\n\
         od -A n -t u4 -j 24 -N 4 \"$3/session\" > '{0}/ready'\nexit $code\n",
        place.path("").display(),
        built().join("ampere-collector").display()
    );
    let mut command = place.ampere_run("out", [&program]);
    let starter = place.script("starter", &script);
    let running = start(with_gpus(&mut command).env("AMPERE_COLLECTOR", starter));
    let first = collector(&place, "out", &[]);
    until("the program runs", || calls_so_far(&place, "out") > 100);
    let page = files_below(&place.path("shm")).into_iter().find(|path| path.ends_with("session"));
    let directory = page.and_then(|page| page.parent().map(Path::to_owned)).expect("a session");
    let session = ampere_ring::Session::open(&directory).expect("a session");
    running.signal(Signal::KILL);
    kill(first);
    place.write("go", "");
    until("another one is to be started", || place.path("starts").exists());
    // It is slow: it has the lock, and that is all.
    let lock = session.lock_collector().expect("a lock").expect("nobody has it");
    place.write("locked", "");
    until("it has been started", || !place.collectors().is_empty());
    sleep_ms(300);
    drop(lock);
    assert_eq!(running.wait().code, 128 + 9);
    until("the results are there", || place.path("out/report.html").exists());
    place.nobody_left();
    // If the page is still there, it names the new one.
    let ready = std::fs::read_to_string(place.path("ready")).unwrap_or_default();
    assert_ne!(ready.trim(), first.to_string(), "the dead one was taken for ready");
    assert_eq!(place.summary("out")["run"]["complete"], true);
    place.is_clean();
}

/// A trace that is played waits for room, too.
#[test]
fn in_a_replay() {
    let place = Place::new();
    let program = program(&place, STEPS);
    let mut command = place.ampere_run("recorded", [&program]);
    let done = run(with_gpus(&mut command).args(["1500", "20"]));
    check_steps(&place, "recorded", &done, 1500, 20);
    let mut command = place.ampere(["replay", "recorded/traces.otf2", "-o", "out"]);
    let running = start(command.current_dir(place.path("")));
    let first = collector(&place, "out", &[]);
    sleep_ms(500);
    kill(first);
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(done.stderr.contains("another one goes on"), "{done:#?}");
    let (recorded, played) = (place.summary("recorded"), place.summary("out"));
    ampere_tests::runs::assert_same_figures(&recorded, &played);
    place.is_clean();
}
