//! Writes an application's names to every output: metrics, summary, tables, pages.

use crate::bytes::Bytes;
use ampere_figures::losses::Losses;
use ampere_figures::snapshot::{self, Limits, RankFigures};
use ampere_figures::summary::{Run, Summary};
use ampere_model::{LocationKind, Quality, Region, RegionHandle};
use ampere_report::first::screen::Screen;
use ampere_report::text;
use ampere_report::{Format, render};
use ampere_server::metrics;
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, LocationInfo};
use std::sync::Arc;

pub fn run(data: &[u8]) {
    let mut from = Bytes::new(data);
    let mut attributor = Attributor::new(Config::default(), 1000);
    let node = from.text();
    attributor.add_device(FoundDevice {
        node: node.clone(),
        metric: from.text(),
        source: from.text(),
        quality: Quality::Measured,
        joules_per_unit: Some(1.0),
    });
    let location = attributor.add_location(LocationInfo {
        node: node.clone(),
        group: from.text(),
        name: from.text(),
        kind: LocationKind::CpuThread,
        rank: Some(0),
        main: true,
    });
    let (mut time, mut names) = (0, Vec::new());
    for number in 0..16 {
        let name = from.text();
        let region = attributor.regions.add(&Region {
            handle: RegionHandle(number),
            name: name.clone(),
            canonical_name: from.text(),
            source_file: from.text(),
            begin_line: 1,
            end_line: 2,
            region_type: 0,
            paradigm: 0,
        });
        names.push(name);
        attributor.engine.enter(location, time, region);
        attributor.read_now(0, time, time);
        time += 10;
        if from.is_empty() {
            break;
        }
    }
    let mut snapshot = snapshot::of_attributor(&attributor, &mut Limits::new(100));
    snapshot.node = node;
    let current_region = names.last().cloned().unwrap_or_default();
    snapshot.ranks = vec![RankFigures { rank: from.text(), current_region, ..RankFigures::default() }];
    let body = metrics::encode(Arc::new(snapshot), None, true).expect("what can be encoded");
    let found = body.lines().map(series).sum::<usize>();
    assert!(body.ends_with("# EOF\n") && found > 0);

    let run = Run { notes: names.clone(), command: names.clone(), ..Run::default() };
    let summary = Summary::new(&attributor, None, run, Losses::default());
    for colour in [false, true] {
        let table = text::render(&summary, Screen { colour, ..Screen::FILE });
        // Our own control sequences switch colours on and off.
        let codes = ["\x1b[1m", "\x1b[36m", "\x1b[1;31m", "\x1b[0m"];
        let plain =
            if colour { codes.iter().fold(table, |text, code| text.replace(code, "")) } else { table };
        assert!(!plain.chars().any(|c| c.is_control() && c != '\n'), "{plain:?}");
    }
    for format in [Format::Html, Format::Flamegraph, Format::Folded, Format::Csv] {
        let bytes = render(&summary, format, Screen::FILE).expect("what can be shown");
        let page = String::from_utf8(bytes).expect("text");
        if format == Format::Csv {
            continue; // names are quoted and not changed
        }
        assert!(!page.chars().any(|c| c.is_control() && c != '\n'), "{page:?}");
        // A page has two scripts, its data and ours; a picture has ours; folded stacks are plain text.
        let scripts = if format == Format::Html { 2 } else { 1 };
        assert!(format == Format::Folded || page.matches("<script").count() == scripts, "{page}");
    }
    let json = serde_json::to_string(&summary).expect("what can be encoded");
    let again: Summary = serde_json::from_str(&json).expect("JSON");
    assert_eq!(again.run.notes, names);
}

/// Checks a line of OpenMetrics and returns the number of its labels.
fn series(line: &str) -> usize {
    if line.starts_with('#') {
        return 0;
    }
    let (name, mut rest) = line.split_once('{').unwrap_or_else(|| panic!("{line:?}"));
    assert!(
        name.starts_with("ampere_") && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
        "{line:?}"
    );
    let mut labels = 0;
    loop {
        let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line:?}"));
        assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line:?}");
        labels += 1;
        let mut escaped = false;
        let end = value.find(|c| {
            let end = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            end
        });
        let end = end.unwrap_or_else(|| panic!("{line:?}"));
        rest = &value[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let number = rest.strip_prefix("} ").unwrap_or_else(|| panic!("{line:?}"));
    assert!(number.parse::<f64>().is_ok(), "{line:?}");
    labels
}
