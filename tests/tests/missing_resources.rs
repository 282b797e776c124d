//! Machines that lack something that a run needs: the collector, shared memory, a port, descriptors. The job runs nevertheless.

use ampere_tests::jobs::{
    Place, Tiny, built, files_below, have, host, is_root, plugin, preloaded, run, start, until,
};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn without_a_collector_the_job_runs_unmeasured() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let text = place.write("text", "not a program");
    let dies = place.script("dies", "#!/bin/sh\nkill -9 $$\n");
    let cases: [(&Path, &[&str]); 5] = [
        (Path::new("/nonexistent"), &["cannot start /nonexistent", "No such file"]),
        (&text, &["cannot start", "ermission denied"]),
        (Path::new("/bin/false"), &["/bin/false did not start", "exit status: 1"]),
        (Path::new("/bin/true"), &["/bin/true did not start", "exit status: 0"]),
        (&dies, &["did not start", "signal: 9"]),
    ];
    for (collector, words) in cases {
        let mut command = place.bare("out", &program);
        let done = run(command.env("AMPERE_COLLECTOR", collector).env("AMPERE_START_TIMEOUT", "120"));
        done.as_without(&plain);
        done.said_once(words);
        done.said_once(&["energy is not measured"]);
        assert!(done.took < Duration::from_secs(100), "{collector:?} was waited for: {:?}", done.took);
        place.assert_clean();
    }
    assert!(!place.path("out").exists());
}

#[test]
fn the_plugin_reports_where_it_looked_for_the_collector() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let alone = place.path("alone.so");
    std::fs::copy(plugin(), &alone).expect("a copy");
    let done = run(place.bare("out", &program).env("AMPERE_HOST_PLUGIN", &alone));
    done.as_without(&plain);
    let here = alone.parent().and_then(Path::to_str).expect("UTF-8");
    done.said_once(&["no ampere-collector in", here, "AMPERE_COLLECTOR", "energy is not measured"]);
    place.assert_clean();

    // The host is also tried without the plugin, and with a file that is not a plugin.
    std::fs::copy(host(), place.path("libampere_host.so")).expect("a copy");
    let lonely = place.path("ampere-preload").join(ampere_preload::NATIVE).join("libampere_preload.so");
    std::fs::create_dir_all(lonely.parent().expect("a directory")).expect("it is made");
    std::fs::copy(
        preloaded().to_string_lossy().replace(ampere_preload::PLATFORM, ampere_preload::NATIVE),
        &lonely,
    )
    .expect("a copy");
    let done = run(place.command(&program).env("LD_PRELOAD", &lonely));
    done.as_without(&plain);
    done.said_once(&["libscorep_substrate_ampere.so", "AMPERE_HOST_PLUGIN"]);
    let done = run(place.bare("out", &program).env("AMPERE_HOST_PLUGIN", "/nonexistent.so"));
    done.as_without(&plain);
    done.said_once(&["/nonexistent.so", "AMPERE_HOST_PLUGIN"]);
    place.assert_clean();
}

#[test]
fn a_collector_that_hangs_is_not_waited_for_long() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let hangs = place.script("hangs", "#!/bin/sh\nexec sleep 300\n");
    let mut command = place.bare("out", &program);
    let done = run(command.env("AMPERE_COLLECTOR", &hangs).env("AMPERE_START_TIMEOUT", "1"));
    done.as_without(&plain);
    done.said_once(&["hangs did not start", "not ready after 1 s", "energy is not measured"]);
    assert!(done.took < Duration::from_secs(60), "{:?}", done.took);
    place.assert_clean();
}

#[test]
fn a_collector_that_starts_too_late_ends_by_itself() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let collector = built().join("ampere-collector");
    // Like the real collector, this one outlives the process that started it.
    let script = format!(
        "#!/bin/sh\n(sleep 10; exec {} \"$@\") & \necho $! > late\nexec sleep 300\n",
        collector.display()
    );
    let late = place.script("late-collector", &script);
    let mut command = place.bare("out", &program);
    let done = run(command.env("AMPERE_COLLECTOR", &late).env("AMPERE_START_TIMEOUT", "1"));
    done.as_without(&plain);
    done.said_once(&["not ready after 1 s", "energy is not measured"]);
    place.no_process_left();
    assert!(!place.path("out").exists());
}

#[test]
fn a_collector_that_hangs_is_started_by_one_rank_only() {
    if !have(&["mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let place = Place::new();
    let program = place.mpi_program();
    let hangs = place.script("hangs", "#!/bin/sh\necho x >> starts\nexec sleep 300\n");
    let mut command = place.bare("out", Path::new("mpirun.openmpi"));
    command.args(["--oversubscribe", "-n", "4"]).arg(&program);
    let done = run(command.env("AMPERE_COLLECTOR", &hangs).env("AMPERE_START_TIMEOUT", "1"));
    assert_eq!((done.code, done.stdout.as_str()), (5, "sum 6\n"), "{done:#?}");
    done.said_once(&["not ready after 1 s"]);
    let starts = std::fs::read_to_string(place.path("starts")).expect("it was started");
    assert_eq!(starts.lines().count(), 1, "every rank has tried");
    place.no_process_left();
}

#[test]
fn without_shared_memory_the_job_runs_unmeasured() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let user = rustix::process::geteuid().as_raw();
    let own = format!("ampere-{user}");

    let absent = place.path("absent");
    let file = place.write("file", "a file");
    let open = place.path("open");
    std::fs::create_dir_all(open.join(&own)).expect("a directory");
    std::fs::set_permissions(open.join(&own), std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let linked = place.path("linked");
    std::fs::create_dir_all(&linked).expect("a directory");
    std::os::unix::fs::symlink(place.path("shm"), linked.join(&own)).expect("a link");
    let mut cases: Vec<(PathBuf, Vec<&str>)> = vec![
        (absent, vec!["cannot create", "absent", "No such file"]),
        (file, vec!["cannot create", "file", "Not a directory"]),
        (open, vec!["is open to others", "AMPERE_SHM"]),
        (linked, vec!["is not a directory", "AMPERE_SHM"]),
    ];
    if is_root() {
        let foreign = place.path("foreign");
        std::fs::create_dir_all(foreign.join(&own)).expect("a directory");
        std::fs::set_permissions(foreign.join(&own), std::fs::Permissions::from_mode(0o700)).expect("chmod");
        std::os::unix::fs::chown(foreign.join(&own), Some(65534), Some(65534)).expect("chown");
        cases.push((foreign, vec!["belongs to another user", "AMPERE_SHM"]));
    } else {
        println!("skipped: needs root");
    }
    for (shm, words) in cases {
        let done = run(place.ampere_run("out", [&program]).env("AMPERE_SHM", &shm));
        done.as_without(&plain);
        done.said_once(&words);
        done.said_once(&["runs without being measured"]);
        assert!(done.stderr.matches("os error").count() <= 1, "printed twice: {done:#?}");
        let done = run(place.bare("out", &program).env("AMPERE_SHM", &shm));
        done.as_without(&plain);
        done.said_once(&words);
        done.said_once(&["energy is not measured"]);
    }
    assert!(!place.path("out").exists());
    place.assert_clean();
}

#[test]
fn with_full_shared_memory_the_job_runs_unmeasured() {
    let place = Place::new();
    let Some(tiny) = Tiny::mount(place.path("full"), "64k") else { return };
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let filled = std::fs::write(tiny.at.join("filler"), vec![1; 1 << 20]);
    assert!(filled.is_err(), "it is full");
    let done = run(place.ampere_run("out", [&program]).env("AMPERE_SHM", &tiny.at));
    done.as_without(&plain);
    done.said_once(&["no room for", "free some of that file system", "runs without being measured"]);
    let done = run(place.bare("out", &program).env("AMPERE_SHM", &tiny.at));
    done.as_without(&plain);
    done.said_once(&["no room for", "free some of that file system", "energy is not measured"]);
    assert!(!place.path("out").exists());
    assert_eq!(files_below(&tiny.at), [tiny.at.join("filler")]);
}

#[test]
fn with_little_shared_memory_rings_are_smaller() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let Some(tiny) = Tiny::mount(place.path("tiny"), "512k") else { return };
    let done = run(place.ampere_run("out", [&program]).env("AMPERE_SHM", &tiny.at));
    done.as_without(&plain);
    done.said_once(&["has room for a ring of", "records only"]);
    let summary = place.summary("out");
    assert!(summary["devices"][0]["samples"].as_u64() > Some(1), "the samples found room: {summary:#}");
    assert_eq!(summary["run"]["complete"], true);
    assert!(files_below(&tiny.at).is_empty());

    if !have(&["mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let program = place.mpi_program();
    let words = place.mpi(&program);
    let done = run(place.ampere_run("ranks", &words).env("AMPERE_SHM", &tiny.at));
    assert_eq!((done.code, done.stdout.as_str()), (5, "sum 1\n"), "{done:#?}");
    done.said_once(&["has room for a ring of"]);
    let summary = place.summary("ranks");
    assert_eq!(summary["run"]["ranks"], 2, "{}", summary["run"]);
    assert!(summary["devices"][0]["samples"].as_u64() > Some(1));
}

#[test]
fn a_rank_without_room_for_its_ring_still_ends_the_run() {
    let place = Place::new();
    let Some(tiny) = Tiny::mount(place.path("tiny"), "80k") else { return };
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    // There is room for the session and the log, but not for a ring: the smallest one has 64 KiB and a header.
    std::fs::write(tiny.at.join("filler"), vec![1; 40 << 10]).expect("room");
    let mut command = place.bare("out", &program);
    let done = run(command.env("AMPERE_SHM", &tiny.at));
    done.as_without(&plain);
    done.said_once(&["no room for", "the main thread is not recorded"]);
    place.no_process_left();
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], false);
    assert!(summary["quality"]["unrecorded_calls"].as_u64() > Some(0), "{}", summary["quality"]);
    assert!(!summary["run"]["notes"].to_string().contains("without finishing"), "{}", summary["run"]);
    assert_eq!(files_below(&tiny.at), [tiny.at.join("filler")]);
}

#[test]
fn a_port_in_use_is_replaced_by_the_next_one() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let done = run(place.ampere_run("out", [&program]).env("AMPERE_LISTEN", format!("127.0.0.1:{port}")));
    done.as_without(&plain);
    done.said_nothing();
    let notes = place.summary("out")["run"]["notes"].to_string();
    assert!(notes.contains(&format!("port {port} is in use; metrics are on port ")), "{notes}");
    let address = done.stderr.lines().find_map(|l| l.strip_prefix("ampere: live page at http://127.0.0.1:"));
    let address = address.expect("an address").split("/, ").next().and_then(|port| port.parse::<u16>().ok());
    assert!(address > Some(port), "{done:#?}");

    // If one setting is used for several nodes, the address may belong to another machine: the run is measured nevertheless.
    let done = run(place.ampere_run("other", [&program]).env("AMPERE_LISTEN", "192.0.2.1:9977"));
    done.as_without(&plain);
    done.said_nothing();
    let notes = place.summary("other")["run"]["notes"].to_string();
    assert!(
        notes.contains("cannot listen on 192.0.2.1:9977")
            && notes.contains("metrics are on http://127.0.0.1:"),
        "{notes}"
    );
    place.assert_clean();
}

#[test]
fn a_command_that_is_not_measured_gets_its_signals_all_the_same() {
    use rustix::process::Signal;
    let place = Place::new();
    let ends = place.script(
        "ends",
        "#!/bin/sh\ntrap 'echo ended; exit 9' TERM HUP\ntouch there\nwhile :; do sleep 0.02; done\n",
    );
    for signal in [Signal::TERM, Signal::HUP] {
        // The tests may be run with one of these signals ignored (nohup), and a shell cannot trap a signal that was ignored at
        // its start.
        let words = ["env".as_ref(), "--default-signal=HUP,TERM".as_ref(), ends.as_os_str()];
        let mut command = place.ampere_run("out", words);
        let running = start(command.env("AMPERE_SHM", "/nonexistent"));
        until("it runs", || place.path("there").exists());
        running.signal(signal);
        let done = running.wait();
        assert_eq!((done.code, done.stdout.as_str()), (9, "ended\n"), "{done:#?}");
        done.said_once(&["without being measured"]);
        std::fs::remove_file(place.path("there")).expect("it exists");
        place.no_process_left();
    }
}

#[test]
fn a_command_runs_however_few_descriptors_are_left() {
    let place = Place::new();
    // A shell would need descriptors itself.
    let source = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { usleep(100000); puts(\"done\"); return 7; }";
    let works = place.compile("cc", "works", source, &[]);
    for limit in 4..20 {
        let ampere = built().join("ampere");
        let line = format!("ulimit -n {limit}; exec {} run -o out -- {}", ampere.display(), works.display());
        let done = run(place.command("sh").args(["-c", &line]).env("AMPERE_SHM", "/nonexistent"));
        done.no_panic();
        assert_eq!((done.code, done.stdout.as_str()), (7, "done\n"), "with {limit} descriptors: {done:#?}");
        place.no_process_left();
    }
}

/// The limits of two processes of a run leave no room for the host, and a third process has room.
#[test]
fn a_process_without_room_for_the_host_is_counted_in_a_note() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let limited = format!("ulimit -v 100000; {0}; (ulimit -v 200000; exec {0})", program.display());
    let done = run(
        &mut place.ampere_run("out", ["bash", "-c", &format!("({limited}); exec {}", program.display())])
    );
    assert_eq!((done.code, &done.stdout), (plain.code, &plain.stdout.repeat(3)), "{done:#?}");
    let summary = place.summary("out");
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("2 processes were not recorded, because limits on memory"), "{notes}");
    assert!(summary["quality"]["events"].as_u64() > Some(0), "the third one has room");
    place.assert_clean();
}
