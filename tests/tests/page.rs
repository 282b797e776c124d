//! The live page and report.html in a real Chromium: what they show, and what users can do with them.

use ampere_model::digits;
use ampere_tests::collector::announced;
use ampere_tests::jobs::{Place, have, run, start, until};
use ampere_tests::runs::{may_mount, on_path};
use ampere_tests::{artifact, browser, http, openmetrics, root, skip_unless};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Functions whose names contain HTML, bytes that are not UTF-8, or a long template. The name of `wide` has no place for a line
/// break, and its share is in the first sentences of the page.
const SOURCE: &str = r#"
    #include <time.h>
    #include <unistd.h>
    void odd(void) __asm__("<script>alert(1)</script>\"'&\n{}");
    void bytes(void) __asm__("bytes\xff\xfe step");
    void longest(void) __asm__("LONG");
    void wide(void) __asm__("one_name_without_any_place_at_which_a_line_can_be_broken");
    __attribute__((always_inline, no_instrument_function)) static inline void spin(double seconds) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
    }
    void odd(void) { spin(0.01); }
    void bytes(void) { spin(0.005); }
    void longest(void) { spin(0.005); }
    void wide(void) { spin(0.02); }
    __attribute__((noinline)) void step(void) { odd(); bytes(); longest(); wide(); }
    int main(void) { while (access("go", F_OK)) step(); return 3; }
"#;

fn browse(place: &Place, url: &str, width: u32) -> Command {
    let mut command = place.command(Path::new("node"));
    command.arg(root().join("tests/programs/page.js")).args([url, &width.to_string()]);
    command.env("NODE_PATH", browser::modules()).env("HOME", place.path(""));
    command
}

/// Returns the JSON that the driver printed.
fn answer(stdout: &str) -> Value {
    serde_json::from_str(stdout).expect("JSON")
}

fn program(place: &Place) -> std::path::PathBuf {
    let long =
        format!("std::map<{}>::step(long)", "std::vector<double, std::allocator<double> >, ".repeat(220));
    place.compile(
        "clang",
        "names",
        &SOURCE.replace("LONG", &long),
        &["-O1", "-finstrument-functions", "-rdynamic"],
    )
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) + 1e-9
}

/// Checks what the live page and the saved page have in common.
fn check(answer: &Value, address: &str) {
    assert_eq!(answer["errors"], serde_json::json!([]), "the console is quiet");
    for request in answer["requests"].as_array().expect("requests") {
        let request = request.as_str().expect("a URL");
        assert!(
            request.starts_with(address) || request.starts_with("data:"),
            "nothing from elsewhere: {request}"
        );
    }
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(answer["focus"], "flame-picture");
    assert!(
        text("zoomed").contains("main: ") && text("said").starts_with("main: "),
        "{} {}",
        text("zoomed"),
        text("said")
    );
    assert!(
        text("whole").contains("all devices: ") && text("whole").contains("100.0 % of total"),
        "{}",
        text("whole")
    );
    assert!(text("searched").contains("“STEP”: "), "{}", text("searched"));
    assert!(text("clicked").contains("main: "), "{}", text("clicked"));
    // This text states a moment, the power at that moment, and what ran then.
    let power = text("power");
    assert!(power.starts_with("at ") && power.contains(" W, "), "{power}");
    assert!(power.contains(" % of ") || power.ends_with(": nothing"), "{power}");
    let names = |key: &str| -> Vec<String> {
        let rows = answer[key].as_array().expect("rows");
        rows.iter().map(|row| row.as_str().expect("a name").to_owned()).collect()
    };
    // The remaining rows, which are idle, come last. Their order does not matter.
    let sorted = names("sorted");
    let of_functions: Vec<&String> = sorted.iter().filter(|name| !name.starts_with("idle: ")).collect();
    assert!(of_functions.len() > 4, "{sorted:?}");
    let filtered = names("filtered");
    assert!(!filtered.is_empty() && filtered.iter().all(|name| name.contains("step")), "{filtered:?}");
    let page = text("text");
    for name in ["<script>alert(1)</script>\"'&\u{fffd}{}", "names+0x", "std::map<std::vector<double, "] {
        assert!(page.contains(name), "{name} is a name as any other: {page}");
    }
    assert!(answer["first"]["overflow"].as_i64() <= Some(0), "nothing is wider than the window");
}

fn shown(answer: &Value, when: &str) -> (f64, Vec<(String, f64)>) {
    let functions = answer[when]["functions"].as_array().expect("rows").iter();
    let functions =
        functions.map(|row| (row[0].as_str().expect("a name").to_owned(), row[1].as_f64().expect("joules")));
    (answer[when]["totals"]["total-joules"].as_f64().expect("joules"), functions.collect())
}

#[test]
fn a_live_page_has_the_figures_of_metrics_and_in_the_end_those_of_the_summary() {
    skip_unless!(browser::is_there(), browser::WHY);
    skip_unless!(on_path("clang"), "no clang, whose functions can have any name");
    let place = Place::new();
    let running = start(place.ampere_run("out", [&program(&place)]).env("AMPERE_COUNTERS", "estimate"));
    until("there are figures", || {
        let address = announced(&place.path("out")).map(|collector| collector.address());
        let body = address.and_then(|address| http::get(address, "/metrics").ok()).map(|answer| answer.body);
        body.is_some_and(|body| body.contains("ampere_region_energy_joules_total{"))
    });
    let address = announced(&place.path("out")).expect("a collector").address();
    let joules = || {
        let metrics =
            openmetrics::parse(&http::get(address, "/metrics").expect("metrics").body).expect("metrics");
        let device = metrics.iter().find(|series| series.name == "ampere_device_energy_joules_total");
        device.expect("a device").value
    };
    let before = joules();
    let browser = start(browse(&place, &format!("http://{address}/"), 1600).env("MARK", place.path("mark")));
    until("the browser has used the page", || place.path("mark").exists());
    // Metrics may be of the same moment for a while, so the test waits for those of a later moment than the page.
    let (seen, mut after) = (joules(), 0.0);
    until("there are newer metrics", || {
        after = joules();
        after > seen
    });
    place.write("go", "");
    assert_eq!(running.wait().code, 3);
    let done = browser.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let answer = answer(&done.stdout);
    check(&answer, &format!("http://{address}/"));
    let (first, _) = shown(&answer, "first");
    assert!((before..=after).contains(&first), "between two scrapes: {before} {first} {after}");
    assert_eq!(
        (&answer["first"]["state"], &answer["last"]["state"]),
        (&"running".into(), &"ended with status 3".into())
    );
    let now = answer["first"]["now"].to_string();
    assert!(now.contains("1 process"), "{now}");
    // This is the page at the end of the run.
    let summary = place.summary("out");
    let (last, functions) = shown(&answer, "last");
    assert!(close(last, summary["run"]["total_joules"].as_f64().expect("joules")), "{last}");
    let regions = summary["devices"][0]["views"][0]["regions"].as_array().expect("regions");
    let mut wanted: Vec<f64> = regions.iter().filter_map(|row| row["exclusive_joules"].as_f64()).collect();
    wanted.push(summary["devices"][0]["views"][0]["idle_joules"].as_f64().expect("joules"));
    for (name, joules) in &functions {
        assert!(wanted.iter().any(|wanted| close(*wanted, *joules)), "{name}: {joules} of {wanted:?}");
    }
    assert!(functions.len() > 4, "{functions:?}");
    let events = summary["quality"]["events"].as_f64();
    assert_eq!(answer["last"]["facts"]["events"].as_f64(), events);
    // report.html is the same page without updates, even on a small screen.
    for width in [400, 1600] {
        let url = format!("file://{}", place.path("out/report.html").display());
        let done = run(&mut browse(&place, &url, width));
        assert_eq!(done.code, 0, "{done:#?}");
        let answer = self::answer(&done.stdout);
        check(&answer, &url);
        assert_eq!(shown(&answer, "first"), (last, functions.clone()), "at {width} pixels");
        assert_eq!(answer["first"]["state"], "ended with status 3", "at {width} pixels");
    }
}

#[test]
fn a_page_of_a_run_with_a_token_asks_for_it_or_has_it_in_its_address() {
    const TOKEN: &str = "a-token-of-this-test-0123456789";
    skip_unless!(browser::is_there(), browser::WHY);
    skip_unless!(on_path("clang"), "no clang, whose functions can have any name");
    let place = Place::new();
    let file = place.path("token");
    std::fs::write(&file, TOKEN).expect("room");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let mut command = place.ampere_run("out", [&program(&place)]);
    let running = start(command.env("AMPERE_COUNTERS", "estimate").env("AMPERE_TOKEN_FILE", &file));
    until("it is announced", || announced(&place.path("out")).is_some());
    let address = announced(&place.path("out")).expect("a collector").address();
    for path in ["/page.json", "/events"] {
        assert_eq!(http::get(address, path).expect("an answer").status, 401, "{path}");
    }
    until("there are figures", || {
        let page = http::ask(address, "GET", "/page.json", Some(TOKEN));
        page.is_ok_and(|page| page.body.contains("one_name_without_any_place"))
    });
    let marks = ["by-address", "asked"].map(|name| place.path(name));
    let url = format!("http://{address}/");
    let by_address = start(browse(&place, &format!("{url}#token={TOKEN}"), 1600).env("MARK", &marks[0]));
    let asked = start(browse(&place, &url, 1600).env("TOKEN", TOKEN).env("MARK", &marks[1]));
    until("both have seen it", || marks.iter().all(|mark| mark.exists()));
    place.write("go", "");
    assert_eq!(running.wait().code, 3);
    for browser in [by_address, asked] {
        let done = browser.wait();
        assert_eq!(done.code, 0, "{done:#?}");
        let answer = answer(&done.stdout);
        check(&answer, &format!("http://{address}/"));
        let requests = answer["requests"].to_string();
        // The browser may report the page's address with the part after #, which it does not send.
        assert!(requests.matches(TOKEN).count() <= 1, "no further request has the token: {requests}");
    }
}

/// Node, mean watts, joules, idle part in percent, and ranks, as a page must show them for these nodes' summaries.
fn nodes_wanted(place: &Place, directories: &[&str]) -> BTreeMap<String, [f64; 4]> {
    let number = |of: &Value| of.as_f64().expect("a number");
    let of_node = |directory: &&str| {
        let summary = place.summary(directory);
        let device = &summary["devices"][0];
        assert_eq!(summary["devices"].as_array().map(Vec::len), Some(1), "{summary}");
        let (joules, seconds) = (number(&device["total_joules"]), number(&device["sampled_seconds"]));
        let idle = number(&device["views"][0]["idle_joules"]);
        let node = summary["run"]["nodes"][0].as_str().expect("a name").to_owned();
        (node, [joules / seconds, joules, 100.0 * idle / joules, number(&summary["run"]["ranks"])])
    };
    directories.iter().map(of_node).collect()
}

#[test]
fn a_report_of_several_nodes_has_their_table() {
    skip_unless!(browser::is_there(), browser::WHY);
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    let place = Place::new();
    let program = place.instrumented().display().to_string();
    let script = format!("{} & {program} & {program}; wait", place.on_another_node("node-b", &program));
    let mut command = place.ampere_run("out", ["sh", "-c", &script]);
    command.env("AMPERE_OUTPUT", place.path("out")).env("AMPERE_COUNTERS", "rocm_smi");
    command.env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"));
    let done = run(command.env("STAND_IN_ROCM_SMI", "watts=300").current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    place.no_process_left();
    let whole = place.path("all.html");
    let made = run(place.ampere(["report", "out", "-f", "html", "-o"]).arg(&whole));
    assert_eq!(made.code, 0, "{made:#?}");
    let answer = browser::shown(&place, &format!("file://{}", whole.display()), 1600, Some("node-b"));
    let heads = serde_json::json!(["mean W", "J", "of total", "bar", "idle", "ranks", "node", "energy"]);
    assert_eq!(answer["heads"], heads);
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let wanted = nodes_wanted(&place, &[&format!("out/{own}"), "out/node-b"]);
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!((wanted.len(), rows.len()), (2, 2), "{wanted:?} {rows:?}");
    let wanted_rows: Vec<[f64; 4]> =
        rows.iter().map(|row| wanted[row[6].as_str().expect("a name")]).collect();
    let column = |at: usize| {
        let values: Vec<f64> = wanted_rows.iter().map(|row| row[at]).collect();
        digits::column(&values, digits::MEASURED)
    };
    let (watts, joules) = (column(0), column(1));
    for (at, row) in rows.iter().enumerate() {
        let [_, _, idle, ranks] = wanted_rows[at];
        let shown = [0, 1, 4, 5, 7].map(|at| row[at].as_str().expect("text"));
        let form = [&watts[at], &joules[at], &format!("{idle:.0} %"), &ranks.to_string(), "simulated"];
        assert_eq!(shown, form, "{rows:?}");
    }
    let joules: f64 = wanted.values().map(|node| node[1]).sum();
    assert!(close(answer["total"].as_f64().expect("joules"), joules), "{answer}");
    assert!(answer["sentences"].to_string().contains("Most power: "), "{}", answer["sentences"]);
    // All other figures cover all nodes as well.
    assert!(answer["titles"].to_string().contains("\"Devices\""), "{}", answer["titles"]);
    assert_eq!(answer["searched"].as_array().map(Vec::len), Some(1));
}

/// Eleven functions that call each other four deep have 12,221 call paths below main on the page, where a function that calls
/// itself is one frame. After these calls, each rank takes a random path every 0.1 s.
const MANY_PATHS: &str = r#"
    #include <mpi.h>
    #include <unistd.h>
    #define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10)
    #define DECLARE(n) void f##n(int depth, int path);
    #define NAME(n) f##n,
    EACH(DECLARE)
    static void (*const all[])(int, int) = { EACH(NAME) };
    static volatile double x;
    __attribute__((no_instrument_function)) static void below(int depth, int path) {
        if (path >= 0 && depth) all[path % 11](depth - 1, path / 11);
        for (int i = 0; path < 0 && depth && i < 11; i++) all[i](depth - 1, -1);
        for (int i = depth ? 50 : path < 0 ? 200 : 20000; i; i--) x += 1.0 / i;
    }
    #define DEFINE(n) __attribute__((noinline)) void f##n(int depth, int path) { below(depth, path); }
    EACH(DEFINE)
    int main(int argc, char **argv) {
        int rank;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        below(4, -1);
        for (unsigned next = rank; access("go", F_OK); usleep(100000)) below(4, (next = next * 1103515245 + 12345) >> 8 & 0xffff);
        MPI_Finalize();
        return 0;
    }
"#;

/// A program with functions that work, and functions that do nothing.
const RANKS_AND_SMALL_FUNCTIONS: &str = r#"
    #include <mpi.h>
    #include <time.h>
    #include <unistd.h>
    #define SMALL(name) __attribute__((noinline)) void name(void) { __asm__ volatile(""); }
    SMALL(small_1) SMALL(small_2) SMALL(small_3) SMALL(small_4) SMALL(small_5)
    __attribute__((noinline)) void work(void) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < 0.05);
    }
    int main(int argc, char **argv) {
        MPI_Init(&argc, &argv);
        small_1(); small_2(); small_3(); small_4(); small_5();
        while (access("go", F_OK)) work();
        MPI_Finalize();
        return 0;
    }
"#;

fn two_ranks(place: &Place) -> Command {
    let source = RANKS_AND_SMALL_FUNCTIONS;
    let program = place.compile("mpicc.openmpi", "small", source, &["-finstrument-functions", "-rdynamic"]);
    let mut command = place.ampere_run("out", ["mpirun.openmpi", "--oversubscribe", "-n", "2"]);
    command.arg(&program).env("AMPERE_COUNTERS", "estimate");
    command
}

/// Returns the data of the live page; null if there are none yet.
fn live_page(place: &Place) -> Value {
    let address = announced(&place.path("out")).map(|collector| collector.address());
    let page = address.and_then(|address| http::get(address, "/page.json").ok());
    page.and_then(|page| serde_json::from_str(&page.body).ok()).unwrap_or_default()
}

/// The lanes of a page, and the names of what ran the most in their steps.
fn lanes(page: &Value) -> Vec<(&str, Vec<&str>)> {
    let tables = &page["tables"];
    let ran = |lane: &Value| {
        let steps = lane["name"].as_array().expect("steps").iter();
        let names = steps.filter_map(|at| tables["names"][at.as_u64()? as usize].as_str());
        names.collect()
    };
    let lanes = tables["lanes"].as_array().into_iter().flatten();
    lanes.map(|lane| (lane["label"].as_str().expect("a label"), ran(lane))).collect()
}

/// With default settings stacks are sampled, including those of the launcher.
#[test]
fn a_launcher_is_not_among_the_ranks_and_small_functions_are_summed() {
    skip_unless!(browser::is_there(), browser::WHY);
    if !have(&["mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let place = Place::new();
    let running = start(two_ranks(&place).env_remove("AMPERE_SAMPLE"));
    until("the launcher and both ranks are running", || {
        let page = live_page(&place);
        let is_there = page["tables"]["ranks"]["has_others"] == true;
        is_there && page["now"]["cells"].as_array().is_some_and(|cells| cells.len() == 2)
    });
    let check = |shown: &Value| {
        let words = |key: &str| shown[key].as_str().unwrap_or_default();
        assert!(words("about").starts_with("2 ranks on "), "{}", words("about"));
        assert!(words("words").starts_with("2 ranks: "), "{}", words("words"));
        assert!(words("words").contains("; and 1 other process: "), "{}", words("words"));
        assert!(words("heat").ends_with(" functions on 2 ranks or groups of them"), "{}", words("heat"));
        let more = words("more");
        assert!(more.starts_with("Show more (") && more.ends_with(" %)"), "{more}");
        assert!(shown["function_heads"].to_string().contains("\"±"), "{}", shown["function_heads"]);
        let functions: Vec<&str> =
            shown["functions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert!(
            functions.contains(&"work") && !functions.iter().any(|name| name.starts_with("small_")),
            "{functions:?}"
        );
    };
    let address = announced(&place.path("out")).expect("a collector").address();
    until("each rank has a lane that has reached its function", || {
        let page = live_page(&place);
        let is_rank = |(label, ran): &(&str, Vec<&str>), rank: usize| {
            *label == format!("rank {rank}") && ran.last() == Some(&"work")
        };
        let of_ranks = lanes(&page);
        of_ranks.len() == 2 && of_ranks.iter().zip(0..).all(|(lane, rank)| is_rank(lane, rank))
    });
    let shown = browser::shown(&place, &format!("http://{address}/"), 1600, None);
    check(&shown);
    let now = shown["now"].to_string();
    assert!(now.contains("work2 ranks"), "{now}");
    let others = shown["others"].as_str().unwrap_or_default();
    assert!(
        others.starts_with("and 1 other process: ") && others.contains(" mpirun.openmpi in "),
        "{others}"
    );
    place.write("go", "");
    assert_eq!(running.wait().code, 0);
    let saved: Value =
        serde_json::from_slice(&std::fs::read(place.path("out/summary.json")).expect("figures"))
            .expect("JSON");
    let saved = &saved["lanes"][0];
    let ran: Vec<&Value> = saved["lanes"][1]["region"].as_array().expect("steps").iter().collect();
    assert_eq!(
        (saved["lanes"].as_array().map(Vec::len), &saved["lanes"][1]["first"]),
        (Some(2), &"MPI Rank 1".into())
    );
    assert!(
        ran.iter().any(|at| at.as_u64().is_some_and(|at| saved["names"][at as usize] == "work")),
        "{saved}"
    );
    let report = format!("file://{}", place.path("out/report.html").display());
    let shown = browser::shown(&place, &report, 400, None);
    check(&shown);
    // A launcher's call paths are long.
    let paths: Vec<&str> =
        shown["paths"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(paths[0] == "main > work" && paths.iter().all(|path| path.chars().count() < 250), "{paths:?}");
    let text = std::fs::read_to_string(place.path("out/summary.txt")).expect("a summary");
    assert!(text.contains("work") && !text.contains("small_1"), "{text}");
    assert!(text.contains("more (see --rows)"), "{text}");
    let mut functions = text.lines().skip_while(|line| !line.ends_with("  function")).skip(1);
    let is_nothing = |line: &&str| line.split_whitespace().next() == Some("0");
    assert_eq!(functions.by_ref().take_while(|line| !line.contains("...")).find(is_nothing), None, "{text}");
}

/// Most of the functions are those of the interpreter.
#[test]
fn the_functions_of_a_python_program_come_before_all_functions() {
    skip_unless!(browser::is_there(), browser::WHY);
    let place = Place::new();
    std::fs::create_dir(place.path("python")).expect("a directory");
    let summary = root().join("crates/report/tests/first_lines/python.json");
    std::fs::copy(summary, place.path("python/summary.json")).expect("a summary");
    let done = run(&mut place.ampere(["report", "python", "-f", "html", "-o", "python.html"]));
    assert_eq!(done.code, 0, "{done:#?}");
    let url = format!("file://{}", place.path("python.html").display());
    for width in [400, 1600] {
        let shown = browser::shown(&place, &url, width, None);
        let words = |key: &str| -> Vec<String> {
            let all = shown[key].as_array().into_iter().flatten().filter_map(Value::as_str);
            all.map(str::to_owned).collect()
        };
        let [python, titles] = [words("python"), words("titles")];
        let names = ["expensive (work.py)", "medium (work.py)", "cheap (work.py)", "native (work.py)"];
        assert_eq!(python[..4], names, "{python:?}");
        let tables: Vec<&String> = titles.iter().filter(|title| title.contains("unctions")).collect();
        assert_eq!(tables, ["Python functions with C code", "Functions"]);
    }
}

#[test]
fn names_fit_next_to_other_cards_and_invisible_deep_stacks_take_no_rows() {
    skip_unless!(browser::is_there(), browser::WHY);
    if !have(&["mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let place = Place::new();
    place.write("go", "");
    assert_eq!(run(two_ranks(&place).env_remove("AMPERE_SAMPLE")).code, 0);
    let html = std::fs::read_to_string(place.path("out/report.html")).expect("a page");
    let (head, rest) = html.split_once("id=\"data\">").expect("the data");
    let (data, tail) = rest.split_once("</script>").expect("the data's end");
    let mut data: Value = serde_json::from_str(data).expect("JSON");
    let flame = &mut data["tables"]["flames"][0];
    let joules: f64 = flame["joules"].as_array().expect("boxes").iter().filter_map(Value::as_f64).sum();
    let first = flame["caller"].as_array().expect("boxes").len();
    let mut push = |key: &str, value: Value| flame[key].as_array_mut().expect("boxes").push(value);
    for depth in 0..100 {
        push("caller", (if depth == 0 { 0 } else { first + depth - 1 }).into());
        push("joules", (if depth == 99 { 0.001 * joules } else { 0.0 }).into());
        push("name", 0.into());
        push("calls", 1.into());
    }
    // Samples may show that another function made calls that are counted, and a reason may be long.
    data["tables"]["paths"]["rows"][0]["calls"] = 0.into();
    let reason = "samples of stacks were lost, because the collector had too little CPU time. ".repeat(4);
    let missing = serde_json::json!({
        "label": "incomplete", "value": 0.0, "unit": "", "text": reason, "warns": true, "help": ""
    });
    data["quality"].as_array_mut().expect("facts").insert(0, missing);
    place.write("deep.html", &format!("{head}id=\"data\">{data}</script>{tail}"));
    let url = format!("file://{}", place.path("deep.html").display());
    for width in [400, 1200, 1400, 1920, 3840] {
        let shown = browser::shown(&place, &url, width, None);
        let heads = shown["function_heads"].to_string();
        assert!(heads.contains("\"± or range\""), "{heads}");
        let is_visible = shown["visible_heads"].to_string().contains("± or range");
        let explained = shown["explained"].as_str().unwrap_or_default();
        assert_eq!(explained.contains("(least..most)"), is_visible, "{width}: {explained}");
        assert!(!(is_visible && width == 400), "names need the room");
        let path = shown["path_rows"][0].as_str().unwrap_or_default();
        assert!(path.contains("path sampled"), "{path}");
        assert!(shown["overflow"].as_i64() <= Some(0), "{width}: {}", shown["overflow"]);
        assert!(shown["flame_rows"].as_f64().is_some_and(|rows| rows < 60.0), "{}", shown["flame_rows"]);
    }
}

/// Checks what a screen reader gets from a page, by tests/programs/reader.js.
fn read(answer: &Value) {
    let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let order: Vec<(String, String)> =
        list(&answer["order"]).iter().map(|at| (text(&at["role"]), text(&at["name"]))).collect();
    let place = |role: &str, begin: &str| {
        let at = order.iter().position(|(of, name)| of == role && name.starts_with(begin));
        at.unwrap_or_else(|| panic!("no {role} {begin:?} in {order:?}"))
    };
    let places = [
        place("link", "Skip to the figures"),
        place("slider", "Power of node over "),
        place("DisclosureTriangle", "As a table: power of each device, and what ran"),
        place("searchbox", "Search functions"),
        place("button", "joules"),
        place("listbox", "Joules of "),
        place("searchbox", "Search call paths"),
        place("tree", "Flame graph of all devices: "),
        place("DisclosureTriangle", "As a table: call paths"),
    ];
    assert!(places.is_sorted(), "the order on the page: {places:?} {order:?}");
    assert!(order.iter().all(|(_, name)| !name.is_empty()), "each has a name: {order:?}");
    let tables = list(&answer["tables"]);
    assert!(!tables.is_empty());
    for table in &tables {
        assert!(!text(&table["name"]).is_empty(), "a caption: {table}");
        assert!(
            list(&table["heads"]).iter().all(|name| !["", "J", "s"].contains(&text(name).as_str())),
            "{table}"
        );
        let rows = list(&table["rows"]);
        assert!(!rows.is_empty() && rows.iter().all(|row| list(row).len() == 1), "each row's name: {table}");
    }
    let at = |of: &Value| text(&of["place"]["name"]);
    let heat = list(&answer["heat"]);
    assert!(at(&heat[0]).starts_with("work rank 0: ") && at(&heat[0]).ends_with(" J"), "{heat:?}");
    assert!(at(&heat[1]).starts_with("work rank 1: "), "{heat:?}");
    let flame = list(&answer["flame"]);
    assert!(at(&flame[0]).starts_with("all devices: ") && at(&flame[0]).contains(", 100.0 %"), "{flame:?}");
    assert!(
        at(&flame[1]).starts_with("main: ") && at(&flame[1]).contains(" J in itself, 2 calls"),
        "{flame:?}"
    );
    assert!(at(&flame[2]).starts_with("work: "), "{flame:?}");
    let levels: Vec<Option<u64>> = flame.iter().map(|of| of["place"]["level"].as_u64()).collect();
    assert_eq!(levels, [Some(1), Some(2), Some(3), Some(3)], "{flame:?}");
    let power = list(&answer["power"]);
    assert!(
        text(&power[1]).starts_with("at 0 s: node ") && text(&power[1]).contains(" W, rank 0: "),
        "{power:?}"
    );
    assert!(text(&power[0]).contains(": node ") && power[1] != power[2], "{power:?}");
}

#[test]
fn a_screen_reader_gets_names_and_figures_and_nothing_each_second() {
    skip_unless!(browser::is_there(), browser::WHY);
    if !have(&["mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let place = Place::new();
    let running = start(two_ranks(&place).env("AMPERE_SAMPLE", "off"));
    until("both ranks are running", || {
        let page = live_page(&place);
        let tables = &page["tables"];
        // MPI_Init may take a while, in which it has the most joules.
        let first = tables["functions"]["name"][0].as_u64().map(|first| &tables["names"][first as usize]);
        page["now"]["cells"].as_array().is_some_and(|cells| cells.len() == 2)
            && first.is_some_and(|first| first == "work")
    });
    let reader = |url: &str| {
        let mut command = place.command("node");
        command.arg(root().join("tests/programs/reader.js")).arg(url).env("MARK", place.path("mark"));
        command.env("NODE_PATH", browser::modules()).env("HOME", place.path(""));
        command
    };
    let collector = announced(&place.path("out")).expect("a collector");
    let live = start(&mut reader(&format!("http://{}/", collector.address())));
    until("it has been read", || place.path("mark").exists());
    collector.signal(Signal::STOP);
    place.write("mark.stopped", "");
    let done = live.wait();
    collector.signal(Signal::CONT);
    assert_eq!(done.code, 0, "{done:#?}");
    let live = answer(&done.stdout);
    read(&live);
    assert_eq!(live["announced"], serde_json::json!([[], []]), "nothing is announced each second");
    assert_eq!(
        live["stays"],
        serde_json::json!([true, "all devices"]),
        "the reader's position, and the focus"
    );
    assert_eq!(live["lost"], true, "the lost connection is announced");
    place.write("go", "");
    assert_eq!(running.wait().code, 0);
    let done = run(&mut reader(&format!("file://{}", place.path("out/report.html").display())));
    assert_eq!(done.code, 0, "{done:#?}");
    let report = answer(&done.stdout);
    read(&report);
    assert_eq!((&live["state"], &report["state"]), (&"running".into(), &"complete".into()));
}

/// On a quiet machine the first paint takes a second and an update 50 ms. Other tests may occupy most of the cores, so the
/// limits on time are much longer, and the update that counts is the one that was interrupted the least.
#[test]
fn a_page_of_12000_call_paths_on_64_ranks_is_usable() {
    const RANKS: usize = 64;
    const PATHS: f64 = 12_221.0;
    skip_unless!(browser::is_there(), browser::WHY);
    if !have(&["mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let place = Place::new();
    let program =
        place.compile("mpicc.openmpi", "many", MANY_PATHS, &["-finstrument-functions", "-rdynamic"]);
    let mut command =
        place.ampere_run("out", ["mpirun.openmpi", "--oversubscribe", "-n", &RANKS.to_string()]);
    let running = start(command.arg(&program).env("AMPERE_COUNTERS", "estimate").env("AMPERE_SAMPLE", "off"));
    let mut address = None;
    until("all ranks have been everywhere", || {
        address = announced(&place.path("out")).map(|collector| collector.address());
        let Some(page) = address.and_then(|address| http::get(address, "/page.json").ok()) else {
            return false;
        };
        let page: Value = serde_json::from_str(&page.body).unwrap_or_default();
        let calls = page["tables"]["functions"]["calls"].as_array().into_iter().flatten();
        calls.filter_map(Value::as_f64).sum::<f64>() >= PATHS * RANKS as f64
    });
    let url = format!("http://{}/", address.expect("a collector"));
    let shown = browser::shown_after(&place, &url, 1600, None, Some(8));
    place.write("go", "");
    assert_eq!(running.wait().code, 0);
    let updates = shown["updates"].as_array().expect("updates");
    let number = |of: &Value| of.as_f64().expect("a number");
    let mut milliseconds: Vec<f64> = updates.iter().map(|update| number(&update[0])).collect();
    let (first, at) = (milliseconds[0], number(&updates[0][2]));
    milliseconds.sort_by(f64::total_cmp);
    let (least, most) = (milliseconds[0], milliseconds[milliseconds.len() - 1]);
    let heap = number(&shown["heap"]) / 1e6;
    println!(
        "drawn after {at:.0} ms; updates: first {first:.1} ms, least {least:.1} ms, most {most:.1} ms; {heap:.1} MB of heap"
    );
    assert!(shown["about"].as_str().is_some_and(|about| about.starts_with("64 ranks")), "{}", shown["about"]);
    assert!(updates.iter().any(|update| update[1] == true), "{updates:?}");
    assert!(least < 500.0 && at < 40_000.0 && heap < 60.0, "{updates:?} {heap}");
}

/// Rank 1 works twice as long as rank 0 before each barrier, until the file "go" exists.
const UNEVEN: &str = r#"
    #include <mpi.h>
    #include <time.h>
    #include <unistd.h>
    __attribute__((noinline)) void works(double seconds) {
        for (clock_t begin = clock(); clock() - begin < seconds * CLOCKS_PER_SEC;) {}
    }
    int main(int count, char **words) {
        int rank, goes = 0;
        MPI_Init(&count, &words);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        while (!goes) {
            works(0.02 * (1 + rank));
            goes = access("go", F_OK) == 0;
            MPI_Allreduce(MPI_IN_PLACE, &goes, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        }
        return MPI_Finalize();
    }
"#;

#[test]
fn a_live_page_has_the_hints_of_a_report_of_the_running_job() {
    skip_unless!(have(&["mpirun.openmpi", "mpicc.openmpi"]), "no Open MPI");
    let place = Place::new();
    let program = place.compile("mpicc.openmpi", "uneven", UNEVEN, &["-finstrument-functions", "-rdynamic"]);
    let mut command = place.ampere_run("out", ["mpirun.openmpi", "--oversubscribe", "-n", "2"]);
    let running = start(command.arg(&program).env("AMPERE_COUNTERS", "estimate").env("AMPERE_SAMPLE", "off"));
    let hint = "% more than the mean outside MPI";
    until("the page has a hint about ranks", || {
        let address = announced(&place.path("out")).map(|collector| collector.address());
        let page = address.and_then(|address| http::get(address, "/page.json").ok());
        let page: Value = page.and_then(|page| serde_json::from_str(&page.body).ok()).unwrap_or_default();
        let mut sentences = page["sentences"].as_array().into_iter().flatten().filter_map(Value::as_str);
        sentences.any(|words| words.contains(hint))
    });
    let report = run(place.ampere(["report", "out"]).env("COLUMNS", "200"));
    place.write("go", "");
    assert_eq!(running.wait().code, 0);
    assert!(report.stdout.contains(hint), "{}", report.stdout);
}
