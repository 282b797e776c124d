//! Kernels in the summary of a run, and programs in languages other than C that launch them.

use crate::jobs::Place;
use crate::root;
use crate::runs::{list, number, succeed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The figures of a kernel's or a call's row.
#[derive(Debug, Default)]
pub struct Row {
    pub calls: f64,
    pub joules: f64,
    pub seconds: f64,
}

/// Returns a view of the first device.
pub fn view<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let views = list(&list(summary, "devices")[0], "views");
    views.iter().find(|view| view["view"] == name).unwrap_or_else(|| panic!("no view {name}: {summary:#}"))
}

/// Returns the row of a region of the first device; zeros if there is none.
pub fn row(summary: &Value, in_view: &str, region: &str) -> Row {
    let row = list(view(summary, in_view), "regions").iter().find(|row| row["region"] == region);
    row.map_or_else(Row::default, |row| Row {
        calls: number(row, "calls"),
        joules: number(row, "exclusive_joules"),
        seconds: number(row, "exclusive_seconds"),
    })
}

/// Returns the calls of kernels by their call paths.
pub fn calls_by_path(summary: &Value) -> BTreeMap<Vec<&str>, f64> {
    let mut all = BTreeMap::new();
    for row in list(view(summary, "kernels"), "callpaths").iter().filter(|row| number(row, "calls") > 0.0) {
        let path = list(row, "path").iter().map(|frame| frame.as_str().expect("a name"));
        *all.entry(path.collect()).or_default() += number(row, "calls");
    }
    all
}

/// Checks a sampled run: a runtime's calls are exact, and kernels and copies are on its streams, below the function that has
/// launched them. The first launches may come before any sample, so their kernels may be elsewhere.
#[track_caller]
pub fn assert_launched(summary: &Value, runtime: &str, calls: &[(&str, f64)], work: &[([&str; 3], f64)]) {
    for (call, count) in calls {
        assert_eq!(row(summary, "ranks", call).calls, *count, "{call}");
    }
    for (frames, count) in work {
        assert_eq!(row(summary, "kernels", frames[2]).calls, *count, "{frames:?}");
        let has_all = |path: &[&str]| path.ends_with(&frames[1..]) && path.contains(&frames[0]);
        let below = calls_by_path(summary).into_iter().filter(|(path, _)| has_all(path));
        let below: f64 = below.map(|(_, calls)| calls).sum();
        let notes = &summary["run"]["notes"];
        assert!(
            below >= 0.8 * count,
            "{frames:?}: {below} of {count}: {:#?}\n{notes:#}",
            calls_by_path(summary)
        );
    }
    for row in list(view(summary, "kernels"), "callpaths") {
        let stream = row["location"].as_str().expect("a name");
        assert!(stream.starts_with(&format!("{runtime}[")), "{stream}");
    }
}

/// Compiles a Fortran program of `tests/programs`.
pub fn fortran(place: &Place, source: &str, options: &[&str]) -> PathBuf {
    let program = place.path("fortran");
    let mut compiler = place.command("gfortran");
    compiler.args(["-O1", "-g", "-o"]).arg(&program).arg(root().join("tests/programs").join(source));
    succeed(compiler.args(options));
    program
}
