//! What users can type: commands without `--`, a trace where a run is expected and the other way round, and options by both of
//! their names. Also what helps them to type: tips, examples and completions.

use ampere_tests::jobs::{Done, Place, run};
use ampere_tests::runs::recorded_trace;
use ampere_tests::skip_unless;
use std::path::Path;
use std::process::Command;

fn ampere(place: &Place, arguments: &[&str]) -> Done {
    run(place.ampere(arguments).current_dir(place.path("")))
}

/// C++ functions, whose full names include their parameters.
const CPP: &str = r#"
__attribute__((noinline)) void heavy_kernel(float *a, float const *b) {
    for (int i = 0; i < 2000000; i++) *(float volatile *)a = *b + i;
}
namespace other { __attribute__((noinline)) void light(int) {} __attribute__((noinline)) void light(float) {} }
int main() {
    float a = 0, b = 1;
    for (int i = 0; i < 3; i++) { heavy_kernel(&a, &b); other::light(1); other::light(1.f); }
}
"#;

fn measured() -> Place {
    let place = Place::new();
    let program = place.compile("c++", "work", CPP, &["-O1", "-finstrument-functions"]);
    let done = run(&mut place.ampere_run("out", [&program]));
    assert_eq!(done.code, 0, "{done:#?}");
    place
}

#[test]
fn a_command_needs_no_separator_and_keeps_all_of_its_words() {
    let place = Place::new();
    let words = ["printf", "%s|", "-o", "x", "--", "y", "--version"];
    let wanted = "-o|x|--|y|--version|";
    for (output, separator) in [("a", &[][..]), ("b", &["--"])] {
        let arguments = [&["run", "--quiet", "-o", output], separator, &words[..]].concat();
        let done = ampere(&place, &arguments);
        assert_eq!((done.code, done.stdout.as_str()), (0, wanted), "{arguments:?}: {done:#?}");
        assert_eq!(place.summary(output)["run"]["command"], serde_json::json!(words));
    }
    // An argument that begins with a hyphen before the command is an option of ampere.
    let done = ampere(&place, &["run", "--outptu", "c", "printf"]);
    assert_eq!(done.code, 2, "{done:#?}");
    assert!(done.stderr.contains("--output") && !done.stderr.contains("-- --outptu"), "{done:#?}");
}

#[test]
fn without_a_directory_the_last_run_here_is_reported() {
    let place = measured();
    let again = run(&mut place.ampere_run("again", ["true"]));
    assert_eq!(again.code, 0, "{again:#?}");
    let last = ampere(&place, &["report", "--json"]);
    last.said_once(&["the last run here is again"]);
    assert_eq!((last.code, last.stdout), (0, ampere(&place, &["report", "again", "-f", "json"]).stdout));
    // In an output directory, the run of that directory is reported.
    let inside = run(place.ampere(["report", "--json"]).current_dir(place.path("out")));
    assert_eq!(inside.stdout, ampere(&place, &["report", "out", "--json"]).stdout);
    let empty = place.path("empty");
    std::fs::create_dir(&empty).expect("a directory");
    let none = run(place.ampere(["report"]).current_dir(&empty));
    assert_eq!((none.code, none.stdout.as_str()), (2, ""), "{none:#?}");
    assert!(
        none.stderr.contains("there is no run here") && none.stderr.contains("Usage: ampere report"),
        "{none:#?}"
    );
}

#[test]
fn attribute_takes_a_run_and_report_takes_a_trace() {
    let place = measured();
    let by_file = ampere(&place, &["attribute", "out/traces.otf2", "--json"]);
    let by_directory = ampere(&place, &["attribute", "out", "-f", "json"]);
    assert_eq!((by_file.code, &by_file.stdout), (0, &by_directory.stdout), "{by_directory:#?}");
    let run_of_trace = ampere(&place, &["report", "out/traces.otf2", "--json"]);
    assert_eq!(run_of_trace.stdout, ampere(&place, &["report", "out", "--json"]).stdout, "{run_of_trace:#?}");
    // A trace without a summary next to it is attributed.
    std::fs::create_dir(place.path("alone")).expect("a directory");
    for part in ["traces.otf2", "traces.def", "traces"] {
        std::fs::rename(place.path("out").join(part), place.path("alone").join(part)).expect("a trace");
    }
    let rows = |arguments: &[&str]| {
        let done = ampere(&place, arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {done:#?}");
        done.stdout
    };
    for named in ["alone", "alone/traces.otf2"] {
        assert_eq!(rows(&["report", named, "-f", "csv"]), rows(&["attribute", "alone", "-f", "csv"]));
        let bins = rows(&["report", named, "-f", "timeline", "--bins", "2"]);
        assert!(bins.lines().count() > 1, "{bins}");
    }
    let absent = ampere(&place, &["report", "alone/absent.otf2"]);
    assert_eq!(absent.code, 1, "{absent:#?}");
}

#[test]
fn a_region_is_found_by_the_name_of_its_function() {
    let place = measured();
    let calls = |region: &str| ampere(&place, &["report", "out", "-f", "timeline", "--region", region]);
    let whole = calls("heavy_kernel(float*, float const*)");
    assert_eq!((whole.code, whole.stdout.lines().count()), (0, 4), "{whole:#?}");
    let short = calls("heavy_kernel");
    assert_eq!((short.code, &short.stdout), (0, &whole.stdout), "{short:#?}");
    assert!(
        short.stderr.starts_with("ampere: the region is heavy_kernel(float*, float const*)\n"),
        "{short:#?}"
    );
    let several = calls("light");
    assert_eq!(several.code, 1, "{several:#?}");
    several.said_once(&["2 regions are named \"light\"", "other::light(float)", "other::light(int)"]);
    let misspelt = calls("heavy_kernal");
    assert_eq!(misspelt.code, 1, "{misspelt:#?}");
    misspelt
        .said_once(&["no region is named \"heavy_kernal\": there are heavy_kernel(float*, float const*)"]);
}

#[test]
fn calls_are_written_as_csv_if_the_file_is_called_so() {
    let place = measured();
    let done = ampere(&place, &["attribute", "out", "--json", "--calls", "calls.csv"]);
    assert_eq!(done.code, 0, "{done:#?}");
    let text = std::fs::read_to_string(place.path("calls.csv")).expect("a file");
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    assert_eq!(head[5..8], ["region", "callpath", "depth"]);
    let heavy = "\"heavy_kernel(float*, float const*)\",\"main > heavy_kernel(float*, float const*)\",2,";
    assert_eq!(lines.filter(|line| line.contains(heavy)).count(), 3, "{text}");
    assert!(!place.path("calls.callpaths.parquet").exists());
}

#[test]
fn options_of_a_run_set_what_their_variables_set() {
    let place = Place::new();
    let options =
        ["--recorder", "embedded", "--stacks", "off", "--sample-period", "2ms", "--counters", "estimate"];
    let more = ["--trace", "off", "--listen", "off", "--quiet", "-o", "out", "true"];
    let done = ampere(&place, &[&["run"], &options[..], &more[..]].concat());
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:#?}");
    assert!(!place.path("out/traces.otf2").exists());
    let summary = place.summary("out");
    assert_eq!(summary["devices"][0]["source"], "estimate");
    assert!(summary["run"]["stack_period_seconds"].is_null(), "no stacks: {}", summary["run"]);
    // --stacks is an older name of --sample.
    let wrong = [
        ("--trace", "perhaps", "--trace"),
        ("--sample-period", "fast", "--sample-period"),
        ("--recorder", "both", "--recorder"),
        ("--stacks", "x", "--sample"),
    ];
    for (option, value, named) in wrong {
        let done = ampere(&place, &["run", option, value, "true"]);
        assert_eq!(done.code, 2, "{option}: {done:#?}");
        assert!(done.stderr.contains(&format!("{named} <")), "{done:#?}");
    }
    let unknown = ampere(&place, &["run", "--counters", "sundial", "true"]);
    assert_ne!(unknown.code, 0, "{unknown:#?}");
    assert!(unknown.stderr.contains("sundial"), "{unknown:#?}");
}

#[test]
fn tips_name_what_can_be_typed() {
    let place = Place::new();
    for (arguments, without) in [
        (&["witnes"][..], "witness"),
        (&["prob"], "probe"),
        (&["shippd"], "shipped"),
        (&["report", "x", "--jsonn"], "-- --jsonn"),
        (&["attribute", "x", "--outptu", "y"], "-- --outptu"),
    ] {
        let done = ampere(&place, arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {done:#?}");
        let tips: Vec<&str> = done.stderr.lines().filter(|line| line.contains("tip:")).collect();
        assert!(!tips.iter().any(|line| line.contains(without)), "{done:#?}");
    }
    let meant = ampere(&place, &["reprot"]);
    assert!(meant.stderr.contains("'report'"), "{meant:#?}");
    let bins = ampere(&place, &["report", "x", "--bins", "3"]);
    assert_eq!(bins.code, 2, "{bins:#?}");
    assert!(bins.stderr.contains("Usage: ampere report [OPTIONS] [DIRECTORY]"), "{bins:#?}");
}

#[test]
fn manual_pages_have_examples_which_can_be_typed() {
    let place = Place::new();
    assert_eq!(ampere(&place, &["shipped", "."]).code, 0);
    let mut count = 0;
    for page in std::fs::read_dir(place.path("man/man1")).expect("pages").flatten() {
        let text = std::fs::read_to_string(page.path()).expect("a page");
        if !page.file_name().to_string_lossy().starts_with("ampere-") || !text.contains(".SH OPTIONS") {
            continue;
        }
        let examples =
            text.split(".SH EXAMPLES").nth(1).unwrap_or_else(|| panic!("none in {:?}", page.path()));
        let typed = examples.lines().filter_map(|line| line.strip_prefix("\\fBampere "));
        for line in typed {
            let line = line.trim_end_matches("\\fR").replace("\\-", "-");
            let words = line.split_whitespace().take_while(|word| *word != "--");
            let mut command = place.ampere(words.collect::<Vec<_>>().as_slice());
            let done = run(command.arg("--help").current_dir(place.path("")));
            // `ampere run COMMAND --help` is the help of the command, which is not there.
            assert!(done.code == 0 || line.starts_with("run mpirun"), "{line}: {done:#?}");
            count += 1;
        }
    }
    assert!(count >= 12, "only {count}");
}

/// Asks the completion for the words that may follow.
fn completed(place: &Place, directory: &Path, words: &[&str]) -> Vec<String> {
    let script = place.path("completions/ampere.bash");
    let list = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
    let text = format!(
        "source {}; COMP_WORDS=({list}); COMP_CWORD={}; _ampere ampere '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.len() - 1
    );
    let output = Command::new("bash").args(["-c", &text]).current_dir(directory).output().expect("bash");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn directories_are_completed_where_runs_are_named() {
    skip_unless!(Command::new("bash").arg("--version").output().is_ok(), "no bash");
    let place = Place::new();
    assert_eq!(ampere(&place, &["shipped", "."]).code, 0);
    let here = place.path("here");
    std::fs::create_dir_all(here.join("first-run")).expect("a directory");
    std::fs::write(here.join("trace.otf2"), "").expect("a file");
    for command in ["report", "compare", "top", "recover"] {
        assert_eq!(completed(&place, &here, &["ampere", command, ""]), ["first-run"], "{command}");
    }
    assert_eq!(completed(&place, &here, &["ampere", "attribute", "tr"]), ["trace.otf2"]);
    assert!(completed(&place, &here, &["ampere", "report", "--f"]).contains(&"--format".to_owned()));
    assert!(completed(&place, &here, &["ampere", "run", "mkdi"]).contains(&"mkdir".to_owned()));
}

#[test]
fn for_settings_that_match_no_metric_those_of_energy_are_listed_first() {
    let recorded = recorded_trace();
    skip_unless!(recorded.is_some(), "no ../shared/traces/mi300a-two-kernels");
    let place = Place::new();
    place.write("x.toml", "[[device]]\nname = \"x\"\nmetric = 'energi_count.*'\n");
    let trace = recorded.expect("a trace").display().to_string();
    let done = ampere(&place, &["attribute", &trace, "--config", "x.toml"]);
    assert_eq!(done.code, 1, "{done:#?}");
    let names: Vec<&str> = done.stderr.split("it has ").nth(1).expect("a list").split(", ").collect();
    assert!(names[..4].iter().all(|name| name.contains("rocm_smi:::energy_count:device=")), "{done:#?}");
}
