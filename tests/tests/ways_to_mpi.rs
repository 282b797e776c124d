//! Other ways to call MPI than by name: functions that were looked up in a library, PMPI, and Python's bindings. Each call is
//! counted.

use ampere_tests::counting_program::total_calls;
use ampere_tests::jobs::{Place, have, run};
use ampere_tests::runs::{attribute, list, number, ranges, relative, succeed};
use ampere_tests::{root, skip_unless};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const RANKS: u64 = 2;

/// An MPI that is installed on this machine.
struct Mpi {
    compiler: &'static str,
    launcher: &'static [&'static str],
    library: &'static str,
    /// mpi4py's name of its binary interface.
    abi: &'static str,
}

const OPEN_MPI: Mpi = Mpi {
    compiler: "mpicc.openmpi",
    launcher: &["mpirun.openmpi", "--oversubscribe", "-n", "2"],
    library: "libmpi.so.40",
    abi: "openmpi",
};
const MPICH: Mpi = Mpi {
    compiler: "mpicc.mpich",
    launcher: &["mpirun.mpich", "-n", "2"],
    library: "libmpich.so.12",
    abi: "mpich",
};

impl Mpi {
    fn is_here(&self) -> bool {
        have(&[self.compiler, self.launcher[0]])
    }

    /// Runs the program, which must succeed, and returns its summary.
    #[track_caller]
    fn measured(&self, place: &Place, output: &str, program: &[&str], environment: &[(&str, &str)]) -> Value {
        let words = self.launcher.iter().chain(program);
        let done = run(place.ampere_run(output, words).envs(environment.iter().copied()));
        assert_eq!(done.code, 0, "{program:?}: {done:#?}");
        let summary = place.summary(output);
        assert_eq!(summary["run"]["complete"], true, "{program:?}: {:#}", summary["run"]);
        summary
    }
}

#[track_caller]
fn assert_calls(summary: &Value, what: &str, expected: &[(&str, u64)]) {
    for (function, of_each_rank) in expected {
        // With MPI 4, Python's bindings call the variants for large counts.
        let calls = total_calls(summary, function) + total_calls(summary, &format!("{function}_c"));
        assert_eq!(calls, RANKS * of_each_rank, "{what}: {function}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

const IN_C: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <mpi.h>
    #include <stdlib.h>
    #include <string.h>
    /* WAY COUNT LIBRARY: calls COUNT barriers in this way. */
    int main(int argc, char **argv) {
        const char *way = argv[1];
        int (*barrier)(MPI_Comm) = MPI_Barrier;
        MPI_Init(&argc, &argv);
        if (!strcmp(way, "pmpi")) barrier = PMPI_Barrier;
        if (strcmp(way, "pmpi") && strcmp(way, "name")) {
            void *library = RTLD_DEFAULT;
            if (!strcmp(way, "handle")) library = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
            if (!strcmp(way, "deepbind")) library = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
            if (!strcmp(way, "of the program")) library = dlopen(NULL, RTLD_LAZY);
            *(void **)&barrier = dlsym(library, "MPI_Barrier");
        }
        if (!barrier) return 4;
        for (int i = 0; i < atoi(argv[2]); i++) if (barrier(MPI_COMM_WORLD)) return 5;
        MPI_Finalize();
        return 0;
    }
"#;

/// Switches recording off and on, and numbers phases. A function, requests and a communicator live across each switch.
const SWITCHES: &str = r#"
    #include <mpi.h>
    __attribute__((noinline)) void inner(void) { __asm__ volatile(""); }
    __attribute__((noinline)) void around(int level) { MPI_Pcontrol(level, "more", 7, 2.5); inner(); }
    static void exchange(int when, int switched) {
        int rank, in, out = when;
        MPI_Request requests[2];
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Irecv(&in, 1, MPI_INT, 1 - rank, when, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&out, 1, MPI_INT, 1 - rank, when, MPI_COMM_WORLD, &requests[1]);
        MPI_Pcontrol(switched);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (in != when) MPI_Abort(MPI_COMM_WORLD, 9);
    }
    int main(int argc, char **argv) {
        MPI_Comm other;
        MPI_Init(&argc, &argv);
        MPI_Barrier(MPI_COMM_WORLD);
        exchange(1, 0);
        MPI_Pcontrol(0);
        around(2);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Comm_dup(MPI_COMM_WORLD, &other);
        exchange(2, 1);
        for (int phase = 3; phase < 5; phase++) {
            MPI_Pcontrol(phase);
            MPI_Pcontrol(-phase);
            MPI_Barrier(other);
            inner();
        }
        MPI_Pcontrol(1);
        around(0);
        inner();
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return 0;
    }
"#;

#[track_caller]
fn recording_is_switched(mpi: &Mpi) {
    let place = Place::new();
    let program = place.compile(mpi.compiler, "switches", SWITCHES, &["-finstrument-functions"]);
    let summary = mpi.measured(&place, "out", &[text(&program)], &[]);
    let recorded = [
        ("MPI_Barrier", 3),
        ("MPI_Isend", 1),
        ("MPI_Waitall", 1),
        ("MPI_Comm_dup", 0),
        ("around", 1),
        ("inner", 2),
        ("exchange", 1),
        ("phase 3", 1),
        ("phase 4", 1),
        ("main", 1),
    ];
    assert_calls(&summary, "recorded", &recorded);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("has switched recording off 4 times with MPI_Pcontrol(0)"), "{notes}");
    let text = std::fs::read_to_string(place.path("out/summary.txt")).expect("summary.txt");
    assert!(text.contains("4 of not recorded (MPI_Pcontrol)"), "{text}");
    let off = ("MPI_Pcontrol".to_owned(), "not recorded".to_owned(), 4, 0);
    assert_eq!(ranges(&summary), [off]);
    let sums = list(&summary, "devices").iter().map(|device| {
        let view = &list(device, "views")[0];
        let sum =
            ["attributed_joules", "idle_joules", "lost_joules"].map(|part| number(view, part)).iter().sum();
        relative(sum, number(device, "total_joules"))
    });
    assert!(sums.fold(0.0, f64::max) < 1e-9, "{summary:#}");
    let of_trace = attribute(&place.path("out/traces.otf2"), &[]);
    assert_eq!(of_trace["run"]["ranges"], summary["run"]["ranges"]);
}

#[test]
fn pcontrol_switches_recording_off_and_on_and_makes_phases_with_open_mpi() {
    skip_unless!(OPEN_MPI.is_here(), "no Open MPI");
    recording_is_switched(&OPEN_MPI);
}

#[test]
fn pcontrol_switches_recording_off_and_on_and_makes_phases_with_mpich() {
    skip_unless!(MPICH.is_here(), "no MPICH");
    recording_is_switched(&MPICH);
}

#[test]
fn pcontrol_of_fortran_switches_recording_off() {
    skip_unless!(have(&["mpifort", "mpirun"]), "no MPI for Fortran");
    let place = Place::new();
    let program = place.path("switches");
    let source = "program main\n  use mpi\n  integer :: error\n  call MPI_Init(error)\n  call MPI_Pcontrol(0)\n  \
        call MPI_Barrier(MPI_COMM_WORLD, error)\n  call MPI_Pcontrol(1)\n  call MPI_Barrier(MPI_COMM_WORLD, error)\n  \
        call MPI_Finalize(error)\nend program\n";
    let mut compile = Command::new("mpifort");
    succeed(compile.arg("-o").arg(&program).arg(place.write("switches.f90", source)));
    let done = run(&mut place.ampere_run("out", ["mpirun", "-n", "1", text(&program)]));
    assert_eq!(done.code, 0, "{done:#?}");
    assert_eq!(total_calls(&place.summary("out"), "MPI_Barrier"), 1);
}

/// A library that calls MPI. Its program opens it at run time.
const PLUGIN: &str = r#"
    #include <mpi.h>
    int barriers(int count) {
        for (int i = 0; i < count; i++) if (MPI_Barrier(MPI_COMM_WORLD)) return 1;
        return 0;
    }
"#;
const OPENS_PLUGIN: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <mpi.h>
    #include <stdlib.h>
    int main(int argc, char **argv) {
        MPI_Init(&argc, &argv);
        for (int i = 0; i < 3; i++) {
            void *plugin = dlopen(argv[1], RTLD_NOW | (i == 1 ? RTLD_DEEPBIND : 0));
            int (*barriers)(int);
            if (!plugin) return 4;
            *(void **)&barriers = dlsym(plugin, "barriers");
            if (barriers(atoi(argv[2]))) return 5;
            dlclose(plugin);
        }
        MPI_Finalize();
        return 0;
    }
"#;

#[track_caller]
fn every_call_in_c_is_counted(mpi: &Mpi) {
    let place = Place::new();
    for (name, options) in [("plain", &["-ldl"][..]), ("instrumented", &["-ldl", "-finstrument-functions"])] {
        let program = place.compile(mpi.compiler, name, IN_C, options);
        for way in ["name", "handle", "deepbind", "of the program", "default", "pmpi"] {
            let words = [text(&program), way, "7", mpi.library];
            let summary = mpi.measured(&place, &format!("{name}-{way}-out"), &words, &[]);
            let expected = [("MPI_Init", 1), ("MPI_Barrier", 7), ("MPI_Finalize", 1)];
            assert_calls(&summary, &format!("{name}, {way}"), &expected);
        }
    }
    let plugin = place.compile(mpi.compiler, "plugin.so", PLUGIN, &["-shared", "-fPIC"]);
    let program = place.compile(mpi.compiler, "opens", OPENS_PLUGIN, &["-ldl"]);
    let summary = mpi.measured(&place, "opens-out", &[text(&program), text(&plugin), "5"], &[]);
    assert_calls(&summary, "a library that is opened three times", &[("MPI_Barrier", 15)]);
}

#[test]
fn calls_of_open_mpi_from_c_are_counted_however_they_are_made() {
    skip_unless!(OPEN_MPI.is_here(), "no Open MPI");
    every_call_in_c_is_counted(&OPEN_MPI);
}

#[test]
fn calls_of_mpich_from_c_are_counted_however_they_are_made() {
    skip_unless!(MPICH.is_here(), "no MPICH");
    every_call_in_c_is_counted(&MPICH);
}

/// numba-mpi and Julia's MPI work like this: they call a function by a pointer from a handle, and the program itself is not
/// linked with MPI.
const BY_CTYPES: &str = r#"
import ctypes, sys
mpi = ctypes.CDLL(sys.argv[1])
world = ctypes.c_int(0x44000000)
if hasattr(mpi, "ompi_mpi_comm_world"):
    world = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world")))
assert not mpi.MPI_Init(None, None)
for _ in range(6):
    assert not mpi.MPI_Barrier(world)
rank = ctypes.c_int()
for _ in range(4):
    assert not mpi.MPI_Comm_rank(world, ctypes.byref(rank))
assert not hasattr(mpi, "MPI_No_such_function")
assert not mpi.MPI_Finalize()
"#;

#[test]
fn calls_by_pointers_of_pythons_ctypes_are_counted() {
    skip_unless!(have(&["python3"]), "no python3");
    let place = Place::new();
    let script = place.write("script.py", BY_CTYPES);
    for mpi in [OPEN_MPI, MPICH].into_iter().filter(Mpi::is_here) {
        let words = ["python3", text(&script), mpi.library];
        let summary = mpi.measured(&place, mpi.abi, &words, &[]);
        let expected = [("MPI_Init", 1), ("MPI_Barrier", 6), ("MPI_Comm_rank", 4), ("MPI_Finalize", 1)];
        assert_calls(&summary, mpi.abi, &expected);
    }
}

/// The measurement of each rank starts before MPI is loaded.
#[test]
fn ranks_are_known_although_a_region_was_recorded_before_mpi_was_loaded() {
    skip_unless!(have(&["python3"]), "no python3");
    let place = Place::new();
    let interface = root().join("interface");
    let before = "import ampere\nwith ampere.region(\"before\"):\n    sum(range(1000))\n";
    let script = place.write("script.py", &format!("{before}{BY_CTYPES}"));
    for mpi in [OPEN_MPI, MPICH].into_iter().filter(Mpi::is_here) {
        let words = ["python3", text(&script), mpi.library];
        let summary = mpi.measured(&place, mpi.abi, &words, &[("PYTHONPATH", text(&interface))]);
        assert_calls(&summary, mpi.abi, &[("before", 1), ("MPI_Barrier", 6)]);
        assert_eq!(summary["run"]["ranks"], RANKS, "{}", mpi.abi);
        let notes = summary["run"]["notes"].to_string();
        assert!(!notes.contains("MPI messages"), "{}: {notes}", mpi.abi);
    }
}

/// Methods for which mpi4py makes the calls in `OF_MPI4PY`, and no others.
const BY_MPI4PY: &str = r#"
from array import array
from mpi4py import MPI
world = MPI.COMM_WORLD
mine, all = array("i", [world.rank + 1]), array("i", [0])
for _ in range(5):
    world.Barrier()
for _ in range(4):
    world.Allreduce([mine, MPI.INT], [all, MPI.INT])
    assert all[0] == world.size * (world.size + 1) // 2
for _ in range(3):
    world.Allgather([mine, MPI.INT], [array("i", [0] * world.size), MPI.INT])
assert world.bcast({"a": 1} if world.rank == 0 else None) == {"a": 1}
"#;
const OF_MPI4PY: [(&str, u64); 5] = [
    ("MPI_Init_thread", 1),
    ("MPI_Barrier", 5),
    ("MPI_Allreduce", 4),
    ("MPI_Allgather", 3),
    ("MPI_Finalize", 1),
];

/// Returns a Python with mpi4py from PyPI, which finds its MPI when it is imported; `None` if PyPI cannot be reached.
fn python_with_mpi4py(place: &Place) -> Option<PathBuf> {
    let directory = place.path("venv");
    let python = directory.join("bin/python");
    let is_done = |command: &mut Command| command.output().is_ok_and(|done| done.status.success());
    let is_made = is_done(Command::new("python3").args(["-m", "venv"]).arg(&directory))
        && is_done(Command::new(&python).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--only-binary=:all:",
            "mpi4py>=4.1",
        ]));
    is_made.then_some(python)
}

#[test]
fn calls_of_mpi4py_of_pypi_are_counted() {
    skip_unless!(OPEN_MPI.is_here() || MPICH.is_here(), "no MPI");
    let place = Place::new();
    let python = python_with_mpi4py(&place);
    skip_unless!(python.is_some(), "mpi4py is not available from PyPI");
    let python = python.expect("checked");
    let script = place.write("script.py", BY_MPI4PY);
    // mpi4py looks for MPICH's library by the name that this has outside Debian.
    let libraries = place.path("libraries");
    std::fs::create_dir(&libraries).expect("a directory");
    let found = Command::new("cc").arg(format!("-print-file-name={}", MPICH.library)).output().expect("cc");
    let found = String::from_utf8(found.stdout).expect("UTF-8");
    std::os::unix::fs::symlink(found.trim(), libraries.join("libmpi.so.12")).expect("a link");
    for mpi in [OPEN_MPI, MPICH].into_iter().filter(Mpi::is_here) {
        let chosen = [("MPI4PY_MPIABI", mpi.abi), ("LD_LIBRARY_PATH", text(&libraries))];
        let summary = mpi.measured(&place, mpi.abi, &[text(&python), text(&script)], &chosen);
        assert_calls(&summary, mpi.abi, &OF_MPI4PY);
    }
    if OPEN_MPI.is_here() {
        // Without a choice, mpi4py looks for the libraries of several MPIs, and checks each for functions that only others have.
        let summary = OPEN_MPI.measured(&place, "chosen-by-itself", &[text(&python), text(&script)], &[]);
        assert_calls(&summary, "chosen by itself", &OF_MPI4PY);
    }
}

#[test]
fn calls_of_the_distributions_mpi4py_are_counted() {
    let python = "/usr/bin/python3";
    let has_it = Command::new(python).args(["-c", "import mpi4py"]).output();
    skip_unless!(has_it.is_ok_and(|done| done.status.success()) && OPEN_MPI.is_here(), "no python3-mpi4py");
    let place = Place::new();
    let script = place.write("script.py", BY_MPI4PY);
    let summary = OPEN_MPI.measured(&place, "out", &[python, text(&script)], &[]);
    assert_calls(&summary, "Debian's", &OF_MPI4PY);
}
