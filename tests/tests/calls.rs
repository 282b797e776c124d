//! The table of calls, as read by pandas: its sums are those of the summary.

#[path = "oracle/random.rs"]
#[allow(dead_code)]
mod random_traces;

use ampere_tests::jobs::{Done, Place, files_below, run, start, until};
use ampere_tests::random::Random;
use ampere_tests::runs::{parse, python_with};
use ampere_tests::{root, skip_unless};
use otf2::{
    ArchiveWriter, Definitions, LocationGroup, LocationRef, LocationType, MetricBase, MetricClass,
    MetricMember, MetricMode, MetricOccurrence, MetricType, MetricValueType, RecorderKind, Region,
};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

/// Each line of the input file is a directory with a table and the summary of the same attribution.
const CHECK: &str = r#"
import collections, json, sys
import pandas

def close(a, b, whole):
    return abs(a - b) <= 1e-9 * max(abs(whole), 1e-6)

# Rows of a summary have nine digits.
def near(a, b):
    return abs(a - b) <= 1e-8 * max(abs(a), abs(b)) + 1e-12

rows = devices = with_calls = 0
for directory in open(sys.argv[1]).read().split():
    calls = pandas.read_parquet(directory + "/calls.parquet")
    paths = pandas.read_parquet(directory + "/calls.callpaths.parquet").set_index("callpath")
    summary = json.load(open(directory + "/summary.json"))
    names, tree = summary["names"], summary["paths"]
    def path(at):
        caller = tree["parent"][at]
        return (path(caller) if caller is not None else []) + [names[tree["name"][at]]]
    assert (calls.start <= calls.end).all()
    assert (calls.region == calls.callpath.map(paths.region)).all()
    assert (calls.depth == calls.callpath.map(paths.depth)).all()
    assert (paths.path.str.count(" > ") + 1 == paths.depth).all()
    calls["path"] = calls.callpath.map(paths.path)
    rows += len(calls)
    for device in summary["devices"]:
        for view in device["views"]:
            of = calls[(calls.node == device["node"]) & (calls.device == device["name"]) & (calls.view == view["view"])]
            whole = device["total_joules"]
            where = directory, device["name"], view["view"]
            assert close(of.exclusive_joules.sum(), view["attributed_joules"], whole), where
            assert close(of[of.depth == 1].inclusive_joules.sum(), view["attributed_joules"], whole), where
            devices += 1
            with_calls += len(of) > 0 and view["attributed_joules"] > 0
            # In the table, a stream has the rank of its process; in the summary, its location group is the GPU's context.
            of = of.assign(rank=of["rank"] if view["view"] == "ranks" else "")
            place = ["rank", "thread", "path"]
            other = calls[(calls.device != device["name"]) & (calls.node == device["node"])]
            known = other[other.device != ""].groupby(place).size()
            unlinked = other[other.device == ""].groupby(place).calls.sum()
            expected = collections.defaultdict(lambda: [0, 0.0, 0.0, 0.0])
            table = view["callpaths"]
            for at, row in enumerate(table["path"]):
                group = names[table["location_group"][at]] if view["view"] == "ranks" else ""
                sums = expected[group, names[table["location"][at]], " > ".join(path(row))]
                for column, name in enumerate(["calls", "exclusive_joules", "inclusive_joules", "resolved_joules"]):
                    sums[column] += table[name][at]
            found = of.groupby(place)[["calls", "exclusive_joules", "inclusive_joules", "resolved_joules"]].sum()
            for key, (count, exclusive, inclusive, resolved) in expected.items():
                have = found.loc[key] if key in found.index else pandas.Series(0, index=found.columns)
                assert have.calls <= count, (where, key)
                if view["view"] == "ranks" and key not in known.index:
                    # Calls before the device is known have no device.
                    assert have.calls + unlinked.get(key, 0) == count, (where, key)
                assert near(have.exclusive_joules, exclusive), (where, key)
                assert near(have.inclusive_joules, inclusive), (where, key)
                assert have.resolved_joules <= resolved * (1 + 1e-8), (where, key)
            assert set(found.index) <= set(expected), where
            if "dynamic_joules" in table and len(of):
                dynamic = of.dynamic_joules.sum()
                assert not of.dynamic_joules.isna().any(), where
                assert close(dynamic, sum(table["dynamic_joules"]), whole), where
                assert close(of[of.depth == 1].inclusive_dynamic_joules.sum(), dynamic, whole), where
            else:
                assert of.dynamic_joules.isna().all(), where
print(rows, devices, with_calls)
"#;

fn attribute(place: &Place, trace: &Path, arguments: &[&str]) -> Done {
    run(place.ampere(["attribute"]).arg(trace).args(arguments).current_dir(place.path("")))
}

/// Attributes a trace into a directory of its own.
fn tabulate(
    place: &Place,
    trace: &Path,
    name: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> PathBuf {
    let directory = place.path(name);
    std::fs::create_dir(&directory).expect("a directory");
    let calls = directory.join("calls.parquet").display().to_string();
    let mut command = place.ampere(["attribute"]);
    command.arg(trace).args(["--json", "--calls", &calls]).args(arguments);
    let done = run(command.envs(variables.iter().copied()));
    assert_eq!(done.code, 0, "{name}: {done:#?}");
    std::fs::write(directory.join("summary.json"), &done.stdout).expect("a file");
    let mut files: Vec<_> =
        files_below(&directory).iter().map(|path| path.file_name().expect("a name").to_owned()).collect();
    files.sort();
    assert_eq!(files, ["calls.callpaths.parquet", "calls.parquet", "summary.json"], "nothing else is left");
    directory
}

/// Runs `CHECK`. Returns the number of rows of the tables, the number of views of all devices, and the number of views with
/// calls and joules.
fn check(python: &Path, place: &Place, directories: &[PathBuf]) -> [u64; 3] {
    let list: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
    let list = place.write("directories", &list.join("\n"));
    let mut command = place.command(python);
    let done = run(command.args(["-c", CHECK]).arg(list));
    assert_eq!(done.code, 0, "{done:#?}");
    let numbers: Vec<u64> = done.stdout.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    numbers.try_into().expect("three")
}

/// Each policy, way of sharing and choice of threads is tested on traces with late devices, misread counters, GPU streams, and
/// leaves without enters.
#[test]
fn calls_of_random_traces_add_up_to_the_summary() {
    let python = python_with(&["pandas", "pyarrow"]);
    skip_unless!(python.is_some(), "no Python with pandas and pyarrow");
    let place = Place::new();
    let mut directories = Vec::new();
    for seed in 0..60 {
        let trace = place.path(format!("trace-{seed}"));
        std::fs::create_dir(&trace).expect("a directory");
        let generated = random_traces::write(&mut Random::new(seed), &trace).expect("a trace");
        let config = trace.join("ampere.toml");
        std::fs::write(&config, &generated.toml).expect("a file");
        let config = config.display().to_string();
        let arguments = ["--config", &config, "--policy", generated.policy];
        let variables = [
            ("AMPERE_SHARING", if seed % 3 == 0 { "independent" } else { "shared" }),
            ("AMPERE_LOCATIONS", if seed % 2 == 0 { "all" } else { "main" }),
        ];
        let trace = trace.join("traces.otf2");
        directories.push(tabulate(&place, &trace, &format!("table-{seed}"), &arguments, &variables));
    }
    let [rows, devices, with_joules] = check(&python.expect("it exists"), &place, &directories);
    assert!(rows > 60 * 50 && devices > 120 && with_joules > 60, "{rows} {devices} {with_joules}");
}

/// Runs the lines of code on the book's page about traces.
#[test]
fn the_books_lines_read_the_table() {
    let python = python_with(&["pandas", "pyarrow", "duckdb"]);
    skip_unless!(python.is_some(), "no Python with pandas, pyarrow and duckdb");
    let place = Place::new();
    let trace = long_trace(&place.path("trace"), 100, 100);
    assert_eq!(attribute(&place, &trace, &["--calls", "calls.parquet"]).code, 0);
    let page = std::fs::read_to_string(root().join("docs/src/traces.md")).expect("the page");
    let blocks = |language: &str| -> Vec<String> {
        let begin = format!("```{language}\n");
        let blocks = page.split(&begin).skip(1).filter_map(|block| block.split("```").next());
        blocks.map(str::to_owned).collect()
    };
    let query = |query: &String| format!("import duckdb\nprint(duckdb.sql(\"\"\"{query}\"\"\"))");
    let script = [blocks("python"), blocks("sql").iter().map(query).collect()].concat().join("\n");
    let mut command = place.command(python.expect("it exists"));
    let done = run(command.args(["-c", &script]).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    for word in ["GPU-0", "MPI Rank 1", "main > leaf"] {
        assert!(done.stdout.contains(word), "{word}: {done:#?}");
    }
}

/// Returns a trace with one counter that is read `samples` times, and two ranks with calls in `main`.
fn long_trace(directory: &Path, calls: u64, samples: u64) -> PathBuf {
    long_trace_read(directory, calls, samples, |_, microjoules| microjoules)
}

/// Like [`long_trace`]. `read` maps a sample's number and its true microjoules to the value that is read.
fn long_trace_read(directory: &Path, calls: u64, samples: u64, read: impl Fn(u64, u64) -> u64) -> PathBuf {
    std::fs::create_dir(directory).expect("a directory");
    let archive = ArchiveWriter::create(directory).expect("an archive");
    let mut definitions = Definitions::default();
    let regions = ["main", "work", "leaf"].map(|name| {
        let region = Region { name: name.into(), canonical_name: name.into(), ..Region::default() };
        definitions.regions.push(region)
    });
    let last = calls * 1000;
    definitions.clock.timer_resolution = 1_000_000_000;
    definitions.clock.trace_length = last;
    let member = definitions.metric_members.push(MetricMember {
        name: "rocm_smi:::energy_count:device=0".to_owned(),
        kind: MetricType::Other,
        mode: MetricMode::AccumulatedStart,
        value_type: MetricValueType::U64,
        base: MetricBase::Decimal,
        exponent: -6,
        unit: "J".to_owned(),
        ..MetricMember::default()
    });
    let counter = definitions.add_metric_class(MetricClass {
        members: vec![member],
        occurrence: MetricOccurrence::Asynchronous,
        recorder_kind: RecorderKind::Abstract,
        recorders: Vec::new(),
    });
    for location in 0..3 {
        let mut writer = archive.event_writer(LocationRef(location)).expect("a location");
        if location == 2 {
            for sample in 0..samples {
                let time = last * sample / (samples - 1);
                writer.metric_u64(time, counter, read(sample, 1000 + time / 100)).expect("a sample");
            }
        } else {
            writer.enter(0, regions[0]).expect("an event");
            for call in 0..calls {
                let (time, region) = (call * 1000, regions[1 + (call % 2) as usize]);
                writer.enter(time + 100, region).expect("an event");
                writer.leave(time + 300 + location * (call % 7) * 50, region).expect("an event");
            }
            writer.leave(last, regions[0]).expect("an event");
        }
        let events = writer.close().expect("a location");
        let group = LocationGroup { name: format!("MPI Rank {location}"), ..LocationGroup::default() };
        let group = Some(definitions.location_groups.push(group));
        let kind = if location == 2 { LocationType::Metric } else { LocationType::CpuThread };
        let name = "Master thread".to_owned();
        let location_definition = otf2::Location { name, kind, events, group, ..Default::default() };
        definitions.locations.insert(LocationRef(location), location_definition);
    }
    archive.finish(&definitions).expect("a trace");
    directory.join("traces.otf2")
}

/// There are more calls between two samples than are kept in memory.
#[test]
fn a_counter_that_is_seldom_read_has_all_calls() {
    let python = python_with(&["pandas", "pyarrow"]);
    skip_unless!(python.is_some(), "no Python with pandas and pyarrow");
    let place = Place::new();
    let trace = long_trace(&place.path("trace"), 200_000, 3);
    let mut directories = Vec::new();
    for policy in ["time_sliced", "busy_only"] {
        directories.push(tabulate(&place, &trace, policy, &["--policy", policy], &[]));
    }
    assert_eq!(check(&python.expect("it exists"), &place, &directories)[0], 2 * (2 * 200_000 + 2));
}

/// The traces have events that end early, a rank without its file, or a counter whose readings turn out to be wrong later.
#[test]
fn calls_of_damaged_and_misread_traces_add_up_to_the_summary() {
    let python = python_with(&["pandas", "pyarrow"]);
    skip_unless!(python.is_some(), "no Python with pandas and pyarrow");
    let place = Place::new();
    let table = |name: &str, trace: &Path| tabulate(&place, trace, name, &[], &[]);
    let cut = long_trace(&place.path("cut"), 20_000, 200);
    let events =
        std::fs::OpenOptions::new().write(true).open(place.path("cut/traces/0.evt")).expect("a file");
    let length = events.metadata().expect("a length").len();
    events.set_len(length * 3 / 5).expect("cut");
    let gone = long_trace(&place.path("gone"), 20_000, 200);
    std::fs::remove_file(place.path("gone/traces/1.evt")).expect("it was there");
    // One value is higher than any device can reach, and five others are near 0.
    let misread = long_trace_read(&place.path("misread"), 20_000, 200, |sample, microjoules| match sample {
        50 => 1 << 60,
        90..95 => sample,
        _ => microjoules,
    });
    let directories = [table("of-cut", &cut), table("of-gone", &gone), table("of-misread", &misread)];
    let [rows, _, with_joules] = check(&python.expect("it exists"), &place, &directories);
    assert!(rows > 2 * 20_000 && with_joules >= 3, "{rows} {with_joules}");
    let [cut, gone, misread] = directories.map(|directory| {
        parse(std::fs::read(directory.join("summary.json")).expect("a summary")).expect("JSON")
    });
    for damaged in [&cut, &gone] {
        assert_eq!(damaged["run"]["complete"], false);
    }
    assert_eq!(cut["devices"][0]["total_joules"], gone["devices"][0]["total_joules"]);
    assert!(misread["quality"]["unusable_samples"].as_u64() > Some(0), "{}", misread["quality"]);
}

#[test]
fn a_table_that_cannot_be_written_is_refused_in_one_line() {
    let place = Place::new();
    let trace = long_trace(&place.path("trace"), 100, 10);
    std::fs::create_dir(place.path("directory")).expect("a directory");
    for (calls, words) in [
        ("absent/calls.parquet", "cannot write absent/calls.parquet: No such file"),
        ("directory", "cannot write directory: it exists and is not a regular file"),
        ("calls.txt", "calls.txt: calls are written as .csv or .parquet"),
    ] {
        let done = attribute(&place, &trace, &["--calls", calls]);
        assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:#?}");
        done.said_once(&[words]);
    }
    place.write("calls.parquet", "mine");
    let done = attribute(&place, &place.path("absent.otf2"), &["--calls", "calls.parquet"]);
    assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:#?}");
    done.said_once(&["absent.otf2"]);
    assert_eq!(std::fs::read_to_string(place.path("calls.parquet")).expect("a file"), "mine");
    assert!(!files_below(place.directory()).iter().any(|path| path.display().to_string().contains(".part")));
}

#[test]
fn an_interrupted_table_leaves_nothing_behind() {
    let place = Place::new();
    let trace = long_trace(&place.path("trace"), 2_000_000, 1000);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = place.ampere(["attribute"]);
        let running =
            start(command.arg(&trace).args(["--calls", "calls.parquet"]).current_dir(place.path("")));
        let part = place.path(".ampere-calls.parquet.part");
        until("calls are written", || std::fs::metadata(&part).is_ok_and(|part| part.len() > 1 << 20));
        running.signal(signal);
        let done = running.wait();
        assert_eq!((done.code, done.stdout.as_str()), (code, ""), "{done:#?}");
        done.said_once(&["interrupted: nothing was written"]);
        let left = files_below(place.directory());
        assert!(!left.iter().any(|path| path.display().to_string().contains("parquet")), "{left:?}");
    }
}

#[test]
fn an_interrupted_timeline_leaves_nothing_behind() {
    let place = Place::new();
    let trace = long_trace(&place.path("run"), 2_000_000, 1000);
    let done = attribute(&place, &trace, &["-o", "figures"]);
    assert_eq!(done.code, 0, "{done:#?}");
    std::fs::rename(place.path("figures/summary.json"), place.path("run/summary.json")).expect("a summary");
    for options in [&["-o", "rows.csv"][..], &["--region", "leaf", "-o", "rows.csv"], &[]] {
        let running = start(place.ampere(["report", "run", "-f", "timeline"]).args(options));
        let catches = |line: &str| {
            let mask =
                line.strip_prefix("SigCgt:").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask & (1 << (Signal::INT.as_raw() - 1)) != 0)
        };
        until("signals are waited for", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid().as_raw_nonzero()));
            status.is_ok_and(|status| status.lines().any(catches))
        });
        running.signal(Signal::INT);
        let done = running.wait();
        assert_eq!((done.code, done.stdout.as_str()), (130, ""), "{done:#?}");
        done.said_once(&["interrupted: nothing was written"]);
        let left = files_below(place.directory());
        assert!(!left.iter().any(|path| path.display().to_string().contains("rows")), "{left:?}");
    }
}
