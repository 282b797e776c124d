//! A job on two nodes: launchers hand on what the ranks on the other node need, without options of the user's. The other node is
//! this machine under another name, with shared memory of its own, which a made-up `ssh` reaches with the environment of a login.

use ampere_tests::jobs::{Done, Place, have, run};
use ampere_tests::runs::may_mount;
use ampere_tests::skip_unless;
use std::path::PathBuf;

/// `ssh HOST COMMAND...`, but for options. Nothing of this environment but the path comes to the other node.
fn ssh(place: &Place) -> PathBuf {
    for name in ["shm-b", "tmp-b"] {
        std::fs::create_dir(place.path(name)).expect("a directory");
    }
    let boot = place.write("boot-b", "22222222-2222-2222-2222-222222222222\n");
    let (shm, own) = (place.path("shm"), place.path("shm-b"));
    place.script(
        "ssh",
        &format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\nprintf '%s\\n' \"$*\" > '{}'\n\
             exec env -i PATH=\"$PATH\" HOME=/ OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR='{}' \
             unshare --uts --mount sh -c \"hostname $host && mount --bind '{}' '{}' && \
             mount --bind '{}' /proc/sys/kernel/random/boot_id && . '{}'\"\n",
            place.path("command").display(),
            place.path("tmp-b").display(),
            own.display(),
            shm.display(),
            boot.display(),
            place.path("command").display(),
        ),
    )
}

fn assert_both_nodes(place: &Place, done: &Done) {
    assert_eq!((done.code, done.stdout.as_str()), (0, "sum 1\n"), "{done:#?}");
    place.no_process_left();
    let report = run(&mut place.ampere(["report", "out", "-f", "json"]));
    let whole: serde_json::Value = serde_json::from_str(&report.stdout).expect("JSON");
    let run = &whole["run"];
    assert_eq!(run["nodes"].as_array().map(Vec::len), Some(2), "{run}\n{done:#?}");
    assert_eq!(run["mpi"], serde_json::json!({"size": 2, "ranks": [0, 1]}), "{run}");
    assert_eq!(run["complete"], true, "{run}");
    assert!(place.path("out/node-b/summary.json").exists());
}

#[test]
fn open_mpis_launcher_hands_on_what_another_node_needs() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    if !have(&["mpirun.openmpi", "mpicc.openmpi", "unshare"]) {
        return;
    }
    let place = Place::new();
    let (ssh, program) = (ssh(&place), place.mpi_program());
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = format!("{own}:1,node-b:1");
    for of_the_user in [&[][..], &["-x", "PATH"], &["-x", "AMPERE_COUNTERS"]] {
        let mut command = place.ampere(["run", "-o", "out", "--", "mpirun.openmpi"]);
        command.args(of_the_user).args(["--mca", "plm", "rsh", "--host", &hosts, "-n", "2"]);
        command.arg("--mca").arg("plm_rsh_agent").arg(&ssh).arg(&program).arg("0");
        assert_both_nodes(&place, &run(&mut command));
        std::fs::remove_dir_all(place.path("out")).expect("its results");
    }
    // A list of the user's own.
    let mut command = place.ampere(["run", "-o", "out", "--", "mpirun.openmpi"]);
    command.args(["--mca", "plm", "rsh", "--host", &hosts, "-n", "2", "--mca", "plm_rsh_agent"]).arg(&ssh);
    assert_both_nodes(&place, &run(command.arg(&program).arg("0").env("OMPI_MCA_mca_base_env_list", "PATH")));
}

#[test]
fn mpichs_launcher_hands_on_what_another_node_needs() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    if !have(&["mpiexec.hydra", "mpicc.mpich", "unshare"]) {
        return;
    }
    let place = Place::new();
    let (ssh, program) = (ssh(&place), place.mpi_program_by("mpicc.mpich"));
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut command = place.ampere(["run", "-o", "out", "--", "mpiexec.hydra", "-launcher", "ssh"]);
    command.arg("-launcher-exec").arg(&ssh).args(["-hosts", &format!("{own},node-b"), "-n", "2"]);
    assert_both_nodes(&place, &run(command.arg(&program).arg("0")));
}
