//! Tests the first lines of nine kinds of runs, from stored summaries, on narrow and wide terminals, and the conditions of
//! each hint. `UPDATE_EXPECT=1` writes the lines again.

use ampere_figures::gauges::OverTheRun;
use ampere_figures::summary::{Device, EstimateWatts, NodeCpu, Region, Summary};
use ampere_figures::waits::{Cause, Waiting};
use ampere_report::first;
use ampere_report::first::screen::{LINES, Screen};
use expect_test::expect_file;
use std::path::{Path, PathBuf};

const KINDS: [&str; 9] = [
    "sampled_ranks",
    "sampled_program",
    "python",
    "instrumented",
    "kernels",
    "kernels_and_functions",
    "several_nodes",
    "failed",
    "nothing_recorded",
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/first_lines")
}

fn summary(kind: &str) -> Summary {
    let text = std::fs::read(directory().join(format!("{kind}.json"))).expect("a summary");
    serde_json::from_slice(&text).expect("a summary")
}

fn lines(kind: &str, width: usize) -> String {
    let look = ["out/report.html", "ampere report out (4 notes)"].map(str::to_owned);
    first::render(&summary(kind), Screen::new(width, false), &look)
}

#[test]
fn each_kind_of_run_has_the_first_lines_that_were_agreed() {
    for (kind, width) in KINDS.into_iter().flat_map(|kind| [(kind, 80), (kind, 120)]) {
        expect_file![directory().join(format!("{kind}.{width}.txt"))].assert_eq(&lines(kind, width));
    }
}

#[test]
fn no_line_is_wider_than_the_terminal_and_there_are_as_many_as_the_screen_has_room_for() {
    for (kind, width) in KINDS.into_iter().flat_map(|kind| (60..=200).map(move |width| (kind, width))) {
        let text = lines(kind, width);
        assert!(text.lines().count() <= LINES, "{kind}, {width}:\n{text}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{kind}, {width}:\n{text}");
    }
    for (kind, rows) in KINDS.into_iter().flat_map(|kind| [24, 40, 60].map(|rows| (kind, rows))) {
        let text = first::render(&summary(kind), Screen::new(80, false).with_rows(rows), &[]);
        assert!(text.lines().count() <= rows - 4, "{kind}, {rows}:\n{text}");
    }
}

#[test]
fn a_terminal_of_forty_rows_has_ten_functions() {
    for kind in ["sampled_ranks", "sampled_program"] {
        let look = ["out/report.html".to_owned()];
        let text = first::render(&summary(kind), Screen::new(80, false).with_rows(40), &look);
        let is_function = |line: &&str| {
            line.trim_start().starts_with(|c: char| c.is_ascii_digit()) && !line.contains(" more")
        };
        assert!(text.lines().filter(is_function).count() >= 10, "{kind}:\n{text}");
    }
}

#[test]
fn the_base_of_shares_is_named_wherever_they_are() {
    for kind in KINDS {
        let text = lines(kind, 120);
        let has_share = text.lines().any(|line| line.contains(" % ") && !line.starts_with("hint"));
        let is_named = ["of dynamic", "of total", "of time"].iter().any(|base| text.contains(base));
        assert_eq!(has_share, is_named, "{kind}:\n{text}");
    }
}

/// Most joules of a Python program belong to functions in C, which say little about the program.
#[test]
fn the_functions_of_a_python_program_come_first_with_the_c_functions_that_they_call() {
    let mut summary = summary("python");
    let named = |summary: &Summary| -> Vec<String> {
        let text = first::render(summary, Screen::FILE, &[]);
        let names = text.lines().filter_map(|line| line.rsplit("  ").next());
        let is_shown = |name: &&str| [".py)", ".js)", "(sampled)"].iter().any(|end| name.ends_with(end));
        names.filter(is_shown).map(str::to_owned).collect()
    };
    let first = named(&summary);
    let programs = ["expensive (work.py)", "medium (work.py)", "cheap (work.py)", "native (work.py)"];
    assert_eq!(first[..4], programs, "{first:?}");
    assert_eq!(first[4], "function itself (sampled)");
    for name in &mut summary.names {
        *name = name.replace(".py)", ".js)").into();
    }
    regions(&mut summary).for_each(|row| row.region = row.region.replace(".py)", ".js)").into());
    assert_eq!(named(&summary)[0], "function (sampled)", "the other functions come first");
}

#[test]
fn the_path_of_a_python_program_leaves_out_the_interpreter() {
    let mut summary = summary("python");
    let is_below = |summary: &Summary, path: u32| {
        let caller = summary.paths.parent[path as usize].map(|caller| summary.paths.name[caller as usize]);
        caller.is_some_and(|name| &*summary.names[name as usize] == "expensive (work.py)")
    };
    let called = (0..summary.paths.len() as u32).find(|path| is_below(&summary, *path)).expect("a path");
    let rows = &mut summary.devices[0].views[0].callpaths;
    rows.iter_mut().filter(|row| row.path == called).for_each(|row| row.figures.dynamic_joules = Some(1e3));
    let path = |summary: &Summary| {
        let text = first::render(summary, Screen::new(80, false).with_rows(60), &[]);
        text.lines().find(|line| line.starts_with("path ")).expect("a path").to_owned()
    };
    let innermost = summary.paths.name[called as usize] as usize;
    summary.names[innermost] = "_PyEval_EvalFrameDefault".into();
    assert!(path(&summary).ends_with(" > expensive (work.py)"), "{}", path(&summary));
    for name in &mut summary.names {
        *name = name.replace(".py)", ".js)").into();
    }
    regions(&mut summary).for_each(|row| row.region = row.region.replace(".py)", ".js)").into());
    assert!(path(&summary).ends_with(" > _PyEval_EvalFrameDefault"), "{}", path(&summary));
}

#[test]
fn the_tree_is_named_where_functions_that_others_call_have_most_joules() {
    let mut summary = summary("python");
    assert!(ampere_report::has_most_joules_in_callees(&summary));
    summary.paths.parent.fill(None);
    assert!(!ampere_report::has_most_joules_in_callees(&summary));
}

#[test]
fn the_time_of_sampled_functions_is_explained_where_there_are_some() {
    let mut summary = summary("several_nodes");
    let explained = |summary: &Summary| {
        let text = ampere_report::text::render(summary, Screen::new(200, false));
        let start = text.find("  s: the time in the function itself").expect("the column");
        text[start..].split("\n  calls: ").next().unwrap_or_default().trim().to_owned()
    };
    let time = "s: the time in the function itself, running or waiting, the sum over threads and processes";
    let sampled = "; for a sampled function, the time around its samples, with short waits";
    assert_eq!(explained(&summary), format!("{time}{sampled}"));
    regions(&mut summary).for_each(|row| row.sampled_error_joules = None);
    assert_eq!(explained(&summary), time);
}

#[test]
fn class_and_method_are_whole_on_every_terminal() {
    let kept = [
        ("sampled_ranks", "PairLJCut::compute", 60),
        ("sampled_ranks", "NPairHalfBinAtomonlyNewton::build", 80),
        ("kernels", "push<", 60),
        ("kernels", "deposit_charge", 60),
        ("kernels_and_functions", "deposit_charge", 60),
    ];
    let at_widths = |(kind, name, from)| (from..=200).map(move |width| (kind, name, width));
    for (kind, name, width) in kept.into_iter().flat_map(at_widths) {
        let text = lines(kind, width);
        assert!(text.contains(name), "{kind}, {width}: {name} is not in\n{text}");
    }
}

#[test]
fn colours_are_only_for_terminals() {
    for kind in KINDS {
        let coloured = first::render(&summary(kind), Screen::new(80, true), &[]);
        let plain = first::render(&summary(kind), Screen::new(80, false), &[]);
        assert!(coloured.contains("\x1b[") && !plain.contains('\x1b'), "{kind}");
        let codes = ["\x1b[1m", "\x1b[36m", "\x1b[1;31m", "\x1b[0m"];
        assert_eq!(codes.iter().fold(coloured, |text, code| text.replace(code, "")), plain, "{kind}");
    }
}

/// Asserts whether a stored summary has a hint with these words before and after a change.
#[track_caller]
fn assert_hint(kind: &str, words: &str, (before, after): (bool, bool), change: impl FnOnce(&mut Summary)) {
    let mut summary = summary(kind);
    let has = |summary: &Summary| first::hints(summary).iter().any(|hint| hint.contains(words));
    assert_eq!(has(&summary), before, "{:?}", first::hints(&summary));
    change(&mut summary);
    assert_eq!(has(&summary), after, "{:?}", first::hints(&summary));
    assert!(first::hints(&summary).len() <= 3, "{:?}", first::hints(&summary));
}

fn regions(summary: &mut Summary) -> impl Iterator<Item = &mut Region> {
    summary.devices.iter_mut().flat_map(|device| &mut device.views).flat_map(|view| &mut view.regions)
}

#[test]
fn gpus_that_nothing_draws_from_are_a_hint() {
    assert_hint("kernels", "no process used GPU-2..3, 1.48 kJ (30.3 % of total)", (true, false), |summary| {
        for name in ["GPU-2", "GPU-3"] {
            let link = summary.topology[0].clone();
            summary.topology.push(ampere_figures::assignment::Link { device: Some(name.to_owned()), ..link });
        }
    });
}

#[test]
fn kernels_are_known_where_an_accelerator_of_cray_contains_their_gpu() {
    let mut summary = summary("kernels");
    let before = first::render(&summary, Screen::new(120, false), &[]);
    for number in 0..4 {
        let is_gpu = |device: &&ampere_figures::summary::Device| device.name == format!("GPU-{number}");
        let gpu = summary.devices.iter().find(is_gpu).expect("a GPU");
        let mut accelerator = gpu.clone();
        accelerator.name = format!("accel{number}");
        accelerator.contains = vec![gpu.name.clone()];
        accelerator.views.iter_mut().for_each(|view| view.regions.clear());
        accelerator.checks.clear();
        summary.devices.push(accelerator);
    }
    let rows = |text: &str| -> Vec<String> {
        let of_gpus =
            text.lines().filter(|line| ["GPU-", "push", "deposit"].iter().any(|word| line.contains(word)));
        of_gpus.map(str::to_owned).collect()
    };
    let after = first::render(&summary, Screen::new(120, false), &[]);
    assert_eq!(rows(&after), rows(&before), "{after}");
}

#[test]
fn gpus_that_no_process_may_use_are_not_said_to_be_unused() {
    let hide = |summary: &mut Summary| {
        summary.devices.iter_mut().filter(|device| device.name == "GPU-3").for_each(|gpu| gpu.hidden = true);
    };
    let other_job = "no process may use GPU-3, 751 J (15.3 % of total): another job may have";
    assert_hint("kernels", other_job, (false, true), hide);
    assert_hint("kernels", "ask for fewer GPUs", (true, false), hide);
    let mut summary = summary("kernels");
    hide(&mut summary);
    let text = first::render(&summary, Screen::new(120, false), &[]);
    assert!(text.contains(" GPU-2 unused, 15 % GPU-3 hidden"), "{text}");
    let remark =
        |gpu: &str| text.lines().find(|line| line.starts_with(gpu)).expect("its row").rsplit("  ").next();
    assert_eq!(["GPU-2", "GPU-3"].map(remark), [Some("unused"), Some("hidden")], "{text}");
}

#[test]
fn a_kernel_whose_power_changes_is_a_hint() {
    assert_hint("kernels", "advance::push<double, 3> drew 106 to 439 W", (true, false), |summary| {
        regions(summary).for_each(|row| row.watts.max_watts = row.watts.mean_watts);
    });
}

#[test]
fn a_rank_that_uses_more_than_the_others_is_a_hint() {
    let words = "more than the mean outside MPI";
    let named = format!("rank 12 used 110 % {words}");
    assert_hint("several_nodes", &named, (true, false), |summary| summary.run.command_status = Some(1));
    // All four ranks used the same; three of them did so by waiting for rank 0.
    let named = format!("rank 0 used 74 % {words}");
    assert_hint("instrumented", &named, (true, false), |summary| {
        let view = &mut summary.devices[0].views[0];
        view.callpaths
            .retain(|row| summary.names[summary.paths.name[row.path as usize] as usize].starts_with("MPI"));
    });
    assert_hint("sampled_ranks", words, (false, false), |_| {});
}

/// Gives a run the CPU time of a node with two cores during `seconds`. Other programs used `cores` of the cores on average.
fn with_others(summary: &mut Summary, cores: f64, seconds: f64) {
    summary.run.node_cpu = Some(NodeCpu {
        seconds,
        own_busy_seconds: 0.9 * seconds,
        collector_busy_seconds: 0.02 * seconds,
        node_busy_seconds: (0.92 + cores) * seconds,
        cpus: 2,
        node_cpus: 2,
    });
}

#[test]
fn other_programs_on_the_node_are_named_and_may_be_the_cause_of_an_imbalance() {
    let [work, others] = ["balance the work", "other programs may be the cause"];
    let of_two_cores = |summary: &Summary| first::render(summary, Screen::FILE, &[]);
    for (cores, seconds, words) in [(1.07, 4.26, others), (0.05, 4.26, work), (1.07, 0.5, work)] {
        assert_hint("several_nodes", words, (words == others, true), |summary| {
            summary.run.nodes.truncate(1);
            with_others(summary, cores, seconds);
            let lines = of_two_cores(summary);
            let is_named = lines.contains("other programs used 1.07 of 2 cores");
            assert_eq!(is_named, words == others, "{lines}");
        });
    }
    // Each of several nodes runs the programs of its operating system, which are not named. In the stored run, others used more.
    assert_hint("several_nodes", work, (false, true), |summary| {
        let nodes = summary.run.nodes.len() as f64;
        assert!(nodes > 1.0);
        with_others(summary, 0.09 * nodes, 4.26);
        assert!(!of_two_cores(summary).contains("other programs"));
    });
}

/// Other programs do not make the CPU time of a rank longer, and dynamic joules are those of CPU time.
#[test]
fn other_programs_are_not_the_cause_of_an_imbalance_of_dynamic_joules() {
    let words = "more than the mean outside MPI, most in PairLJCut::compute: balance the work";
    assert_hint("sampled_ranks", words, (false, true), |summary| {
        let first = summary.names.iter().position(|name| &**name == "MPI Rank 0").expect("a rank") as u32;
        let is_compute = |path: u32| {
            summary.names[summary.paths.name[path as usize] as usize].contains("PairLJCut::compute")
        };
        let rows = &mut summary.devices[0].views[0].callpaths;
        for row in rows.iter_mut().filter(|row| row.location_group == first && is_compute(row.path)) {
            row.figures.dynamic_joules = row.figures.dynamic_joules.map(|joules| 3.0 * joules);
        }
        assert!(first::render(summary, Screen::FILE, &[]).contains("other programs used "));
    });
}

#[test]
fn waiting_for_ranks_without_a_cpu_is_mentioned_and_more_ranks_than_cores_are_a_hint() {
    let waiting = |summary: &mut Summary, part: f64| {
        let joules = 0.4 * summary.run.total_joules;
        summary.run.waiting =
            Some(Waiting { joules, not_on_cpu_joules: Some(part * joules), ..Waiting::default() });
        with_others(summary, 0.0, 4.0);
        let lines = first::render(summary, Screen::FILE, &[]);
        let words: Vec<&str> = lines.split_whitespace().collect();
        words.join(" ").contains("in 38.0 % of it, the late rank was not on a CPU")
    };
    let words = "4 ranks on 2 cores: ranks wait for others without a CPU; use one rank per core";
    assert_hint("instrumented", words, (false, true), |summary| assert!(waiting(summary, 0.38)));
    assert_hint("instrumented", words, (false, false), |summary| {
        assert!(waiting(summary, 0.38));
        summary.run.ranks = 2;
    });
    assert_hint("instrumented", "without a CPU", (false, false), |summary| assert!(!waiting(summary, 0.01)));
    // Others are busier than the run, but have less than half of the cores.
    assert_hint("instrumented", words, (false, true), |summary| {
        assert!(waiting(summary, 0.38));
        with_others(summary, 0.7, 4.0);
        let cpu = summary.run.node_cpu.as_mut().expect("CPU time");
        (cpu.own_busy_seconds, cpu.node_busy_seconds) = (0.1, 0.1 + 0.08 + 0.7 * 4.0);
    });
    // There are too many ranks even without other programs. The cost of measuring that has the same reason is in the same hint.
    let ranks = "4 ranks on 2 cores, and other programs used 1.96 of them: ranks wait for others without a CPU, and measuring took \
                 about 22 % of the program's CPU time; use one rank per core of a free node";
    let others = "other programs used 1.96 of 2 cores: ranks wait for others without a CPU, and measuring took about 22 % of the \
                  program's CPU time; use a free node";
    for (count, words) in [(4, ranks), (2, others)] {
        assert_hint("instrumented", words, (false, true), |summary| {
            assert!(waiting(summary, 0.38));
            summary.run.ranks = count;
            with_others(summary, 1.96, 4.0);
            let cpu = summary.run.node_cpu.as_mut().expect("CPU time");
            (cpu.own_busy_seconds, cpu.node_busy_seconds) = (0.1, 4.0 * 1.98 + 0.1);
            summary.overhead.collector_cpu_seconds = 0.3; // 0.1 s of it are those of any run
            summary.overhead.stacks = Some(ampere_figures::summary::StacksOverhead {
                cost_seconds: 0.02,
                program_seconds: 1.0,
                ..Default::default()
            });
            let hints = first::hints(summary);
            assert_eq!(hints.iter().filter(|hint| hint.contains("measuring took")).count(), 1, "{hints:?}");
        });
    }
}

#[test]
fn a_small_terminal_has_a_hint_and_names_the_number_of_the_others() {
    let look = ["out/report.html", "ampere report out (4 notes)"].map(str::to_owned);
    for (kind, waits) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut summary = summary(kind);
        if waits {
            let joules = 0.4 * summary.run.total_joules;
            let not_on_cpu_joules = Some(0.9 * joules);
            summary.run.waiting = Some(Waiting { joules, not_on_cpu_joules, ..Waiting::default() });
        }
        let text = first::render(&summary, Screen::new(80, false).with_rows(24), &look);
        let all = first::hints(&summary).len();
        let shown = text.lines().filter(|line| line.starts_with("hint")).count();
        assert!(shown > 0 || all == 0, "{kind}:\n{text}");
        let others = text.split("there: ").nth(1).and_then(|words| words.split(' ').next()?.parse().ok());
        assert_eq!(shown + others.unwrap_or(0), all, "{kind}:\n{text}");
        let report = ampere_report::text::render(&summary, Screen::new(80, false).with_rows(24));
        assert_eq!(report.lines().filter(|line| line.starts_with("hint")).count(), all, "{kind}:\n{report}");
    }
}

/// The column with the differences needs a wide terminal.
#[test]
fn a_counter_that_differs_from_its_power_sensor_is_named_in_any_width_and_on_the_page() {
    let words = "counter and power sensor of GPU-1 differ by 3.0 %";
    for width in 60..=200 {
        let text = lines("kernels", width);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("! {words}")), "{width}: {text}");
    }
    let sentences = ampere_report::highlights::sentences;
    let mut summary = summary("kernels");
    assert!(sentences(&summary).iter().any(|sentence| sentence == words), "{:?}", sentences(&summary));
    summary.devices.iter_mut().for_each(|device| device.checks.clear());
    assert!(!sentences(&summary).iter().any(|sentence| sentence.contains("sensor")));
}

#[test]
fn many_joules_of_idle_time_have_a_line() {
    let mut summary = summary("python");
    let lines = |summary: &mut Summary, part: f64| {
        let device = &mut summary.devices[0];
        let idle = part * device.total_joules;
        device.views.iter_mut().for_each(|view| view.idle_joules = idle);
        first::render(summary, Screen::FILE, &[])
    };
    let words = " of total) are idle: in no function";
    let (few, many) = (lines(&mut summary, 0.05), lines(&mut summary, 0.4));
    assert!(!few.contains(words), "{few}");
    assert!(many.contains(&format!(" (40.0 %{words}")), "{many}");
}

/// Functions without dynamic joules are counted, too.
#[test]
fn the_first_lines_and_the_table_below_them_count_the_same_functions() {
    let summary = summary("python");
    let text = ampere_report::text::render(&summary, Screen::FILE);
    let device = &summary.devices[0];
    let all = device.views[0].regions.iter().filter(|row| !row.figures.is_cause_only()).count();
    let (first, tables) = text.split_once("\nhint").expect("a hint");
    let functions = first.split("(sampled)\n").nth(1).expect("the table of functions");
    let (shown, rest) = functions.split_once(" more\n").expect("other functions");
    assert!(rest.contains("in no function"), "{text}");
    let more = |text: &str| text.rsplit(' ').next().and_then(|number| number.parse::<usize>().ok());
    assert_eq!(shown.lines().count() - 1 + more(shown).expect("a number"), all, "{text}");
    assert!(tables.contains(" more (see --rows)"), "{text}");
}

#[test]
fn all_python_functions_have_a_table_if_more_rows_are_asked_for() {
    let mut summary = summary("python");
    let of_python = |name: &str| format!("{} (work.py)", name.split(" (").next().unwrap_or_default());
    summary.names.iter_mut().for_each(|name| *name = of_python(name).into());
    regions(&mut summary).for_each(|row| row.region = of_python(&row.region).into());
    let table = |rows: usize| {
        let text = ampere_report::text::render(&summary, Screen { rows, ..Screen::FILE });
        let table = text.split("\nPython functions\n").nth(1).map(|rest| rest.trim_start());
        table.map(|table| table.split("\n\n").next().unwrap_or_default().to_owned())
    };
    assert_eq!(table(15), None);
    let (some, all) = (table(25).expect("a table"), table(1000).expect("a table"));
    assert_eq!(some.matches("(work.py)").count(), 25, "{some}");
    assert!(some.contains(" more\n") && !all.contains(" more\n"), "{some}\n{all}");
}

#[test]
fn much_energy_in_calls_of_which_no_waits_are_known_is_mentioned() {
    let cases = [
        ("MPI_Win_wait", 0.0, true),
        ("MPI_Win_fence", 1e-3, false),
        ("MPI_Neighbor_alltoall", 0.0, true),
        ("MPI_Rget", 0.0, false),
    ];
    for (name, waited, is_mentioned) in cases {
        let mut summary = summary("instrumented");
        summary.run.waiting = Some(Waiting { joules: 0.4 * summary.run.total_joules, ..Waiting::default() });
        let row = regions(&mut summary).find(|row| row.region.starts_with("MPI_"));
        let row = row.expect("a function of MPI");
        (row.region, row.figures.waited_joules) = (name.into(), Some(waited));
        let lines = first::render(&summary, Screen::FILE, &[]);
        let words = lines.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = "of all joules, and whom it waits for is not known: waiting is a lower bound";
        assert_eq!(
            words.contains(&format!("{name} used ")) && words.contains(wanted),
            is_mentioned,
            "{lines}"
        );
    }
}

#[test]
fn ranks_that_wait_in_mpi_are_a_hint() {
    assert_hint("instrumented", "MPI has 78.3 %", (true, false), |summary| summary.run.ranks = 1);
}

#[test]
fn a_function_that_has_joules_for_waiting_alone_is_a_hint_and_has_a_row() {
    let name = "NPairHalfBinAtomonlyNewton::build";
    let wait = |summary: &mut Summary| {
        let joules = summary.devices[0].total_joules;
        let row = regions(summary).find(|row| row.region.contains(name)).expect("the function");
        row.figures.exclusive_joules = 0.1 * joules;
        row.figures.dynamic_joules = Some(0.01);
        row.figures.calls = 7;
    };
    let words = "waits: 10.0 % of all joules, 0.02 % of the dynamic ones";
    assert_hint("sampled_ranks", words, (false, true), wait);
    // The function of the last sample is not known to wait.
    assert_hint("sampled_ranks", " waits: ", (false, false), |summary| {
        wait(summary);
        regions(summary).for_each(|row| row.figures.calls = 0);
    });
    let mut summary = summary("sampled_ranks");
    wait(&mut summary);
    // The row is shown where there is room for few rows, too.
    let text = first::render(&summary, Screen::new(80, false).with_lines(16), &[]);
    assert!(text.lines().any(|line| line.contains(name)), "{text}");
    assert!(!text.contains(" more ("), "{text}");
    // Functions that are not shown have a large part together, but each has a small one.
    regions(&mut summary).skip(12).for_each(|row| row.figures.exclusive_joules = 0.02 * 4840.0);
    let text = first::render(&summary, Screen::new(80, false), &[]);
    assert!(
        text.lines().any(|line| line.contains(" more (") && line.contains(" % of all joules)")),
        "{text}"
    );
}

#[test]
fn a_range_of_everything_is_not_shown_but_explained_once() {
    let text = lines("sampled_ranks", 80);
    let row = text.lines().find(|line| line.ends_with("MPI_Send") && line.starts_with(' ')).expect("the row");
    assert!(!row.contains("..") && row.contains(" - "), "{text}");
    let words = "functions with -: other ranks were always active; divided by CPU time";
    assert_eq!(text.matches(words).count(), 1, "{text}");
    assert!(!lines("kernels", 80).contains("always active"));
}

#[test]
fn ranks_that_are_balanced_because_one_waits_in_mpi_are_not_called_balanced() {
    let text = lines("instrumented", 120);
    assert!(text.contains("mean 264 J, but outside MPI rank 0 is 74 % above the mean"), "{text}");
    assert!(!text.contains("balanced"), "{text}");
}

#[test]
fn a_sampled_program_that_used_no_cpu_for_long_is_a_hint() {
    let words = "python3 used no CPU for at least 4.0 of 8.0 s: samples see only CPU time; mark regions";
    let asleep = |summary: &mut Summary| {
        with_others(summary, 0.0, 8.0);
        let cpu = summary.run.node_cpu.as_mut().expect("CPU time");
        (cpu.own_busy_seconds, cpu.node_busy_seconds) = (4.0, 4.2);
    };
    assert_hint("sampled_program", words, (false, true), asleep);
    assert_hint("sampled_program", "used no CPU", (false, false), |summary| {
        asleep(summary);
        let rows = &mut summary.devices[0].views[0].callpaths;
        rows.iter_mut().next().expect("a call path").figures.calls = 1;
    });
    // Without a free core the program may have waited for one.
    assert_hint("sampled_program", "used no CPU", (false, false), |summary| {
        asleep(summary);
        summary.run.node_cpu.as_mut().expect("CPU time").node_busy_seconds = 16.0;
    });
}

#[test]
fn the_reason_why_no_counter_was_read_is_on_the_line_of_the_energy() {
    let mut summary = summary("nothing_recorded");
    summary.devices.clear();
    summary.run.energy = "none".to_owned();
    summary.run.notes = vec!["rapl: no intel-rapl in /sys/class/powercap".to_owned()];
    let text = first::render(&summary, Screen::FILE, &[]);
    let words = "energy  none: no counter was read (rapl: no intel-rapl in /sys/class/powercap)";
    assert!(text.lines().any(|line| line == words), "{text}");
}

#[test]
fn devices_that_were_sampled_once_are_counted() {
    let mut summary = summary("instrumented");
    let device = summary.devices[0].clone();
    summary.devices = (0..4).map(|at| Device { name: format!("{at}"), ..device.clone() }).collect();
    summary.devices[0].sample_seconds = 0.0;
    let text = first::render(&summary, Screen::FILE, &[]);
    assert!(text.contains("  4 devices, "), "{text}");
}

#[test]
fn the_signal_that_ended_a_run_is_on_the_first_screen_and_its_processes_are_among_the_notes() {
    let mut summary = summary("failed");
    let signal = "interrupted by SIGINT (Ctrl-C) after 6.58 s: figures are up to then";
    summary.run.missing.insert(0, signal.to_owned());
    let text = first::render(&summary, Screen::FILE, &[]);
    assert!(text.contains(&format!("INCOMPLETE: {signal}\n")), "{text}");
    assert!(!text.contains("process 15189"), "{text}");
    let report = ampere_report::text::render(&summary, Screen::FILE);
    assert!(report.contains("process 15189"), "{report}");
}

#[test]
fn an_estimate_with_default_watts_is_a_hint() {
    let set = |idle_watts, watts_per_core| {
        move |summary: &mut Summary| {
            summary.devices[0].estimate = Some(EstimateWatts { idle_watts, watts_per_core });
        }
    };
    assert_hint("sampled_ranks", "set this node's watts", (true, false), set(70.0, 9.0));
    assert_hint("sampled_ranks", "set this node's watts", (true, true), set(70.0, 4.0));
    let mut summary = summary("sampled_ranks");
    let source = |summary: &Summary| first::render(summary, Screen::new(80, false), &[]);
    assert!(source(&summary).contains("ESTIMATE: no counter, dynamic shares only"));
    set(70.0, 9.0)(&mut summary);
    assert!(source(&summary).contains("ESTIMATE: no counter, by this node's watts"), "{}", source(&summary));
    assert!(source(&summary).contains(" anyway (100 W, from the settings)"), "{}", source(&summary));
    set(100.0, 4.0)(&mut summary);
    assert!(source(&summary).contains(" anyway (100 W, assumed: not calibrated)"), "{}", source(&summary));
    summary.run.notes.retain(|note| !note.contains("no energy counter was found"));
    assert!(
        source(&summary).contains("ESTIMATE: chosen by --counters, dynamic shares only"),
        "{}",
        source(&summary)
    );
    summary.devices[0].source = "trace".to_owned();
    assert!(
        source(&summary).contains("ESTIMATE: no counter, dynamic shares only"),
        "a trace does not say why"
    );
}

#[test]
fn the_cost_of_measuring_is_a_hint() {
    assert_hint("sampled_ranks", "million calls takes", (false, true), |summary| {
        summary.quality.records.events = 1_000_000_000;
    });
}

#[test]
fn the_cost_of_samples_and_of_a_node_without_a_free_core_is_a_hint() {
    let cost = |cost_seconds, switches| {
        move |summary: &mut Summary| {
            let stacks = ampere_figures::summary::StacksOverhead {
                period_seconds: Some(1e-3),
                sample_seconds: Some(1e-5),
                samples: 1000,
                switches,
                cost_seconds,
                program_seconds: 10.0,
            };
            summary.run.seconds = 20.0;
            summary.overhead.stacks = Some(stacks);
            summary.overhead.collector_cpu_seconds = 0.0;
        }
    };
    assert_hint("sampled_ranks", "measuring took", (false, false), cost(0.3, 10_000));
    let switches = "measuring took about 9 % of the program's CPU time; 100 000 switches of threads a second";
    assert_hint("sampled_ranks", switches, (false, true), cost(0.9, 2_000_000));
    let full = |summary: &mut Summary| {
        cost(0.3, 10_000)(summary);
        let cpu = summary.run.node_cpu.as_mut().expect("CPU time");
        cpu.seconds = 20.0;
        cpu.node_busy_seconds = 20.0 * cpu.node_cpus as f64;
        cpu.own_busy_seconds = cpu.node_busy_seconds - 1.0;
        summary.overhead.collector_cpu_seconds = 0.7; // 0.1 s of it are those of any run
    };
    assert_hint(
        "sampled_ranks",
        "9 % of the program's CPU time (3.0 % in the program, 6.0 % the collector); no core is free for the collector",
        (false, true),
        full,
    );
    assert_hint("sampled_ranks", "measuring took", (false, false), |summary| {
        full(summary);
        summary.overhead.stacks.as_mut().expect("samples").cost_seconds = 0.0;
        summary.overhead.stacks.as_mut().expect("samples").program_seconds = 0.02;
    });
    assert_hint(
        "sampled_ranks",
        "; other programs used 1.40 of 2 cores: use a free node",
        (false, true),
        |summary| {
            full(summary);
            let cpu = summary.run.node_cpu.as_mut().expect("CPU time");
            (cpu.own_busy_seconds, cpu.collector_busy_seconds) = (11.0, 1.0);
            (cpu.node_busy_seconds, cpu.node_cpus) = (40.0, 2);
        },
    );
    // Others leave the program little of the node's CPU time.
    assert_hint("sampled_ranks", "measuring took about 26 %", (false, true), |summary| {
        full(summary);
        let stacks = summary.overhead.stacks.as_mut().expect("samples");
        (stacks.cost_seconds, stacks.program_seconds) = (0.09, 1.0);
        summary.overhead.collector_cpu_seconds = 0.27;
    });
}

#[test]
fn functions_of_the_python_interpreter_are_a_hint() {
    assert_hint("sampled_ranks", "python3 -X perf", (false, true), |summary| {
        regions(summary)
            .filter(|row| row.region.contains("PairLJCut::compute"))
            .for_each(|row| row.region = "_PyEval_EvalFrameDefault".into());
    });
}

#[test]
fn the_first_line_of_an_incomplete_run_is_what_is_missing() {
    let lost = "4.1 % of the samples of stacks and records of switches were lost: leave the collector a core";
    let mut summary = summary("failed");
    summary.run.endings.clear();
    summary.run.notes = ["1 event came late: computed again", lost, "another"].map(str::to_owned).to_vec();
    summary.run.missing = vec![lost.to_owned()];
    summary.quality.records.late_events = 1;
    let text = first::render(&summary, Screen::new(80, false), &[]);
    let line = text.lines().position(|line| line.starts_with("INCOMPLETE: 4.1 % of the samples"));
    let others = ["late", "another"].map(|words| text.contains(words));
    assert_eq!((line.is_some(), others), (true, [false; 2]), "{text}");
    let notes: Vec<&String> = summary.run.notes_in_order().collect();
    assert_eq!((notes[0].as_str(), notes.len()), (lost, 3));
    let page = ampere_report::render(&summary, ampere_report::Format::Html, Screen::FILE).expect("a page");
    let page = String::from_utf8(page).expect("text");
    assert!(
        page.contains(&format!("\"label\":\"incomplete\",\"value\":0.0,\"unit\":\"\",\"text\":\"{lost}")),
        "{page}"
    );
}

#[test]
fn a_hot_device_is_a_hint() {
    let gauge = |max: f64| OverTheRun {
        quantity: "temperature_celsius".to_owned(),
        which: "edge".to_owned(),
        readings: 3,
        min: 40.0,
        mean: 70.0,
        max,
        ..OverTheRun::default()
    };
    assert_hint("kernels", "reached 97 C", (false, true), |summary| {
        summary.devices[0].gauges = vec![gauge(97.0)]
    });
    assert_hint("kernels", "reached", (false, false), |summary| {
        summary.devices[0].gauges = vec![gauge(80.0)]
    });
}

#[test]
fn a_throttled_device_and_one_at_its_power_limit_are_a_hint() {
    let gauge = |quantity: &str, which: &str, mean: f64, at_limit_ratio| OverTheRun {
        quantity: quantity.to_owned(),
        which: which.to_owned(),
        readings: 120,
        mean,
        at_limit_ratio,
        ..OverTheRun::default()
    };
    let thermal = |mean| gauge("throttled_ratio", "thermal", mean, None);
    let power = |mean| gauge("throttled_ratio", "power", mean, None);
    let limit = |ratio| gauge("power_limit_watts", "", 225.0, Some(ratio));
    let with = |gauges: Vec<OverTheRun>| {
        move |summary: &mut Summary| {
            summary.devices[0].sampled_seconds = 120.0;
            summary.devices[0].gauges = gauges.clone();
        }
    };
    let hint = " was throttled for about 34 s of 120 s (thermal): look at its cooling";
    assert_hint("kernels", hint, (false, true), with(vec![power(0.9), thermal(0.283), limit(0.9)]));
    let hint = " was throttled for about 108 s of 120 s (power): its power limit slows it down";
    assert_hint("kernels", hint, (false, true), with(vec![power(0.9), thermal(0.0), limit(0.9)]));
    let hint = " ran at its power limit of 225 W for 60 % of the time";
    assert_hint("kernels", hint, (false, true), with(vec![power(0.0), limit(0.6)]));
    for neither in ["was throttled", "at its power limit"] {
        assert_hint("kernels", neither, (false, false), with(vec![power(0.005), thermal(0.0), limit(0.01)]));
    }
}

#[test]
fn other_programs_on_the_node_are_a_hint_where_counters_are_read() {
    assert_hint("instrumented", "of the busy CPU time: their energy", (true, false), |summary| {
        let cpu = summary.run.node_cpu.as_mut().expect("CPU time");
        cpu.node_busy_seconds = cpu.own_busy_seconds;
    });
    assert_hint("instrumented", "of the busy CPU time: their energy", (true, false), |summary| {
        summary.devices.iter_mut().for_each(|device| device.kind = "gpu".to_owned());
    });
    assert_hint("sampled_ranks", "of the busy CPU time", (false, false), |_| {});
}

#[test]
fn call_paths_of_a_single_process_do_not_repeat_its_name() {
    let text = ampere_report::text::render(&summary("python"), Screen::new(80, false));
    let table = text.split("top call paths").nth(1).expect("call paths");
    let rows: Vec<&str> = table.lines().skip(1).take_while(|row| !row.starts_with("  ...")).collect();
    let has_path = |row: &&str| row.contains(" > ") && !row.contains(": ");
    assert!(rows.len() > 3 && rows.iter().all(has_path), "{table}");
}

fn waiting_of(part: f64) -> Summary {
    let mut summary = summary("instrumented");
    let joules = 0.4 * summary.run.total_joules;
    let cause = |region: &str, rank, of| Cause {
        region: region.into(),
        location_group: format!("MPI Rank {rank}").into(),
        joules: of * joules,
    };
    let causes = vec![cause("work", 0, 0.3), cause("MPI_Send", 1, 0.28), cause("MPI_Recv", 1, 0.1)];
    let not_on_cpu_joules = Some(part * joules);
    summary.run.waiting = Some(Waiting { joules, causes, not_on_cpu_joules, ..Waiting::default() });
    summary
}

#[test]
fn only_a_function_with_most_of_it_causes_waiting_for_ranks_without_a_cpu() {
    let text = |part: f64| {
        let text = first::render(&waiting_of(part), Screen::new(200, false), &[]);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let without = text(0.9);
    let words = " in 90.0 % of it, the late rank was not on a CPU: it slept, or lacked a CPU ";
    assert!(without.contains(words) && !without.contains("caused"), "{without}");
    let mut slept = waiting_of(0.9);
    slept
        .run
        .waiting
        .iter_mut()
        .flat_map(|waiting| &mut waiting.causes)
        .for_each(|cause| cause.joules *= 2.0);
    let slept = first::render(&slept, Screen::new(200, false), &[]);
    assert!(slept.contains(" 60.0 % of that was caused by work on rank 0   in 90.0 % of it"), "{slept}");
    let with = text(0.0);
    let words = " 30.0 % of that was caused by work on rank 0, 28.0 % by MPI_Send on rank 1 ";
    assert!(with.contains(words), "{with}");
}

#[test]
fn a_report_describes_waiting_once() {
    let text = ampere_report::text::render(&waiting_of(0.9), Screen::FILE);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text.matches("the late rank was not on a CPU").count(), 1, "{text}");
    assert!(text.contains("waiting in MPI J of waiting"), "{text}");
}
