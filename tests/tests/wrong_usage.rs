//! Mistakes of users: the command, its options, the configuration, the output directory, the counters. Either the application
//! does what it does without ampere, or nothing is started; and one line explains why.

use ampere_tests::jobs::{Done, PLAIN, Place, built, files_below, have, run};
use ampere_tests::stand_ins::with_rocm_smi;
use std::path::PathBuf;

/// Runs a program with and without `ampere run`, and checks that its output and status are the same.
#[track_caller]
fn compare(place: &Place, output: &str, words: &[std::ffi::OsString]) -> Done {
    let plain = run(place.command(&words[0]).args(&words[1..]));
    let measured = run(&mut place.ampere_run(output, words));
    measured.as_without(&plain);
    measured.no_panic();
    measured
}

#[test]
fn a_program_without_mpi_or_instrumentation_runs_as_usual() {
    let place = Place::new();
    let plain = place.compile("cc", "plain", PLAIN, &[]);
    compare(&place, "out", &[plain.into()])
        .said_once(&["nothing was recorded or sampled", "-finstrument-functions"]);
    // The results that were asked for exist and have a note; the joules are those that the node used during the run, however
    // short it was.
    let summary = place.summary("out");
    assert_eq!(summary["run"]["energy"], "estimated");
    assert!(summary["run"]["total_joules"].as_f64() > Some(0.0), "{}", summary["run"]);
    // No record is missing, because there was nothing to record.
    assert_eq!(summary["run"]["complete"], true);
    let names = |file: PathBuf| file.file_name().expect("a file").to_string_lossy().into_owned();
    let mut left: Vec<String> = files_below(&place.path("out")).into_iter().map(names).collect();
    left.retain(|name| !name.ends_with(".evt") && !name.ends_with(".def"));
    left.sort();
    assert_eq!(left, ["report.html", "summary.json", "summary.txt", "traces.otf2"]);
    place.assert_clean();
}

#[test]
fn an_instrumented_program_without_mpi_is_measured() {
    let place = Place::new();
    let program = place.instrumented();
    compare(&place, "out", &[program.into()]).said_nothing();
    let summary = place.summary("out");
    assert_eq!((&summary["run"]["ranks"], &summary["run"]["complete"]), (&1.into(), &true.into()));
    let text = summary.to_string();
    assert!(text.contains("\"work\"") && text.contains("\"location_group\":\"Process\""), "{summary:#}");
    place.assert_clean();
}

#[test]
fn a_host_that_cannot_measure_the_program_is_named() {
    let place = Place::new();
    let program = place.instrumented();
    let mut command = place.ampere(["run", "--host", "scorep", "-o", "out", "--"]);
    let done = run(command.arg(&program));
    done.as_without(&run(&mut place.command(&program)));
    done.said_once(&["nothing was recorded or sampled", "built with Score-P", "without --recorder scorep"]);
    assert_eq!(place.summary("out")["quality"]["events"], 0);
    place.assert_clean();
}

#[test]
fn a_misspelt_variable_is_named_and_variables_of_others_are_not() {
    let place = Place::new();
    let program = place.instrumented();
    let mut command = place.ampere_run("out", [&program]);
    // These are a variable of a module, and variables with similar names.
    command.env("AMPERE_POLICIE", "busy_only").env("AMPERE_ROOT", "/opt/ampere").env("AMPEREX", "1");
    let done = run(&mut command);
    done.said_once(&["AMPERE_POLICIE is not known", "did you mean AMPERE_POLICY?"]);
    assert!(!done.stderr.contains("AMPERE_ROOT") && !done.stderr.contains("AMPEREX"), "{done:#?}");
    place.assert_clean();
}

#[test]
fn messages_of_several_ranks_are_printed_once() {
    if !have(&["mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let place = Place::new();
    let program = place.mpi_program();
    let words = place.mpi(&program);
    compare(&place, "out", &words).said_nothing();
    assert_eq!(place.summary("out")["run"]["ranks"], 2);
    place.assert_clean();

    // The same is tested with only the plugin, and then with a failure that both ranks have.
    let plain = run(place.command(&words[0]).args(&words[1..]).arg("0"));
    let bare = run(place.bare("bare", words[0].as_ref()).args(&words[1..]).arg("0"));
    bare.as_without(&plain);
    bare.said_nothing();
    assert_eq!(bare.stderr.matches("energy summary in").count(), 1, "{bare:#?}");
    assert_eq!(place.summary("bare")["run"]["ranks"], 2);
    place.assert_clean();
    let again = run(place.bare("bare", words[0].as_ref()).args(&words[1..]).arg("0"));
    again.as_without(&plain);
    again.said_once(&["the results go to", "bare-2 and not to"]);
    place.no_process_left();
}

#[test]
fn a_command_that_cannot_be_run_is_named() {
    let place = Place::new();
    let text = place.write("text", "not a program");
    place.script("no-interpreter", "#!/nonexistent/interpreter\n");
    for (program, words) in [
        ("./absent", ["cannot run ./absent", "no such file"]),
        ("absent-from-path", ["cannot run absent-from-path", "not in PATH"]),
        (text.to_str().expect("UTF-8"), ["cannot run", "not executable"]),
        ("shm/..", ["cannot run", "it is a directory"]),
        ("./no-interpreter", ["cannot run ./no-interpreter", "No such file"]),
    ] {
        let done = run(&mut place.ampere_run("out", [program]));
        assert!([126, 127].contains(&done.code), "{done:#?}");
        done.said_once(&words);
        assert!(done.stdout.is_empty());
        assert!(!place.path("out").exists(), "{program}: an output directory of nothing");
    }
    place.assert_clean();
}

#[test]
fn a_command_that_cannot_be_run_leaves_the_users_files_alone() {
    let place = Place::new();
    place.script("no-interpreter", "#!/nonexistent/interpreter\n");
    std::fs::create_dir_all(place.path("mine/traces")).expect("a directory");
    place.write("mine/thesis.tex", "years of work");
    place.write("mine/traces/notes", "more of it");
    let done = run(&mut place.ampere_run("mine", ["./no-interpreter"]));
    assert_eq!(done.code, 126, "{done:#?}");
    assert_eq!(files_below(&place.path("mine")).len(), 2, "{:?}", files_below(&place.path("mine")));
    place.assert_clean();
}

#[test]
fn arguments_that_are_not_utf_8_or_begin_with_hyphens_are_passed_on() {
    use std::os::unix::ffi::OsStringExt;
    let place = Place::new();
    let program = place.instrumented();
    let odd = std::ffi::OsString::from_vec(b"0.5\xff".to_vec());
    compare(&place, "out", &[program.clone().into(), odd, "--help".into(), "-o".into()]).said_nothing();
    assert_eq!(place.summary("out")["run"]["command"][1], "0.5\u{fffd}");
    let plain = run(&mut place.command(&program));
    let done = run(place.ampere(["run", "-o=-out", "--"]).arg(&program));
    done.as_without(&plain);
    done.said_nothing();
    assert_eq!(place.summary("-out")["run"]["complete"], true);
    place.assert_clean();
}

#[test]
fn without_its_socket_a_run_is_measured_but_serves_no_metrics() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let cannot_listen = format!("--listen=unix:{}", place.path("absent/socket").display());
    let mut command = place.ampere(["run", "-o", "out", &cannot_listen, "--"]);
    let done = run(command.arg(&program));
    done.as_without(&plain);
    done.said_once(&["no live metrics", "out"]);
    let summary = place.summary("out");
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("metrics are not served") && notes.contains("absent/socket"), "{notes}");
    assert!(summary["quality"]["events"].as_u64() > Some(0), "{}", summary["quality"]);
    place.assert_clean();
}

#[test]
fn an_empty_output_directory_that_existed_before_is_kept_when_nothing_runs() {
    let place = Place::new();
    std::fs::create_dir(place.path("mine")).expect("a directory");
    place.script("no-interpreter", "#!/nonexistent/interpreter\n");
    for output in ["mine", "new"] {
        let done = run(&mut place.ampere_run(output, ["./no-interpreter"]));
        assert_eq!(done.code, 126, "{done:#?}");
        assert_eq!(place.path(output).exists(), output == "mine");
        assert!(files_below(&place.path(output)).is_empty(), "{:?}", files_below(&place.path(output)));
        place.assert_clean();
    }
}

/// The program is sampled, but it has no Score-P: what was asked for is missing.
#[test]
fn a_sampled_program_without_the_score_p_that_was_asked_for_is_incomplete() {
    let place = Place::new();
    let source = "int main(void) { for (volatile long i = 0; i < 300000000; i++); return 0; }";
    let program = place.compile("cc", "spins", source, &[]);
    let program = program.to_str().expect("UTF-8");
    let start = |output: &str, options: &[&str]| {
        let words = [&["run", "-o", output], options, &["--", program]].concat();
        // With shorter intervals, samples would be lost if the collector got no CPU for a tenth of a second.
        run(place.ampere(words.as_slice()).env("AMPERE_SAMPLE", "10ms"))
    };
    let done = start("auto", &["--require"]);
    assert_eq!((done.code, &place.summary("auto")["run"]["complete"]), (0, &true.into()), "{done:#?}");
    for (output, options, code) in
        [("plain", &["--host", "scorep"][..], 0), ("required", &["--recorder", "scorep", "--require"], 1)]
    {
        let done = start(output, options);
        assert_eq!(done.code, code, "{done:#?}");
        assert!(done.stderr.contains("ampere: neither ranks nor calls were recorded"), "{done:#?}");
        let of = place.summary(output)["run"].clone();
        assert_eq!(of["complete"], false, "{of}");
        assert!(
            of["notes"].to_string().contains("--recorder scorep: no process was built with Score-P"),
            "{of}"
        );
    }
    place.assert_clean();
}

#[test]
fn wrong_usage_exits_with_2_and_starts_nothing() {
    let place = Place::new();
    let marker = place.path("started");
    let touch = ["touch".to_owned(), marker.display().to_string()];
    let cases: [&[&str]; 8] = [
        &[],
        &["frobnicate"],
        &["run"],
        &["run", "--"],
        &["run", "--host", "both", "--", &touch[0], &touch[1]],
        &["run", "--listen", "everywhere", "--", &touch[0], &touch[1]],
        &["attribute"],
        &["attribute", "x.otf2", "--policy", "fair"],
    ];
    for case in cases {
        let done = run(&mut place.ampere(case));
        assert_eq!(done.code, 2, "{case:?}: {done:#?}");
        assert!(done.stdout.is_empty(), "usage goes to standard error: {done:#?}");
        assert!(done.stderr.contains("Usage: ") || done.stderr.contains("--help"), "{case:?}: {done:#?}");
        assert!(!marker.exists(), "{case:?}");
    }
    place.assert_clean();
}

#[test]
fn a_mistake_in_the_configuration_is_reported_before_the_command_starts() {
    let place = Place::new();
    let marker = place.path("started");
    place.write("key.toml", "[attribution]\npolcy = \"busy_only\"\n");
    place.write("value.toml", "[attribution]\npolicy = \"fair\"\n");
    place.write("syntax.toml", "[attribution\n");
    place.write("regex.toml", "[[device]]\nname = \"x\"\nmetric = \"(\"\n");
    std::fs::create_dir(place.path("directory.toml")).expect("a directory");
    let cases: [(&str, &[&str]); 6] = [
        ("key.toml", &["key.toml:2", "unknown key \"polcy\"", "did you mean \"policy\"?"]),
        ("value.toml", &["value.toml", "\"fair\"", "time_sliced"]),
        ("syntax.toml", &["syntax.toml:1"]),
        ("regex.toml", &["regex.toml:3", "metric", "is not a regular expression"]),
        ("directory.toml", &["directory.toml", "directory"]),
        ("absent.toml", &["absent.toml", "No such file"]),
    ];
    for (file, words) in cases {
        let mut commands = [
            place.ampere(["run", "-o", "out", "--config", file, "--", "touch"]),
            place.ampere(["run", "-o", "out", "--", "touch"]),
        ];
        commands[1].env("AMPERE_CONFIG", file);
        for command in &mut commands {
            let done = run(command.arg(&marker));
            assert_eq!(done.code, 1, "{file}: {done:#?}");
            done.said_once(words);
            assert!(!marker.exists() && !place.path("out").exists(), "{file}");
        }
    }
    let done = run(place.ampere_run("out", ["touch"]).arg(&marker).env("AMPERE_POLICY", "fair"));
    assert_eq!(done.code, 1);
    done.said_once(&["AMPERE_POLICY", "\"fair\"", "busy_only"]);
    assert!(!marker.exists());
    place.assert_clean();
}

#[test]
fn with_the_plugin_alone_a_job_with_a_mistake_in_its_settings_runs_unmeasured() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    place.write("key.toml", "[sampler]\nperiode = \"1ms\"\n");
    let cases: [(&str, &str, &[&str]); 4] = [
        ("AMPERE_CONFIG", "key.toml", &["key.toml:2", "periode", "did you mean \"period\"?"]),
        ("AMPERE_CONFIG", "absent.toml", &["absent.toml", "No such file"]),
        ("AMPERE_POLICY", "fair", &["AMPERE_POLICY", "\"fair\""]),
        ("AMPERE_LISTEN", "everywhere", &["AMPERE_LISTEN", "\"everywhere\"", "127.0.0.1:9977"]),
    ];
    for (variable, value, words) in cases {
        let done = run(place.bare("out", &program).env(variable, value));
        done.as_without(&plain);
        done.said_once(words);
        done.said_once(&["energy is not measured"]);
        assert!(!place.path("out").exists(), "{variable}={value} left an output directory");
        place.assert_clean();
    }
}

#[test]
fn an_empty_variable_is_the_same_as_none() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    for variable in
        ["AMPERE_OUTPUT", "AMPERE_CONFIG", "AMPERE_LISTEN", "AMPERE_COLLECTOR", "AMPERE_HOST_PLUGIN"]
    {
        if variable != "AMPERE_LISTEN" {
            // An empty value means the default port, which other tests may use at the moment.
            let mut measured = place.ampere(["run", "--"]);
            let done = run(measured.arg(&program).env(variable, ""));
            done.as_without(&plain);
            done.said_nothing();
        }
        let done = run(place.bare("", &program).env("AMPERE_OUTPUT", "").env(variable, ""));
        done.as_without(&plain);
        done.said_nothing();
    }
    let made = std::fs::read_dir(place.path("")).expect("a directory").flatten();
    let made = made.filter(|entry| entry.file_name().to_string_lossy().starts_with("ampere-")).count();
    assert_eq!(made, 9, "each run has its own default directory");
    place.assert_clean();
}

#[test]
fn without_a_usable_output_directory_the_job_runs_unmeasured() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    place.write("file", "a file");
    let cases: [(&str, &[&str]); 3] = [
        ("file", &["file", "-o"]),
        ("file/below", &["file/below", "Not a directory", "-o"]),
        ("/proc/x", &["/proc/x", "-o"]),
    ];
    for (output, words) in cases {
        let done = run(&mut place.ampere_run(output, [&program]));
        done.as_without(&plain);
        done.said_once(words);
        done.said_once(&["runs without being measured"]);
        place.assert_clean();
        let done = run(place.bare(output, &program).env("AMPERE_OUTPUT", output));
        done.as_without(&plain);
        done.said_once(words);
        done.said_once(&["energy is not measured"]);
        place.assert_clean();
    }
    assert_eq!(std::fs::read_to_string(place.path("file")).expect("it exists"), "a file");
}

#[test]
fn without_a_counter_times_and_calls_are_still_recorded() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)]);
    let cases: [Case; 3] = [
        ("absent", "rocm_smi: no AMD GPU", &[("AMPERE_COUNTERS", "rocm_smi")]),
        ("none", "", &[("AMPERE_COUNTERS", "none")]),
        (
            "no-library",
            "/nonexistent.so",
            &[("AMPERE_COUNTERS", "rocm_smi"), ("AMPERE_ROCM_SMI_LIBRARY", "/nonexistent.so")],
        ),
    ];
    for (output, note, variables) in cases {
        if output == "absent" && std::path::Path::new("/sys/class/kfd/kfd/topology/nodes").exists() {
            println!("skipped: this machine has an AMD GPU");
            continue;
        }
        let done = run(place.ampere_run(output, [&program]).envs(variables.iter().copied()));
        done.as_without(&plain);
        done.said_nothing(); // it is once in the notes of the summary
        let summary = place.summary(output);
        assert_eq!(summary["run"]["energy"], "none", "{output}");
        assert_eq!(summary["run"]["complete"], true, "{output}: {}", summary["run"]);
        assert!(summary["quality"]["events"].as_u64() >= Some(8), "{output}");
        assert!(summary["run"]["notes"].to_string().contains(note), "{output}: {}", summary["run"]["notes"]);
        assert!(place.path(output).join("traces.otf2").exists());
    }
    place.assert_clean();
}

#[test]
fn an_unknown_counter_source_is_reported_before_anything_starts() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let done = run(place.ampere_run("unknown", [&program]).env("AMPERE_ESTIMATE_IDLE_WATTS", "-4"));
    assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:#?}");
    done.said_once(&["AMPERE_ESTIMATE_IDLE_WATTS", "-4: use a number of 0 or more"]);
    let done = run(place.ampere_run("unknown", [&program]).env("AMPERE_COUNTERS", "rapl,foo"));
    assert_eq!(done.code, 1);
    done.said_once(&[
        "AMPERE_COUNTERS",
        "\"foo\" is not known; there are rocm_smi, amdsmi, nvml, cray_pm, rapl",
    ]);
    assert!(!place.path("unknown").exists() && done.stdout.is_empty(), "nothing was started");
    // Without `ampere run` a note reports this, and the counters that exist are read.
    let node = place.made_up_node();
    let variables = [("AMPERE_COUNTERS", "foo"), ("AMPERE_SYS_ROOT", node.to_str().expect("a path"))];
    let done = run(place.bare("bare", &program).envs(variables));
    done.as_without(&plain);
    let summary = place.summary("bare");
    assert_eq!(summary["run"]["energy"], "estimated");
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("\\\"foo\\\" is not known") && notes.contains("it is ignored"), "{notes}");
    place.assert_clean();
}

#[test]
fn a_counter_that_may_not_be_read_is_named() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    // RSMI_STATUS_PERMISSION is 4. The library's initialization fails, or all devices, or one device, or one is lost during the
    // run.
    for (output, script, energy) in [
        ("init", "init=4", "estimated"),
        ("all", "watts=100,200;error=0:4,1:4", "estimated"),
        ("one", "watts=100,200;error=1:4", "simulated"),
        ("lost", "watts=100,200;gone=1@0.8", "simulated"),
    ] {
        // By itself, the program would end before the device is lost.
        let pause = if output == "lost" { 2.0 } else { 0.2 };
        let command = format!("'{}'; status=$?; sleep {pause}; exit $status", program.display());
        let mut command = place.ampere_run(output, ["sh", "-c", &command]);
        with_rocm_smi(&mut command, script).env_remove("AMPERE_COUNTERS");
        let done = run(command.env("AMPERE_SYS_ROOT", place.made_up_node()));
        done.as_without(&plain);
        done.said_nothing();
        let summary = place.summary(output);
        let run = &summary["run"];
        assert_eq!(run["energy"], energy, "{script}: {run:#}");
        let notes = run["notes"].to_string();
        if output == "lost" {
            assert!(notes.contains("readings of a counter failed"), "{script}: {notes}");
            let said = "GPU-1 cannot be read: rsmi_dev_energy_count_get returned NOT_FOUND (10)";
            assert_eq!(notes.matches(said).count(), 1, "{script}: {notes}");
        } else {
            assert!(notes.contains("PERMISSION") || notes.contains("ermission"), "{script}: {notes}");
        }
    }
    place.assert_clean();
}

#[test]
fn a_run_survives_a_closed_standard_error() {
    let place = Place::new();
    let program = place.instrumented();
    let plain = run(&mut place.command(&program));
    let ampere = built().join("ampere");
    // Standard error is a pipe without a reader, a full device, or closed.
    for redirection in ["2> >(exec true)", "2>/dev/full", "2>&-"] {
        let script = format!(
            "sleep 0.05; rm -rf out; {} run -o out -- {} {redirection}",
            ampere.display(),
            program.display()
        );
        let done = run(place.command("bash").args(["-c", &script]));
        done.as_without(&plain);
        assert_eq!(place.summary("out")["run"]["complete"], true, "{redirection}");
    }
    place.assert_clean();
}
