//! Runs whose processes were all killed, alone or with their node: `ampere recover` finishes them.

use super::*;
use ampere_ring::RingGauge;

/// Starts a run and kills all its processes. Returns the number of enters and leaves that the program had published. `bare`:
/// without `ampere run`, only the preloaded library.
pub fn kill_everything(place: &Place, bare: bool) -> u64 {
    let program = program(place, WAITS);
    let mut command = match bare {
        true => place.bare("out", &program),
        false => place.ampere_run("out", [&program]),
    };
    let running = start(with_gpus(&mut command));
    until_events(place, "out", 600);
    // The order is: the process that would restart the collector, the collector, the program.
    if !bare {
        running.signal(Signal::KILL);
    }
    processes_with(place, "--supervise").into_iter().for_each(kill);
    place.collectors().into_iter().for_each(kill);
    until("no collector runs", || place.collectors().is_empty());
    let read = published(place);
    until("the program continues without a collector", || published(place) > read + 20);
    place.processes().into_iter().for_each(|(pid, _)| kill(pid));
    running.wait();
    until_all_are_dead(place);
    published(place)
}

/// Returns the number of records in the rings of programs, without the record of the program's start. The collector's own
/// rings, which have CPU times, do not count.
fn published(place: &Place) -> u64 {
    let files = files_below(&place.path("shm"));
    let rings = files.iter().filter(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        name.ends_with(".ring") && !name.starts_with("sampler") && !name.contains("-s")
    });
    rings.map(|path| RingGauge::open(path).expect("a ring").positions().0 - 1).sum()
}

fn recover(place: &Place, directory: &str) -> Done {
    let done = run(place.ampere(["recover", directory]).current_dir(place.path("")));
    done.no_panic();
    done
}

#[test]
fn every_event_that_was_published_is_in_the_trace_and_the_summary() {
    for bare in [true, false] {
        let place = Place::new();
        let published = kill_everything(&place, bare);
        assert!(published > 500, "{published}");
        // Without an argument, the command prints one line about what can be recovered.
        let listed = run(place.ampere(["recover"]).current_dir(place.path("")));
        assert_eq!((listed.code, listed.stdout.lines().count()), (0, 1), "{listed:#?}");
        for word in ["s-", "  1 rank", "events", place.path("out").to_str().expect("UTF-8")] {
            assert!(listed.stdout.contains(word), "{word}: {}", listed.stdout);
        }
        assert!(bare || listed.stdout.contains("waits"), "the command: {}", listed.stdout);
        let done = recover(&place, "out");
        assert_eq!(done.code, 0, "{done:#?}");
        let summary = place.summary("out");
        // There is one event for each enter and leave. If a function was open at the kill, ampere adds its leave.
        let events = summary["quality"]["events"].as_u64().expect("a number");
        assert!(
            (published..=published + 2).contains(&events),
            "{published} published, {events} in the summary"
        );
        for key in
            ["suppressed_calls", "dropped_records", "late_events", "repaired_events", "damaged_records"]
        {
            assert_eq!(summary["quality"][key], 0, "{key}");
        }
        assert_eq!(summary["run"]["complete"], false);
        let endings = list(&summary["run"], "endings");
        assert_eq!(endings.len(), 1, "{endings:?}");
        assert!(endings[0]["time"].as_str() >= summary["run"]["start"].as_str(), "{}", summary["run"]);
        check_conserved(&summary, true);
        check_trace(&place, "out");
        place.assert_clean();
        let again = recover(&place, "out");
        assert_eq!(again.code, 1);
        again.said_once(&["finished run", "nothing to recover"]);
    }
}

/// The collector has not written the last CPU times: only threads that were running used any.
#[test]
fn a_thread_that_waited_when_everything_was_killed_used_no_cpu_time() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let source = r#"
        #include <pthread.h>
        #include <semaphore.h>
        static sem_t never;
        void step(void) { for (volatile int i = 0; i < 20000; i++); }
        void waits(void) { sem_wait(&never); }
        void *thread(void *none) { for (int i = 0; i < 1000; i++) step(); waits(); return none; }
        int main(void) {
            pthread_t other;
            pthread_create(&other, 0, thread, 0);
            for (;;) step();
        }
    "#;
    let program = program(&place, source);
    let settings = place.path("all.toml");
    std::fs::write(&settings, "[attribution]\nlocations = \"all\"\n").expect("written");
    let mut command = place.ampere(["run", "-o", "out", "--config"]);
    command.arg(&settings).arg("--").arg(&program).env("AMPERE_ESTIMATE_IDLE_WATTS", "0");
    let running = start(with_estimate(&mut command));
    // The records of functions are more than one batch, so they are read to the end after the CPU times.
    until_events(&place, "out", 60_000);
    running.signal(Signal::KILL);
    processes_with(&place, "--supervise").into_iter().for_each(kill);
    place.processes().into_iter().for_each(|(pid, _)| kill(pid));
    running.wait();
    until_all_are_dead(&place);
    let done = recover(&place, "out");
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    let regions = list(&summary["devices"][0]["views"][0], "regions");
    let joules = |name: &str| -> f64 {
        let rows = regions.iter().filter(|row| row["region"] == name);
        rows.map(|row| number(row, "exclusive_joules")).sum()
    };
    assert!(joules("waits") < 0.1 * joules("step"), "{regions:#?}");
    place.assert_clean();
}

/// `AMPERE_SHM` is a symbolic link, and the session is named by its real path.
#[test]
fn a_session_behind_a_link_is_finished_by_its_name() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let link = place.path("link");
    std::os::unix::fs::symlink(place.path("shm"), &link).expect("a link");
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_estimate(&mut command).env("AMPERE_SHM", &link));
    let first = collector(&place, "out", &[]);
    until_events(&place, "out", 100);
    running.signal(Signal::KILL);
    kill(first);
    place.processes().into_iter().for_each(|(pid, _)| kill(pid));
    running.wait();
    until_all_are_dead(&place);
    let session = session_directory(&place);
    let mut command = place.ampere(["recover"]);
    let done = run(command.arg(&session).env("AMPERE_SHM", &link));
    assert_eq!(done.code, 0, "{done:#?}");
    check_trace(&place, "out");
    place.assert_clean();
}

#[test]
fn after_a_reboot_a_run_is_finished_from_its_records_on_disk() {
    let place = Place::new();
    let published = kill_everything(&place, true);
    let records = files_below(&place.path("tmp")).into_iter().find(|path| path.ends_with("records"));
    let directory =
        records.expect("records on the node's own disk").parent().expect("a directory").to_owned();
    let in_output = files_below(&place.path("out"));
    assert!(!in_output.iter().any(|path| path.ends_with("records")), "{in_output:?}");
    let store = ampere_trace::spool::Store::open(&[directory]);
    let spooled = store.records_of_all(|stream| !stream.starts_with("sampler") && !stream.contains("-s")) - 1;
    assert!(spooled > 100 && spooled <= published, "{spooled} of {published}");
    // A reboot clears shared memory. The last record on disk may be incomplete.
    for entry in std::fs::read_dir(place.path("shm")).expect("a directory").flatten() {
        std::fs::remove_dir_all(entry.path()).expect("removed");
    }
    let listed = run(place.ampere(["recover"]).current_dir(place.path("")));
    assert_eq!((listed.code, listed.stdout.lines().count()), (0, 1), "{listed:#?}");
    let done = recover(&place, "out");
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    let events = summary["quality"]["events"].as_u64().expect("a number");
    assert!((spooled..=spooled + 2).contains(&events), "{spooled} on disk, {events} in the summary");
    assert_eq!(summary["run"]["complete"], false);
    assert!(summary["run"]["notes"].to_string().contains("shared memory"), "{}", summary["run"]);
    assert_eq!(summary["devices"][0]["source"], "rocm_smi");
    assert!(calls(&summary)["step"] > 50);
    check_conserved(&summary, true);
    check_trace(&place, "out");
    let left = files_below(&place.path("out"));
    assert!(left.iter().all(|path| !path.to_string_lossy().contains("spool-")), "{left:?}");
    place.assert_clean();
}

/// The contents of a node's own disk may be gone with the job.
#[test]
fn a_run_whose_records_are_gone_is_reported() {
    let place = Place::new();
    kill_everything(&place, true);
    for directory in ["shm", "tmp"] {
        for entry in std::fs::read_dir(place.path(directory)).expect("a directory").flatten() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let done = recover(&place, "out");
    assert!(done.stderr.contains("its records are gone with the disk of the node"), "{done:#?}");
}

/// The processes are killed, and the collector is not.
#[test]
fn a_process_that_is_killed_is_named_with_its_signal_and_time() {
    let place = Place::new();
    let program = program(&place, WAITS);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_gpus(&mut command));
    until_events(&place, "out", 100);
    let path = program.display().to_string();
    let processes = place.processes();
    let pid = processes.iter().find(|(_, command)| command.starts_with(&path)).expect("it runs").0;
    kill(pid);
    let done = running.wait();
    assert_eq!(done.code, 128 + 9, "{done:#?}");
    let summary = place.summary("out");
    let endings = list(&summary["run"], "endings");
    assert_eq!((endings.len(), &endings[0]["pid"], &endings[0]["signal"]), (1, &pid.into(), &9.into()));
    assert_eq!(endings[0]["what"], "killed by signal 9 (SIGKILL)");
    assert_eq!(
        (&summary["run"]["command_status"], &summary["run"]["complete"]),
        (&137.into(), &false.into())
    );
    let (time, end) = (endings[0]["time"].as_str(), summary["run"]["end"].as_str());
    assert!(time.is_some() && time <= end, "{}", summary["run"]);
    let shown = std::fs::read_to_string(place.path("out/summary.txt")).expect("summary.txt");
    assert!(shown.contains("killed by signal 9 (SIGKILL)"), "{shown}");
    check_conserved(&summary, true);
    check_trace(&place, "out");
    place.assert_clean();
}

/// One rank is killed, and the launcher ends the others.
#[test]
fn a_rank_that_is_killed_is_named_with_those_that_the_launcher_ends() {
    if !have_mpi() {
        return;
    }
    let place = Place::new();
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            int rank;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            if (rank == 1) { FILE *file = fopen("victim", "w"); fprintf(file, "%d", (int) getpid()); fclose(file); }
            for (;;) { int size; MPI_Comm_size(MPI_COMM_WORLD, &size); usleep(700); }
        }
    "#;
    let program = place.compile("mpicc.openmpi", "ranks", source, &[]);
    let mut command = place.ampere_run("out", place.mpi(&program));
    let running = start(with_gpus(&mut command));
    let mut victim = 0;
    until("rank 1 runs", || {
        let text = std::fs::read_to_string(place.path("victim")).unwrap_or_default();
        victim = text.parse().unwrap_or(0);
        victim != 0
    });
    until_events(&place, "out", 1500);
    kill(victim);
    let done = running.wait();
    assert_ne!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], false);
    assert_eq!(summary["run"]["command_status"], done.code);
    let endings = list(&summary["run"], "endings");
    let mut ranks: Vec<_> = endings.iter().map(|ending| ending["rank"].as_u64()).collect();
    ranks.sort();
    assert_eq!(ranks, [Some(0), Some(1)], "{endings:?}");
    assert!(endings.iter().any(|ending| ending["pid"] == victim), "{endings:?}");
    let (start, end) = (summary["run"]["start"].as_str(), summary["run"]["end"].as_str());
    assert!(
        endings.iter().all(|ending| (start..=end).contains(&ending["time"].as_str())),
        "{}",
        summary["run"]
    );
    let size = calls(&summary)["MPI_Comm_size"];
    assert!(size > 500, "{size}");
    check_conserved(&summary, true);
    check_trace(&place, "out");
    place.assert_clean();
}
