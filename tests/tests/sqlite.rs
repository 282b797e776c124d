//! `ampere report -f sqlite`: read by Python's sqlite3, with the queries of rocmProfileData's own scripts.

use ampere_tests::jobs::{Done, Place, files_below, run};
use ampere_tests::runs::{list, number, python_with, relative, stencil};
use ampere_tests::skip_unless;
use serde_json::Value;

fn attributed() -> Place {
    let place = Place::new();
    place.gpu_run("out");
    place
}

fn report(place: &Place, arguments: &[&str]) -> Done {
    run(place.ampere([&["report"], arguments].concat()).current_dir(place.path("")))
}

/// Returns the rows of a query as JSON, by Python's sqlite3.
fn query(place: &Place, sql: &str) -> Vec<Value> {
    let script = "import json, sqlite3, sys\n\
                  print(json.dumps(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))";
    let done = run(place.command("python3").args(["-c", script, "out.rpd", sql]));
    assert_eq!(done.code, 0, "{sql}: {done:#?}");
    serde_json::from_str::<Value>(&done.stdout).expect("JSON").as_array().expect("rows").clone()
}

/// Calls, exclusive seconds and joules of a view's regions in a summary. Joules are summed over the devices; calls and seconds
/// are the largest of any device.
fn expected<'a>(summary: &'a Value, view: &str) -> Vec<(&'a str, f64, f64, f64)> {
    let mut regions: Vec<(&str, f64, f64, f64)> = Vec::new();
    for of in list(summary, "devices").iter().flat_map(|device| list(device, "views")) {
        for row in list(of, "regions").iter().filter(|_| of["view"] == view) {
            let name = row["region"].as_str().expect("a name");
            let at = regions.iter().position(|region| region.0 == name).unwrap_or_else(|| {
                regions.push((name, 0.0, 0.0, 0.0));
                regions.len() - 1
            });
            regions[at].1 = regions[at].1.max(number(row, "calls"));
            regions[at].2 = regions[at].2.max(number(row, "exclusive_seconds"));
            regions[at].3 += number(row, "exclusive_joules");
        }
    }
    regions
}

/// Checks that the joules of single calls add up to those of their functions.
#[track_caller]
fn check_calls(place: &Place, sql: &str, expected: &[(&str, f64, f64, f64)]) {
    let rows = query(place, sql);
    assert_eq!(rows.len(), expected.len(), "{rows:?}");
    for (name, _, _, joules) in expected {
        let row = rows.iter().find(|row| row[0] == *name).expect("a function");
        let sum = row[1].as_f64().expect("joules");
        assert!((sum - joules).abs() < 1e-9 * joules.max(1.0), "{row}: {joules}");
    }
}

#[test]
fn kernels_are_ops_and_calls_are_apis_with_their_joules_next_to_them() {
    skip_unless!(python_with(&["sqlite3"]).is_some(), "no python3 with sqlite3");
    let place = attributed();
    report(&place, &["out", "-f", "sqlite", "-o", "out.rpd"]).said_nothing();
    let summary = place.summary("out");
    let top = query(&place, "SELECT Name, TotalCalls, TotalDuration, Ave, Percentage, Joules FROM top");
    let kernels = expected(&summary, "kernels");
    assert_eq!((top.len(), kernels.len()), (1, 1), "{top:?}");
    assert_eq!((&top[0][0], top[0][1].as_f64()), (&"kernel".into(), Some(kernels[0].1)));
    assert_eq!((top[0][4].as_f64(), top[0][5].as_f64()), (Some(100.0), Some(kernels[0].3)), "{top:?}");
    let microseconds = top[0][2].as_f64().expect("a duration");
    assert!(relative(microseconds, 1e6 * kernels[0].2) < 1e-6, "{top:?}, {kernels:?}");
    assert!(relative(top[0][3].as_f64().expect("a mean"), microseconds / kernels[0].1) < 1e-4, "{top:?}");
    assert_eq!(query(&place, "SELECT * FROM ktop"), query(&place, "SELECT * FROM top"));
    let functions = query(&place, "SELECT Name, TotalCalls, ExclusiveDuration, Joules FROM functions");
    let ranks = expected(&summary, "ranks");
    assert_eq!(functions.len(), ranks.len(), "{functions:?}");
    for (name, _, _, joules) in &ranks {
        let row = functions.iter().find(|row| row[0] == *name).expect("a function");
        assert!(relative(row[3].as_f64().expect("joules"), *joules) < 1e-12, "{row}: {joules}");
    }
    check_calls(&place, "SELECT apiName, sum(joules) FROM api GROUP BY apiName", &ranks);
    check_calls(&place, "SELECT kernelName, sum(joules) FROM kernel GROUP BY kernelName", &kernels);
    let whole = query(&place, "SELECT sum(inclusive_joules) FROM api WHERE apiName = 'main'");
    let attributed: f64 = ranks.iter().map(|function| function.3).sum();
    assert!(relative(whole[0][0].as_f64().expect("joules"), attributed) < 1e-9, "{whole:?}: {attributed}");
    // This is the query of rocmProfileData's tools.
    let busy = query(&place, "SELECT gpuId, GpuTime, WallTime, Busy, Joules FROM busy");
    let gpu = &list(&summary, "devices")[0];
    assert_eq!((busy.len(), busy[0][0].as_i64()), (1, Some(0)), "{busy:?}");
    assert!(busy[0][3].as_f64() > Some(0.1) && busy[0][4] == gpu["total_joules"], "{busy:?}");
    let ops = query(&place, "SELECT distinct gpuId, queueId, description, opType FROM op");
    assert_eq!(ops, [serde_json::json!([0, 0, "kernel", "KernelExecution"])]);
    let apis = query(&place, "SELECT distinct pid, tid FROM rocpd_api ORDER BY pid");
    assert_eq!(apis, [serde_json::json!([0, 0]), serde_json::json!([1, 0])]);
    let lasting = query(&place, "SELECT count(*) FROM kernel WHERE duration != end - start OR duration <= 0");
    assert_eq!(lasting, [serde_json::json!([0])]);
    let version = query(&place, "SELECT value FROM rocpd_metadata WHERE tag = 'schema_version'");
    assert_eq!(version, [serde_json::json!(["2"])]);
    assert_eq!(query(&place, "PRAGMA integrity_check"), [serde_json::json!(["ok"])]);
    assert_eq!(query(&place, "PRAGMA foreign_key_check"), Vec::<Value>::new());
    // A device's rows in a view add up to its joules.
    let sums = query(
        &place,
        "SELECT sum(exclusive_joules), total_joules FROM ampere_region JOIN ampere_device USING (node, device) \
         GROUP BY node, device, view",
    );
    for sum in &sums {
        let [sum, total] = [0, 1].map(|at| sum[at].as_f64().expect("joules"));
        assert!(relative(sum, total) < 1e-9, "{sums:?}");
    }
    // Here only one view is written.
    report(&place, &["out", "-f", "sqlite", "--view", "kernels", "-o", "out.rpd"]).said_nothing();
    assert_eq!(query(&place, "SELECT count(*) FROM rocpd_api"), [serde_json::json!([0])]);
}

#[test]
fn static_and_dynamic_joules_add_up_to_those_of_their_device() {
    skip_unless!(python_with(&["sqlite3"]).is_some(), "no python3 with sqlite3");
    let place = attributed();
    let none = "SELECT count(*) FROM ampere_device WHERE device <> 'GPU-0' AND (baseline_kind IS NOT NULL OR static_joules IS NOT NULL)";
    report(&place, &["out", "-f", "sqlite", "-o", "out.rpd"]).said_nothing();
    assert_eq!(
        query(&place, none),
        [serde_json::json!([0])],
        "only the policy active divides joules into static and dynamic ones"
    );
    let settings = "[[device]]\nname = \"GPU-0\"\nmetric = '.*energy_count.*'\nbaseline_watts = 40\n\
                    [attribution]\npolicy = \"active\"\n";
    std::fs::write(place.path("out.toml"), settings).expect("a file");
    let attribute = ["attribute", "out/traces.otf2", "--config", "out.toml", "-o", "active"];
    assert_eq!(run(place.ampere(attribute).current_dir(place.path(""))).code, 0);
    std::fs::rename(place.path("active/summary.json"), place.path("out/summary.json")).expect("a summary");
    report(&place, &["out", "-f", "sqlite", "--config", "out.toml", "-o", "out.rpd"]).said_nothing();
    let devices = query(
        &place,
        "SELECT d.static_joules, d.dynamic_joules, sum(r.static_joules), sum(r.dynamic_joules), total_joules, baseline_watts, \
         baseline_kind FROM ampere_device AS d JOIN ampere_region AS r USING (node, device) WHERE view = 'kernels' GROUP BY node, device",
    );
    assert_eq!(devices.len(), 1, "{devices:?}");
    let figure = |at: usize| devices[0][at].as_f64().expect("a figure");
    assert!(relative(figure(0), figure(2)) < 1e-9 && relative(figure(1), figure(3)) < 1e-9, "{devices:?}");
    assert!(relative(figure(0) + figure(1), figure(4)) < 1e-9 && figure(0) > 1.0, "{devices:?}");
    assert_eq!((figure(5), &devices[0][6]), (40.0, &"set".into()));
}

/// This is a real run with coalesced calls.
#[test]
fn calls_and_times_of_a_run_are_those_of_its_summary() {
    skip_unless!(python_with(&["sqlite3"]).is_some(), "no python3 with sqlite3");
    let place = Place::new();
    let stencil = stencil();
    let words = ["mpirun.openmpi", "--oversubscribe", "-n", "2", &stencil, "1"];
    assert_eq!(run(place.ampere_run("out", words).env("AMPERE_EVENTS", "folded")).code, 0);
    report(&place, &["out", "-f", "sqlite", "-o", "out.rpd"]).said_nothing();
    let summary = place.summary("out");
    assert!(number(&summary["quality"], "coalesced_calls") > 0.0, "{}", summary["quality"]);
    let rows = query(&place, "SELECT Name, TotalCalls, ExclusiveDuration, Joules FROM functions");
    let expected = expected(&summary, "ranks");
    assert_eq!(rows.len(), expected.len());
    check_calls(&place, "SELECT apiName, sum(joules) FROM api GROUP BY apiName", &expected);
    for (name, calls, seconds, joules) in expected {
        let row = rows.iter().find(|row| row[0] == name).expect("a function");
        assert_eq!(row[1].as_f64(), Some(calls), "{row}");
        assert!((1e-6 * row[2].as_f64().expect("a time") - seconds).abs() < 1e-5, "{row}: {seconds} s");
        assert!(relative(row[3].as_f64().expect("joules"), joules) < 1e-12, "{row}: {joules}");
    }
}

#[test]
fn a_database_that_cannot_be_written_is_named_and_leaves_nothing() {
    let place = attributed();
    place.write("precious", "mine");
    std::fs::create_dir(place.path("alone")).expect("a directory");
    std::fs::copy(place.path("out/summary.json"), place.path("alone/summary.json")).expect("a summary");
    for (arguments, words) in [
        (&["out", "-f", "sqlite"][..], "a database cannot go to standard output: name its file with -o"),
        (&["out", "-f", "sqlite", "-o", "absent/file"], "cannot write absent/file"),
        (&["out", "-f", "sqlite", "-o", "/dev/stdout"], "cannot write /dev/stdout: it is not a regular file"),
        (&["alone", "-f", "sqlite", "-o", "precious"], "there is no trace in alone"),
        (&["out", "-f", "sqlite", "-o", "precious", "--device", "GPU-7"], "there is no device \"GPU-7\""),
    ] {
        let done = report(&place, arguments);
        assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{arguments:?}: {done:#?}");
        done.said_once(&[words]);
    }
    assert_eq!(std::fs::read_to_string(place.path("precious")).expect("a file"), "mine");
    // The trace is cut off in the middle: the database has what is left of it, or is not written.
    let events =
        files_below(&place.path("out")).into_iter().find(|file| file.extension().is_some_and(|e| e == "evt"));
    let events = events.expect("events");
    let bytes = std::fs::read(&events).expect("events");
    std::fs::write(&events, &bytes[..bytes.len() / 2]).expect("a file");
    let done = report(&place, &["out", "-f", "sqlite", "-o", "cut.rpd"]);
    assert!(done.stderr.lines().all(|line| line.starts_with("ampere: ")), "{done:#?}");
    assert!(done.stderr.contains("cut short or damaged"), "{done:#?}");
    assert_eq!(done.code == 0, place.path("cut.rpd").exists(), "{done:#?}");
    let left =
        files_below(place.directory()).into_iter().filter(|path| path.to_string_lossy().contains(".ampere-"));
    assert_eq!(left.collect::<Vec<_>>(), [] as [std::path::PathBuf; 0]);
}
