//! Requests, programs in Fortran, threads, and many open requests.

use super::*;
use ampere_tests::root;
use ampere_tests::runs::text;
use serde_json::Value;
use std::path::PathBuf;

pub const OPEN_MPI: (&str, &[&str]) = ("openmpi", &["mpirun.openmpi", "--oversubscribe"]);
pub const MPICH: (&str, &[&str]) = ("mpich", &["mpirun.mpich"]);

/// Compiles a program of tests/programs with the wrapper of this name.
pub fn compiled(place: &Place, compiler: &str, file: &str, options: &[&str]) -> PathBuf {
    let program = place.path("program");
    let source = root().join("tests/programs").join(file);
    let mut command = Command::new(compiler);
    command.current_dir(place.directory()).args(["-O1", "-w"]).args(options);
    succeed(command.arg("-o").arg(&program).arg(source).arg("-lpthread"));
    program
}

/// Returns a place for a test, and the C compiler of an MPI. Returns `None`, and the test is skipped, if something is missing.
pub fn place_for(mpi: (&str, &[&str])) -> Option<(Place, String)> {
    let compiler = format!("mpicc.{}", mpi.0);
    let missing = match () {
        () if !has_python_otf2() => "no python3-otf2".to_owned(),
        () if !on_path(&compiler) || !on_path(mpi.1[0]) => format!("no {compiler} on the PATH"),
        () => return Some((Place::new(), compiler)),
    };
    println!("skipped: {missing}");
    None
}

/// Runs a program with this number of ranks, and returns the messages, collectives and requests in its trace, and its output.
pub fn recorded(place: &Place, launcher: &[&str], ranks: &str, program: &Path) -> (Value, String) {
    recorded_with(place, launcher, ranks, program, "10ms")
}

/// Like [`recorded`], with this period between the samples of stacks.
fn recorded_with(
    place: &Place,
    launcher: &[&str],
    ranks: &str,
    program: &Path,
    sample: &str,
) -> (Value, String) {
    let output = place.path("out");
    let mut run = place.ampere(["run", "--sample", sample, "-o"]);
    // The rings have room for all records of a program that makes calls faster than the collector reads on a busy machine.
    run.env("AMPERE_RING_BYTES", "67108864");
    let done = succeed(run.arg(&output).arg("--").args(launcher).args(["-n", ranks]).arg(program));
    let read = root().join("tests/programs/read_messages.py");
    let trace = output.join("traces.otf2");
    let read = succeed(Command::new("/usr/bin/python3").arg(read).arg(trace));
    place.assert_clean();
    (parse(read.stdout).unwrap(), String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The messages that each rank sends to the next one: tag, bytes, and number.
fn to_the_next(ranks: usize, messages: &Value) -> Value {
    let pair = |rank: usize| (format!("{rank} to {}", (rank + 1) % ranks), messages.clone());
    Value::Object((0..ranks).map(pair).collect())
}

fn requests_in_c(mpi: (&str, &[&str]), open: Value) {
    let compiler = format!("mpicc.{}", mpi.0);
    skip_unless!(has_python_otf2(), "no python3-otf2");
    skip_unless!(on_path(&compiler) && on_path(mpi.1[0]), "no {compiler} on the PATH");
    // Where stacks are sampled, calls that only test are not recorded.
    for sample in ["off", "10ms"] {
        let place = Place::new();
        let program = compiled(&place, &compiler, "mpi_requests.c", &[]);
        check_requests(&recorded_with(&place, mpi.1, "4", &program, sample).0, &open);
    }
}

fn check_requests(read: &Value, open: &Value) {
    let messages = json!([
        [10, 64, 3],
        [11, 72, 3],
        [12, 16, 3],
        [13, 24, 3],
        [14, 32, 3],
        [15, 8, 3],
        [16, 32, 3],
        [17, 32, 3],
        [18, 32, 3],
        [19, 32, 3],
        [20, 32, 3],
        [21, 40, 6],
        [22, 48, 3],
        [23, 48, 3],
        [24, 56, 3],
        [25, 56, 3],
        [26, 4, 3],
        [27, 4, 3],
        [30, 4, 1000]
    ]);
    let mut expected = to_the_next(4, &messages);
    for rank in 0..4 {
        expected[format!("{rank} to {rank}")] = json!([[1, 8, 1], [2, 8, 1]]);
    }
    assert_eq!((&read["messages"], &read["received"]), (&expected, &expected));
    let counts = json!({
        "MpiCollectiveBegin": 4, "MpiCollectiveEnd": 4,
        "MpiIsend": 4192, "MpiIsendComplete": 4192 - open["send"].as_u64().unwrap_or(0),
        "MpiIrecvRequest": 4188, "MpiIrecv": 4176, "MpiRequestCancelled": 12,
        "MpiSend": 44, "MpiRecv": 60,
        "NonBlockingCollectiveRequest": 48, "NonBlockingCollectiveComplete": 48,
    });
    assert_eq!((&read["counts"], &read["open"]), (&counts, open));
    let all = "[0, 1, 2, 3]";
    for (what, count) in [
        (format!("BARRIER {all} 0 0 on 0"), 3),
        (format!("BCAST 1 {all} 128 32 on 1"), 3),
        (format!("ALLREDUCE {all} 128 128 on 2"), 3),
        (format!("GATHER 2 {all} 16 64 on 2"), 3),
        (format!("DESTROY_HANDLE {all} 0 0 on 3"), 1),
    ] {
        assert_eq!(read["collectives"][&what], count, "{what}: {read}");
    }
}

/// A send that the program has given up has no end, unless it was complete at once.
#[test]
fn requests_under_open_mpi() {
    requests_in_c(OPEN_MPI, json!({}));
}

#[test]
fn requests_under_mpich() {
    requests_in_c(MPICH, json!({"send": 12}));
}

/// Programs in Fortran have the same messages as those in C, whichever of the three interfaces they use.
#[test]
fn messages_requests_and_collectives_in_fortran() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    for mpi in [OPEN_MPI, MPICH] {
        let compiler = format!("mpif90.{}", mpi.0);
        skip_unless!(on_path(&compiler) && on_path(mpi.1[0]), "no {compiler} on the PATH");
        for way in ["-DMPIF_H", "-DMODULE_MPI", "-DF08"] {
            let place = Place::new();
            let options = ["-fallow-argument-mismatch", way];
            let program = compiled(&place, &compiler, "mpi_requests.F90", &options);
            in_fortran(&recorded(&place, mpi.1, "4", &program).0);
        }
    }
}

fn in_fortran(read: &Value) {
    let message = json!([
        [10, 64, 3],
        [11, 72, 3],
        [12, 32, 3],
        [13, 32, 3],
        [14, 32, 3],
        [15, 32, 3],
        [16, 40, 6],
        [17, 4, 3],
        [18, 4, 3],
        [20, 48, 3],
        [30, 4, 100]
    ]);
    let mut messages = to_the_next(4, &message);
    messages["0 to 1"].as_array_mut().unwrap().insert(9, json!([19, 24, 3]));
    assert_eq!((&read["messages"], &read["received"]), (&messages, &messages));
    let counts = json!({
        "MpiCollectiveBegin": 56, "MpiCollectiveEnd": 56, "MpiIsend": 496, "MpiIsendComplete": 496,
        "MpiIrecvRequest": 496, "MpiIrecv": 496, "MpiSend": 39, "MpiRecv": 39,
        "NonBlockingCollectiveRequest": 12, "NonBlockingCollectiveComplete": 12,
    });
    assert_eq!((&read["counts"], &read["open"]), (&counts, &json!({})));
    let mut collectives = serde_json::Map::new();
    for rank in 0..4 {
        let half = if rank % 2 == 0 { "[2, 0]" } else { "[3, 1]" };
        let (given, gathered) = (if rank == 2 { 256 } else { 0 }, if rank == 1 { 32 } else { 0 });
        let all = "[0, 1, 2, 3]";
        for (what, count) in [
            (format!("BCAST 2 {all} {given} 64"), 3),
            (format!("ALLREDUCE {half} 64 64"), 3),
            (format!("ALLREDUCE {all} 128 128"), 3),
            (format!("GATHER 1 {all} 8 {gathered}"), 3),
            (format!("BARRIER {half} 0 0"), 3),
            (format!("CREATE_HANDLE {all} 0 0"), 1),
            (format!("DESTROY_HANDLE {all} 0 0"), 1),
        ] {
            collectives.insert(format!("{what} on {rank}"), json!(count));
        }
    }
    assert_eq!(read["collectives"].as_object(), Some(&collectives));
}

/// A thread completes the requests of another one while all make new ones.
#[test]
fn threads_complete_requests_of_others() {
    for mpi in [OPEN_MPI, MPICH] {
        let Some((place, compiler)) = place_for(mpi) else { return };
        let program = compiled(&place, &compiler, "mpi_threads.c", &[]);
        let (read, printed) = recorded(&place, mpi.1, "2", &program);
        skip_unless!(!printed.contains("no threads"), "no MPI_THREAD_MULTIPLE");
        assert!(!printed.contains("wrong"), "{printed}");
        let each: Vec<Value> = (0..4).map(|thread| json!([thread, 4, 200])).collect();
        assert_eq!((&read["received"], &read["open"]), (&to_the_next(2, &json!(each)), &json!({})));
    }
}

/// Partitioned messages and large counts are those of MPI 4, which not every library has.
#[test]
fn a_hundred_thousand_open_requests_are_recorded() {
    for (mpi, newer) in [(OPEN_MPI, vec![]), (MPICH, vec![json!([2, 32, 3]), json!([3, 16, 1])])] {
        let Some((place, compiler)) = place_for(mpi) else { return };
        let program = compiled(&place, &compiler, "mpi_many_requests.c", &[]);
        let (read, printed) = recorded(&place, mpi.1, "2", &program);
        assert!(!printed.contains("wrong"), "{printed}");
        let mut many = vec![json!([1, 4, 100_000])];
        many.extend(newer.iter().cloned().chain([json!([5, 4, 200])]));
        assert_eq!(read["received"]["0 to 1"], json!(many));
        assert_eq!(read["received"]["1 to 0"], if newer.is_empty() { Value::Null } else { json!(newer) });
        assert_eq!(read["open"], json!({}));
        let completed = &read["counts"]["NonBlockingCollectiveComplete"];
        assert_eq!(completed, &if newer.is_empty() { Value::Null } else { json!(4) });
        // The trace has the send of each rank's combined send and receive, and the receive is counted as left out.
        let note = std::fs::read_to_string(place.path("out/summary.txt")).unwrap();
        assert_eq!(note.contains("lacks 2 MPI messages"), !newer.is_empty(), "{note}");
    }
}

#[test]
fn messages_in_hundreds_of_communicators_are_recorded() {
    for mpi in [OPEN_MPI, MPICH] {
        let Some((place, compiler)) = place_for(mpi) else { return };
        let program = compiled(&place, &compiler, "mpi_many_communicators.c", &[]);
        let (read, _) = recorded(&place, mpi.1, "2", &program);
        assert_eq!(
            (&read["messages"], &read["received"]),
            (&json!({"0 to 1": [[1, 4, 600]]}), &read["messages"])
        );
        let note = std::fs::read_to_string(place.path("out/summary.txt")).unwrap();
        assert!(!note.contains("MPI messages"), "{note}");
    }
}

/// Ranks that MPI_Comm_spawn has started are numbered after those of their parents. Their messages are in the trace, including
/// those to and from their parents.
#[test]
fn spawned_ranks_have_numbers_of_their_own() {
    let compiler = "mpicc.openmpi";
    skip_unless!(has_python_otf2(), "no python3-otf2");
    skip_unless!(on_path(compiler) && on_path("mpirun.openmpi"), "no {compiler} on the PATH");
    let place = Place::new();
    let program = compiled(&place, compiler, "mpi_spawn.c", &[]);
    let (read, _) = recorded(&place, OPEN_MPI.1, "3", &program);
    // The tags are 6 in the ring of each program, 5 and 4 between the programs, and 7 in the ring of all.
    let expected = json!({
        "0 to 1": [[6, 8, 1], [7, 8, 1]],
        "1 to 2": [[6, 8, 1], [7, 8, 1]],
        "2 to 0": [[6, 8, 1]],
        "2 to 3": [[7, 8, 1]],
        "3 to 4": [[6, 8, 1], [7, 8, 1]],
        "4 to 3": [[6, 8, 1]],
        "4 to 0": [[7, 8, 1]],
        "0 to 3": [[5, 8, 1]],
        "1 to 4": [[5, 8, 1]],
        "3 to 0": [[4, 8, 1]],
        "4 to 1": [[4, 8, 1]],
    });
    assert_eq!(read["received"], expected);
    let summary = json(&place.path("out/summary.json"));
    let names = summary["names"].as_array().expect("names").iter().filter_map(Value::as_str);
    let ranks: Vec<&str> = names.filter(|name| name.starts_with("MPI Rank")).collect();
    assert_eq!(ranks, (0..5).map(|rank| format!("MPI Rank {rank}")).collect::<Vec<_>>());
    let waiting = &summary["run"]["waiting"];
    assert_eq!((&waiting["matched_messages"], &waiting["unmatched_messages"]), (&json!(14), &json!(0)));
    assert!(!summary["run"]["notes"].to_string().contains("the trace lacks"), "{}", summary["run"]["notes"]);
}

/// Nothing shows to which of two spawned programs the processes of a communicator belong. Its messages are left out and counted.
#[test]
fn messages_with_ranks_that_cannot_be_told_apart_are_counted() {
    let compiler = "mpicc.openmpi";
    skip_unless!(has_python_otf2(), "no python3-otf2");
    skip_unless!(on_path(compiler) && on_path("mpirun.openmpi"), "no {compiler} on the PATH");
    let place = Place::new();
    let program = compiled(&place, compiler, "mpi_spawn.c", &["-DJOBS=2"]);
    let (read, _) = recorded(&place, OPEN_MPI.1, "3", &program);
    let pair = |from: u32, to: u32| (format!("{from} to {to}"), json!([[6, 8, 1]]));
    let rings = [[0, 1], [1, 2], [2, 0], [3, 4], [4, 3], [5, 6], [6, 5]].map(|[from, to]| pair(from, to));
    assert_eq!(read["received"], Value::Object(rings.into_iter().collect()));
    // For each of the two programs, four messages and five in the ring, each at both ends, and two collectives of five ranks.
    let notes = json(&place.path("out/summary.json"))["run"]["notes"].to_string();
    assert!(notes.contains("the trace lacks 56 MPI messages"), "{notes}");
}

/// Statuses, error codes and handlers, and handles of requests are as without ampere.
#[test]
fn errors_and_statuses_are_those_of_the_program_alone() {
    for mpi in [OPEN_MPI, MPICH] {
        let compiler = format!("mpicc.{}", mpi.0);
        skip_unless!(on_path(&compiler), "no {compiler} on the PATH");
        let place = Place::new();
        let program = compiled(&place, &compiler, "mpi_errors.c", &[]);
        let alone = text(&succeed(&mut Command::new(&program)).stdout);
        assert_eq!(alone.lines().count(), 22, "{alone}");
        for sample in ["off", "10ms"] {
            let output = place.path(sample);
            let mut run = place.ampere(["run", "--sample", sample, "-o"]);
            assert_eq!(text(&succeed(run.arg(output).arg("--").arg(&program)).stdout), alone);
        }
        place.assert_clean();
    }
}
