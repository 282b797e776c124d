//! Shared memory, the output directory, and the port.

use super::*;
use ampere_tests::runs::may_mount;
use ampere_tests::skip_unless;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

#[test]
fn without_shared_memory_nothing_can_be_measured() {
    let place = Place::new();
    let file = place.path("file");
    put(&file, "");
    for shm in ["/nonexistent", file.to_str().expect("UTF-8")] {
        let found = ask(doctor(&place).with(&[("AMPERE_SHM", shm)]));
        found.says("shared memory", "directory", "problem", &["cannot create", shm, "AMPERE_SHM"]);
        assert_eq!(found.code, 1);
    }
    // Other users could read this directory.
    let uid = text(&succeed(Command::new("id").arg("-u")).stdout);
    let base = place.path(format!("shm/ampere-{}", uid.trim()));
    std::fs::create_dir(&base).expect("a folder");
    std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    ask(doctor(&place)).says("shared memory", "directory", "problem", &["is open to others"]);
}

#[test]
fn little_shared_memory_is_reported() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    let place = Place::new();
    let shm = place.path("small");
    std::fs::create_dir(&shm).expect("a folder");
    let with = |size: &str| {
        let mount = format!("mount -t tmpfs -o size={size} none '{}' && exec \"$0\" \"$@\"", shm.display());
        let mut command = place.command("unshare");
        command
            .env("AMPERE_SHM", &shm)
            .args(["-m", "sh", "-c", &mount])
            .arg(artifact("ampere"))
            .arg("doctor");
        command
    };
    let found = ask(with("64k"));
    found.says("shared memory", "session", "problem", &["no room for"]);
    assert_eq!(found.code, 1);
    let found = ask(with("4m"));
    found.says("shared memory", "ring", "note", &["no space for one ring of 8 MiB", "--shm-size"]);
    found.says("shared memory", "space", "note", &["0 rings of 8 MiB", "fewer than"]);
    assert_eq!(found.code, 0);
    let found = ask(with("4m").with(&[("AMPERE_RING_BYTES", "65536")]));
    found.says("shared memory", "space", "ok", &["64 rings of 64 KiB"]);
}

/// A process ID above the kernel's limit, which no process has.
const NOBODY: u32 = 4_194_305;

/// Leaves a session behind, as a killed run does: its page, and the logs of processes if there are any.
fn leave(base: &Path, name: &str, logs: usize, age: Duration) -> PathBuf {
    let directory = base.join(name);
    std::fs::create_dir_all(&directory).expect("a folder");
    let mut page = vec![0u8; 8192];
    page[..8].copy_from_slice(b"AMPSESS1");
    (page[8], page[12]) = (1, 1);
    std::fs::write(directory.join("session"), page).expect("a page");
    for log in 0..logs {
        std::fs::write(directory.join(format!("{}.defs", NOBODY + log as u32)), vec![1u8; 1 << 20])
            .expect("a log");
    }
    std::fs::write(directory.join("sampler.defs"), "AMPDEFS1").expect("a log");
    let file = std::fs::File::open(&directory).expect("a folder");
    file.set_modified(SystemTime::now() - age).expect("a time");
    directory
}

#[test]
fn sessions_that_were_left_behind_are_listed() {
    let place = Place::new();
    let uid = text(&succeed(Command::new("id").arg("-u")).stdout);
    let base = place.path(format!("shm/ampere-{}", uid.trim()));
    std::fs::create_dir(&base).expect("a folder");
    std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o700)).expect("chmod");
    ask(doctor(&place)).says("shared memory", "sessions", "ok", &["no old sessions in"]);
    let killed = leave(&base, "s-killed", 2, Duration::from_secs(3 * 3600 + 60));
    let orphaned = leave(&base, "s-orphaned", 0, Duration::ZERO);
    std::fs::write(orphaned.join(format!("{}.defs", std::process::id())), "AMPDEFS1").expect("a log");
    leave(&base, "s-orphaned", 0, Duration::from_secs(60));
    leave(&base, "s-failed", 0, Duration::from_secs(700));
    leave(&base, "s-job-metrics", 1, Duration::from_secs(700));
    leave(&base, "s-young", 1, Duration::ZERO);
    let found = ask(doctor(&place));
    let check =
        found.says("shared memory", "s-killed", "note", &["3 h ago", "2 MiB", "records of 2 processes"]);
    let advice = check["advice"].as_str().expect("an advice");
    assert!(advice.starts_with(&format!("ampere recover {} ", killed.display())), "{advice}");
    let words = ["1 of them may still be running", "after the job has ended: ampere recover"];
    found.says("shared memory", "s-orphaned", "note", &words);
    found.says(
        "shared memory",
        "s-failed",
        "ok",
        &["11 min ago", "nothing was recorded", "a later run removes it"],
    );
    found.says("shared memory", "s-job-metrics", "ok", &["nothing was recorded"]);
    found.says("shared memory", "sessions", "ok", &["1 session in use"]);
    for number in 0..6 {
        leave(&base, &format!("s-more-{number}"), 3, Duration::from_secs(700));
    }
    ask(doctor(&place)).says("shared memory", "more", "note", &["5 sessions more, 6"]);
    // The command has changed nothing.
    assert!(killed.join(format!("{NOBODY}.defs")).exists());
    let ours = std::fs::read_dir(&base).expect("a folder").flatten();
    assert!(!ours.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("doctor")));
}

#[test]
fn an_output_directory_that_a_run_would_refuse_is_a_problem() {
    let place = Place::new();
    let wanted = |output: &Path| {
        let mut command = doctor(&place);
        command.arg("-o").arg(output);
        command
    };
    let new = place.path("a/new/one");
    ask(wanted(&new)).says("output", "directory", "ok", &["a/new/one", "free"]);
    assert!(!place.path("a").exists(), "it only looks");
    let file = place.path("file");
    put(&file, "");
    let found = ask(wanted(&file.join("out")));
    found.says("output", "directory", "problem", &["cannot write to", "AMPERE_OUTPUT"]);
    assert_eq!(found.code, 1);
    let results = place.path("results");
    put(&results.join("summary.json"), "{}");
    ask(wanted(&results)).says("output", "directory", "note", &["results of another run", "-2"]);
    let claimed = place.path("claimed");
    let node = text(&succeed(Command::new("uname").arg("-n")).stdout);
    std::fs::create_dir_all(claimed.join(format!("spool-{}", node.trim()))).expect("a folder");
    ask(wanted(&claimed)).says("output", "directory", "note", &["in use by another run", "-2"]);
    let named = doctor(&place).with(&[("AMPERE_OUTPUT", results.to_str().expect("UTF-8"))]);
    ask(named).says("output", "directory", "note", &["results of another run", "-2"]);
}

#[test]
fn the_port_that_a_run_would_listen_on_is_shown() {
    let place = Place::new();
    let on = |address: &str| doctor(&place).with(&[("AMPERE_LISTEN", address)]);
    let used_and_then_free = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let check = ask(on(&address.to_string()));
        check.says("output", "metrics", "note", &[&format!("port {} is in use", address.port()), "instead"]);
        drop(listener);
        (address, ask(on(&address.to_string())))
    };
    // Another test may get the port when it is free again.
    let is_free = |found: &Found| found.check("output", "metrics")["status"] == "ok";
    let found = (0..5).map(|_| used_and_then_free()).find(|(_, found)| is_free(found));
    let (address, found) = found.expect("a port that stays free");
    found.says("output", "metrics", "ok", &[&format!("http://{address}/metrics")]);
    let found = ask(on("somewhere"));
    found.says("output", "metrics", "problem", &["\"somewhere\" is not an address", "127.0.0.1:9977"]);
    assert_eq!(found.code, 1);
}

/// The script's shell dies of the signal with which Slurm ends a job, unless it has a trap.
#[test]
fn a_batch_script_without_a_trap_is_reported() {
    let place = Place::new();
    let in_a_script = |trap: &str| {
        let mut command = place.command("bash");
        let script = format!("{trap}\nSLURM_TASK_PID=$$ \"$0\" \"$@\"\nexit $?");
        command.args(["-c", &script]).arg(artifact("ampere")).arg("doctor");
        ask(command)
    };
    let words = ["SIGTERM to this script's shell alone", "exec ampere run", "trap"];
    in_a_script("").says("batch job", "Slurm's signal", "note", &words);
    in_a_script("trap : TERM").says("batch job", "Slurm's signal", "ok", &["has a trap for SIGTERM"]);
    let elsewhere = ask(doctor(&place).with(&[("SLURM_TASK_PID", "1")]));
    assert!(list(&elsewhere.report, "checks").iter().all(|check| check["group"] != "batch job"));
}
