//! A node with many ranks: how much shared memory and disk it needs, and where.

use ampere_tests::jobs::{Place, files_below, run, start, until};
use std::path::PathBuf;

/// A program that makes a number of steps of a millisecond. With three arguments, it continues until the file that the third
/// one names exists.
const STEPS: &str = r#"
    #include <stdlib.h>
    #include <unistd.h>
    __attribute__((noinline)) void step(void) { usleep(1000); }
    int main(int argc, char **argv) {
        for (int i = atoi(argv[1]); i > 0; i--) step();
        while (argc > 3 && access(argv[3], F_OK)) step();
        return 7;
    }
"#;

#[test]
fn the_rings_of_a_full_node_are_256_mib_at_most() {
    const RANKS: u64 = 128;
    let place = Place::new();
    let program = place.compile("cc", "steps", STEPS, &["-finstrument-functions"]);
    let mut command = place.ampere_run("out", [program.to_str().expect("UTF-8"), "0", "0", "go"]);
    command.env("OMPI_COMM_WORLD_LOCAL_RANK", "3").env("OMPI_COMM_WORLD_LOCAL_SIZE", RANKS.to_string());
    let running = start(&mut command);
    let is_ring = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        name.ends_with(".ring") && !name.starts_with("sampler")
    };
    let bytes = || {
        let rings = files_below(&place.path("shm")).into_iter().filter(is_ring);
        rings.filter_map(|path| Some(std::fs::metadata(path).ok()?.len())).sum::<u64>()
    };
    until("there is a ring", || bytes() > 1 << 20);
    assert!(bytes() * RANKS <= 256 << 20, "{} bytes each", bytes());
    place.write("go", "");
    running.wait();
    place.assert_clean();
}

/// Two spool directories cannot be used, for different reasons. The third one can.
#[test]
fn a_spool_directory_that_cannot_be_used_loses_nothing() {
    let place = Place::new();
    let program = place.compile("cc", "steps", STEPS, &["-finstrument-functions"]);
    std::fs::write(place.path("a-file"), "").expect("a file");
    for (output, directory, said) in [
        ("out-file", place.path("a-file"), "cannot be used: "),
        ("out-proc", PathBuf::from("/proc/self"), "cannot be used: "),
        ("out-fine", place.path("new/spool"), ""),
    ] {
        let words = [program.to_str().expect("UTF-8"), "100", "10"];
        let mut command = place.ampere_run(output, words);
        let done = run(command.env("AMPERE_SPOOL_DIRECTORY", &directory));
        assert_eq!(done.code, 7, "{done:#?}");
        let summary = place.summary(output);
        let notes = summary["run"]["notes"].to_string();
        assert_eq!(summary["run"]["complete"], true, "{notes}");
        assert_eq!(notes.matches("the spool directory").count(), usize::from(!said.is_empty()), "{notes}");
        assert!(notes.contains(said), "{notes}");
        assert!(place.path(output).join("traces.otf2").exists());
        place.assert_clean();
    }
    assert!(std::fs::read_dir(place.path("new/spool")).expect("a directory").next().is_none());
}

#[test]
fn records_are_on_the_disk_of_the_node_and_nothing_of_them_stays() {
    let place = Place::new();
    let disk = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let program = place.compile("cc", "steps", STEPS, &["-finstrument-functions"]);
    let mut command = place.ampere_run("out", [program.to_str().expect("UTF-8"), "1500", "0", "go"]);
    command.env_remove("AMPERE_SPOOL_DIRECTORY");
    let running = start(command.env("TMPDIR", disk.path()));
    let is_records = |path: &PathBuf| path.ends_with("records");
    until("there are records", || files_below(disk.path()).iter().any(is_records));
    let claim = files_below(&place.path("out"));
    assert!(claim.len() < 8 && !claim.iter().any(is_records), "{claim:?}");
    place.write("go", "");
    running.wait();
    assert!(place.path("out/traces.otf2").exists());
    assert!(std::fs::read_dir(disk.path()).expect("a directory").next().is_none());
}
