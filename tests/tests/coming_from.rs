//! The book's page for users of other tools: its Python code runs, and its figures are those of the summary.

use ampere_tests::jobs::{Place, run};
use ampere_tests::runs::{list, number, python_with, relative, stencil};
use ampere_tests::{root, skip_unless};
use serde_json::Value;

/// Returns the Python blocks of the page below a heading.
fn python_of(heading: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/src/coming-from.md")).expect("the page");
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).expect("a section");
    let blocks = section.split("```python\n").skip(1).filter_map(|block| block.split("```").next());
    let script: String = blocks.collect();
    assert!(!script.is_empty(), "{heading}");
    script
}

fn regions(summary: &Value) -> Vec<(&str, f64)> {
    let rows = list(&list(summary, "devices")[0]["views"][0], "regions").iter();
    rows.map(|row| (row["region"].as_str().expect("a name"), number(row, "exclusive_joules"))).collect()
}

/// Makes two runs, `first` and `second`.
fn two_runs() -> Place {
    let place = Place::new();
    let stencil = stencil();
    for output in ["first", "second"] {
        let words = ["mpirun.openmpi", "--oversubscribe", "-n", "2", &stencil, "1"];
        assert_eq!(run(&mut place.ampere_run(output, words)).code, 0);
    }
    place
}

#[test]
fn hatchet_and_thicket_read_runs_by_the_books_lines() {
    let python = python_with(&["hatchet", "thicket"]);
    skip_unless!(python.is_some(), "no llnl-hatchet and llnl-thicket");
    let place = two_runs();
    let more = "
rows = one.dataframe
assert rows.loc[one.graph.roots[0], 'inclusive_joules'] > 0
means = runs.statsframe.dataframe
print(json.dumps([
    {name: sum(rows[rows['name'] == name]['exclusive_joules']) for name in set(rows['name'])},
    {name: sum(means[means['name'] == name]['exclusive_joules_mean']) for name in set(means['name'])},
]))
";
    let script = python_of("Thicket and Hatchet") + more;
    let done = run(place.command(python.expect("a Python")).args(["-W", "ignore", "-c", &script]));
    assert_eq!(done.code, 0, "{done:#?}");
    let figures: Value = serde_json::from_str(done.stdout.lines().last().expect("a line")).expect("JSON");
    let (first, second) = (place.summary("first"), place.summary("second"));
    let of_second = regions(&second);
    for (name, joules) in regions(&first) {
        assert!((number(&figures[0], name) - joules).abs() < 1e-6, "{name}: {joules} J: {figures}");
        let other = of_second.iter().find(|(other, _)| *other == name).expect("the same functions").1;
        let mean = (joules + other) / 2.0;
        assert!((number(&figures[1], name) - mean).abs() < 1e-6, "{name}: {mean} J: {figures}");
    }
}

#[test]
fn a_bottleneck_table_is_that_of_the_summary() {
    let python = python_with(&["pandas"]);
    skip_unless!(python.is_some(), "no python3-pandas");
    let place = Place::new();
    place.gpu_run("first");
    let here = |arguments: &[&str]| run(place.ampere(arguments).current_dir(place.path("")));
    assert_eq!(here(&["attribute", "first/traces.otf2", "-o", "figures"]).code, 0);
    assert_eq!(here(&["report", "figures", "--view", "ranks", "-f", "csv", "-o", "rows.csv"]).code, 0);
    let more = "\nimport json\nprint(json.dumps(table.exclusive_joules.to_dict()))\n";
    let script = python_of("Bottleneck tables by dask or CuPy") + more;
    let done = run(place.command(python.expect("a Python")).args(["-c", &script]));
    assert_eq!(done.code, 0, "{done:#?}");
    let table: Value = serde_json::from_str(done.stdout.lines().last().expect("a line")).expect("JSON");
    let summary = place.summary("first");
    let of = |name: &str| -> f64 {
        let views = list(&summary, "devices").iter().flat_map(|device| list(device, "views"));
        let rows = views.filter(|view| view["view"] == "ranks").flat_map(|view| list(view, "regions"));
        rows.filter(|row| row["region"] == name).map(|row| number(row, "exclusive_joules")).sum()
    };
    for name in ["main", "solve"] {
        assert!(relative(number(&table, name), of(name)) < 1e-9, "{name}: {table}");
    }
}

/// Applies the rule of the Frontier scripts by hand: the kernels that ran in an interval of the GPU's counter get all its
/// joules. In the generated trace, the counter is read every 10 ms and rises by 1 J each time, and a kernel runs for 64 ms of
/// each 130 ms.
#[test]
fn busy_only_kernels_are_those_of_the_frontier_scripts() {
    let place = Place::new();
    place.gpu_run("gpu");
    let words = ["attribute", "gpu/traces.otf2", "--policy", "busy_only", "--view", "kernels", "--json"];
    let done = run(place.ampere(words).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = ampere_tests::runs::parse(&done.stdout).expect("a summary");
    let view = &list(&summary, "devices")[0]["views"][0];
    assert_eq!((&view["view"], &view["policy"]), (&"kernels".into(), &"busy_only".into()));
    let ran_in = |from: u64| (0..15).any(|kernel| kernel * 130 + 5 < from + 10 && kernel * 130 + 69 > from);
    let busy = (50..1990).step_by(10).filter(|from| ran_in(*from)).count();
    let row = &list(view, "regions")[0];
    assert!(relative(number(row, "exclusive_joules"), busy as f64) < 1e-9, "{busy} J: {row}");
}
