//! Functions whose names are dangerous for some format. A stand-in for Score-P defines them, because it can pass arbitrary
//! bytes. The names must be right in all formats.

use ampere_model::text::{printable, short, short_distinct};
use ampere_tests::collector::announced;
use ampere_tests::jobs::{Done, Place, run, start, until};
use ampere_tests::runs::{attribute, json, list, parse};
use ampere_tests::stand_in_scorep::{Plugin, set_names, work};
use ampere_tests::{browser, http, openmetrics};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const ROLE: &str = "STAND_IN_HOST";
/// This name is replaced in every part of a trace by other bytes of the same length.
const MARKED: &str = "a name of 21 letters.";

/// Two of the names have 10 kB and differ only in the last letter.
fn names() -> Vec<Vec<u8>> {
    let long = format!("std::map<{}>::step", "std::vector<double, std::allocator<double> >, ".repeat(220));
    let mut all: Vec<Vec<u8>> = vec![b"(none)".into(), b"main".into()];
    let texts = [
        "\"quoted\" 'and' \\back\\slash\\",
        "two\nlines\r\tand a tab",
        "</script><script>alert(1)</script><!--&amp;{}",
        "=1+1;a > b,c|d 12",
        "\u{202e}turned \u{1b}[31mred\u{7f}",
        "# EOF\n",
        "%s%n ${HOME} `id`",
        MARKED,
    ];
    all.extend(texts.iter().map(|text| text.as_bytes().to_vec()));
    all.push(b"bytes \xff\xfe of no UTF-8 \xc3".into());
    all.extend(["1", "2"].map(|end| format!("{long}{end}").into_bytes()));
    all
}

/// Returns the names as all outputs show them.
fn known() -> Vec<String> {
    names()[1..].iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[test]
#[ignore = "a process that other tests start"]
fn child_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let names = names();
    set_names(&names);
    let (plugin, main) = Plugin::begin();
    (4..names.len() as u32).for_each(|handle| plugin.define_region(handle));
    plugin.init_mpp(0, 1);
    plugin.enter(main, 1);
    while !Path::new("go").exists() {
        for handle in 2..names.len() as u32 {
            plugin.enter(main, handle);
            work();
            plugin.leave(main, handle);
        }
    }
    plugin.leave(main, 1);
    plugin.end(main);
    std::process::exit(0);
}

fn regions(summary: &Value) -> BTreeSet<String> {
    let view = &list(&list(summary, "devices")[0], "views")[0];
    list(view, "regions").iter().map(|row| row["region"].as_str().expect("a name").to_owned()).collect()
}

fn set(names: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    names.into_iter().collect()
}

fn report(place: &Place, format: &str, options: &[&str]) -> Done {
    let done = run(place.ampere(["report", "out", "-f", format]).args(options));
    assert_eq!(done.code, 0, "{format}: {done:#?}");
    done
}

fn python(place: &Place, script: &str) -> Value {
    let done = run(place.command("python3").args(["-c", script]));
    assert_eq!(done.code, 0, "{script}: {done:#?}");
    serde_json::from_str(&done.stdout).expect("JSON")
}

/// Returns the strings in a JSON list.
fn strings(list: &Value) -> BTreeSet<String> {
    set(list.as_array().expect("a list").iter().filter_map(Value::as_str).map(str::to_owned))
}

#[test]
fn hostile_names_are_right_in_every_format() {
    let (place, known) = (Place::new(), known());
    let mut command = place.command(std::env::current_exe().expect("this test has a path"));
    command
        .args(["child_process", "--exact", "--ignored", "--nocapture"])
        .env(ROLE, "1")
        .current_dir(place.path(""));
    command.env("AMPERE_OUTPUT", place.path("out")).env("AMPERE_COUNTERS", "estimate");
    let running = start(&mut command);
    let mut metrics = Vec::new();
    until("all functions have joules in the metrics", || {
        let Some(collector) = announced(&place.path("out")) else { return false };
        let Ok(answer) = http::get(collector.address(), "/metrics") else { return false };
        metrics = openmetrics::parse(&answer.body).unwrap_or_else(|why| panic!("{why}"));
        metrics.retain(|sample| sample.name == "ampere_region_energy_joules_total" && sample.value > 0.0);
        metrics.len() >= known.len()
    });
    let labels = set(metrics.iter().map(|sample| sample.label("region").to_owned()));
    assert_eq!(labels.len(), known.len(), "/metrics keeps names apart");
    // A long label ends with a hash of the whole name.
    let begin = |name: &String| name[..name.find("...#").unwrap_or(name.len()).min(400)].to_owned();
    assert_eq!(set(labels.iter().map(begin)), set(known.iter().map(begin)), "/metrics");
    let address = announced(&place.path("out")).expect("a collector").address();
    // A busy collector may have no summary and no page at the moment.
    let (mut live, mut page) = (Value::Null, Value::Null);
    for (path, found) in [("/summary.json", &mut live), ("/page.json", &mut page)] {
        until(&format!("{path} is JSON"), || {
            let answer = http::get(address, path).ok();
            *found = answer.and_then(|answer| parse(answer.body).ok()).unwrap_or_default();
            !found.is_null()
        });
    }
    assert_eq!(regions(&live), set(known.clone()), "/summary.json");
    let on_pages = set(known.iter().map(|name| short(name, 200)));
    assert!(strings(&page["tables"]["names"]).is_superset(&on_pages), "{}", page["tables"]["names"]);
    // This is what nodes send each other, and what a node shows of all nodes.
    for path in ["/node.json", "/nodes"] {
        let (mut names, expected) =
            (BTreeSet::new(), set(known.iter().map(|name| short_distinct(name, 100))));
        // The sums of all nodes are a second old, and may not have all functions yet.
        until(&format!("{path} has all functions"), || {
            let answer: Value =
                serde_json::from_str(&http::get(address, path).expect("an answer").body).expect("JSON");
            let rows = answer["functions"].as_array().expect("functions").iter();
            let name = |row: &Value| row["name"].as_str().or(row[0].as_str()).expect("a name").to_owned();
            names = set(rows.map(name));
            names.len() >= expected.len()
        });
        assert_eq!(names, expected, "{path}");
    }
    let browser = browser::is_there();
    let check_page = |url: &str| {
        let shown = strings(&browser::shown(&place, url, 1600, None)["functions"]);
        assert!(shown.is_superset(&on_pages), "{url}: {shown:#?}");
    };
    if browser {
        check_page(&format!("http://{address}/"));
    }
    place.write("go", "");
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    if browser {
        check_page(&format!("file://{}", place.path("out/report.html").display()));
    }
    let summary = place.summary("out");
    assert_eq!(regions(&json(&place.path("out/summary.json"))), set(known.clone()), "summary.json");
    formats_have(&place, &known);
    trace_has(&place, &known);
    assert_eq!(list(&summary, "devices").len(), 1);
    ampere_tests::skip_unless!(browser, browser::WHY);
}

/// Checks that other tools read these names from these formats.
fn formats_have(place: &Place, known: &[String]) {
    let (all, main) = (set(known.to_vec()), "main".to_owned());
    report(place, "csv", &["-o", "rows.csv"]);
    let csv = python(
        place,
        "import csv, json\nprint(json.dumps([row['region'] for row in csv.DictReader(open('rows.csv', newline=''))]))",
    );
    assert!(strings(&csv).is_superset(&all), "CSV: {:#?}", strings(&csv));
    report(place, "sqlite", &["-o", "out.rpd"]);
    let sqlite = python(
        place,
        "import json, sqlite3\nprint(json.dumps([row[0] for row in sqlite3.connect('out.rpd').execute('SELECT string FROM rocpd_string')]))",
    );
    assert!(strings(&sqlite).is_superset(&all), "SQLite: {:#?}", strings(&sqlite));
    let chrome: Value = serde_json::from_str(&report(place, "chrome", &[]).stdout).expect("JSON");
    let events = chrome["traceEvents"].as_array().expect("events").iter();
    let chrome = set(events.filter_map(|event| event["name"].as_str()).map(str::to_owned));
    let missing: Vec<&String> = all.difference(&chrome).collect();
    assert!(missing.is_empty(), "chrome: {missing:#?}");
    // There is a line for each stack: frames without characters that separate them, and a number.
    let folded = report(place, "folded", &[]).stdout;
    let frames = folded.lines().map(|line| {
        let (stack, weight) = line.rsplit_once(' ').expect("a stack and its weight");
        assert!(weight.parse::<u64>().is_ok(), "{line:?}");
        stack.split(';').skip(2).map(str::to_owned).collect::<Vec<_>>()
    });
    let frames: BTreeMap<String, usize> =
        frames.filter_map(|frames| Some((frames.last()?.clone(), frames.len()))).collect();
    for name in known.iter().filter(|name| **name != main) {
        let frame = printable(name).replace(';', ":");
        assert_eq!(frames.get(&frame), Some(&2), "{frame:?}: {frames:#?}");
    }
    report(place, "flamegraph", &["-o", "flame.svg"]);
    let titles = python(
        place,
        "import json\nfrom xml.etree import ElementTree\nprint(json.dumps([''.join(at.itertext()) for at in ElementTree.parse('flame.svg').iter() if at.tag.endswith('title')]))",
    );
    let titles = strings(&titles);
    for name in known {
        let start: String = printable(name).chars().take(30).collect();
        assert!(titles.iter().any(|title| title.contains(&start)), "{start:?}: {titles:#?}");
    }
    for format in ["table", "timeline"] {
        let shown = report(place, format, &[]).stdout;
        let control: Vec<char> = shown
            .chars()
            .filter(|c| printable(&c.to_string()) == "\u{fffd}" && !['\n', '\u{fffd}'].contains(c))
            .collect();
        assert_eq!(control, Vec::<char>::new(), "{format}");
    }
}

/// Checks the trace, which ampere can read again, even with bytes in it that are not UTF-8.
fn trace_has(place: &Place, known: &[String]) {
    let anchor = place.path("out/traces.otf2");
    let trace = otf2::Trace::open(&anchor).expect("a trace");
    let names = set(trace.definitions().regions.iter().map(|(_, region)| region.name.clone()));
    assert!(names.is_superset(&set(known.to_vec())), "OTF2: {names:#?}");
    assert_eq!(regions(&attribute(&anchor, &[])), set(known.to_vec()), "ampere attribute");
    if ampere_tests::runs::on_path("otf2-print") {
        assert_eq!(run(place.command("otf2-print").arg("-G").arg(&anchor)).code, 0);
    }
    let other = b"no UTF-8 \xff\xfe\xc3( \x80......";
    assert_eq!(other.len(), MARKED.len());
    let definitions = place.path("out/traces.def");
    let mut bytes = std::fs::read(&definitions).expect("definitions");
    let at = bytes.windows(MARKED.len()).position(|bytes| bytes == MARKED.as_bytes()).expect("the name");
    bytes[at..at + MARKED.len()].copy_from_slice(other);
    std::fs::write(&definitions, bytes).expect("room");
    let mut wanted = set(known.to_vec());
    wanted.remove(MARKED);
    wanted.insert(String::from_utf8_lossy(other).into_owned());
    assert_eq!(regions(&attribute(&anchor, &[])), wanted, "a trace with bytes that are no UTF-8");
}
