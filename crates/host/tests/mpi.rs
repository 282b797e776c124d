//! Unmodified MPI programs, under Open MPI and MPICH.

mod common;

use common::{Bench, Log, MPICH, Mpi, OPEN_MPI, have, ok};

fn check_order_of_calls(log: &Log, rank: usize, size: usize) {
    log.check();
    let expected = [
        "init",
        "set_callbacks",
        "get_event_functions",
        "get_event_functions",
        "assign_id",
        "create_location",
        "activate",
        "program_begin",
        "init_mpp",
        "program_end",
        "deactivate",
        "delete_location",
        "finalize",
    ];
    assert_eq!(log.life(), expected, "{log}");
    assert!(log.find(&format!("init_mpp {rank}/{size}")).is_some(), "{log}");
    assert!(log.find("set_callbacks 424").is_some());
    assert!(log.find("program_begin").unwrap().ends_with("pid=ok tid=ok"));
}

fn many_arguments(mpi: &Mpi) {
    if !have(&[mpi.cc, mpi.run[0]]) {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile(mpi.cc, &["-O2"], "arguments.c");
    let (out, _) = ok(&mut bench.mpi(mpi, 3, &program));
    assert_eq!(out, "errors 0 of 3 ranks\n");
    let logs = bench.logs();
    assert_eq!(logs.len(), 3);
    for (rank, log) in logs.iter().enumerate() {
        check_order_of_calls(log, rank, 3);
        let events = log.events(0);
        // The program's own frame encloses all others: nothing else in the program is instrumented.
        assert_eq!(
            events[..3],
            [format!("+{}", program_name(&program)), "+MPI_Init_thread".into(), "-MPI_Init_thread".into()]
        );
        assert_eq!(events[events.len() - 2..], ["+MPI_Finalize", "-MPI_Finalize"]);
        assert!(log.position("enter 0") < log.position("init_mpp"));
        assert!(log.position("init_mpp") < log.position("exit 0"));
        for (name, count) in [
            ("MPI_Sendrecv", 3),
            ("MPI_Ialltoallw", 1),
            ("MPI_Ineighbor_alltoallw", 1),
            ("MPI_Rget_accumulate", 1),
            ("MPI_Type_create_darray", 1),
            ("MPI_Barrier", 2),
            ("MPI_Allreduce", 1),
        ] {
            assert_eq!(log.enters(name), count, "{name}\n{log}");
        }
        assert!(log.region("MPI_Sendrecv").contains("file='MPI' line=0 type=15 paradigm=6"));
        assert!(log.region("MPI_Allreduce").contains("type=13 paradigm=6"));
        assert!(log.region("MPI_Barrier").contains("type=24 paradigm=6"));
    }
}

#[test]
fn functions_with_many_arguments_work_with_open_mpi() {
    many_arguments(&OPEN_MPI);
}

#[test]
fn functions_with_many_arguments_work_with_mpich() {
    many_arguments(&MPICH);
}

fn fortran(mpi: &Mpi, source: &str) {
    if !have(&[mpi.fortran, mpi.run[0], "gfortran"]) {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile(mpi.fortran, &["-O1", "-fallow-argument-mismatch"], source);
    let (out, _) = ok(&mut bench.mpi(mpi, 2, &program));
    assert_eq!(out.trim(), "pingpong ok");
    let logs = bench.logs();
    assert_eq!(logs.len(), 2);
    for (rank, log) in logs.iter().enumerate() {
        check_order_of_calls(log, rank, 2);
        let mut expected = vec!["MPI_Init", "MPI_Comm_rank", "MPI_Comm_size", "MPI_Get_processor_name"];
        for _ in 0..10 {
            expected.extend(if rank == 0 { ["MPI_Send", "MPI_Recv"] } else { ["MPI_Recv", "MPI_Send"] });
        }
        expected.extend([
            "MPI_Sendrecv",
            "MPI_Comm_set_name",
            "MPI_Comm_get_name",
            "MPI_Allreduce",
            "MPI_Finalize",
        ]);
        let entered: Vec<String> = log.events(0).into_iter().filter(|event| event.starts_with('+')).collect();
        let own = program_name(&program);
        let names = std::iter::once(own.as_str()).chain(expected);
        let expected: Vec<String> = names.map(|name| format!("+{name}")).collect();
        assert_eq!(entered, expected, "{log}");
    }
}

#[test]
fn fortran_with_mpif_h_is_recorded() {
    fortran(&OPEN_MPI, "pingpong_mpif.f90");
    fortran(&MPICH, "pingpong_mpif.f90");
}

#[test]
fn fortran_with_use_mpi_is_recorded() {
    fortran(&OPEN_MPI, "pingpong_mpi.f90");
    fortran(&MPICH, "pingpong_mpi.f90");
}

#[test]
fn fortran_with_use_mpi_f08_is_recorded() {
    fortran(&OPEN_MPI, "pingpong_f08.f90");
    fortran(&MPICH, "pingpong_f08.f90");
}

/// Returns the name of the region that represents the program outside MPI.
fn program_name(program: &std::path::Path) -> String {
    program.file_name().unwrap().to_string_lossy().into_owned()
}

/// Only one process of the program has the preloaded library. It must not wait for the others.
#[test]
fn one_process_may_have_the_library_alone() {
    if !have(&[MPICH.cc, MPICH.run[0]]) {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile(MPICH.cc, &["-O2"], "arguments.c");
    let mut command = bench.command(MPICH.run[0]);
    command.args(["-n", "1"]).arg(&program).args([":", "-n", "2", "-env", "LD_PRELOAD", ""]).arg(&program);
    let (out, _) = ok(&mut command);
    assert_eq!(out, "errors 0 of 3 ranks\n");
    let logs = bench.logs();
    assert_eq!(logs.len(), 1);
    check_order_of_calls(&logs[0], 0, 3);
}

#[test]
fn exit_and_abort_end_the_measurement() {
    if !have(&[MPICH.cc, MPICH.run[0]]) {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile(MPICH.cc, &["-O2"], "early.c");
    let _ = bench.command(&program).arg("exit").output().unwrap();
    let logs = bench.logs();
    check_order_of_calls(&logs[0], 0, 1);
    assert_eq!(logs[0].enters("MPI_Finalize"), 0);

    let bench = Bench::new();
    let program = bench.compile(MPICH.cc, &["-O2"], "early.c");
    let _ = bench.command(&program).arg("abort").output().unwrap();
    let logs = bench.logs();
    assert!(logs[0].find("program_end").unwrap().ends_with("status=42"), "{}", logs[0]);
    assert_eq!(logs[0].enters("MPI_Abort"), 1);
    assert!(logs[0].lines.last().unwrap().starts_with("deactivate 0"), "{}", logs[0]);

    let bench = Bench::new();
    let program = bench.compile(MPICH.cc, &["-O2"], "early.c");
    let _ = bench.command(&program).arg("abort in a handler").output().unwrap();
    let logs = bench.logs();
    assert!(logs[0].lines.last().unwrap().ends_with("status=42"), "{}", logs[0]);
}

/// A C++ exception that is thrown inside an MPI call is caught, and the frames still nest.
#[test]
fn exceptions_pass_through_a_wrapper() {
    if !have(&[OPEN_MPI.cc, OPEN_MPI.run[0], "g++", "mpicxx.openmpi"]) {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("mpicxx.openmpi", &["-O2"], "throws.cc");
    let (out, _) = ok(&mut bench.command(&program));
    assert_eq!(out, "caught, then 1\n");
    let log = &bench.logs()[0];
    log.check();
    let events = log.events(0);
    let at = events.iter().position(|event| event == "+MPI_Reduce_local").unwrap();
    let left = ["+MPI_Reduce_local", "-MPI_Reduce_local", "+MPI_Comm_size", "-MPI_Comm_size"];
    assert_eq!(events[at..at + 4], left);
    let other = ["+MPI_Op_create", "-MPI_Op_create", "+MPI_Reduce_local", "-MPI_Reduce_local"];
    assert_eq!(events[at + 4..at + 8], other, "calls inside a call are not recorded");
    assert_eq!(events[at + 8..at + 12], left);
}

#[test]
fn backtraces_pass_through_a_wrapper() {
    for mpi in [OPEN_MPI, MPICH] {
        if !have(&[mpi.cc]) {
            continue;
        }
        let bench = Bench::new();
        let program = bench.compile(mpi.cc, &["-O1", "-rdynamic"], "backtrace.c");
        assert_eq!(ok(&mut bench.command(&program)).0, "main found\n");
    }
}

#[test]
fn several_threads_may_call_mpi() {
    for mpi in [OPEN_MPI, MPICH] {
        if !have(&[mpi.cc, mpi.run[0]]) {
            continue;
        }
        let bench = Bench::new();
        let program = bench.compile(mpi.cc, &["-O1", "-lpthread"], "parallel.c");
        let (out, _) = ok(&mut bench.mpi(&mpi, 2, &program));
        if out == "errors 0 threads 0\n" {
            println!("skipped: {} has no MPI_THREAD_MULTIPLE", mpi.cc);
            continue;
        }
        assert_eq!(out, "errors 0 threads 1\n");
        for log in bench.logs() {
            log.check();
            assert_eq!(log.enters("MPI_Sendrecv"), 4 * 200);
            // A thread that starts late may be on the location of one that has ended.
            let events: Vec<usize> = (1..=4).map(|id| log.events(id).len()).collect();
            assert_eq!(events.iter().sum::<usize>(), 4 * 2 * 200);
            assert!(events.iter().all(|count| count % (2 * 200) == 0), "{events:?}");
        }
    }
}

/// Programs with plugin modules load their MPI library in this way.
#[test]
fn an_mpi_library_outside_the_global_scope_is_found() {
    for mpi in [OPEN_MPI, MPICH] {
        if !have(&[mpi.cc]) {
            continue;
        }
        let bench = Bench::new();
        let module = bench.compile(mpi.cc, &["-shared", "-fPIC"], "hidden_module.c");
        let program = bench.compile("cc", &[], "hidden_main.c");
        assert_eq!(ok(bench.command(&program).arg(&module)).0, "1\n");
        check_order_of_calls(&bench.logs()[0], 0, 1);
    }
}

/// HPCC is a real benchmark, which the distribution packages.
#[test]
fn hpcc_runs_and_is_recorded() {
    let input = "/usr/share/doc/hpcc/examples/_hpccinf.txt";
    if !have(&["hpcc", OPEN_MPI.run[0]]) || !std::path::Path::new(input).exists() {
        return;
    }
    let bench = Bench::new();
    let text = std::fs::read_to_string(input).unwrap();
    let small = text.replacen("1000         Ns", "200          Ns", 1).replacen(
        "2            Ps",
        "1            Ps",
        1,
    );
    std::fs::write(bench.path("hpccinf.txt"), small).unwrap();
    let mut command = bench.mpi(&OPEN_MPI, 2, std::path::Path::new("hpcc"));
    ok(command.env("OPENBLAS_NUM_THREADS", "1").env("LOGGER_QUIET", "1"));
    let report = std::fs::read_to_string(bench.path("hpccoutf.txt")).unwrap();
    assert!(report.contains("Success=1"), "{report}");
    let logs = bench.logs();
    assert_eq!(logs.len(), 2);
    for (rank, log) in logs.iter().enumerate() {
        check_order_of_calls(log, rank, 2);
        assert!(log.region("MPI_Allreduce").contains("paradigm=6"));
    }
}
