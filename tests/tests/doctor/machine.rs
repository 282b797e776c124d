//! This machine, compared with what the test itself finds out about it; Score-P and launchers with several PATHs.

use super::*;
use ampere_tests::jobs::files_below;
use ampere_tests::runs::on_path;
use ampere_tests::skip_unless;
use std::ffi::OsString;

#[test]
fn doctor_describes_this_machine_correctly() {
    let place = Place::new();
    let found = ask(bare(&place));
    assert_eq!(found.code, 0, "{found:#?}");
    let sources = list(&found.report, "sources");
    assert_eq!(sources.len(), 9);
    for (name, place) in [
        ("rocm_smi", "/sys/class/kfd"),
        ("amdsmi", "/sys/class/kfd"),
        ("nvml", "/proc/driver/nvidia"),
        ("cray_pm", "/sys/cray"),
        ("rapl", "/sys/class/powercap"),
        ("perf", "/sys/bus/event_source/devices/power"),
        ("hwmon", "/sys/class/hwmon"),
    ] {
        if !Path::new(place).exists() {
            assert!(list(found.source(name), "devices").is_empty(), "{name}");
            assert!(found.source(name)["why_not"].is_string(), "{name}");
        }
    }
    assert!(!found.used().is_empty());
    let estimate = &found.source("estimate")["devices"][0];
    assert!(number(estimate, "watts") >= 100.0, "{estimate:#}");
    let cores = text(&succeed(&mut Command::new("nproc")).stdout);
    let cores: usize = cores.trim().parse().expect("a number");
    let said = found.check("cores and clock", "cores")["found"].as_str().unwrap_or_default().to_owned();
    assert!(said.starts_with(&format!("{cores} core")), "{said}");
    for launcher in ["mpirun", "mpiexec", "srun"] {
        let listed = list(&found.report, "checks").iter().any(|check| check["name"] == launcher);
        assert_eq!(listed, on_path(launcher), "{launcher}");
    }
    let has_printer = found.check("OTF2", "otf2-print")["status"] == "ok";
    assert_eq!(has_printer, on_path("otf2-print"));
    if let Ok(output) = Command::new("mpirun").arg("--version").output()
        && text(&output.stdout).contains("Open MPI")
    {
        let version = text(&output.stdout).split_whitespace().nth(3).unwrap_or_default().to_owned();
        found.says("MPI", "mpirun", "ok", &[&format!("Open MPI {version}"), "mpirun"]);
    }
    for part in ["plugin", "host", "collector"] {
        found.says("ampere", part, "ok", &[]);
    }
    // The command has left no files behind.
    place.assert_clean();
    assert!(files_below(place.directory()).is_empty());
}

#[test]
fn on_one_core_the_collector_has_none_of_its_own() {
    skip_unless!(on_path("taskset"), "no taskset");
    let place = Place::new();
    let mut command = place.command("taskset");
    command.args(["-c", "0"]).arg(artifact("ampere")).arg("doctor");
    ask(command).says(
        "cores and clock",
        "cores",
        "note",
        &["1 core of", "in this allocation", "shares with the program", "one core more"],
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_clock_that_may_stop_is_reported() {
    let place = Place::new();
    let found = ask(doctor(&place));
    let said = found.says("cores and clock", "clock", "ok", &["tsc", "steady"]);
    let mhz = said["found"].as_str().and_then(|said| said.split_whitespace().nth(1)?.parse::<f64>().ok());
    // This is compared with another measurement of the same frequency.
    let clocks = |ms| {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        // SAFETY: every x86-64 has it.
        (unsafe { core::arch::x86_64::_rdtsc() }, std::time::Instant::now())
    };
    let ((from, begun), (to, ended)) = (clocks(0), clocks(200));
    let measured = (to - from) as f64 / (ended - begun).as_secs_f64() / 1e6;
    assert!(mhz.is_some_and(|mhz| (mhz / measured - 1.0).abs() < 0.01), "{mhz:?}, {measured} measured");
    let command = doctor(&place);
    let root = place.path("root");
    put(&root.join("proc/cpuinfo"), "flags\t\t: fpu tsc constant_tsc\n");
    ask(command).says("cores and clock", "clock", "note", &["no nonstop_tsc", "SCOREP_TIMER=clock_gettime"]);
    let command = doctor(&place);
    put(&root.join("sys/devices/system/clocksource/clocksource0/available_clocksource"), "hpet acpi_pm\n");
    put(&root.join("sys/devices/system/clocksource/clocksource0/current_clocksource"), "hpet\n");
    ask(command).says("cores and clock", "clock", "note", &["does not trust it", "hpet"]);
}

fn path_with(first: &Path) -> OsString {
    let mut path = first.as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    path
}

#[test]
fn score_p_is_found_where_the_path_has_it() {
    let place = Place::new();
    let programs = place.path("bin");
    std::fs::create_dir(&programs).expect("a folder");
    let without = |programs: &Path| {
        let mut command = doctor(&place);
        command.env("PATH", path_with(programs));
        command
    };
    if !Path::new("/usr/bin/scorep").exists() {
        ask(without(&programs)).says("Score-P", "Score-P", "note", &["in PATH", "own host"]);
    }
    script(&programs.join("scorep-config"), "#!/bin/sh\necho 8.4\n");
    let found = ask(without(&programs));
    let check = found.says("Score-P", "Score-P", "ok", &["8.4", "scorep-config"]);
    assert!(!check["found"].as_str().unwrap_or_default().contains("was tried with"), "{check:#}");
    script(&programs.join("scorep-config"), "#!/bin/sh\necho 'scorep-config 7.1'\n");
    ask(without(&programs)).says("Score-P", "Score-P", "ok", &["7.1", "tried with 8.4"]);
    script(&programs.join("scorep-config"), "#!/bin/sh\necho 'no papi' >&2; exit 3\n");
    ask(without(&programs)).says("Score-P", "Score-P", "note", &["no papi"]);
}

#[test]
fn the_loader_is_asked_for_the_plugins() {
    let place = Place::new();
    let plugins = ["plugin", "metric plugin"];
    let found = ask(doctor(&place));
    for name in plugins {
        found.says("Score-P", name, "note", &["does not find", "No such file", "export LD_LIBRARY_PATH="]);
    }
    // A shell runs the advice with a value in the variable and without one.
    let advice = found.check("Score-P", "plugin")["advice"].as_str().unwrap_or_default().to_owned();
    let (_, line) = advice.split_once(": ").expect("a line to paste");
    for before in ["", "/nonexistent"] {
        let mut command = doctor(&place);
        let ampere = artifact("ampere");
        let mut shell = place.command("sh");
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.env_remove("AMPERE_COUNTERS").env("LD_LIBRARY_PATH", before);
        shell.arg("-c").arg(format!("{line}; exec \"$0\" \"$@\"")).arg(&ampere).arg("doctor");
        command = shell;
        let found = ask(command);
        plugins
            .iter()
            .for_each(|name| drop(found.says("Score-P", name, "ok", &["the loader finds"]).clone()));
    }
    // The file of that name may belong to another ampere, may not be a plugin at all, and may do anything when it is loaded.
    let folder = place.path("lib");
    let library = folder.join("libscorep_substrate_ampere.so");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::copy(artifact("libscorep_substrate_ampere.so"), &library).expect("a copy");
    let there = || doctor(&place).with(&[("LD_LIBRARY_PATH", folder.to_str().expect("UTF-8"))]);
    let other = library.to_str().expect("UTF-8");
    ask(there()).says(
        "Score-P",
        "plugin",
        "note",
        &["another installation of ampere", other, "export LD_LIBRARY_PATH="],
    );
    std::fs::remove_file(&library).expect("remove");
    put(&library, "not a library");
    ask(there()).says("Score-P", "plugin", "note", &["file too short"]);
    skip_unless!(on_path("cc"), "no C compiler");
    for (source, words) in [
        (
            "__attribute__((constructor)) void begin(void) { *(volatile int *)0 = 1; }",
            "crashed with signal 11",
        ),
        ("int other(void) { return 0; }", "it has no function SCOREP_SubstratePlugin_ampere_get_info"),
    ] {
        put(&folder.join("made.c"), source);
        succeed(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(folder.join("made.c")));
        let found = ask(there());
        found.says("Score-P", "plugin", "note", &[words]);
        assert_eq!(found.code, 0, "ampere run names the plugin itself");
    }
}

#[test]
fn launchers_that_do_not_answer_are_named() {
    let place = Place::new();
    let programs = place.path("bin");
    script(
        &programs.join("mpirun"),
        "#!/bin/sh\necho 'HYDRA build details:'; echo '    Version:    4.0.2'\n",
    );
    script(&programs.join("mpiexec"), "#!/bin/sh\nsleep 150 & sleep 150\n");
    script(&programs.join("srun"), "#!/bin/sh\necho 'slurm 23.02.7'\n");
    let begun = std::time::Instant::now();
    let mut command = doctor(&place);
    command.env("PATH", path_with(&programs));
    let found = ask(command);
    assert!(begun.elapsed().as_secs() < 100);
    found.says("MPI", "mpirun", "ok", &["MPICH 4.0.2"]);
    found.says("MPI", "mpiexec", "note", &["does not print its version within 5 s"]);
    found.says("MPI", "srun", "ok", &["Slurm 23.02.7"]);
    // Here no launcher can be found at all. /usr/bin may have one, so it is not on the PATH.
    let mut command = doctor(&place);
    command.env("PATH", place.path("nothing"));
    let found = ask(command);
    found.says("MPI", "launcher", "note", &["none of mpirun, mpiexec, srun"]);
    found.says("OTF2", "otf2-print", "note", &["otf2-tools"]);
}

#[test]
fn parts_that_are_missing_are_a_problem() {
    let place = Place::new();
    let alone = place.path("bin");
    std::fs::create_dir(&alone).expect("a folder");
    let ampere = alone.join("ampere");
    std::fs::copy(artifact("ampere"), &ampere).expect("a copy");
    let doctor = || {
        let mut command = place.command(&ampere);
        command.arg("doctor");
        command
    };
    let found = ask(doctor());
    found.says("ampere", "parts", "problem", &["no ampere-collector", "install all of ampere"]);
    assert_eq!(found.code, 1);
    for file in ["libscorep_substrate_ampere.so", "libampere_host.so"] {
        std::fs::copy(artifact(file), alone.join(file)).expect("a copy");
    }
    std::os::unix::fs::symlink(artifact("ampere-preload"), alone.join("ampere-preload")).expect("a link");
    script(&alone.join("ampere-collector"), "#!/bin/sh\necho ampere-collector 0.0.1\n");
    ask(doctor()).says("ampere", "collector", "problem", &["0.0.1", "install all of ampere again"]);
    script(&alone.join("ampere-collector"), "#!/bin/sh\necho 'libotf2.so.10: cannot open' >&2; exit 127\n");
    ask(doctor()).says("ampere", "collector", "problem", &["does not start", "libotf2.so.10"]);
}

#[test]
fn the_text_and_the_json_agree() {
    let place = Place::new();
    let command = || doctor(&place).with(&[("AMPERE_POLICY", "wrong"), ("AMPERE_QUITE_ANOTHER", "1")]);
    let found = ask(command());
    let output = command().output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(!printed.contains('\x1b'), "colours are for terminals");
    // A heading is not indented; a finding starts with two blanks and its mark.
    let mut group = "";
    let mut lines = Vec::new();
    for line in printed.lines().skip(1).filter(|line| !line.is_empty()) {
        match line.strip_prefix("  ") {
            Some(finding) => lines.push((group, finding)),
            None => group = line,
        }
    }
    let checks = list(&found.report, "checks");
    assert_eq!(lines.len(), checks.len(), "{printed}");
    for ((group, line), check) in lines.iter().zip(checks) {
        assert_eq!(check["group"], *group, "{line}");
        let (mark, rest) = line.split_once(' ').expect("a mark");
        assert_eq!(check["status"], mark, "{line}");
        let name = check["name"].as_str().expect("a name");
        assert!(rest.trim_start().starts_with(name), "{line}: {check}");
        let advice = line.split_once(" -> ").map(|(_, advice)| advice);
        assert_eq!(check["advice"].as_str(), advice, "{line}");
        // Figures differ between two calls.
        let digits =
            |text: &str| text.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect::<String>();
        let said = check["found"].as_str().expect("a text");
        assert!(digits(line).contains(&digits(said)), "{line}: {check}");
    }
    let problems = checks.iter().filter(|check| check["status"] == "problem").count();
    assert_eq!(problems, 1);
    assert!(
        printed
            .trim_end()
            .lines()
            .last()
            .is_some_and(|last| last.starts_with("ampere run does not work here: 1 problem, "))
    );
    // It is not an error if the reader closes the pipe early.
    let shell = format!("{} doctor | head -n 1", artifact("ampere").display());
    let output = place.command("sh").args(["-c", &shell]).output().expect("a shell");
    assert_eq!(text(&output.stderr), "");
}
