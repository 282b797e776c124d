//! The helper that passes counters, which only root may open, to the members of a group.

use ampere_tests::jobs::{Done, Place, is_root, other_user_may_run, run};
use ampere_tests::runs::json;
use ampere_tests::{artifact, skip_unless};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use std::fs::{Permissions, create_dir_all, set_permissions, write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

/// A group that only this test uses.
const GROUP: u32 = 65_123;
const MEMBER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--groups=65123"];
const STRANGER: [&str; 4] = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"];

/// Makes a package and its memory, whose counters only root may open.
fn make_counters(root: &Path) {
    for (zone, name) in [("intel-rapl:0", "package-0\n"), ("intel-rapl:0:0", "dram\n")] {
        let folder = root.join("sys/class/powercap").join(zone);
        create_dir_all(&folder).expect("a directory");
        write(folder.join("name"), name).expect("a file");
        write(folder.join("max_energy_range_uj"), "262143328850\n").expect("a file");
        write(folder.join("energy_uj"), "100000000000\n").expect("a file");
        set_permissions(folder.join("energy_uj"), Permissions::from_mode(0o400)).expect("chmod");
    }
}

/// Does what systemd does: listens, and starts the helper for each connection. This ends with the test's process.
fn listen_as_systemd(root: &Path, mode: u32) {
    let path = root.join("run/ampere-counters.sock");
    create_dir_all(root.join("run")).expect("a directory");
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    bind(&socket, &SocketAddrUnix::new(&path).expect("an address")).expect("bind");
    chown(&path, Some(0), Some(GROUP)).expect("chown");
    set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
    listen(&socket, 8).expect("listen");
    let (root, helper) = (root.to_owned(), artifact("ampere-counter-helper"));
    std::thread::spawn(move || {
        while let Ok(connection) = accept_with(&socket, SocketFlags::CLOEXEC) {
            let input: OwnedFd = connection;
            let mut started =
                Command::new(&helper).arg(&root).stdin(Stdio::from(input)).spawn().expect("starts");
            started.wait().expect("ends");
        }
    });
}

/// Makes a place with a helper, in which all users may write.
fn place_with_helper(mode: u32) -> Place {
    let place = Place::new();
    make_counters(&place.path("root"));
    listen_as_systemd(&place.path("root"), mode);
    for directory in [place.path(""), place.path("shm"), place.path("tmp")] {
        set_permissions(directory, Permissions::from_mode(0o1777)).expect("chmod");
    }
    place
}

/// Runs `ampere` as another user, with the made-up counters.
fn ampere_as(place: &Place, user: [&str; 4], words: &[&str]) -> Done {
    let own = place.ampere(words);
    let mut command = place.command(user[0]);
    command.args(&user[1..]).arg(own.get_program()).args(own.get_args());
    command.env_remove("AMPERE_COUNTERS").env("AMPERE_SYS_ROOT", place.path("root"));
    run(&mut command)
}

#[test]
fn members_of_the_group_read_counters_that_only_root_may_open() {
    skip_unless!(is_root(), "only root can make another user");
    skip_unless!(other_user_may_run(), "another user than root may not run what is built here");
    let place = place_with_helper(0o660);
    let done = ampere_as(&place, MEMBER, &["run", "-o", "out", "--", "sleep", "0.3"]);
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    let devices = summary["devices"].as_array().expect("devices");
    let names: Vec<&str> = devices.iter().filter_map(|device| device["name"].as_str()).collect();
    assert_eq!(names, ["package-0", "package-0-dram"], "{summary:#}");
}

#[test]
fn a_stranger_gets_no_counter_and_is_told_who_may_ask() {
    skip_unless!(is_root(), "only root can make another user");
    skip_unless!(other_user_may_run(), "another user than root may not run what is built here");
    let place = place_with_helper(0o660);
    let done = ampere_as(&place, STRANGER, &["doctor"]);
    assert!(done.stdout.contains("only root and members of the group of"), "{done:#?}");
    assert!(done.stdout.contains("systemctl enable --now ampere-counters.socket"), "{done:#?}");
}

#[test]
fn a_socket_that_all_users_may_use_passes_no_counter_to_anybody() {
    skip_unless!(is_root(), "only root can make another user");
    skip_unless!(other_user_may_run(), "another user than root may not run what is built here");
    let place = place_with_helper(0o666);
    for user in [MEMBER, STRANGER] {
        let done = ampere_as(&place, user, &["doctor"]);
        assert!(done.stdout.contains("is open to all users: set SocketMode=0660"), "{done:#?}");
    }
}

#[test]
fn the_helper_is_started_by_systemd_only() {
    let mut helper = Command::new(artifact("ampere-counter-helper"));
    let done = run(helper.stdin(Stdio::null()));
    assert_eq!((done.code, done.stdout.as_str()), (1, ""));
    assert!(
        done.stderr.starts_with("ampere-counter-helper: standard input is not a connection"),
        "{done:#?}"
    );
    assert_eq!(done.stderr.lines().count(), 1, "{done:#?}");
}
