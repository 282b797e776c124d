use super::*;
use crate::summary::{QualityFigures, Run};
use ampere_model::{LocationKind, Quality, RegionHandle, RegionRef};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, LocationInfo};
use clap::ValueEnum;

const HOSTILE: &str = "<script>alert(1)</script>\"'&;\n=1+1";

/// One rank in `main` > `work` and `main` > `MPI_Send` > a hostile name, and before that in nothing; one device of 1 W.
fn summary() -> Summary {
    let mut attributor = Attributor::new(Config::default(), 1000);
    let found = FoundDevice {
        node: "n".to_owned(),
        metric: "energy".to_owned(),
        source: "trace".to_owned(),
        quality: Quality::Measured,
        joules_per_unit: Some(1e-3),
    };
    let device = attributor.add_device(found).expect("an energy");
    let rank = attributor.add_location(LocationInfo {
        node: "n".to_owned(),
        group: "MPI Rank 0".to_owned(),
        name: "Master thread".to_owned(),
        kind: LocationKind::CpuThread,
        rank: Some(0),
        main: true,
    });
    let mut region = |name: &str| -> RegionRef {
        attributor.regions.add(&ampere_model::Region {
            handle: RegionHandle(0),
            name: name.to_owned(),
            canonical_name: name.to_owned(),
            source_file: String::new(),
            begin_line: 0,
            end_line: 0,
            region_type: 0,
            paradigm: 0,
        })
    };
    let (main, work, send, odd) = (region("main"), region("work"), region("MPI_Send"), region(HOSTILE));
    // In the order of time: what is entered, or that something is left.
    let mut events =
        [(1000, Some(main)), (2000, Some(work)), (5000, None), (5000, Some(send)), (6000, Some(odd))]
            .into_iter()
            .chain([8000, 9000, 10_000].map(|time| (time, None)))
            .peekable();
    for at in (0..=100).map(|at| at * 100) {
        while let Some((time, what)) = events.next_if(|(time, _)| *time <= at) {
            match what {
                Some(region) => attributor.engine.enter(rank, time, region),
                None => attributor.engine.leave(rank, time),
            }
        }
        attributor.read_now(device, at, at);
    }
    let run = Run { seconds: 10.0, command: vec![HOSTILE.to_owned()], ..Run::default() };
    Summary::new(&attributor, None, run, QualityFigures::default())
}

fn text(format: Format) -> String {
    String::from_utf8(render(&summary(), format, false).unwrap()).unwrap()
}

#[test]
fn a_tree_has_all_joules() {
    let summary = summary();
    let tree = tree::whole(&summary);
    assert!((tree.joules - summary.devices[0].total_joules).abs() < 1e-9);
    let names: Vec<(&str, f64)> =
        tree.children.iter().map(|node| (node.name.as_str(), node.joules.round())).collect();
    assert_eq!(names, [("main", 9.0), ("idle", 1.0)]);
    let below: Vec<&str> = tree.children[0].children.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(below, ["MPI_Send", "work"]);
    assert_eq!(tree.children[0].children[0].kind, tree::Kind::Mpi);
}

#[test]
fn stacks_add_up_to_the_device() {
    let folded = text(Format::Folded);
    let sum: f64 = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert!((sum - 10e6).abs() < 10.0, "{folded}");
    assert!(folded.contains("MPI Rank 0;main;work 3000000\n"), "{folded}");
    assert_eq!(folded.lines().count(), 5, "a hostile name is on one line: {folded}");
}

#[test]
fn rows_add_up_to_the_device_and_can_be_read_back() {
    let rows = text(Format::Csv);
    let mut reader = ::csv::Reader::from_reader(rows.as_bytes());
    let columns = reader.headers().unwrap().clone();
    let at = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let (region, joules) = (at("region"), at("exclusive_joules"));
    let records: Vec<_> = reader.records().map(Result::unwrap).collect();
    let sum: f64 = records
        .iter()
        .filter(|row| &row[at("view")] == "ranks")
        .map(|row| row[joules].parse::<f64>().unwrap())
        .sum();
    assert!((sum - 10.0).abs() < 1e-9, "{rows}");
    assert!(records.iter().any(|row| &row[region] == HOSTILE), "{rows}");
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_file_has_the_same_rows() {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::RowAccessor;
    let summary = summary();
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &render(&summary, Format::Parquet, false).unwrap()).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let fields = reader.metadata().file_metadata().schema().get_fields().to_vec();
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    assert_eq!(names, rows::COLUMNS);
    let read: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let wanted: Vec<_> = rows::rows(&summary).collect();
    assert_eq!(read.len(), wanted.len());
    for (read, wanted) in read.iter().zip(wanted) {
        assert_eq!(read.get_string(8).unwrap(), wanted.region);
        assert_eq!(read.get_long(9).ok(), wanted.calls.map(|calls| calls as i64));
        assert_eq!(read.get_double(10).unwrap(), wanted.exclusive_joules);
        assert_eq!(read.get_double(13).ok(), wanted.possible_joules);
        assert_eq!(read.get_double(14).ok(), wanted.exclusive_seconds);
    }
}

/// `work` runs from 2 s to 5 s, with samples each 0.1 s; `main` is open for 9 s, in the middle of it for 1 s without a callee.
#[test]
fn rows_say_the_least_and_the_most_that_they_can_have_spent() {
    let summary = summary();
    let row = summary.devices[0].views[0].regions.iter().find(|row| &*row.region == "work").unwrap();
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(close(row.resolved_joules, 3.0) && close(row.possible_joules.unwrap(), 3.0), "{row:?}");
    let table = text(Format::Table);
    let line = table.lines().find(|line| line.ends_with("  work")).unwrap();
    assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), ["3.000"; 3], "{table}");
    let line = table.lines().find(|line| line.ends_with("MPI Rank 0: main > work")).unwrap();
    assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), ["3.000"; 3], "{table}");
    assert!(table.contains("least         most") && text(Format::Html).contains(">most</th>"), "{table}");
    assert!(text(Format::Csv).lines().next().unwrap().contains("resolved_joules,possible_joules"));
    assert!(text(Format::Json).contains("\"possible_joules\": "));
}

/// Summaries of before say nothing of the most.
#[test]
fn an_older_summary_is_read_and_its_most_is_not_known() {
    fn forget(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.remove("possible_joules");
                fields.values_mut().for_each(forget);
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(forget),
            _ => {}
        }
    }
    let mut older = serde_json::to_value(summary()).unwrap();
    forget(&mut older);
    let older: Summary = serde_json::from_value(older).unwrap();
    assert!(older.devices[0].views[0].callpaths.iter().all(|row| row.possible_joules.is_none()));
    let table = String::from_utf8(render(&older, Format::Table, false).unwrap()).unwrap();
    let line = table.lines().find(|line| line.ends_with("  work")).unwrap();
    assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), ["3.000", "3.000", "?"], "{table}");
    for format in Format::value_variants().iter().filter(|format| **format != Format::Chrome) {
        render(&older, *format, false).unwrap();
    }
}

#[test]
fn names_are_escaped_in_every_format() {
    let (page, picture) = (text(Format::Html), text(Format::Flamegraph));
    for page in [&page, &picture] {
        assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert"), "{page}");
        assert!(!page.contains("'&;") && !page.contains("\"'"), "{page}");
    }
    assert!(page.starts_with("<!DOCTYPE html>") && picture.starts_with("<?xml"));
    // Nothing from elsewhere: no address but that of the name space.
    for page in [page, picture] {
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains("://"), "{page}");
    }
}

#[test]
fn only_chosen_devices_are_reported_and_unknown_ones_are_errors() {
    let mut chosen = summary();
    let choice = |device: &str| Choice { devices: vec![device.to_owned()], view: Some("kernels".to_owned()) };
    let why = choice("GPU-7").apply(&mut chosen).unwrap_err();
    let why = why.to_string();
    assert!(why.contains("GPU-7") && why.contains("energy"), "{why}");
    choice("energy").apply(&mut chosen).unwrap();
    assert!(chosen.devices[0].views.iter().all(|view| view.view == "kernels"));
}

#[test]
fn an_empty_summary_has_every_report() {
    let empty =
        Summary::new(&Attributor::new(Config::default(), 1), None, Run::default(), QualityFigures::default());
    for format in Format::value_variants().iter().filter(|format| **format != Format::Chrome) {
        render(&empty, *format, false).unwrap();
    }
}

#[test]
fn differences_are_relative_to_the_first_run() {
    let (first, mut second) = (summary(), summary());
    for row in second.devices[0].views.iter_mut().flat_map(|view| &mut view.regions) {
        row.exclusive_joules *= if &*row.region == "work" { 2.0 } else { 1.0 };
    }
    second.devices[0].total_joules += 3.0;
    second.run.energy = "estimated".to_owned();
    let named = |name: &str, summary| compare::Named { name: name.to_owned(), summary };
    let text = compare::render(&[named("a", first), named("b\x1b[2J", second)]);
    assert!(!text.contains('\x1b') && text.contains("not of one kind"), "{text}");
    let row = |name: &str| {
        let line =
            text.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("  joules")[..4], ["10.000", "13.000", "+30.0", "%"]);
    assert_eq!(row("  work")[..4], ["3.000", "6.000", "+100.0", "%"]);
    assert_eq!(row("  main")[2], "=");
    let by_function: Vec<&str> = text.split("by function").nth(1).unwrap().lines().skip(1).collect();
    assert!(by_function[0].ends_with("work"), "the largest difference first: {text}");
}
