//! Programs in Python, through Score-P's bindings, and programs in Fortran.

use ampere_tests::artifact;
use ampere_tests::jobs::Place;
use ampere_tests::runs::{list, on_path, succeed};
use ampere_tests::skip_unless;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const PYTHON: &str = r#"
def heavy(n):
    total = 0.0
    for i in range(n):
        total += i ** 0.5
    return total

class Solver:
    def step(self):
        return heavy(100000)

def main():
    solver = Solver()
    for _ in range(20):
        solver.step()

main()
"#;

const FORTRAN: &str = "module work
contains
  subroutine heavy(n, s)
    integer, intent(in) :: n
    real(8), intent(inout) :: s
    integer :: i
    do i = 1, n
      s = s + sqrt(real(i, 8))
    end do
  end subroutine
end module
program p
  use work
  real(8) :: s
  integer :: i
  s = 0
  do i = 1, 20
    call heavy(1000000, s)
  end do
  if (s < 0) print *, s
end program
";

/// Calls and joules of a region in the first view.
fn row(summary: &Value, region: &str) -> (f64, f64) {
    let view = &summary["devices"][0]["views"][0];
    let row = list(view, "regions").iter().find(|row| row["region"] == region);
    let row = row.unwrap_or_else(|| panic!("no {region}: {}", view["regions"]));
    (row["calls"].as_f64().expect("calls"), row["exclusive_joules"].as_f64().expect("joules"))
}

/// Returns a Python with Score-P's bindings, which are compiled with the Score-P on the PATH. `None`: they are not
/// available.
fn with_bindings(place: &Place) -> Option<PathBuf> {
    let environment = place.path("venv");
    let made = Command::new("python3").args(["-m", "venv"]).arg(&environment).output();
    let python = environment.join("bin/python");
    let installed = made.is_ok_and(|done| done.status.success())
        && Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "scorep"])
            .output()
            .is_ok_and(|done| done.status.success());
    installed.then_some(python)
}

#[test]
fn functions_of_python_have_joules() {
    skip_unless!(on_path("scorep"), "no scorep on the PATH");
    skip_unless!(on_path("python3"), "no python3");
    let place = Place::new();
    let python = with_bindings(&place);
    skip_unless!(python.is_some(), "Score-P's Python bindings are not available");
    let script = place.write("work.py", PYTHON);
    let mut command = place.ampere(["run", "--recorder", "scorep", "-o", "out", "--"]);
    command.arg(python.expect("it exists")).args(["-m", "scorep"]).arg(script);
    command.env("SCOREP_ENABLE_PROFILING", "false").env("SCOREP_EXPERIMENT_DIRECTORY", place.path("scorep"));
    succeed(&mut command);
    let summary = place.summary("out");
    assert_eq!(summary["run"]["host"], "score-p");
    let (calls, joules) = row(&summary, "__main__:heavy");
    assert_eq!(calls, 20.0);
    let (step_calls, step_joules) = row(&summary, "__main__.Solver:step");
    assert_eq!(step_calls, 20.0);
    assert!(joules > 10.0 * step_joules, "{joules} J, {step_joules} J");
    place.assert_clean();
}

#[test]
fn a_procedure_of_a_fortran_module_is_named_as_in_fortran() {
    skip_unless!(on_path("scorep"), "no scorep on the PATH");
    skip_unless!(on_path("gfortran"), "no gfortran");
    let place = Place::new();
    let source = place.write("work.f90", FORTRAN);
    let program = place.path("work");
    let mut compiler = Command::new("scorep");
    compiler.args(["gfortran", "-O0", "-o"]).arg(&program).arg(source).current_dir(place.directory());
    succeed(&mut compiler);
    let mut command = place.command(&program);
    command
        .env("SCOREP_SUBSTRATE_PLUGINS", "ampere")
        .env("LD_LIBRARY_PATH", artifact("libscorep_substrate_ampere.so").parent().expect("a directory"))
        .env("SCOREP_ENABLE_PROFILING", "false")
        .env("SCOREP_EXPERIMENT_DIRECTORY", place.path("scorep"))
        .env("AMPERE_OUTPUT", place.path("out"));
    succeed(&mut command);
    assert_eq!(row(&place.summary("out"), "work::heavy").0, 20.0);
    place.assert_clean();
}
