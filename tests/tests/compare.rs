//! `ampere compare`: groups of runs, compared with what SciPy computes from their summaries.

use ampere_tests::jobs::{Done, Place, run};
use ampere_tests::runs::python_with;
use ampere_tests::stand_ins::with_rocm_smi;
use ampere_tests::{skip_unless, small_trace};
use expect_test::expect;
use serde_json::Value;
use std::collections::BTreeSet;

/// A program with two functions. Its argument is the amount of work of the second one.
const WORK: &str = r#"
#include <stdlib.h>
__attribute__((noinline)) void steady(void) { for (volatile int i = 0; i < 20000000; i++); }
__attribute__((noinline)) void varied(int n) { for (volatile int i = 0; i < n * 1000000; i++); }
int main(int c, char **v) { for (int i = 0; i < 3; i++) { steady(); varied(atoi(v[1])); } return 0; }
"#;

fn ampere(place: &Place, arguments: &[&str]) -> Done {
    run(place.ampere(arguments).current_dir(place.path("")).env("COLUMNS", "200"))
}

/// Makes three runs a1 to a3 of one size, and three runs b1 to b3 of another.
fn two_groups() -> Place {
    let place = Place::new();
    let program = place.compile("cc", "work", WORK, &["-finstrument-functions"]);
    let program = program.to_str().expect("UTF-8");
    for (group, size) in [("a", "10"), ("b", "80")] {
        for number in 1..=3 {
            let mut command = place.ampere_run(&format!("{group}{number}"), [program, size]);
            with_rocm_smi(&mut command, "watts=300,150").env("AMPERE_COUNTERS", "rocm_smi,estimate");
            assert_eq!(run(&mut command).code, 0);
        }
    }
    place
}

const GROUPS: [&str; 7] = ["a1", "a2", "a3", "--", "b1", "b2", "b3"];

fn compare(place: &Place, options: &[&str]) -> Done {
    ampere(place, &[&["compare"], options, &GROUPS].concat())
}

/// Computes sums from summary.json, and Welch's interval from SciPy's distribution, without any code of ampere.
const BY_SCIPY: &str = r#"
import json, math, sys
import pandas
from scipy import stats

def joules(directory):
    summary = json.load(open(directory + "/summary.json"))
    names, sums = summary["names"], {}
    tree = summary["paths"]
    def path(at):
        above = tree["parent"][at]
        return ([] if above is None else path(above)) + [names[tree["name"][at]]]
    def add(by, name, figure, value):
        sums[by, name, figure] = sums.get((by, name, figure), 0.0) + value
    contained = {(d["node"], part) for d in summary["devices"] for part in d["contains"]}
    for device in summary["devices"]:
        add("device", device["name"], "joules", device["total_joules"])
        if (device["node"], device["name"]) in contained:
            continue
        add("run", "", "joules", device["total_joules"])
        for view in device["views"]:
            if view["view"] == "ranks":
                for region in view["regions"]:
                    add("function", region["region"], "exclusive_joules", region["exclusive_joules"])
                    add("function", region["region"], "inclusive_joules", region["inclusive_joules"])
                rows = view["callpaths"]
                for at, value in zip(rows["path"], rows["exclusive_joules"]):
                    add("call path", " > ".join(path(at)), "exclusive_joules", value)
    return sums

first, second = ([joules(name) for name in group] for group in (["a1", "a2", "a3"], ["b1", "b2", "b3"]))
# without this option, pandas takes an empty name for a missing one
table = pandas.read_csv("rows.csv", keep_default_na=False, na_values={"mean": [""], "deviation": [""], "low": [""], "high": [""], "difference": [""], "p": [""], "adjusted_p": [""], "ratio_low": [""], "ratio_high": [""]})
table = table.set_index(["by", "name", "figure", "group"])
checked = 0
for key in set().union(*first, *second):
    a, b = ([run.get(key, 0.0) for run in group] for group in (first, second))
    mean = lambda values: sum(values) / len(values)
    variance = lambda values: sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1)
    rows = [table.loc[(*key, group)] for group in (1, 2)]
    def same(ours, theirs):
        assert math.isclose(ours, theirs, rel_tol=1e-7, abs_tol=1e-7), (key, ours, theirs)
    for row, values in zip(rows, (a, b)):
        same(row["mean"], mean(values))
        same(row["deviation"], math.sqrt(variance(values)))
    sa, sb = variance(a) / 3, variance(b) / 3
    if sa + sb > 0:
        freedom = (sa + sb) ** 2 / (sa ** 2 / 2 + sb ** 2 / 2)
        half = stats.t.ppf(0.975, freedom) * math.sqrt(sa + sb)
        same(rows[1]["low"], mean(b) - mean(a) - half)
        same(rows[1]["high"], mean(b) - mean(a) + half)
        p = stats.ttest_ind(a, b, equal_var=False).pvalue
        assert abs(p - 0.05) < 1e-9 or (rows[1]["within_noise"] == "true") == (p > 0.05), (key, p, rows[1])
        ratio = mean(b) / mean(a) if mean(a) else 0.0
        if sb + ratio ** 2 * sa > 0:
            # Fieller's ends are the ratios r for which b - r a is as many standard errors from 0 as the quantile says.
            sr = ratio ** 2 * sa
            t = stats.t.ppf(0.975, (sr + sb) ** 2 / (sr ** 2 / 2 + sb ** 2 / 2))
            for end in (rows[1]["ratio_low"], rows[1]["ratio_high"]):
                if 0 < end < math.inf:
                    same(abs(mean(b) - end * mean(a)), t * math.sqrt(sb + end ** 2 * sa))
        assert math.isclose(rows[1]["p"], p, rel_tol=1e-6, abs_tol=1e-12), (key, p, rows[1])
    checked += 1

# The correction of Benjamini and Hochberg by its definition: over the figures of the runs, and over the other rows tested.
all_tested = table[table["significant"] != ""]
is_of_run = all_tested.index.get_level_values("by") == "run"
for tested in (all_tested[is_of_run], all_tested[~is_of_run]):
    assert len(tested) > 1, tested
    by_p = sorted(tested["p"])
    for _, row in tested.iterrows():
        wanted = min(len(by_p) * p / (at + 1) for at, p in enumerate(by_p) if p >= row["p"])
        assert math.isclose(row["adjusted_p"], min(wanted, 1.0), rel_tol=1e-9, abs_tol=1e-12), (row, wanted)
        assert (row["significant"] == "true") == (row["adjusted_p"] < 0.05), row
print("checked", checked)
"#;

#[test]
fn groups_have_the_means_and_intervals_that_scipy_finds() {
    let python = python_with(&["scipy", "pandas"]);
    skip_unless!(python.is_some(), "no python3-scipy and python3-pandas");
    let place = two_groups();
    let done = compare(&place, &["-f", "csv", "-o", "rows.csv"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:#?}");
    let done = run(place.command(python.expect("a Python")).args(["-c", BY_SCIPY]));
    assert_eq!(done.code, 0, "{done:#?}");
    let checked = done.stdout.trim().strip_prefix("checked ").and_then(|count| count.parse::<u32>().ok());
    assert!(checked > Some(10), "{done:#?}");
}

#[test]
fn groups_are_compared_in_every_form_and_bad_ones_are_refused() {
    let place = two_groups();
    let table = compare(&place, &[]);
    assert_eq!(table.code, 0, "{table:#?}");
    table.said_nothing();
    let line = |name: &str| table.stdout.lines().find(|line| line.ends_with(name)).expect("a line");
    assert!(
        table.stdout.contains("95 % range: that of the ratio of the means (Fieller)")
            && table.stdout.contains("joules by call path")
    );
    assert!(!table.stdout.contains("their commands differ"), "only a number differs: {}", table.stdout);
    let mut narrow = place.ampere([&["compare"][..], &GROUPS].concat());
    let narrow = run(narrow.current_dir(place.path("")).env("COLUMNS", "70"));
    assert!(narrow.stdout.lines().all(|line| line.chars().count() <= 70), "{}", narrow.stdout);
    // All formats have the same figures.
    let json: serde_json::Value =
        serde_json::from_str(&compare(&place, &["-f", "json"]).stdout).expect("JSON");
    assert_eq!((&json["schema"], &json["method"]), (&"ampere-comparison/1".into(), &"Welch's t".into()));
    let rows = json["rows"].as_array().expect("rows");
    let varied = |row: &&serde_json::Value| {
        row["by"] == "function" && row["name"] == "varied" && row["figure"] == "calls"
    };
    let calls = rows.iter().find(varied).expect("a row");
    let joules = |row: &&serde_json::Value| {
        row["by"] == "function" && row["name"] == "varied" && row["figure"] == "exclusive_joules"
    };
    let significant = rows.iter().find(joules).expect("a row")["differences"][0]["significant"].as_bool();
    // A change of more than 1,000 % is shown as a factor.
    assert!([" % ", " x "].iter().any(|sign| line("  varied").contains(sign)), "{}", table.stdout);
    let functions = table.stdout.split("joules by function\n").nth(1).expect("a table");
    let differ = functions.split("  may differ by chance").next().expect("a part");
    let differ = differ.split("  no clear difference:\n").next().expect("a part");
    assert_eq!(Some(differ.contains("  varied\n")), significant, "{}", table.stdout);
    let verdict = json["verdict"][0].as_str().expect("a sentence");
    assert_eq!(table.stdout.lines().next(), Some(verdict), "the verdict first: {}", table.stdout);
    assert!(table.stdout.lines().count() <= 50, "{}", table.stdout);
    assert_eq!(
        calls["groups"][0]["values"],
        serde_json::json!([3.0, 3.0, 3.0]),
        "counted once, although there are three devices"
    );
    let page = compare(&place, &["-f", "html", "-o", "page.html"]);
    assert_eq!((page.code, page.stdout.as_str()), (0, ""), "{page:#?}");
    let page = std::fs::read_to_string(place.path("page.html")).expect("a page");
    assert!(page.contains(">varied</code>") && page.contains("class=\"verdict\"") && !page.contains("://"));
    // Each device has a row: two GPUs, and the estimate's device, which is called node.
    let devices: BTreeSet<&str> =
        rows.iter().filter(|row| row["by"] == "device").filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(devices, ["GPU-0", "GPU-1", "node"].into());
    for (arguments, code, words) in [
        (&["compare", "a1"][..], 2, "there is only one run"),
        (&["compare", "a1", "--"], 2, "there is only one run"),
        (&["compare", "a1", "a2", "--", "b1", "a2"], 1, "a2 was named twice"),
        (&["compare", "a1", "--", "absent"], 1, "absent/summary.json"),
        (&["compare", "--", "b1"], 2, "there is only one run"),
        (&["compare", "a1", "a2", "--"], 2, "there is only one group of runs"),
        (&["compare", "a1", "a2", "--", "b1", "--absent"], 2, "unexpected argument '--absent'"),
        (&["compare", "a1", "b1", "--fail-above", "0.05"], 2, "0.05 could mean 0.05% or 5%"),
        (&["compare", "a1", "b1", "--fail-above", "five"], 2, "write a percentage, such as 5%"),
        (&["compare", "a1", "a2", "b1", "--fail-above", "5%"], 2, "--fail-above compares two groups of runs"),
        (&["compare", "a1", "b1", "-f", "junit"], 2, "-f junit needs --fail-above"),
        (
            &["compare", "a1", "b1", "--metric", "energy"],
            2,
            "--fail-above <PERCENT%>: it names the figure that is checked, joules, ",
        ),
        (
            &["compare", "a1", "a2", "--", "b1", "b2", "--", "b3"],
            2,
            "there are only two groups: one before -- and one after it",
        ),
        (&["compare", "a1", "a2", "-o", "absent/file"], 1, "cannot write absent/file"),
    ] {
        let done = ampere(&place, arguments);
        assert_eq!((done.code, done.stdout.as_str()), (code, ""), "{arguments:?}: {done:#?}");
        assert!(done.stderr.contains(words), "{arguments:?}: {done:#?}");
    }
}

/// Per rank, a job with four ranks makes as many calls as one with two.
#[test]
fn runs_of_other_sizes_are_compared_per_rank() {
    let place = Place::new();
    let program = place.mpi_program();
    for (output, ranks) in [("two", "2"), ("four", "4")] {
        let words = ["mpirun.openmpi", "--oversubscribe", "-n", ranks, program.to_str().expect("UTF-8"), "0"];
        assert_eq!(run(&mut place.ampere_run(output, words)).code, 0);
    }
    let calls = |options: &[&str]| {
        let arguments = [&["compare", "two", "four", "-f", "json"], options].concat();
        let json: serde_json::Value = serde_json::from_str(&ampere(&place, &arguments).stdout).expect("JSON");
        let is_it = |row: &&serde_json::Value| {
            row["by"] == "function" && row["name"] == "MPI_Allreduce" && row["figure"] == "calls"
        };
        let row = json["rows"].as_array().expect("rows").iter().find(is_it).expect("a row").clone();
        (row["groups"][0]["mean"].as_f64(), row["groups"][1]["mean"].as_f64(), json["notes"].to_string())
    };
    let (two, four, notes) = calls(&[]);
    assert_eq!((two, four), (Some(400.0), Some(800.0)));
    assert!(notes.contains("they ran on 2 and 4 ranks") && !notes.contains("commands differ"), "{notes}");
    let (two, four, notes) = calls(&["--per", "rank"]);
    assert_eq!((two, four, notes.contains("ranks")), (Some(200.0), Some(200.0), false), "{notes}");
}

const TRACE: &str = "
    counter 0 model=MI250X pci=193
    rank node0 ROCR_VISIBLE_DEVICES=0
    stream HIP[0:0] tree=0 pci=193
";

/// Makes runs a1 to a3, and runs b1 to b3 with 8 % more joules, from the summary of one trace. Within a group, the joules of
/// the runs differ by a hundredth each.
fn scaled_groups() -> Place {
    let place = Place::new();
    small_trace::write(&place.path("trace"), TRACE);
    assert_eq!(ampere(&place, &["attribute", "trace/traces.otf2", "-o", "out"]).code, 0);
    let whole = std::fs::read_to_string(place.path("out/summary.json")).expect("a summary");
    for (group, factor) in [("a", 1.0), ("b", 1.08)] {
        for number in 1..=3 {
            let name = format!("{group}{number}");
            let mut summary: Value = serde_json::from_str(&whole).expect("JSON");
            scale_joules(&mut summary, "", factor * (0.98 + 0.01 * f64::from(number)));
            summary["run"]["id"] = name.clone().into();
            summary["run"]["work"] = serde_json::json!([{"name": "steps", "units": 100.0,
                "joules_per_unit": summary["run"]["total_joules"].as_f64().expect("joules") / 100.0}]);
            std::fs::create_dir(place.path(&name)).expect("a directory");
            place.write(&format!("{name}/summary.json"), &summary.to_string());
        }
    }
    place
}

fn scale_joules(value: &mut Value, key: &str, factor: f64) {
    match value {
        Value::Object(all) => all.iter_mut().for_each(|(key, one)| scale_joules(one, key, factor)),
        Value::Array(all) => all.iter_mut().for_each(|one| scale_joules(one, key, factor)),
        Value::Number(number) if key.ends_with("joules") => {
            *value = (number.as_f64().expect("a number") * factor).into();
        }
        _ => {}
    }
}

/// The lines of checks and the exit statuses, word for word, with the options before and after the directories.
#[test]
fn a_rise_above_the_limit_has_an_exit_status_of_its_own() {
    let place = scaled_groups();
    let mut shown = String::new();
    for words in [
        "a1 a2 a3 -- b1 b2 b3 --fail-above 5%",
        "--fail-above 6% a1 a2 a3 -- b1 b2 b3",
        "b1 b2 b3 -- a1 a2 a3 --fail-above 0%",
        "a1 a2 a3 --fail-above 20% -- b1 b2 b3 --metric joules --metric seconds --metric steps",
        "a1 b1 --fail-above 5% --region solve",
        "a1 -- b1 --fail-above 5% --metric absent",
    ] {
        let words: Vec<&str> = ["compare"].into_iter().chain(words.split(' ')).collect();
        let done = ampere(&place, &words);
        assert_eq!(done.stdout.is_empty(), done.code == 1, "{done:#?}");
        shown += &format!("$ ampere {}\n{}[{}]\n\n", words.join(" "), done.stderr, done.code);
    }
    expect![[r#"
        $ ampere compare a1 a2 a3 -- b1 b2 b3 --fail-above 5%
        ampere: joules rose by 8.0 % (95 % range +5.6 to +10.5 %), more than the 5 % allowed
        [3]

        $ ampere compare --fail-above 6% a1 a2 a3 -- b1 b2 b3
        ampere: cannot tell whether joules rose by more than the 6 % allowed: joules rose by 8.0 % (95 % range +5.6 to +10.5 %); more runs narrow the range
        [0]

        $ ampere compare b1 b2 b3 -- a1 a2 a3 --fail-above 0%
        ampere: joules fell by 7.4 % (95 % range -9.5 to -5.3 %), not more than the 0 % allowed
        [0]

        $ ampere compare a1 a2 a3 --fail-above 20% -- b1 b2 b3 --metric joules --metric seconds --metric steps
        ampere: joules rose by 8.0 % (95 % range +5.6 to +10.5 %), not more than the 20 % allowed
        ampere: seconds stayed the same (95 % range 0.0 to 0.0 %), not more than the 20 % allowed
        ampere: joules per steps rose by 8.0 % (95 % range +5.6 to +10.5 %), not more than the 20 % allowed
        [0]

        $ ampere compare a1 b1 --fail-above 5% --region solve
        ampere: joules of solve rose by 8.0 % (a single run shows no noise, so there is no range), more than the 5 % allowed
        [3]

        $ ampere compare a1 -- b1 --fail-above 5% --metric absent
        ampere: not all of these runs count "absent" as work: --metric can be steps, joules, dynamic, seconds
        [1]

    "#]].assert_eq(&shown);
}

/// Reads the file as a CI system does: without an error, and with a failure for each figure that rose too much.
const READ_JUNIT: &str = "
import sys, xml.etree.ElementTree as tree
suites = tree.parse(sys.argv[1]).getroot()
assert suites.tag == 'testsuites' and suites.get('tests') == '2' and suites.get('failures') == '1', suites.attrib
for case in suites.iter('testcase'):
    failure = case.find('failure')
    print(case.get('name'), '-' if failure is None else failure.get('message'))
";

#[test]
fn a_ci_system_can_read_the_checks_of_a_comparison() {
    let place = scaled_groups();
    std::fs::rename(place.path("b3"), place.path("<b>\"&\u{1b}")).expect("a new name");
    let words = ["compare", "a1", "a2", "a3", "--", "b1", "b2", "<b>\"&\u{1b}", "--fail-above", "5%"];
    let junit = ["-f", "junit", "-o", "checks.xml", "--metric", "joules", "--metric", "seconds"];
    let done = ampere(&place, &[&words[..], &junit].concat());
    assert_eq!((done.code, done.stdout.as_str()), (3, ""), "{done:#?}");
    let read = run(place.command("python3").args(["-c", READ_JUNIT, "checks.xml"]));
    expect![[r#"
        joules at most +5 % joules rose by 8.0 % (95 % range +5.6 to +10.5 %), more than the 5 % allowed
        seconds at most +5 % -
    "#]]
    .assert_eq(&(read.stdout + &read.stderr));
    let markdown = ampere(&place, &[&words[..], &["-f", "markdown"]].concat());
    assert_eq!(markdown.code, 3);
    expect![[r#"
        ❌ **joules rose by 8.0 % (95 % range +5.6 to +10.5 %), more than the 5 % allowed**

        energy +8.0 %: static joules +8.0 %, dynamic joules and time the same; kernel +8.0 %

        | the runs | 1 | 2 | change |
        | --- | --: | --: | --: |
        | seconds | 1.940 | 1.940 | = (0.0..0.0 %) |
        | joules | 194.0 | 209.5 | +8.0 % (+5.6..+10.5 %) |
        | watts on average | 100.0 | 108.0 | +8.0 % (+5.6..+10.5 %) |
        | joules while kernels ran | 91.50 | 98.82 | +8.0 % (+5.6..+10.5 %) |
        | static joules | 194.0 | 209.5 | +8.0 % (+5.6..+10.5 %) |
        | energy x delay (J s) | 376.4 | 406.5 | +8.0 % (+5.6..+10.5 %) |
        | energy x delay² (J s²) | 730.1 | 788.5 | +8.0 % (+5.6..+10.5 %) |

        | joules per unit by unit of work | 1 | 2 | change |
        | --- | --: | --: | --: |
        | `steps` | 1.940 | 2.095 | +8.0 % (+5.6..+10.5 %) |

        | joules by kernel | 1 | 2 | change |
        | --- | --: | --: | --: |
        | `kernel` | 91.50 | 98.82 | +8.0 % (+5.6..+10.5 %) |

        - 1: `a1` 1 rank on node0, measured
        - 1: `a2` 1 rank on node0, measured
        - 1: `a3` 1 rank on node0, measured
        - 2: `b1` 1 rank on node0, measured
        - 2: `b2` 1 rank on node0, measured
        - 2: `<b>"&�` 1 rank on node0, measured
        - 95 % range: that of the ratio of the means (Fieller). Of the rows that differ (Welch), at most 5 % are expected to do so by chance (Benjamini and Hochberg)
    "#]].assert_eq(&markdown.stdout);
}

/// A directory of numbered runs, as `ampere run --repeat` makes it, is a group.
#[test]
fn a_directory_of_repeats_is_a_group() {
    let place = scaled_groups();
    for group in ["a", "b"] {
        std::fs::create_dir(place.path(group)).expect("a directory");
        for number in 1..=3 {
            let run = place.path(format!("{group}{number}"));
            std::fs::rename(run, place.path(format!("{group}/{number}"))).expect("a new name");
        }
    }
    for words in [&["a", "b"][..], &["a", "--", "b"], &["a/1", "a/2", "a/3", "--", "b"]] {
        let done = ampere(&place, &[&["compare", "--fail-above", "5%"], words].concat());
        assert_eq!(done.code, 3, "{done:#?}");
        assert!(done.stderr.contains("(95 % range +5.6 to +10.5 %)"), "{done:#?}");
    }
}
