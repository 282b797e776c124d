use super::*;
use crate::compare::{Comparison, Form, Per};
use ampere_figures::losses::Losses;
use ampere_figures::summary::{Baseline, EstimateWatts, Run};
use ampere_figures::{assignment, summary};
use ampere_model::{LocationKind, Quality, RegionHandle, RegionRef};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, LocationInfo};
use clap::ValueEnum;

pub(crate) const HOSTILE: &str = "<script>alert(1)</script>\"'&;\n=1+1";

pub(crate) fn summary() -> Summary {
    let run = Run { seconds: 10.0, command: vec![HOSTILE.to_owned()], ..Run::default() };
    Summary::new(&attributor(), None, run, Losses::default())
}

/// Makes one rank, which is first in no function, then in `main` > `work` and in `main` > `MPI_Send` > a hostile name; and one
/// device of 1 W.
pub(crate) fn attributor() -> Attributor {
    attributor_of(Config::default(), "main", |at| at)
}

/// Like [`attributor`], with CPU time: the rank was on a CPU during `work`, and half of the time in the hostile name. The device
/// draws 0.6 W in any case, according to the settings, and 1 W more while the rank is on a CPU.
pub(crate) fn active(baseline: &str) -> Attributor {
    active_of(baseline, "main")
}

/// Like [`active`]; `main` is the name of the outermost function.
pub(crate) fn active_of(baseline: &str, main: &str) -> Attributor {
    let settings =
        format!("[[device]]\nname = 'node'\nmetric = 'energy'\n{baseline}[attribution]\npolicy = 'active'\n");
    attributor_of(Config::parse(&settings, "").unwrap(), main, |at| {
        let (work, odd) = (at.clamp(2000, 5000) - 2000, (at.clamp(6000, 8000) - 6000) / 2);
        at * 6 / 10 + work + odd
    })
}

pub(crate) const BASELINE: &str = "baseline_watts = 0.6\n";

pub(crate) fn active_summary(baseline: &str) -> Summary {
    let run = Run { seconds: 10.0, energy: "measured".to_owned(), ..Run::default() };
    Summary::new(&active(baseline), None, run, Losses::default())
}

/// `joules` returns the reading of the device in millijoules at a time in milliseconds.
fn attributor_of(config: Config, main: &str, joules: impl Fn(u64) -> u64) -> Attributor {
    let mut attributor = Attributor::new(config, 1000);
    attributor.knows_cpu_times = attributor.config().attribution.policy.is_some();
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
    let main = region(main);
    let work = region("work");
    let send = region("MPI_Send");
    let odd = region(HOSTILE);
    // Events in time order: the region that is entered, or `None` for a leave.
    let mut events =
        [(1000, Some(main)), (2000, Some(work)), (5000, None), (5000, Some(send)), (6000, Some(odd))]
            .into_iter()
            .chain([8000, 9000, 10_000].map(|time| (time, None)))
            .peekable();
    if attributor.knows_cpu_times {
        for (time, used) in [(0, 0.0), (2000, 0.0), (5000, 3000.0), (6000, 3000.0), (8000, 4000.0)] {
            attributor.engine.add_cpu_time(rank, time, used);
        }
    }
    for at in (0..=100).map(|at| at * 100) {
        while let Some((time, what)) = events.next_if(|(time, _)| *time <= at) {
            match what {
                Some(region) => attributor.engine.enter(rank, time, region),
                None => attributor.engine.leave(rank, time),
            }
        }
        attributor.read_now(device, at, joules(at));
    }
    attributor
}

fn text(format: Format) -> String {
    String::from_utf8(render(&summary(), format, Screen::FILE).unwrap()).unwrap()
}

#[test]
fn a_tree_has_all_joules() {
    let summary = summary();
    let frames = tree::Frames::of(&summary);
    let tree = frames.whole();
    assert!((tree.joules() - summary.devices[0].total_joules).abs() < 1e-9);
    assert_eq!(tree.idle.round(), 1.0);
    let called = tree.called();
    let below = |frame: u32| {
        let named = called[frame as usize].iter().map(|at| (tree.name_of(*at), tree.sum(*at).joules.round()));
        named.collect::<Vec<_>>()
    };
    let main = called[tree::ROOT as usize][0];
    assert_eq!(below(tree::ROOT), [("main".to_owned(), 9.0)]);
    assert_eq!(below(main), [("MPI_Send".to_owned(), 4.0), ("work".to_owned(), 3.0)]);
    assert_eq!(tree.kind_of(called[main as usize][0]), tree::Kind::Mpi);
}

#[test]
fn a_tree_as_text_has_each_function_below_its_caller() {
    let rows = |tree: String| -> Vec<String> {
        let lines = tree.lines().skip(1);
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let tree = text(Format::Tree);
    assert!(tree.contains("  main\n") && tree.contains("    MPI_Send\n"), "{tree}");
    let rows_of_tree = rows(tree);
    assert_eq!(rows_of_tree[..2], ["9.000 90.0 % 2.000 main", "4.000 40.0 % 2.000 MPI_Send"]);
    assert_eq!(rows_of_tree[3..], ["3.000 30.0 % 3.000 work"], "after what MPI_Send calls");
    let of_dynamic = render(&active_summary(BASELINE), Format::Tree, Screen::FILE).unwrap();
    let of_dynamic = rows(String::from_utf8(of_dynamic).unwrap());
    assert!(of_dynamic.contains(&"4.800 3.000 75.0 % 3.000 work".to_owned()), "{of_dynamic:?}");
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
fn stacks_leave_out_parts_of_other_devices() {
    let mut summary = summary();
    let part = Device { name: "package".to_owned(), ..summary.devices[0].clone() };
    let whole = Device { contains: vec!["package".to_owned()], ..summary.devices.remove(0) };
    summary.devices.extend([whole, part]);
    let folded = String::from_utf8(render(&summary, Format::Folded, Screen::FILE).unwrap()).unwrap();
    assert_eq!(folded, text(Format::Folded));
}

/// Returns the fields of a protocol buffer's message: their numbers, and their values or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (own, rest) = bytes.split_at(length);
        *bytes = rest;
        own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        let (own, rest) = bytes.split_at(if key & 7 == 2 { value as usize } else { 0 });
        all.push((key >> 3, value, own));
        bytes = rest;
    }
    all
}

#[test]
fn a_profile_for_pprof_has_each_joule_once() {
    let profile = render(&summary(), Format::Pprof, Screen::FILE).unwrap();
    let all = fields(&profile);
    let of = |number: u64| all.iter().filter(move |field| field.0 == number).map(|field| field.2);
    let texts: Vec<&str> = of(6).map(|text| std::str::from_utf8(text).unwrap()).collect();
    assert_eq!(texts[..3], ["", "energy", "microjoules"]);
    let names: Vec<&str> = of(5).map(|function| texts[fields(function)[1].1 as usize]).collect();
    let packed = |bytes: &[u8]| {
        let values = bytes.split_inclusive(|byte| byte & 0x80 == 0);
        let value = |own: &[u8]| own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
        values.map(value).collect::<Vec<u64>>()
    };
    let samples: Vec<(Vec<&str>, u64)> = of(2)
        .map(|sample| {
            let sample = fields(sample);
            let path = packed(sample[0].2).into_iter().map(|number| names[number as usize - 1]).collect();
            (path, packed(sample[1].2)[0])
        })
        .collect();
    let sum: u64 = samples.iter().map(|(_, microjoules)| microjoules).sum();
    assert!(sum.abs_diff(10_000_000) < 10, "{samples:?}");
    assert!(samples.contains(&(vec!["work", "main"], 3_000_000)), "the innermost first: {samples:?}");
}

#[test]
fn stacks_and_pictures_can_be_of_dynamic_joules() {
    let choice = Choice { dynamic_only: true, ..Choice::default() };
    let mut summary = active_summary(BASELINE);
    choice.apply(&mut summary).unwrap();
    let text = |format| String::from_utf8(render(&summary, format, Screen::FILE).unwrap()).unwrap();
    let folded = text(Format::Folded);
    let weight = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap();
    assert!((folded.lines().map(weight).sum::<f64>() - 4e6).abs() < 10.0, "{folded}");
    assert!(folded.contains("node;MPI Rank 0;main;work 3000000\n"), "{folded}");
    let picture = text(Format::Flamegraph);
    assert!(picture.contains("work: 3.000 dynamic J, 75.0 % of 4.000 dynamic J"), "{picture}");
    assert!(picture.contains(">ampere: 4.000 dynamic J, "), "{picture}");
    let whole = render(&active_summary(BASELINE), Format::Flamegraph, Screen::FILE).unwrap();
    let whole = String::from_utf8(whole).unwrap();
    assert!(whole.contains(">ampere: 10.00 J, 4.000 J of them dynamic, "), "{whole}");
    assert!(whole.contains("all devices: 10.00 J (4.000 dynamic), 100.0 % of 10.00 J<"), "{whole}");
    assert!(whole.contains(" J (3.000 dynamic) in itself, "), "{whole}");
    assert!(whole.contains("rect class=\"static\" data-part=\"0.6000\" x=\"480.00\""), "{whole}");
    assert!(!picture.contains("class=\"static\"") && !picture.contains(" dynamic)"), "{picture}");
    assert!(matches!(choice.apply(&mut self::summary()), Err(ReportError::NoDynamic)));
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

#[test]
fn static_and_dynamic_joules_of_rows_add_up_to_the_devices() {
    let summary = active_summary(BASELINE);
    let rows = String::from_utf8(render(&summary, Format::Csv, Screen::FILE).unwrap()).unwrap();
    let mut reader = ::csv::Reader::from_reader(rows.as_bytes());
    let columns = reader.headers().unwrap().clone();
    let at = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let (fixed, dynamic) = (at("static_joules"), at("dynamic_joules"));
    let records: Vec<_> =
        reader.records().map(Result::unwrap).filter(|row| &row[at("view")] == "ranks").collect();
    let sum = |column: usize| records.iter().filter_map(|row| row[column].parse::<f64>().ok()).sum::<f64>();
    assert!((sum(fixed) - 6.0).abs() < 1e-6 && (sum(dynamic) - 4.0).abs() < 1e-6, "{rows}");
    assert!(records.iter().any(|row| &row[at("region")] == "(lost)" && row[dynamic].is_empty()), "{rows}");
    let older = text(Format::Csv);
    let mut older = ::csv::Reader::from_reader(older.as_bytes());
    assert!(older.records().all(|row| row.unwrap()[dynamic].is_empty()), "unknown without the policy");
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_file_has_the_same_rows() {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::RowAccessor;
    let summary = active_summary(BASELINE);
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &render(&summary, Format::Parquet, Screen::FILE).unwrap()).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let fields = reader.metadata().file_metadata().schema().get_fields().to_vec();
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    assert_eq!(names, rows::COLUMNS);
    let read: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let wanted: Vec<_> = rows::rows(&summary).collect();
    assert_eq!(read.len(), wanted.len());
    for (read, wanted) in read.iter().zip(wanted) {
        assert_eq!(
            [0, 4, 6, 8].map(|at| &**read.get_string(at).unwrap()),
            [wanted.node, wanted.view, wanted.location, wanted.region]
        );
        assert_eq!(*read.get_string(7).unwrap(), wanted.path.text());
        assert_eq!(read.get_long(9).ok(), wanted.calls.map(|calls| calls as i64));
        assert_eq!(read.get_double(10).unwrap(), wanted.exclusive_joules);
        assert_eq!(read.get_double(13).ok(), wanted.possible_joules);
        assert_eq!(read.get_double(14).ok(), wanted.exclusive_seconds);
        assert_eq!(read.get_double(18).ok(), wanted.dynamic_joules);
    }
}

/// Two recursions of the same depth differ only in the middle, which is left out. pyarrow refuses a dictionary with a name twice.
#[cfg(feature = "parquet")]
#[test]
fn a_dictionary_of_a_parquet_file_has_each_name_once() {
    use ::parquet::column::page::Page;
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    const DEPTH: u32 = 300;
    let mut summary = summary();
    summary.names = ["f", "g"].map(Into::into).to_vec();
    let up = |path: u32| (!path.is_multiple_of(DEPTH)).then(|| path - 1);
    summary.paths.parent = (0..2 * DEPTH).map(up).collect();
    summary.paths.name = (0..2 * DEPTH).map(|path| u32::from(path == DEPTH + DEPTH / 2)).collect();
    let view = &mut summary.devices[0].views[0];
    let row = summary::Callpath { location_group: 0, location: 0, ..view.callpaths[0] };
    view.callpaths = [DEPTH - 1, 2 * DEPTH - 1].map(|path| summary::Callpath { path, ..row }).to_vec().into();
    let file = bytes::Bytes::from(render(&summary, Format::Parquet, Screen::FILE).unwrap());
    let reader = SerializedFileReader::new(file).unwrap();
    let page = reader.get_row_group(0).unwrap().get_column_page_reader(7).unwrap().get_next_page().unwrap();
    // The other rows, such as "(idle)", have no call path.
    assert!(matches!(page, Some(Page::DictionaryPage { num_values: 2, .. })), "{page:?}");
}

/// `work` runs from 2 s to 5 s, with a sample every 0.1 s. `main` is open from 1 s to 10 s, and is alone in its first and
/// its last second.
#[test]
fn rows_have_the_least_and_the_most_that_they_can_have_used() {
    let summary = summary();
    let row = summary.devices[0].views[0].regions.iter().find(|row| &*row.region == "work").unwrap();
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(
        close(row.figures.resolved_joules, 3.0) && close(row.figures.possible_joules.unwrap(), 3.0),
        "{row:?}"
    );
    let table = text(Format::Table);
    for end in ["  work", "  main > work"] {
        let line = table.lines().find(|line| line.ends_with(end)).unwrap();
        let figures: Vec<&str> = line.split_whitespace().take(4).collect();
        assert_eq!(figures, ["3.000", "30.0", "%", "(3.000..3.000)"], "{table}");
    }
    assert!(
        table.matches("(3.000..3.000)").count() == 3
            && table.matches("(least..most): ").count() == 1
            && text(Format::Html).contains("\"most_joules\":[3.0"),
        "{table}"
    );
    assert!(text(Format::Csv).lines().next().unwrap().contains("resolved_joules,possible_joules"));
    assert!(text(Format::Json).contains("\"possible_joules\": "));
}

/// 6 of 10 J are static. The rank was on a CPU for 3 s in `work` and for 1 s, half of the time, in the hostile name.
#[test]
fn a_table_begins_with_static_joules_and_rows_are_ordered_by_dynamic_ones() {
    let summary = active_summary(BASELINE);
    let device = &summary.devices[0];
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(
        close(device.static_joules.unwrap(), 6.0) && close(device.dynamic_joules.unwrap(), 4.0),
        "{device:?}"
    );
    let table = String::from_utf8(render(&summary, Format::Table, Screen::new(120, false)).unwrap()).unwrap();
    for line in [
        "        of which the node draws 6.00 J anyway (0.6 W, from the settings)   4.00 J are dynamic",
        "    75.0 %      3.000  (3.000..3.000)  3.00  work ",
        "  100.0 % of the 4.00 J of dynamic energy was used while only one recorded function was active: ",
        "      J  static J  dynamic J  of dynamic   (least..most) ",
        "  dynamic J: the energy that it used above what the device draws anyway",
    ] {
        assert!(table.lines().any(|shown| shown.starts_with(line)), "{line}\n{table}");
    }
    let columns = |name: &str| -> Vec<String> {
        let line =
            table.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
        line.split_whitespace().take(6).map(str::to_owned).collect()
    };
    assert_eq!(columns("  work"), ["4.800", "1.800", "3.000", "75.0", "%", "(3.000..3.000)"], "{table}");
    assert_eq!(columns("  main")[..3], ["1.200", "1.200", "0"], "{table}");
    assert_eq!(columns("  main > work")[..3], ["4.800", "1.800", "3.000"], "{table}");
    let regions = &device.views[0].regions;
    let order: Vec<&str> = regions.iter().map(|row| &*row.region).collect();
    assert_eq!(order, ["work", HOSTILE, "MPI_Send", "main"], "{regions:?}");
}

#[test]
fn gpus_that_ran_no_kernel_are_idle_and_each_number_of_intervals_is_a_number() {
    let of = |name: &str, samples: Option<u64>| {
        let mut device = active_summary(BASELINE).devices.remove(0);
        (device.name, device.kind) = (name.to_owned(), "gpu".to_owned());
        let known = |samples| Baseline { watts: samples as f64, kind: "idle intervals".to_owned(), samples };
        device.baseline = samples.map(known);
        if samples.is_none() {
            device.views.iter_mut().for_each(|view| view.regions.clear());
        }
        device
    };
    let devices = [of("GPU-0", Some(560)), of("GPU-1", Some(1381)), of("GPU-2", None), of("GPU-3", None)];
    assert_eq!(
        baseline::words(&devices.each_ref()).as_deref(),
        Some(
            ", of which GPU-0 and GPU-1 draw 12.0 J anyway (560 + 1381 W, in 560 and 1381 intervals without activity); \
             GPU-2 and GPU-3 ran no kernel: 20.0 J count as idle"
        )
    );
    let rows = devices.iter().skip(1).take(1).collect::<Vec<_>>();
    assert!(
        baseline::resolved_words(rows.into_iter())
            .is_some_and(|words| words.contains("that part is certain"))
    );
    let mut shared = of("GPU-0", Some(560));
    let regions = shared.views.iter_mut().flat_map(|view| &mut view.regions);
    regions.for_each(|row| row.figures.resolved_joules = 0.0);
    assert_eq!(
        baseline::resolved_words(std::iter::once(&shared)).as_deref(),
        Some(
            "less than 5 % of the 4.00 J of dynamic energy was used while only one recorded function was active: all rows come from \
             dividing it by CPU time, which is a model"
        )
    );
}

#[test]
fn an_unknown_baseline_is_not_a_baseline_of_zero() {
    let summary = active_summary("");
    let table = String::from_utf8(render(&summary, Format::Table, Screen::FILE).unwrap()).unwrap();
    let first = "the energy that the node draws anyway is not known, so all of it counts as dynamic";
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words.matches(first).count(), 1, "{table}");
    assert!(!table.contains("(0 W"), "{table}");
    let older = String::from_utf8(render(&self::summary(), Format::Table, Screen::FILE).unwrap()).unwrap();
    assert!(!older.contains("dynamic") && !older.contains("anyway"), "{older}");
}

#[test]
fn a_summary_of_another_schema_is_refused() {
    let mut value = serde_json::to_value(summary()).unwrap();
    value["schema"] = "ampere-summary/3".into();
    let why = serde_json::from_value::<Summary>(value).unwrap_err().to_string();
    assert!(why.contains("ampere-summary/3"), "{why}");
}

#[test]
fn columns_that_do_not_fit_are_errors() {
    let summary = serde_json::to_value(summary()).unwrap();
    let refused = |pointer: &str, to: serde_json::Value| {
        let mut damaged = summary.clone();
        *damaged.pointer_mut(pointer).unwrap() = to;
        serde_json::from_value::<Summary>(damaged).map(|_| ()).unwrap_err().to_string()
    };
    for (pointer, to, why) in [
        ("/devices/0/views/0/callpaths/path/0", 1000.into(), "a path or a name that does not exist"),
        ("/devices/0/views/0/callpaths/location/0", 1000.into(), "a path or a name that does not exist"),
        ("/devices/0/views/0/callpaths/calls", serde_json::json!([1]), "columns differ in length"),
        ("/paths/parent/0", 1.into(), "a caller comes after what it calls"),
        ("/paths/parent", serde_json::json!([]), "differ in length"),
        ("/paths/name/0", 1000.into(), "a name that does not exist"),
    ] {
        let said = refused(pointer, to);
        assert!(said.contains(why), "{pointer}: {said}");
    }
}

/// `main` calls `fib`, which calls itself to some depth. Each call of `fib` uses 1 J, and calls a leaf that uses 10 µJ.
fn recursive(depth: u32) -> Summary {
    let mut summary = summary();
    let mut numbering = ampere_figures::callpaths::Numbering::default();
    let [main, fib, leaf] = ["main", "fib", "leaf"].map(|name| numbering.name(&name.into()));
    let mut rows = Vec::new();
    let mut add = |numbering: &mut ampere_figures::callpaths::Numbering, caller, name, joules| {
        let path = numbering.path(caller, name);
        let figures = summary::Figures { calls: 1, exclusive_joules: joules, ..Default::default() };
        rows.push(summary::Callpath { path, location_group: main, location: main, figures });
        Some(path)
    };
    let mut at = add(&mut numbering, None, main, 1.0);
    for _ in 0..depth {
        at = add(&mut numbering, at, fib, 1.0);
        add(&mut numbering, at, leaf, 1e-5);
    }
    (summary.names, summary.paths) = (numbering.names, numbering.paths);
    let view = &mut summary.devices[0].views[0];
    (view.callpaths, view.idle_joules, view.lost_joules) = (rows.into(), 0.0, 0.0);
    summary
}

#[test]
fn a_recursion_is_one_box_and_its_path_is_short() {
    let summary = recursive(18);
    let picture = String::from_utf8(render(&summary, Format::Flamegraph, Screen::FILE).unwrap()).unwrap();
    assert!(
        picture.contains("fib x18: 18.00 J, 94.7 % of 19.00 J; 18.00 J in itself, 18 calls"),
        "{picture}"
    );
    assert_eq!(picture.matches("<g ").count(), 3, "all devices, main, fib: {picture}");
    let table = String::from_utf8(render(&summary, Format::Table, Screen::FILE).unwrap()).unwrap();
    assert!(table.lines().any(|line| line.ends_with("main > fib x7")), "{table}");
    // In other formats, each recursive call is still a frame.
    let rows = String::from_utf8(render(&summary, Format::Csv, Screen::FILE).unwrap()).unwrap();
    assert!(rows.contains("main > fib > fib > fib,fib,"), "{rows}");
}

#[test]
fn if_one_rank_has_threads_the_main_threads_of_all_are_named() {
    let mut summary = summary();
    let mut name = |name: &str| {
        summary.names.push(name.into());
        summary.names.len() as u32 - 1
    };
    let [second, launcher, master, other] =
        ["MPI Rank 1", "Process 7 (mpirun)", "Master thread", "work (thread 9, sampled)"].map(&mut name);
    let mut rows = summary.devices[0].views[0].callpaths.to_vec();
    let first = rows[0].location_group;
    let row = |location_group, location| summary::Callpath { location_group, location, ..rows[0] };
    let more = [row(second, master), row(launcher, other)];
    let shown = |summary: &Summary| -> Vec<String> {
        text::by_location(summary, &summary.devices[0].views[0]).into_iter().map(|(name, _)| name).collect()
    };
    let with_thread = row(first, other);
    rows.extend(more);
    summary.devices[0].views[0].callpaths = rows.clone().into();
    assert_eq!(shown(&summary), ["MPI Rank 0", "MPI Rank 1", "Process 7 (mpirun)"]);
    rows.push(with_thread);
    summary.devices[0].views[0].callpaths = rows.into();
    assert_eq!(
        shown(&summary),
        [
            "MPI Rank 0, Master thread",
            "MPI Rank 0, work (thread 9, sampled)",
            "MPI Rank 1, Master thread",
            "Process 7 (mpirun)"
        ]
    );
}

#[test]
fn small_boxes_of_a_picture_are_summed() {
    let mut summary = recursive(1);
    let (main, leaf) = (0, summary.names.len() as u32 - 1);
    for number in 0..5000u32 {
        summary.names.push(format!("leaf {number}").into());
        summary.paths.parent.push(Some(0));
        summary.paths.name.push(leaf + 1 + number);
        let figures = summary::Figures { exclusive_joules: 1e-3, calls: 1, ..Default::default() };
        let path = summary.paths.name.len() as u32 - 1;
        let row = summary::Callpath { path, location_group: main, location: main, figures };
        summary.devices[0].views[0].callpaths.push(row);
    }
    let picture = String::from_utf8(render(&summary, Format::Flamegraph, Screen::FILE).unwrap()).unwrap();
    assert!(picture.contains("5000 smaller call paths: 5.000 J, 71.4 %"), "{picture}");
    assert!(
        picture.contains("5001 smaller call paths, summed below their callers, have 5.000 J"),
        "{picture}"
    );
}

#[test]
fn a_deep_path_is_in_words_without_its_middle() {
    let mut summary = summary();
    let numbers = 0..10_000u32;
    summary.names = numbers.clone().map(|depth| format!("f{depth}").into()).collect();
    summary.paths.parent = numbers.clone().map(|depth| depth.checked_sub(1)).collect();
    summary.paths.name = numbers.collect();
    assert_eq!(rows::shortened(&summary, 255), summary.regions_of(255));
    let short = rows::shortened(&summary, 9999);
    assert_eq!((short.len(), &*short[0], &*short[127]), (256, "f0", "f127"));
    assert_eq!((&*short[128], &*short[129], &*short[255]), ("... 9745 frames ...", "f9873", "f9999"));
}

/// 125,000 call paths, each on 8 ranks: 12 functions that call one another, up to six functions deep.
fn a_million() -> Summary {
    const EACH: u32 = 125_000;
    let mut summary = summary();
    let mut numbering = ampere_figures::callpaths::Numbering::default();
    let location = numbering.name(&"Master thread".into());
    let ranks: Vec<u32> = (0..8).map(|rank| numbering.name(&format!("MPI Rank {rank}").into())).collect();
    let names: Vec<u32> = (0..12).map(|name| numbering.name(&format!("function_{name}").into())).collect();
    let mut paths = vec![numbering.path(None, names[0])];
    for number in 1..EACH {
        let caller = paths[(number as usize - 1) / names.len()];
        paths.push(numbering.path(Some(caller), names[number as usize % names.len()]));
    }
    let mut random = 1u64;
    let mut joules = move || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as f64 / 1e13
    };
    let rows = paths.iter().flat_map(|path| ranks.iter().map(|rank| (*path, *rank)));
    let rows: Vec<summary::Callpath> = rows
        .map(|(path, location_group)| {
            let (exclusive_joules, possible) = (joules(), joules() + 0.5);
            let figures = summary::Figures {
                calls: 3,
                exclusive_joules,
                inclusive_joules: exclusive_joules + joules(),
                possible_joules: Some(possible),
                exclusive_seconds: joules(),
                ..Default::default()
            };
            summary::Callpath { path, location_group, location, figures }
        })
        .collect();
    (summary.names, summary.paths) = (numbering.names, numbering.paths);
    let view = &mut summary.devices[0].views[0];
    view.attributed_joules = rows.iter().map(|row| row.figures.exclusive_joules).sum();
    view.callpaths = rows.into();
    summary
}

#[test]
fn a_million_call_paths_are_80_megabytes_and_a_small_page() {
    let summary = a_million();
    let json = json::text(&summary);
    assert!(json.len() < 80_000_000, "{} bytes", json.len());
    let again: Summary = serde_json::from_slice(&json).unwrap();
    let (rows, read) = (&summary.devices[0].views[0].callpaths, &again.devices[0].views[0].callpaths);
    assert_eq!((again.paths, rows.len()), (summary.paths.clone(), read.len()));
    for (row, read) in rows.iter().zip(read.iter()) {
        assert_eq!((row.path, row.location_group), (read.path, read.location_group));
        let (wrote, read) = (row.figures.exclusive_joules, read.figures.exclusive_joules);
        assert!((wrote - read).abs() <= 5e-9 * wrote, "{wrote} {read}");
    }
    let table = String::from_utf8(render(&summary, Format::Table, Screen::FILE).unwrap()).unwrap();
    // A call path has one row for all ranks.
    let more = table.lines().find(|line| line.starts_with("  ... and 124985 more (see --rows): "));
    assert!(more.is_some_and(|line| line.ends_with(" J in all")), "{table}");
    for (format, most) in
        [(Format::Html, 5_000_000), (Format::Flamegraph, 5_000_000), (Format::Table, 10_000)]
    {
        let report = render(&summary, format, Screen::FILE).unwrap();
        assert!(report.len() < most, "{format:?}: {} bytes", report.len());
        if format != Format::Table {
            let text = String::from_utf8(report).unwrap();
            assert!(text.contains(" smaller call paths"), "{format:?}");
        }
    }
}

/// This takes minutes if each device is compared with all devices or links of the run.
#[test]
fn a_table_of_many_nodes_finds_each_device_by_a_lookup() {
    const NODES: usize = 9000;
    let mut whole = summary();
    let (device, link) = (whole.devices.remove(0), whole.topology.remove(0));
    for number in 0..NODES {
        let node = format!("node{number:04}");
        for name in ["energy", "other"] {
            let (node, name) = (node.clone(), name.to_owned());
            let views = Vec::new();
            whole.devices.push(summary::Device {
                node: node.clone(),
                name: name.clone(),
                views,
                ..device.clone()
            });
            for consumer in (0..8).map(|rank| format!("MPI Rank {rank}")) {
                let (node, device) = (node.clone(), Some(name.clone()));
                whole.topology.push(assignment::Link { node, device, consumer, ..link.clone() });
            }
        }
    }
    let begun = std::time::Instant::now();
    let table = String::from_utf8(render(&whole, Format::Table, Screen::FILE).unwrap()).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    assert!(table.contains("J in 18000 devices on 9000 nodes"), "{table}");
    assert!(!table.contains("no consumer"), "{table}");
    // The limit only detects comparisons of each with all. A build without optimizations takes a multiple of the time.
    let most = if cfg!(debug_assertions) { 120.0 } else { 30.0 };
    assert!(seconds < most, "{seconds} s");
}

/// Returns the summary of a run on several nodes, each with one rank and the same figures. Rank 7 used three times as much in its
/// call paths.
fn on_nodes(count: u32) -> Summary {
    let mut nodes = (0..count).map(|rank| {
        let mut one = summary();
        let node = format!("node{rank:04}");
        one.run.nodes = vec![node.clone()];
        one.run.ranks = 1;
        one.names
            .iter_mut()
            .filter(|name| &***name == "MPI Rank 0")
            .for_each(|name| *name = format!("MPI Rank {rank}").into());
        for link in &mut one.topology {
            (link.node, link.consumer) = (node.clone(), format!("MPI Rank {rank}"));
        }
        for device in &mut one.devices {
            device.node = node.clone();
            let rows = device.views.iter_mut().flat_map(|view| view.callpaths.iter_mut());
            rows.filter(|_| rank == 7).for_each(|row| row.figures.exclusive_joules *= 3.0);
        }
        one
    });
    let first = nodes.next().unwrap();
    ampere_figures::nodes::summaries::joined(first, nodes.collect())
}

#[test]
fn for_many_ranks_sums_and_outliers_are_shown() {
    let summary = on_nodes(1000);
    let shown = text::render(&summary, Screen::FILE);
    let has = |line: &str| assert!(shown.contains(line), "{line}\n{}", &shown[..shown.len().min(6000)]);
    has("\n        1000 ranks on 1000 nodes (node0000-0999)   10.0 s   INCOMPLETE\n");
    has(
        "all ranks, of 1000 devices\n  1000 ranks: 9.02 J each on average, 9.00 J to 27.0 J  ! MPI Rank 7 27.0 J\n",
    );
    has("  3006    30.1 %  main > work                             ! MPI Rank 7 9.00 J\n");
    has("main > MPI_Send ");
    has("\n... and 992 more devices with less each, 9.92 kJ in all: ");
    assert!(shown.len() < 40_000, "{} bytes", shown.len());
    let page = html::render(&summary);
    assert!(page.contains("; far from the others: MPI Rank 7 27.0 J"));
    assert!(page.len() < 500_000, "{} bytes", page.len());
}

/// Summaries of older versions do not have the most joules of a row.
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
    assert!(older.devices[0].views[0].callpaths.iter().all(|row| row.figures.possible_joules.is_none()));
    let table = String::from_utf8(render(&older, Format::Table, Screen::FILE).unwrap()).unwrap();
    let line = table.lines().find(|line| line.ends_with("  work")).unwrap();
    assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), ["3.000", "30.0", "%"], "{table}");
    assert!(!table.contains("most)") && !table.contains("least"), "{table}");
    for format in Format::value_variants().iter().filter(|format| !format.is_of_events()) {
        render(&older, *format, Screen::FILE).unwrap();
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
    // Nothing is loaded from another place: the only address is that of the name space.
    for page in [page, picture] {
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains("://"), "{page}");
    }
}

#[test]
fn only_chosen_devices_and_views_are_reported_and_unknown_ones_are_errors() {
    let mut chosen = summary();
    let choice = |device: &str, view: &str| Choice {
        devices: vec![device.to_owned()],
        view: Some(view.to_owned()),
        ..Choice::default()
    };
    let why = choice("GPU-7", "ranks").apply(&mut chosen).unwrap_err();
    let why = why.to_string();
    assert!(why.contains("GPU-7") && why.contains("energy"), "{why}");
    let why = choice("energy", "threads").apply(&mut chosen).unwrap_err();
    assert!(why.to_string().starts_with("there is no view \"threads\": there is "), "{why}");
    choice("energy", "ranks").apply(&mut chosen).unwrap();
    let views = &chosen.devices[0].views;
    assert!(!views.is_empty() && views.iter().all(|view| view.view == "ranks"));
}

#[test]
fn an_empty_summary_has_every_report() {
    let empty = Summary::new(&Attributor::new(Config::default(), 1), None, Run::default(), Losses::default());
    for format in Format::value_variants().iter().filter(|format| !format.is_of_events()) {
        render(&empty, *format, Screen::FILE).unwrap();
    }
}

#[test]
fn differences_are_relative_to_the_first_run() {
    let (first, mut second) = (summary(), summary());
    for row in second.devices[0].views.iter_mut().flat_map(|view| &mut view.regions) {
        row.figures.exclusive_joules *= if &*row.region == "work" { 2.0 } else { 1.0 };
    }
    second.devices[0].total_joules += 3.0;
    let compared = |second: &Summary| {
        let named = |name: &str, summary: &Summary| {
            vec![compare::Named { name: name.to_owned(), summary: summary.clone() }]
        };
        let compared = Comparison::of(vec![named("a", &first), named("b\x1b[2J", second)], Per::Run);
        String::from_utf8(compared.render(Form::Table)).unwrap()
    };
    let text = compared(&second);
    assert!(!text.contains('\x1b'), "{text}");
    second.run.energy = "estimated".to_owned();
    let verdict = "joules cannot be compared: their sources differ (estimated, measured)\n\n";
    assert!(compared(&second).starts_with(verdict), "{}", compared(&second));
    let row = |name: &str| {
        let line =
            text.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("  joules")[..4], ["10.00", "13.00", "+30.0", "%"]);
    assert_eq!(row("  work")[..4], ["3.000", "6.000", "+100.0", "%"]);
    assert_eq!(row("  main")[2], "=");
    let by_function: Vec<&str> = text.split("by function\n").nth(1).unwrap().lines().collect();
    assert!(by_function[0].ends_with("work"), "the largest difference first: {text}");
}

#[test]
fn sampled_functions_of_single_runs_differ_by_more_than_their_error() {
    let with_error = |joules: f64| {
        let mut summary = summary();
        let rows = summary.devices[0].views.iter_mut().flat_map(|view| &mut view.regions);
        for row in rows.filter(|row| &*row.region == "work") {
            row.figures.exclusive_joules += joules;
            row.sampled_error_joules = Some(0.5);
        }
        summary
    };
    for (more, differs) in [(1.4, false), (1.5, true)] {
        let text = compared(Comparison::of, [with_error(0.0), with_error(more)], Form::Table);
        let verdict = text.split("\n\n").next().unwrap_or_default();
        let by_function = text.split("by function\n").nth(1).and_then(|rows| rows.split("\n\n").next());
        let rows = by_function.and_then(|rows| rows.split("no clear difference:\n").next());
        assert_eq!(rows.is_some_and(|rows| rows.contains("  work")), differs, "{text}");
        assert_eq!(verdict.contains("work"), differs, "{text}");
        assert_eq!(text.contains("twice the standard error"), !differs, "{text}");
    }
}

/// Returns the comparison of two runs, made by `of`.
fn compared(of: fn(Vec<Vec<compare::Named>>, Per) -> Comparison, runs: [Summary; 2], form: Form) -> String {
    let groups = runs.map(|summary| vec![compare::Named { name: "run".to_owned(), summary }]);
    String::from_utf8(of(groups.into(), Per::Run).render(form)).unwrap()
}

#[test]
fn dynamic_joules_are_compared_where_all_runs_have_them() {
    let compared = |runs, form| compared(Comparison::of, runs, form);
    // Without its baseline all joules of a run are dynamic.
    let runs = || [active_summary(BASELINE), active_summary("")];
    let table = compared(runs(), Form::Table);
    let row = |name: &str| -> Vec<String> {
        let line =
            table.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
        line.split_whitespace().take(2).map(str::to_owned).collect()
    };
    assert_eq!(row("  dynamic joules"), ["4.00", "10.00"], "{table}");
    assert_eq!(row("  static joules"), ["6.000", "0"], "{table}");
    assert_eq!(row("  work"), ["3.000", "4.800"], "{table}");
    assert!(
        table.contains("\ndynamic joules by function\n") && table.contains("\ndynamic joules by call path\n")
    );
    assert!(compared(runs(), Form::Html).contains("Dynamic joules by function"));
    assert!(compared(runs(), Form::Csv).contains("function,work,dynamic_joules,2,1,4.8"));
    let one_without = [active_summary(BASELINE), summary()];
    let csv = compared(one_without, Form::Csv);
    assert!(!csv.contains("dynamic") && csv.contains("function,work,exclusive_joules,"), "{csv}");
}

#[test]
fn functions_are_compared_with_the_functions_that_they_call() {
    let compared = |runs, form| compared(Comparison::of_inclusive, runs, form);
    let runs = || [active_summary(BASELINE), active_summary("")];
    let table = compared(runs(), Form::Table);
    let rows = |kind: &str| -> Vec<String> {
        let table = table.split(&format!("\n{kind}\n")).nth(1).unwrap_or_else(|| panic!("{kind}: {table}"));
        let rows = table.lines().take_while(|line| !line.is_empty());
        rows.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    // 3 of the 4 dynamic joules are those of `work`.
    let functions = rows("inclusive dynamic joules by function");
    for row in ["4.000 7.000 +75.0 % main", "3.000 4.800 +60.0 % work"] {
        assert!(functions.iter().any(|known| known == row), "{row}: {table}");
    }
    assert_eq!(rows("inclusive dynamic joules by call path")[0], "4.000 7.000 +75.0 % main");
    let verdict = table.lines().next().unwrap_or_default();
    assert!(!verdict.contains("main") && !verdict.contains("work"), "parts do not overlap: {verdict}");
    assert!(compared(runs(), Form::Html).contains("Inclusive dynamic joules by function"));
    assert!(compared(runs(), Form::Csv).contains("function,main,inclusive_dynamic_joules,2,1,7"));
    // Figures of older versions do not have them.
    let mut older = runs();
    for row in older.iter_mut().flat_map(|run| &mut run.devices[0].views).flat_map(|view| &mut view.regions) {
        row.figures.inclusive_dynamic_joules = None;
    }
    let table = compared(older, Form::Table);
    assert!(table.contains("\ninclusive joules by function\n") && !table.contains("dynamic"), "{table}");
}

#[test]
fn inclusive_dynamic_joules_are_in_every_form_with_inclusive_joules() {
    let summary = active_summary(BASELINE);
    let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
    let view = &summary.devices[0].views[0];
    let of_region = |name: &str| view.regions.iter().find(|row| &*row.region == name).unwrap().figures;
    let main = of_region("main");
    assert!(close(main.inclusive_dynamic_joules, 4.0) && close(main.dynamic_joules, 0.0), "{main:?}");
    let json = serde_json::to_string(&summary).unwrap();
    let read: Summary = serde_json::from_str(&json).unwrap();
    let path = read.devices[0].views[0].callpaths.iter().find(|row| row.path == 0).unwrap();
    assert!(close(path.figures.inclusive_dynamic_joules, 4.0), "{json}");
    let older = json.replace("\"inclusive_dynamic_joules\"", "\"unknown\"");
    let older: Summary = serde_json::from_str(&older).unwrap();
    assert_eq!(older.devices[0].views[0].callpaths[0].figures.inclusive_dynamic_joules, None);
    let csv = String::from_utf8(render(&summary, Format::Csv, Screen::FILE).unwrap()).unwrap();
    let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
    let at =
        reader.headers().unwrap().iter().position(|column| column == "inclusive_dynamic_joules").unwrap();
    let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert!(
        rows.iter()
            .any(|row| &row[8] == "main" && row[at].parse::<f64>().is_ok_and(|sum| close(Some(sum), 4.0)))
    );
    let mut only_dynamic = summary.clone();
    Choice { dynamic_only: true, ..Choice::default() }.apply(&mut only_dynamic).unwrap();
    let main = only_dynamic.devices[0].views[0].regions.iter().find(|row| &*row.region == "main").unwrap();
    assert!(close(Some(main.figures.inclusive_joules), 4.0), "{main:?}");
}

/// Returns a run of several ranks, in which `work` has `more` joules in addition to those of [`summary`].
pub(crate) fn varied(name: &str, ranks: u32, more: f64) -> compare::Named {
    let mut summary = summary();
    for view in summary.devices[0].views.iter_mut().filter(|view| view.view == "ranks") {
        let is_work = |row: &&mut summary::Region| &*row.region == "work";
        view.regions.iter_mut().filter(is_work).for_each(|row| row.figures.exclusive_joules += more);
    }
    summary.devices[0].total_joules += more;
    (summary.run.ranks, summary.run.energy) = (ranks, "measured".to_owned());
    compare::Named { name: name.to_owned(), summary }
}

#[test]
fn python_functions_are_compared_with_the_c_functions_that_they_call() {
    let named = |name: &str, more: f64| {
        let mut run = varied(name, 2, more);
        let names = &mut run.summary.names;
        names.iter_mut().filter(|name| &***name == "main").for_each(|name| *name = "main (a.py)".into());
        run
    };
    let comparison = Comparison::of(vec![vec![named("a", 0.0)], vec![named("b", 0.0)]], Per::Run);
    let text = String::from_utf8(comparison.render(Form::Table)).expect("UTF-8");
    let table = text.split("joules by Python function with C code\n").nth(1).expect("a table");
    let row = table.lines().next().unwrap_or_default();
    assert!(row.ends_with("=  main (a.py)"), "{text}");
    let joules = row.split_whitespace().next().and_then(|joules| joules.parse::<f64>().ok());
    let paths: f64 =
        summary().devices[0].views[0].callpaths.iter().map(|row| row.figures.exclusive_joules).sum();
    assert!(
        joules.is_some_and(|joules| (joules - paths).abs() < 1e-9),
        "all functions are below main: {text}"
    );
}

/// Returns a run of a Python program with a sample every `period` seconds. It is in the Python function `other` for three of nine
/// seconds; this function has `part` of the joules that `work` has in [`active_summary`].
fn sampled_python(period: f64, other: &str, part: f64) -> Summary {
    let mut summary = active_summary(BASELINE);
    summary.run.stack_period_seconds = Some(period);
    let renamed = |name: &str| match name {
        "main" => "main (a.py)".into(),
        "work" => other.into(),
        other => other.into(),
    };
    summary.names.iter_mut().for_each(|name| *name = renamed(name));
    let work = summary.names.iter().position(|name| &**name == other).unwrap();
    for view in &mut summary.devices[0].views {
        view.active_seconds = None;
        view.regions.iter_mut().for_each(|row| row.region = renamed(&row.region));
        for row in view.callpaths.iter_mut() {
            row.figures.calls = 0;
            if summary.paths.name[row.path as usize] as usize == work {
                row.figures.dynamic_joules = row.figures.dynamic_joules.map(|joules| part * joules);
                row.figures.exclusive_joules *= part;
            }
        }
    }
    summary
}

#[test]
fn sampled_python_functions_differ_by_more_than_their_error() {
    let named = |runs: [f64; 2], period: f64, other: &str| {
        let group = |runs: f64, name: &str, part: f64| -> Vec<compare::Named> {
            let named =
                |_| compare::Named { name: "r".to_owned(), summary: sampled_python(period, name, part) };
            (0..runs as usize).map(named).collect()
        };
        let groups = vec![group(runs[0], "work (a.py)", 1.0), group(runs[1], other, 0.8)];
        let text = String::from_utf8(Comparison::of(groups, Per::Run).render(Form::Table)).unwrap();
        let verdict = text.split("\n\n").next().unwrap_or_default();
        assert_eq!(verdict.contains("work (a.py)"), verdict.contains(other), "{text}");
        verdict.contains(other)
    };
    // The scatter of several runs is known, but not if there is one run on the other side.
    for (runs, is_known) in [([1.0, 1.0], false), ([1.0, 2.0], false), ([2.0, 2.0], true)] {
        assert_eq!(named(runs, 1.5, "work (a.py)"), is_known, "two samples each: {runs:?}");
        assert!(named(runs, 0.0015, "work (a.py)"), "thousands of samples: {runs:?}");
        assert!(!named(runs, 3.0, "other (a.py)"), "new, with one sample in each run: {runs:?}");
        assert!(named(runs, 0.0015, "other (a.py)"), "new, with thousands of samples: {runs:?}");
    }
}

#[test]
fn sampled_python_functions_have_their_standard_error() {
    let summary = sampled_python(1.5, "work (a.py)", 1.0);
    // Two samples of six: four of ten by Agresti and Coull, so sqrt(6 * 0.4 * 0.6) / 2 = 0.6.
    let text = text::render(&summary, Screen::FILE);
    let table = text.lines().skip_while(|line| !line.ends_with("  Python function with C code"));
    let cells: Vec<Vec<&str>> = table.take(3).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[0][..5], ["of", "dynamic", "dynamic", "J", "±"], "{text}");
    let work = cells.iter().find(|cells| cells.contains(&"work")).expect("a row");
    assert_eq!(work[3..5], ["60", "%"], "{text}");
    let tables = page::Page::of(&summary).tables.expect("tables");
    let at =
        tables.python.name.iter().position(|name| tables.names[*name as usize] == "work (a.py)").unwrap();
    let error = tables.python.sampled_error_joules[at].expect("an error");
    assert!((error - 0.6 * tables.python.joules[at]).abs() < 1e-5, "{error}");
}

#[test]
fn a_difference_within_the_noise_of_groups_is_called_so() {
    let group = |ranks: u32, joules: [f64; 3]| joules.map(|more| varied("r", ranks, more)).into();
    let text = |groups, per| {
        let text = Comparison::of(groups, per).render(Form::Table);
        String::from_utf8(text).unwrap()
    };
    let line = |text: &str| text.lines().find(|line| line.ends_with("  work")).unwrap().to_owned();
    let part = |text: &str| {
        let table = text.split("joules by function\n").nth(1).and_then(|table| table.split("\n\n").next());
        let (differ, within) =
            table.and_then(|table| table.split_once("  no clear difference:\n")).expect("two parts");
        (differ.contains("  work\n"), within.contains("  work\n"))
    };
    let alike = text(vec![group(2, [0.0, 0.3, 0.6]), group(2, [0.1, 0.2, 0.9])], Per::Run);
    assert_eq!(part(&alike), (false, true), "{alike}");
    assert!(alike.starts_with("same energy (within noise)\n\n"), "{alike}");
    let apart = text(vec![group(2, [0.0, 0.1, 0.2]), group(2, [3.0, 3.1, 3.2])], Per::Run);
    assert_eq!(part(&apart), (true, false), "{apart}");
    assert!(apart.starts_with("energy +30 %; work +97 %\n\n"), "{apart}");
    assert_eq!(
        line(&apart).split_whitespace().collect::<Vec<_>>().join(" "),
        "3.100 6.100 +96.8 % +84..+111 % work",
        "{apart}"
    );
    assert_eq!(line(&apart).find("work"), line(&alike).find("work"), "columns stay: {apart}");
    // One row alone would differ, but it is one of several that were tested.
    let chance = text(vec![group(2, [0.0, 1.0, 2.0]), group(2, [2.5, 3.5, 4.5])], Per::Run);
    let heads = ["joules by function\n", "  may differ by chance, because many rows are tested:\n"];
    let row = chance.split(heads[0]).nth(1).and_then(|table| table.strip_prefix(heads[1]));
    assert!(row.is_some_and(|row| row.lines().next().is_some_and(|row| row.ends_with("  work"))), "{chance}");
    // If the numbers of ranks differ, the figures are sums, with a note, or per rank.
    let sums = text(vec![group(2, [0.0, 0.1, 0.2]), group(4, [3.0, 3.1, 3.2])], Per::Run);
    assert!(sums.contains("they ran on 2 and 4 ranks, and figures are sums: --per rank divides"), "{sums}");
    let each = text(vec![group(2, [0.0, 0.1, 0.2]), group(4, [3.0, 3.1, 3.2])], Per::Rank);
    assert!(line(&each).contains("1.550") && line(&each).contains("1.525"), "{each}");
    assert!(each.contains("per rank") && !each.contains("--per rank"), "{each}");
    let from_4_to_2 = text(vec![group(4, [0.0, 0.1, 0.2]), group(2, [3.0, 3.1, 3.2])], Per::Run);
    assert!(from_4_to_2.contains("they ran on 4 and 2 ranks"), "{from_4_to_2}");
    // A run that differs from the others of its group is named, and nothing is called the same.
    let mut slow = group(2, [0.0, 0.3, 90.0]);
    slow[2].name = "slow".to_owned();
    slow[2].summary.run.seconds *= 7.0;
    let seconds = slow[0].summary.run.seconds;
    let unknown = text(vec![slow, group(2, [0.0, 0.3, 0.6])], Per::Run);
    let verdict = unknown.lines().next().unwrap_or_default();
    assert!(verdict.starts_with("whether the energy differs is not known (95 % range "), "{unknown}");
    assert!(verdict.ends_with("%; more runs narrow it)"), "its own noise alone: {unknown}");
    let [one, others] = [7.0 * seconds, seconds].map(|seconds| ampere_model::digits::significant(seconds, 3));
    let named = format!("slow took {one} s, the other runs of its group {others} to {others} s: ");
    assert!(unknown.contains(&named) && !unknown.contains("the same"), "{unknown}");
    assert!(!alike.contains("leave it out to reduce the noise"), "{alike}");
    // The noise of a group of one run is not known.
    let one = text(vec![group(2, [0.0, 0.1, 0.2]), vec![varied("r", 2, 1.0)]], Per::Run);
    assert!(one.contains("a group of one run has no deviation") && line(&one).contains(" ?  work"), "{one}");
    assert!(
        one.starts_with("energy +8.9 % (noise not known: compare groups of runs); work +29 %\n"),
        "{one}"
    );
}

#[test]
fn a_verdict_begins_with_what_is_known() {
    let run = |at: usize, joules: f64, more: f64| {
        let mut summary = active_summary(BASELINE);
        summary.run.id = format!("{at} {more}");
        summary.run.total_joules = joules;
        for device in &mut summary.devices {
            device.total_joules = joules;
            device.dynamic_joules = device.dynamic_joules.map(|dynamic| dynamic * more);
        }
        compare::Named { name: format!("{at}"), summary }
    };
    let group =
        |more: f64| (0..3).map(|at| run(at, [9.0, 12.0, 30.0][at], more + 0.01 * at as f64)).collect();
    let groups = vec![group(1.0), group(1.5)];
    let text = String::from_utf8(Comparison::of(groups, Per::Run).render(Form::Table)).unwrap();
    let verdict = text.lines().next().unwrap_or_default();
    assert!(verdict.starts_with("dynamic joules +"), "{text}");
    assert!(verdict.contains("whether the energy differs is not known (95 % range "), "{text}");
}

#[test]
fn several_single_runs_begin_with_the_way_to_compare_groups() {
    let text = |runs: usize| {
        let groups = (0..runs).map(|at| vec![varied("r", 2, at as f64)]).collect();
        String::from_utf8(Comparison::of(groups, Per::Run).render(Form::Table)).unwrap()
    };
    let words = "To compare groups of runs: ampere compare A1 A2 ... -- B1 B2 ...\n\n2: ";
    assert!(text(3).starts_with(words) && !text(2).contains("To compare groups"), "{}", text(3));
}

/// The tables of a comparison fit into a terminal, and each shows the names of its rows.
#[test]
fn no_line_of_a_comparison_is_wider_than_the_terminal() {
    const WORK: &str =
        "app::detail::Grid<double, app::Box<3> >::relax_a_block_of_the_grid(app::Box<3> const&)";
    let run = |more: f64| {
        let mut named =
            varied("a/directory/with/a/long/name/that/no/terminal/of/60/columns/could/show", 2, more);
        named.summary.run.command = vec!["/opt/programs/".to_owned() + &"program".repeat(20)];
        for name in named.summary.names.iter_mut().filter(|name| &***name == "work") {
            *name = WORK.into();
        }
        for region in named
            .summary
            .devices
            .iter_mut()
            .flat_map(|device| &mut device.views)
            .flat_map(|view| &mut view.regions)
        {
            if &*region.region == "work" {
                region.region = WORK.into();
            }
        }
        named
    };
    let runs = |count: i32| (0..count).map(|at| vec![run(10f64.powi(4 * at % 15))]).collect();
    let groups = (0..2).map(|at| (0..3).map(|of| run(f64::from(100 * at + of))).collect()).collect();
    let kinds: [(&str, Vec<Vec<compare::Named>>); 5] = [
        ("2 runs", runs(2)),
        ("3 runs", runs(3)),
        ("4 runs", runs(4)),
        ("8 runs", runs(8)),
        ("groups", groups),
    ];
    for (kind, groups) in kinds {
        let count = groups.len();
        let compared = Comparison::of(groups, Per::Run);
        for width in 60..=200 {
            let text = String::from_utf8(compared.table(width)).unwrap();
            let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= width, "{kind}, {width}: {widest}\n{text}");
            let named = text.lines().filter(|line| {
                line.contains("::relax_a_block_of_the") || line.ends_with("joules waiting in MPI")
            });
            assert!(named.count() > 0, "{kind}, {width}: {text}");
            for group in 2..=count {
                let is_of_head =
                    |word: &str| ["change", "%", "range"].contains(&word) || word.parse::<usize>().is_ok();
                let is_head = |line: &&str| line.contains(" 1  ") && line.split_whitespace().all(is_of_head);
                let heads: Vec<&str> = text.lines().filter(is_head).collect();
                let group = group.to_string();
                let shown =
                    heads.iter().flat_map(|line| line.split_whitespace()).filter(|word| **word == group);
                assert_eq!(shown.count(), 1, "{kind}, {width}: a column of each group: {heads:?}");
            }
        }
    }
}

/// Returns a run of the same program on the same machine, estimated with these idle watts.
fn estimated(name: &str, idle_watts: f64, more: f64) -> compare::Named {
    let mut named = varied(name, 2, more);
    named.summary.run.energy = "estimated".to_owned();
    named.summary.devices[0].estimate = Some(EstimateWatts { idle_watts, watts_per_core: 4.0 });
    named
}

#[test]
fn static_joules_of_an_estimate_are_called_time_at_the_idle_watts() {
    let run = |more: f64| {
        let mut summary = active_summary(BASELINE);
        summary.run.energy = "estimated".to_owned();
        summary.devices[0].total_joules += more;
        summary.devices[0].static_joules = summary.devices[0].static_joules.map(|joules| joules + more);
        summary
    };
    let text = compared(Comparison::of, [run(0.0), run(1.2)], Form::Table); // 6 and 7.2 J of 10 and 11.2 J
    let verdict = "estimated energy +12 % (noise not known: compare groups of runs): static joules (64 % of it, idle watts x time) +20 %, \
                   dynamic joules and time the same\n";
    assert!(text.starts_with(verdict), "{text}");
}

#[test]
fn estimates_with_different_watts_are_not_a_significant_difference() {
    let compared = |watts| {
        let group = |watts, joules: [f64; 3]| Vec::from(joules.map(|more| estimated("r", watts, more)));
        let groups = vec![group(100.0, [0.0, 0.1, 0.2]), group(watts, [3.0, 3.1, 3.2])];
        let [text, json] =
            [Form::Table, Form::Json].map(|form| Comparison::of(groups_of(&groups), Per::Run).render(form));
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let rows = json["rows"].as_array().unwrap().iter();
        let significant = rows
            .filter(|row| row["differences"][0]["significant"] == true)
            .map(|row| row["name"].to_string());
        (String::from_utf8(text).unwrap(), significant.collect::<Vec<_>>())
    };
    let (text, significant) = compared(100.0);
    assert!(text.starts_with("estimated energy +30 %; work +97 %\n"), "{text}");
    assert!(significant.contains(&"\"work\"".to_owned()), "{significant:?}");
    assert!(!text.contains("cannot be compared"), "{text}");
    let (text, significant) = compared(150.0);
    let row = |name: &str| {
        let row = text.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        row.split_whitespace().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    // The changes of joules are left out, and others are not.
    assert_eq!(row("  work"), ["-", "work"], "{text}");
    assert_eq!(row("  joules"), ["-", "joules"], "{text}");
    assert_ne!(row("  seconds")[0], "-", "{text}");
    assert!(text.contains("\n     - as a change: joules that cannot be compared\n"), "{text}");
    let verdict = "joules cannot be compared: the runs were estimated with different watts \
                   (100 W idle and 4 W per core; 150 W idle and 4 W per core)\n";
    assert!(text.starts_with(verdict), "{text}");
    assert!(significant.is_empty(), "{significant:?}");
}

#[test]
fn without_clear_differences_the_largest_functions_come_first() {
    let group = |more: [f64; 3]| Vec::from(more.map(|more| varied("r", 8, more)));
    let groups = groups_of(&[group([0.0, 0.3, 0.6]), group([0.1, 0.4, 0.5])]);
    let text = String::from_utf8(Comparison::of(groups, Per::Run).table(80)).unwrap();
    let rows =
        text.split("by function\n").nth(1).and_then(|rows| rows.split("no clear difference:\n").nth(1));
    let joules = rows.unwrap_or_else(|| panic!("{text}")).lines().map_while(|line| {
        let figure = line.split_whitespace().next()?.parse::<f64>().ok()?;
        Some(figure)
    });
    let joules: Vec<f64> = joules.collect();
    assert!(joules.len() > 2 && joules.is_sorted_by(|a, b| a >= b), "{joules:?}: {text}");
}

fn groups_of(groups: &[Vec<compare::Named>]) -> Vec<Vec<compare::Named>> {
    let copy = |run: &compare::Named| compare::Named { name: run.name.clone(), summary: run.summary.clone() };
    groups.iter().map(|runs| runs.iter().map(copy).collect()).collect()
}

#[test]
fn a_run_that_is_compared_with_itself_is_called_so() {
    let first_line = |runs: [compare::Named; 2]| {
        let text = Comparison::of(runs.map(|run| vec![run]).into(), Per::Run).render(Form::Table);
        String::from_utf8(text).unwrap().lines().next().unwrap().to_owned()
    };
    let run = |id: &str, more| {
        let mut named = varied(id, 2, more);
        named.summary.run.id = id.to_owned();
        named.summary.run.start = "2026-11-25T20:00:00Z".to_owned();
        named
    };
    assert_eq!(
        first_line([run("a", 0.0), run("a", 0.0)]),
        "1 and 2 are the same run: it is compared with itself"
    );
    let dated = |mut named: compare::Named| {
        named.summary.run.start = "2026-11-25T21:00:00Z".to_owned();
        named
    };
    let again = "1 and 2 are the same run: only the attribution of its joules differs";
    assert_eq!(first_line([run("a", 0.0), run("a", 1.0)]), again);
    assert_eq!(first_line([run("a", 0.0), dated(run("b", 0.0))]), "same energy");
    // The id of a trace is the name of its directory, which has no meaning: its times are compared.
    let trace = |id: &str| {
        let mut named = run(id, 0.0);
        named.summary.run.host = "trace".to_owned();
        named
    };
    let same = "1 and 2 are the same run: it is compared with itself";
    assert_eq!(first_line([trace("a"), trace("b")]), same);
    assert_eq!(first_line([trace("a"), dated(trace("a"))]), "same energy");
}

#[test]
fn chance_differences_among_many_rows_are_within_noise() {
    // Forty functions do not differ in truth; some of them differ by chance, each with a probability of 5 %.
    let mut random = 1_u64;
    let mut noise = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 40) as f64 / f64::from(1 << 24)
    };
    let mut run = |name: &str| {
        let mut named = varied(name, 2, 0.0);
        let view = &mut named.summary.devices[0].views[0];
        let row = view.regions[0].clone();
        for number in 0..40 {
            let mut row = row.clone();
            row.region = format!("function {number}").into();
            row.figures.exclusive_joules = 1.0 + noise();
            view.regions.push(row);
        }
        named
    };
    let groups = ["a", "b"].map(|group| (0..4).map(|_| run(group)).collect()).into();
    let json: serde_json::Value =
        serde_json::from_slice(&Comparison::of(groups, Per::Run).render(Form::Json)).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let count = |what: &str, is: bool| {
        let has = |row: &&serde_json::Value| {
            row["differences"][0]["significant"].is_boolean() && row["differences"][0][what] == is
        };
        rows.iter().filter(has).count()
    };
    assert!(count("within_noise", false) >= 1, "by itself a row differs by chance");
    assert_eq!(count("significant", true), 0);
    assert_eq!(json["verdict"][0], "same energy (within noise)");
}

#[test]
fn many_functions_do_not_hide_a_difference_of_the_runs() {
    let mut number = 0;
    let mut run = |(joules, seconds): (f64, f64)| {
        let mut named = varied("r", 2, 0.0);
        number += 1;
        (named.summary.devices[0].total_joules, named.summary.run.seconds) = (joules, seconds);
        let view = &mut named.summary.devices[0].views[0];
        let row = view.regions[0].clone();
        for at in 0..60 {
            let mut row = row.clone();
            row.region = format!("function {at}").into();
            row.figures.exclusive_joules = 1.0 + f64::from((number + at) % 3);
            view.regions.push(row);
        }
        named
    };
    let mut compared = |a: [(f64, f64); 3], b: [(f64, f64); 3]| {
        let groups = [a, b].map(|runs| runs.into_iter().map(&mut run).collect());
        let json: serde_json::Value =
            serde_json::from_slice(&Comparison::of(groups.into(), Per::Run).render(Form::Json)).unwrap();
        json["verdict"][0].as_str().unwrap().to_owned()
    };
    let verdict =
        compared([(0.706, 2.0), (0.659, 2.1), (0.656, 2.2)], [(0.943, 2.1), (0.946, 2.0), (0.923, 2.2)]);
    assert!(verdict.starts_with("energy +39 %"), "{verdict}");
    // The times differ by themselves, but not after the correction: they are neither different nor the same.
    let verdict =
        compared([(10.0, 10.0), (10.3, 10.1), (10.6, 10.2)], [(10.1, 10.25), (10.2, 10.35), (10.9, 10.45)]);
    assert_eq!(verdict, "same energy (within noise): time not known (95 % range +0.2 to +4.8 %)");
}

#[test]
fn runs_of_different_programs_are_named_as_such() {
    let with_command = |command: &str| {
        let mut run = varied("r", 2, 0.0);
        run.summary.run.command = command.split(' ').map(str::to_owned).collect();
        run
    };
    let text = |runs: [compare::Named; 2]| {
        let compared = Comparison::of(runs.map(|run| vec![run]).into(), Per::Run).render(Form::Table);
        String::from_utf8(compared).unwrap()
    };
    let said = text([with_command("mpirun -n 2 /a/xhpl 10"), with_command("mpirun -n 4 ./xhpl 20")]);
    assert!(!said.contains("their commands differ"), "{said}");
    let said = text([with_command("mpirun -n 2 /a/xhpl"), with_command("mpirun -n 2 /a/hpcc")]);
    assert!(said.contains("their commands differ"), "{said}");
    let mut other = with_command("./other");
    other.summary.names.iter_mut().for_each(|name| *name = format!("{name} of another").into());
    let views = other.summary.devices.iter_mut().flat_map(|device| &mut device.views);
    for row in views.flat_map(|view| &mut view.regions) {
        row.region = format!("{} of another", row.region).into();
    }
    let said = text([with_command("./one"), other]);
    assert!(said.contains("no function in common, so they are runs of different programs"), "{said}");
}

#[test]
fn call_paths_of_two_programs_are_matched_below_their_files_names() {
    let of_program = |program: &str, more| {
        let mut run = varied("r", 0, more);
        run.summary.run.command = ["mpirun", &format!("./{program}"), "10"].map(str::to_owned).to_vec();
        run.summary
            .names
            .iter_mut()
            .filter(|name| &***name == "main")
            .for_each(|name| *name = program.into());
        let views = run.summary.devices.iter_mut().flat_map(|device| &mut device.views);
        let regions = views.flat_map(|view| &mut view.regions).filter(|row| &*row.region == "main");
        regions.for_each(|row| row.region = program.into());
        run
    };
    let csv = |runs: [compare::Named; 2]| {
        String::from_utf8(Comparison::of(runs.map(|run| vec![run]).into(), Per::Run).render(Form::Csv))
            .unwrap()
    };
    let versions = csv([of_program("solver-1", 0.0), of_program("solver-2", 1.0)]);
    assert!(versions.contains("call path,(program) > work,"), "{versions}");
    assert!(versions.contains("function,(program),") && !versions.contains("solver-1"), "{versions}");
    let group = |program: &str, more: f64| [0.0, 0.1, 0.2].map(|noise| of_program(program, more + noise));
    let all = Comparison::of(vec![group("solver-1", 0.0).into(), group("solver-2", 3.0).into()], Per::Run);
    let [table, page, markdown] = [Form::Table, Form::Html, Form::Markdown]
        .map(|form| String::from_utf8(all.render(form)).expect("UTF-8"));
    let note = "(program) is the program of each run: solver-1, solver-2";
    assert!(table.contains(&format!("{note}\n")) && page.contains(note), "{table}");
    assert!(!markdown.contains("(program)"), "it has only functions that differ: {markdown}");
    assert!(page.contains("data-head=\"change\""), "a narrow page has no head above its cells: {page}");
    let same = csv([of_program("solver", 0.0), of_program("solver", 1.0)]);
    assert!(same.contains("call path,solver > work,") && !same.contains("(program)"), "{same}");
    let of_script = |script: &str| {
        let mut run = of_program("python3", 0.0);
        run.summary.run.command = ["python3", script].map(str::to_owned).to_vec();
        let named = format!("work ({script})");
        run.summary
            .names
            .iter_mut()
            .filter(|name| &***name == "work")
            .for_each(|name| *name = (*named).into());
        let views = run.summary.devices.iter_mut().flat_map(|device| &mut device.views);
        let regions = views.flat_map(|view| &mut view.regions).filter(|row| &*row.region == "work");
        regions.for_each(|row| row.region = (*named).into());
        run
    };
    let scripts = csv([of_script("before.py"), of_script("after.py")]);
    assert!(scripts.contains("call path,python3 > work (program),"), "{scripts}");
    assert!(scripts.contains("function,work (program),") && !scripts.contains("after.py"), "{scripts}");
    // The command does not name these files, so the names may be those of functions.
    let unnamed = |program| {
        let mut run = of_program(program, 0.0);
        run.summary.run.command = vec!["./run.sh".to_owned()];
        run
    };
    let functions = csv([unnamed("worker_a"), unnamed("worker_b")]);
    assert!(functions.contains("worker_a") && functions.contains("worker_b"), "{functions}");
}

#[test]
fn the_verdict_distinguishes_dynamic_and_static_joules_and_time() {
    let verdict = |change: &dyn Fn(&mut Summary)| {
        let runs = [active_summary(BASELINE), active_summary(BASELINE)];
        let mut groups = runs.map(|summary| vec![compare::Named { name: "run".to_owned(), summary }]);
        groups.iter_mut().for_each(|runs| runs[0].summary.run.seconds = 10.0);
        groups[1][0].summary.run.id = "another".to_owned();
        groups[1][0].summary.run.start = "2026-11-25T21:00:00Z".to_owned();
        change(&mut groups[1][0].summary);
        let text = Comparison::of(groups.into(), Per::Run).render(Form::Table);
        String::from_utf8(text).unwrap().lines().next().unwrap().to_owned()
    };
    assert_eq!(verdict(&|_| {}), "same energy: dynamic joules, static joules and time the same");
    let slower = verdict(&|summary| {
        summary.run.seconds *= 1.5;
        summary.devices[0].static_joules = summary.devices[0].static_joules.map(|joules| 1.5 * joules);
        summary.devices[0].total_joules += 3.0;
    });
    assert_eq!(
        slower,
        "energy +30 % (noise not known: compare groups of runs): static joules +50 %, time +50 %, dynamic joules the same"
    );
}

#[test]
fn processes_without_ranks_are_not_called_ranks() {
    let text = |ranks: u32, group: &str| {
        let mut runs = [varied("a", ranks, 0.0), varied("b", ranks, 1.0)];
        for run in &mut runs {
            let names = run.summary.names.iter_mut().filter(|name| name.starts_with("MPI Rank"));
            names.for_each(|name| *name = name.replace("MPI Rank", group).into());
        }
        String::from_utf8(Comparison::of(runs.map(|run| vec![run]).into(), Per::Run).render(Form::Table))
            .unwrap()
    };
    assert!(text(2, "MPI Rank").contains(": 2 ranks on "), "{}", text(2, "MPI Rank"));
    let processes = text(0, "Process");
    assert!(!processes.contains("rank") && processes.contains("process"), "{processes}");
}

#[test]
fn a_report_of_a_run_without_ranks_has_no_word_of_them() {
    let mut summary = on_nodes(3);
    assert!(text::render(&summary, Screen::FILE).contains("least rank"));
    for name in summary.names.iter_mut().filter(|name| name.starts_with("MPI Rank")) {
        *name = name.replace("MPI Rank", "Process").into();
    }
    summary.run.ranks = 0;
    let shown = text::render(&summary, Screen::FILE);
    assert!(!shown.contains("rank") && shown.contains("least process"), "{shown}");
}

#[test]
fn a_comparison_warns_if_only_one_view_was_divided_in_another_way() {
    let note = "their joules were divided in different ways (policy, sharing)";
    let has_note = |change: fn(&mut summary::View)| {
        let mut runs = [varied("a", 2, 0.0), varied("b", 2, 1.0)];
        for run in &mut runs {
            let mut kernels = run.summary.devices[0].views[0].clone();
            "kernels".clone_into(&mut kernels.view);
            run.summary.devices[0].views.retain(|view| view.view == "ranks");
            run.summary.devices[0].views.push(kernels);
        }
        runs[1].summary.devices[0].views.iter_mut().for_each(change);
        let text = Comparison::of(runs.map(|run| vec![run]).into(), Per::Run).render(Form::Table);
        String::from_utf8(text).unwrap().contains(note)
    };
    let active = |view: &mut summary::View| {
        if view.view == "kernels" {
            "active".clone_into(&mut view.policy);
        }
    };
    assert!(has_note(active) && !has_note(|_| {}));
}

#[test]
fn a_comparison_is_escaped_and_whole_in_every_form() {
    let groups = || -> Vec<Vec<compare::Named>> {
        let group = |more: [f64; 2]| more.map(|more| varied(HOSTILE, 2, more)).into();
        vec![group([0.0, 0.1]), group([1.0, 1.2])]
    };
    let compared = Comparison::of(groups(), Per::Run);
    let text = |form| String::from_utf8(compared.render(form)).unwrap();
    let page = text(Form::Html);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert"), "{page}");
    assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("://"), "nothing from elsewhere");
    let csv = text(Form::Csv);
    let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
    let records: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert!(records.iter().any(|row| &row[0] == "function" && &row[1] == HOSTILE), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&text(Form::Json)).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len() * 2, records.len());
    for by in ["run", "device", "function", "call path"] {
        assert!(rows.iter().any(|row| row["by"] == by), "{by}");
    }
}

/// Another user's summary can contain anything in any of its texts. Each text in turn gets characters that control terminals.
#[test]
fn no_text_of_a_summary_reaches_a_terminal_as_a_command() {
    const HOSTILE: &str = "\x1b]0;title\x07\x1b[2J\u{9b}31m\r\n\n\n\u{202e}\u{fdd0}";
    fn texts(value: &serde_json::Value, at: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::String(_) => found.push(at.to_owned()),
            serde_json::Value::Array(all) => {
                all.iter().enumerate().for_each(|(number, one)| texts(one, &format!("{at}/{number}"), found));
            }
            serde_json::Value::Object(all) => {
                all.iter().for_each(|(name, one)| texts(one, &format!("{at}/{name}"), found));
            }
            _ => {}
        }
    }
    let mut whole = summary();
    let run = &mut whole.run;
    (run.command, run.nodes) = (vec!["program".to_owned()], vec!["node".to_owned()]);
    run.job = Some(ampere_figures::batch_job::Job { scheduler: "Slurm".to_owned(), id: "17".to_owned() });
    (run.start, run.end) = ("2026-01-01T00:00:00Z".to_owned(), "2026-01-01T00:01:00Z".to_owned());
    run.notes.push("a note".to_owned());
    let whole = serde_json::to_value(whole).unwrap();
    let mut all = Vec::new();
    texts(&whole, "", &mut all);
    let mut changed = 0;
    let lines = |summary: &Summary, format| {
        let shown = String::from_utf8(render(summary, format, Screen::new(200, false)).unwrap()).unwrap();
        (shown.lines().count(), shown)
    };
    let as_it_is: Summary = serde_json::from_value(whole.clone()).unwrap();
    for at in &all {
        let mut value = whole.clone();
        let text = value.pointer_mut(at).unwrap();
        *text = format!("{}{HOSTILE}", text.as_str().unwrap()).into();
        // Some columns accept only certain words.
        let Ok(summary) = serde_json::from_value::<Summary>(value) else { continue };
        changed += 1;
        for format in [Format::Table, Format::Folded] {
            let (count, shown) = lines(&summary, format);
            let left: String =
                shown.chars().filter(|c| c.is_control() && *c != '\n' || *c == '\u{202e}').collect();
            assert!(left.is_empty(), "{at}: {left:?} in {shown}");
            assert!(count <= lines(&as_it_is, format).0 + 1, "{at}: {shown}");
        }
        let coloured = String::from_utf8(
            render(&summary, Format::Table, Screen { colour: true, ..Screen::FILE }).unwrap(),
        )
        .unwrap();
        let codes = ["\x1b[1m", "\x1b[36m", "\x1b[1;31m", "\x1b[0m"];
        let plain = codes.iter().fold(coloured.clone(), |text, code| text.replace(code, ""));
        assert!(!plain.contains(['\x1b', '\x07', '\u{9b}']), "{at}: {coloured:?}");
    }
    assert!(changed > 20 && changed * 2 > all.len(), "{changed} of {}", all.len());
}
