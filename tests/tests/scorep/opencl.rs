//! An accelerator under Score-P's OpenCL adapter, which reports the kernels of a stream when the program waits for them.

use crate::profile::{assert_agrees, measured, regions};
use ampere_tests::collector::announced;
use ampere_tests::http::get;
use ampere_tests::jobs::Place;
use ampere_tests::openmetrics::parse;
use ampere_tests::process::{Running, wait_for};
use ampere_tests::runs::{attribute, list, number, on_path, relative, succeed};
use ampere_tests::{artifact, browser, root, skip_unless};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// How long the collector waits for a silent stream: longer than the programs here run.
const STREAM_LAG: Duration = Duration::from_secs(8);
const WATTS: f64 = 300.0;
/// A stream's name does not show on which device it runs, so the settings do.
const SETTINGS: &str =
    "[[device]]\nname = \"GPU-0\"\nmetric = 'rocm_smi:::energy_count:device=0'\nlocations = ['.+']\n";

const PROBE: &str =
    "#include <CL/cl.h>\nint main(void) { cl_uint n = 0; return clGetPlatformIDs(0, 0, &n) || !n; }\n";

/// Whether there is OpenCL with a device.
fn has_a_platform(place: &Place) -> bool {
    let (source, program) = (place.path("probe.c"), place.path("probe"));
    std::fs::write(&source, PROBE).expect("room for a source file");
    let mut compiler = Command::new("cc");
    compiler.args(["-DCL_TARGET_OPENCL_VERSION=120", "-o"]).arg(&program).arg(&source).arg("-lOpenCL");
    let is_compiled = compiler.output().is_ok_and(|done| done.status.success());
    is_compiled && place.command(program).output().is_ok_and(|done| done.status.success())
}

/// Joules of the light and of the heavy kernel in a summary.
fn joules(summary: &Value) -> [f64; 2] {
    let views = list(&list(summary, "devices")[0], "views");
    let kernels = views.iter().find(|view| view["view"] == "kernels").expect("kernels");
    ["light", "heavy"].map(|name| {
        let is_kernel = |row: &&Value| row["region"].as_str().is_some_and(|region| region.ends_with(name));
        list(kernels, "regions").iter().find(is_kernel).map_or(0.0, |row| number(row, "exclusive_joules"))
    })
}

/// Joules of both kernels in the live metrics.
fn live_joules(output: &Path) -> Option<[f64; 2]> {
    let body = get(announced(output)?.address(), "/metrics").ok()?.body;
    let samples = parse(&body).ok()?;
    Some(["light", "heavy"].map(|name| {
        let is_kernel = |label: &str| label.ends_with(name);
        let kernels = samples.iter().filter(|sample| sample.name == "ampere_kernel_energy_joules_total");
        kernels.filter(|sample| is_kernel(sample.label("kernel"))).map(|sample| sample.value).sum()
    }))
}

fn play(mpi: bool, arguments: &[&str]) {
    skip_unless!(
        ["scorep", "cube_dump", "cc"].into_iter().all(on_path),
        "no scorep with its tools on the PATH"
    );
    skip_unless!(!mpi || (on_path("mpicc") && on_path("mpirun")), "no MPI");
    let place = Place::new();
    skip_unless!(has_a_platform(&place), "no OpenCL platform here");
    let program = place.path("kernels");
    let mut compiler = Command::new("scorep");
    compiler.current_dir(place.directory()).arg("--opencl");
    compiler.args(if mpi { &["mpicc", "-DUSE_MPI"][..] } else { &["cc"] });
    compiler.args(["-O1", "-g"]).arg(root().join("tests/programs/kernels.c"));
    succeed(compiler.arg("-o").arg(&program).arg("-lOpenCL"));

    let experiment = place.path("scorep");
    let settings = place.path("ampere.toml");
    std::fs::write(&settings, SETTINGS).expect("room for the settings");
    let mut command = place.command(if mpi { Path::new("mpirun") } else { &program });
    if mpi {
        command.args(["--oversubscribe", "-n", "2"]).arg(&program);
    }
    command.args(arguments).envs(measured(&place, &experiment));
    command.env("SCOREP_OPENCL_ENABLE", "yes").env("AMPERE_LISTEN", "127.0.0.1:0");
    command.env("AMPERE_CONFIG", &settings).env("AMPERE_COUNTERS", "rocm_smi");
    command.env("STAND_IN_ROCM_SMI", format!("watts={WATTS}"));
    command.env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"));
    // Events that are reported later than this reach the live metrics only at the end.
    command.env("AMPERE_STREAM_LAG", format!("{}s", STREAM_LAG.as_secs()));
    let mut running = Running::start(&mut command);
    // The program waits after its kernels have run, so their joules do not rise any more.
    let (mut last, mut since) = ([0.0; 2], Instant::now());
    let live = wait_for("all kernels in the live metrics", LIMIT, || {
        let now = live_joules(&place.path("out"))?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (now[0] > 0.0 && now[1] > 0.0 && since.elapsed() > STREAM_LAG + STREAM_LAG / 4).then_some(now)
    });
    if browser::is_there() {
        let url = format!("http://{}/", announced(&place.path("out")).expect("a collector").address());
        let shown = browser::shown(&place, &url, 1600, None);
        for (kernel, joules) in ["light", "heavy"].into_iter().zip(live) {
            let on_page = browser::kernel_joules(&shown, kernel).expect("the kernel has a row");
            assert!(
                relative(on_page, joules) < 0.01,
                "{kernel}: {on_page} J on the page, {joules} J in /metrics"
            );
        }
    }
    std::fs::write(place.path("over"), "").expect("room for a file");
    assert!(running.wait(LIMIT).is_some_and(|status| status.success()), "the program ends well");

    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    let ours = regions(&summary);
    assert_agrees(&ours, &experiment, &["kernels"]);
    let of_summary = joules(&summary);
    let of_trace =
        joules(&attribute(&place.path("out/traces.otf2"), &["--config", &settings.display().to_string()]));
    println!("live {live:?} J, summary {of_summary:?} J, trace {of_trace:?} J; {arguments:?}");
    for kernel in 0..2 {
        assert!(relative(live[kernel], of_summary[kernel]) < 0.01, "{live:?}, {of_summary:?}");
        assert!(relative(of_trace[kernel], of_summary[kernel]) < 1e-6, "{of_trace:?}, {of_summary:?}");
    }
    // How long a kernel runs depends on what else uses the processor: another queue, another rank, another program.
    let ratio = of_summary[1] / of_summary[0];
    let is_alone = !mpi && arguments[1] == "1";
    let near = if is_alone { 2.0..4.5 } else { 1.5..6.0 };
    assert!(near.contains(&ratio), "three times the work: {ratio} times the joules");
    let seconds = |name: &str| -> f64 {
        ours.iter().filter(|(region, _)| region.ends_with(name)).map(|(_, (_, seconds))| seconds).sum()
    };
    let exclusive = [seconds("light"), seconds("heavy")];
    // Kernels that run at the same time share the device's power.
    let all = exclusive[0] + exclusive[1];
    assert!(of_summary[0] + of_summary[1] < 1.01 * WATTS * all, "{of_summary:?} J in {exclusive:?} s");
    if is_alone {
        for kernel in 0..2 {
            assert!(
                relative(of_summary[kernel], WATTS * exclusive[kernel]) < 0.02,
                "{of_summary:?}, {exclusive:?}"
            );
        }
    }
    place.assert_clean();
}

#[test]
fn kernels_of_three_to_one_work_have_three_to_one_joules() {
    play(false, &["6", "1"]);
}

#[test]
fn kernels_that_are_reported_late_have_joules_by_their_work() {
    play(false, &["6", "1", "late"]);
}

#[test]
fn kernels_of_several_queues_have_joules_by_their_work() {
    play(false, &["2", "3"]);
    play(false, &["2", "3", "late"]);
}

#[test]
fn kernels_of_two_ranks_have_joules_by_their_work() {
    play(true, &["2", "2"]);
    play(true, &["2", "2", "late"]);
}
