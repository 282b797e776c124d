//! `ampere report -f timeline`: its sums are those of the summary, as read by pandas.

use ampere_tests::jobs::{Done, Place, files_below, run};
use ampere_tests::runs::python_with;
use ampere_tests::skip_unless;
use otf2::{
    ArchiveWriter, Definitions, LocationGroup, LocationGroupType, LocationRef, LocationType, MetricBase,
    MetricClass, MetricMember, MetricMode, MetricOccurrence, MetricType, MetricValueType, RecorderKind,
    Region,
};

fn timeline(place: &Place, arguments: &[&str]) -> Done {
    run(place.ampere(["report", "gpu", "-f", "timeline"]).args(arguments).current_dir(place.path("")))
}

/// The run of [`Place::gpu_run`] with the policy *active*, and the options with which it is reported.
fn active_run(place: &Place) -> [&'static str; 2] {
    std::fs::write(place.path("active.toml"), "[attribution]\npolicy = \"active\"\n").expect("a file");
    let file = place.path("active.toml");
    place.gpu_run_with("gpu", &["--config", file.to_str().expect("a name")]);
    ["--config", "active.toml"]
}

/// Checks that the three forms have the same rows, which add up to the devices in each bin.
const CHECK: &str = r#"
import json, pandas

summary = json.load(open("gpu/summary.json"))
devices = {d["name"]: d for d in summary["devices"]}

def close(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))

checked = 0
for by in ["rank", "device", "region"]:
    parts = ["static_joules", "dynamic_joules"]
    rows = pandas.read_csv(by + ".csv", keep_default_na=False, na_values={part: [""] for part in parts})
    as_json = json.load(open(by + ".json"))
    assert as_json["by"] == by and close(as_json["bin_seconds"], rows.seconds.max())
    pandas.testing.assert_frame_equal(rows, pandas.DataFrame(as_json["rows"]), check_dtype=False)
    parquet = pandas.read_parquet(by + ".parquet")
    pandas.testing.assert_frame_equal(rows, parquet, check_dtype=False)
    assert ((rows.joules - rows.watts * rows.seconds).abs() < 1e-9).all()
    known = rows[rows.dynamic_joules.notna()]
    assert ((known.joules - known.static_joules - known.dynamic_joules).abs() < 1e-9).all()
    assert (rows.start >= 0).all() and rows.start.max() + rows.seconds.max() <= 2.01
    assert set(rows.device) == set(devices)
    # The counters rise steadily, so the power is constant in all bins that samples cover.
    for device, of in rows.groupby("device"):
        if by == "device":
            watts = of.sort_values("start").watts.iloc[3:-2]
            assert len(of) == 40 and close(watts.min(), watts.max()) and watts.min() > 0, of
            assert close(of.joules.sum(), devices[device]["total_joules"])
            assert of.dynamic_joules.notna().all() == ("dynamic_joules" in devices[device])
            if "dynamic_joules" in devices[device]:
                assert close(of.dynamic_joules.sum(), devices[device]["dynamic_joules"])
            continue
        for view, of in of.groupby("view"):
            expected = next(v for v in devices[device]["views"] if v["view"] == view)
            assert close(of.joules.sum(), devices[device]["total_joules"]), (by, device, view)
            idle = of[of[by] == "(idle)"].joules.sum()
            assert abs(idle - expected["idle_joules"]) <= 1e-9 * devices[device]["total_joules"]
            if by == "region":
                for region in expected["regions"]:
                    there = of[of.region == region["region"]].joules.sum()
                    assert close(there, region["exclusive_joules"]), (device, view, region)
                    there = of[of.region == region["region"]].dynamic_joules
                    assert there.notna().all() == ("dynamic_joules" in region), (device, view, region)
                    assert close(there.sum(), region.get("dynamic_joules", 0.0)), (device, view, region)
                    checked += "dynamic_joules" in region
            else:
                table, names = expected["callpaths"], summary["names"]
                groups = pandas.Series(table["exclusive_joules"]).groupby(
                    [names[group] for group in table["location_group"]]).sum()
                for group, joules in groups.items():
                    # The rank of a kernel is the one that started it.
                    there = of[of["rank"] == (group if view == "ranks" else "MPI Rank 0")].joules.sum()
                    assert abs(there - joules) <= 1e-8 * joules, (device, view, group)
assert checked > 0
print("all")
"#;

#[test]
fn bins_add_up_to_the_devices_in_every_form() {
    let python = python_with(&["pandas", "pyarrow"]);
    skip_unless!(python.is_some(), "no Python with pandas and pyarrow");
    let place = Place::new();
    let config = active_run(&place);
    for by in ["rank", "device", "region"] {
        let options = [&["--by", by, "--bins", "40"], &config[..]].concat();
        let printed = timeline(&place, &options);
        assert_eq!(printed.code, 0, "{printed:#?}");
        printed.said_nothing();
        for ending in ["csv", "json", "parquet"] {
            let file = format!("{by}.{ending}");
            let done = timeline(&place, &[&options[..], &["-o", &file]].concat());
            assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:#?}");
        }
        let written = std::fs::read_to_string(place.path(format!("{by}.csv"))).expect("a file");
        assert_eq!(printed.stdout, written);
    }
    let done = run(place.command(python.expect("it exists")).args(["-c", CHECK]).current_dir(place.path("")));
    assert_eq!((done.code, done.stdout.as_str()), (0, "all\n"), "{done:#?}");
    // Here only a part is written.
    let kernels = timeline(&place, &["--view", "kernels", "--device", "GPU-0"]).stdout;
    let rows: Vec<&str> = kernels.lines().skip(1).collect();
    assert!(rows.len() == 200 && rows.iter().all(|row| row.starts_with("node0,GPU-0,kernels,")), "{kernels}");
}

/// Checks that the statistics are those of pandas, and the joules those of the summary.
const CHECK_REGION: &str = r#"
import json, pandas

summary = json.load(open("gpu/summary.json"))
rows = pandas.read_parquet("solve.parquet")
as_json = json.load(open("solve.json"))
pandas.testing.assert_frame_equal(rows, pandas.DataFrame(as_json["rows"]), check_dtype=False)
assert rows.start.is_monotonic_increasing and (rows.calls == 1).all()
statistics = {(s["device"], s["view"]): s for s in as_json["statistics"]}
for device in summary["devices"]:
    for view in device["views"]:
        of = rows[(rows.device == device["name"]) & (rows.view == view["view"])]
        region = [r for r in view["regions"] if r["region"] == "solve"]
        expected = region[0]["inclusive_joules"] if region else 0.0
        assert abs(of.inclusive_joules.sum() - expected) <= 1e-9 * max(expected, 1e-9)
        if len(of) == 0:
            continue
        for name in ["static_joules", "dynamic_joules"]:
            assert of[name].notna().all() == (name in region[0])
            assert abs(of[name].sum() - region[0].get(name, 0.0)) <= 1e-9 * max(expected, 1e-9)
        known = of[of.dynamic_joules.notna()]
        assert (known.inclusive_dynamic_joules <= known.inclusive_joules + 1e-9).all()
        assert (known.inclusive_dynamic_joules >= known.dynamic_joules - 1e-9).all()
        s = statistics[device["name"], view["view"]]
        lower, median, upper = of.inclusive_joules.quantile([0.25, 0.5, 0.75])
        for name, value in [("lower_quartile", lower), ("median", median), ("upper_quartile", upper)]:
            assert abs(s[name] - value) <= 1e-9 * value, (s, value)
        far = of[(of.inclusive_joules < lower - 1.5 * (upper - lower)) | (of.inclusive_joules > upper + 1.5 * (upper - lower))]
        assert set(far.index) == set(s["outliers"]) and s["rows"] == len(of)
print(len(rows))
"#;

#[test]
fn calls_of_a_region_are_listed_with_their_statistics() {
    let python = python_with(&["pandas", "pyarrow"]);
    skip_unless!(python.is_some(), "no Python with pandas and pyarrow");
    let place = Place::new();
    let config = active_run(&place);
    let printed = timeline(&place, &[&["--region", "solve", "--device", "GPU-0"], &config[..]].concat());
    assert_eq!(printed.code, 0, "{printed:#?}");
    for file in ["solve.json", "solve.parquet"] {
        let done = timeline(&place, &[&["--region", "solve", "-o", file], &config[..]].concat());
        assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:#?}");
        assert!(done.said().contains(&printed.said()[0]), "{done:#?} {printed:#?}");
    }
    expect_test::expect!["ampere: solve: 20 calls, 19.00 J of GPU-0 on node0 (ranks); median 1.000 J, quartiles 1.000 and 1.000 J, from 0 to 1.000 J; outliers: 1, the furthest 0 J at 0.001 s (MPI Rank 0)"].assert_eq(printed.said()[0]);
    let mut command = place.command(python.expect("it exists"));
    let done = run(command.args(["-c", CHECK_REGION]).current_dir(place.path("")));
    assert_eq!((done.code, done.stdout.as_str()), (0, "60\n"), "{done:#?}");
    assert_eq!(printed.stdout.lines().count(), 1 + 20);
}

#[test]
fn what_cannot_be_shown_is_refused_in_one_line() {
    let place = Place::new();
    place.gpu_run("gpu");
    let refuse = |arguments: &[&str], words: &[&str]| {
        let done = timeline(&place, arguments);
        assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:#?}");
        done.said_once(words);
    };
    refuse(&["--region", "slove"], &["no region is named \"slove\": there are solve, kernel, main"]);
    refuse(&["--every", "1ns"], &["that would be 2000001000 bins, and at most 1048576"]);
    refuse(&["-o", "absent/file.json"], &["cannot write absent/file.json"]);
    refuse(&["--device", "GPU-9"], &["no device \"GPU-9\""]);
    refuse(&["--above", "3", "--by", "balance"], &["--above cannot be used with --by balance"]);
    for wrong in [
        &["--bins", "0"][..],
        &["--every", "0"],
        &["--bins", "3", "--every", "1s"],
        &["--by", "moon"],
        &["--above", "-1"],
        &["--above", "much"],
        &["--above", "3", "--bins", "4"],
    ] {
        assert_eq!(timeline(&place, wrong).code, 2, "{wrong:?}");
    }
    let table = run(place.ampere(["report", "gpu", "--by", "rank"]).current_dir(place.path("")));
    assert_eq!((table.code, table.stdout.as_str()), (2, ""), "{table:#?}");
    assert!(table.stderr.contains("--by is only for -f timeline"), "{table:#?}");
    std::fs::remove_file(place.path("gpu/traces.otf2")).expect("a trace");
    refuse(&[], &["there is no trace in gpu"]);
    assert!(!files_below(place.directory()).iter().any(|path| path.display().to_string().contains(".part")));
}

/// A run of two ranks on a GPU that draws 100 W for a second, and then 300 W in every second interval of 10 ms. Each call lies
/// in one interval: rank 0 calls `a` and `b` in every interval, and rank 1 calls `a` in those of the second half.
fn with_two_powers(place: &Place) {
    let directory = place.path("gpu");
    std::fs::create_dir(&directory).expect("a directory");
    let archive = ArchiveWriter::create(&directory).expect("an archive");
    let mut definitions = Definitions::default();
    definitions.clock.timer_resolution = 1_000_000;
    definitions.clock.trace_length = 2_000_000;
    let region = |name: &str| Region { name: name.into(), canonical_name: name.into(), ..Region::default() };
    let [a, b] = ["a", "b"].map(|name| definitions.regions.push(region(name)));
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
        let mut microjoules = 5;
        for interval in 0..=200u64 {
            let begin = interval * 10_000;
            if location == 2 {
                writer.metric_u64(begin, counter, microjoules).expect("a sample");
                microjoules += if interval >= 100 && interval % 2 == 0 { 3_000_000 } else { 1_000_000 };
                continue;
            }
            let calls: &[_] = match (location, interval) {
                (_, 200) => &[],
                (0, _) => &[(1000, 3000, a), (4000, 9000, b)],
                (_, ..100) => &[],
                _ => &[(2000, 7000, a)],
            };
            for (from, to, region) in calls {
                writer.enter(begin + from, *region).expect("an event");
                writer.leave(begin + to, *region).expect("an event");
            }
        }
        let events = writer.close().expect("a location");
        let name = format!("MPI Rank {location}");
        let kind = LocationGroupType::Process;
        let group = LocationGroup { name, kind, ..LocationGroup::default() };
        let group = Some(definitions.location_groups.push(group));
        let kind = if location == 2 { LocationType::Metric } else { LocationType::CpuThread };
        let name = "Master thread".to_owned();
        let location_definition = otf2::Location { name, kind, events, group, ..Default::default() };
        definitions.locations.insert(LocationRef(location), location_definition);
    }
    archive.finish(&definitions).expect("a trace");
    let mut command =
        place.ampere(["attribute", "gpu/traces.otf2", "-o", "figures", "--calls", "gpu/calls.parquet"]);
    let done = run(&mut command);
    assert_eq!(done.code, 0, "{done:#?}");
    std::fs::rename(place.path("figures/summary.json"), place.path("gpu/summary.json")).expect("a summary");
}

/// Computes from the table of calls what ran above a power and how evenly: each call is in one interval.
const CHECK_ABOVE: &str = r#"
import json, pandas

calls = pandas.read_parquet("gpu/calls.parquet")
device = json.load(open("gpu/summary.json"))["devices"][0]
total = device["total_joules"]
calls = calls[calls.view == "ranks"]
calls["interval"] = calls.start // 10_000_000
calls["is_above"] = (calls.interval >= 100) & (calls.interval % 2 == 0)

def close(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))

assert close(total, 100 + 50 * 3 + 50)
for by in ["rank", "region"]:
    rows = pandas.read_csv(f"above-{by}.csv", keep_default_na=False)
    rows = rows[rows.view == "ranks"].set_index(by)
    assert close(rows.joules.sum(), 150) and all(close(s, 0.5) for s in rows.seconds)
    assert ((rows.joules - rows.watts * rows.seconds).abs() < 1e-9).all()
    expected = calls[calls.is_above].groupby(by).exclusive_joules.sum()
    assert set(rows.index) == set(expected.index) | {"(idle)"}
    for name, joules in expected.items():
        assert close(rows.joules[name], joules), (by, name)
    # These rows cover all of the time.
    rows = pandas.read_csv(f"all-{by}.csv", keep_default_na=False)
    rows = rows[rows.view == "ranks"].set_index(by)
    assert close(rows.joules.sum(), total) and all(close(s, 2.0) for s in rows.seconds)
    for name, joules in calls.groupby(by).exclusive_joules.sum().items():
        assert close(rows.joules[name], joules), (by, name)
device = json.load(open("above-device.json"))
assert (device["above_watts"], device["by"]) == (300, "device")
[row] = device["rows"]
assert (row["device"], close(row["seconds"], 0.5), close(row["joules"], 150)) == ("GPU-0", True, True), row

balance = pandas.read_csv("balance.csv")
assert len(balance) == 20 and (balance.ranks == 2).all()
calls["bin"] = calls.interval // 10
ranks = calls.pivot_table(index="bin", columns="rank", values="exclusive_joules", aggfunc="sum", fill_value=0.0)
for at, row in balance.iterrows():
    there = ranks.loc[at]
    assert close(row.mean_joules, there.mean()) and close(row.most_joules, there.max()), (at, row)
    assert close(row.imbalance, there.max() / there.mean()) and row["rank"] == there.idxmax(), (at, row)
assert close(balance.imbalance.iloc[0], 2) and 1 < balance.imbalance.iloc[15] < 2
print("all")
"#;

#[test]
fn joules_above_a_power_and_their_balance_are_those_of_the_calls() {
    let python = python_with(&["pandas", "pyarrow"]);
    skip_unless!(python.is_some(), "no Python with pandas and pyarrow");
    let place = Place::new();
    with_two_powers(&place);
    for (file, arguments) in [
        ("above-rank.csv", &["--above", "300"][..]),
        ("above-region.csv", &["--above", "300W", "--by", "region"]),
        ("above-device.json", &["--above", "300", "--by", "device"]),
        ("all-rank.csv", &["--above", "0"]),
        ("all-region.csv", &["--above", "0", "--by", "region"]),
        ("balance.csv", &["--by", "balance", "--bins", "20"]),
    ] {
        let done = timeline(&place, &[arguments, &["-o", file]].concat());
        assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:#?}");
        done.said_nothing();
    }
    let mut command = place.command(python.expect("it exists"));
    let done = run(command.args(["-c", CHECK_ABOVE]).current_dir(place.path("")));
    assert_eq!((done.code, done.stdout.as_str()), (0, "all\n"), "{done:#?}");
    let none = timeline(&place, &["--above", "301"]);
    assert_eq!(
        (none.code, none.stdout.as_str()),
        (0, "node,device,view,rank,seconds,joules,watts,static_joules,dynamic_joules\n"),
        "{none:#?}"
    );
    none.said_once(&["no device had 301 W or more between two samples"]);
}
