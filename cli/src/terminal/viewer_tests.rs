use super::*;
use crate::terminal::paint::{framed, text};
use ampere_figures::losses::{Losses, RecordLosses};
use ampere_figures::nodes::job::{Job, NodeLine, NodeState, RankLine};
use ampere_figures::snapshot::{
    ActiveFigures, CausedWaiting, DeviceFigures, EnergyDivision, KernelEnergy, RankFigures, RegionEnergy,
    RegionTime, Snapshot, Waited,
};
use ampere_figures::summary::{Baseline, NodeCpu};
use ampere_figures::totals::Totals;
use ampere_report::page::{DeviceLine, Flame, Page, Rows, Tables};
use expect_test::{Expect, expect};
use std::sync::Arc;

/// Makes a snapshot of two ranks on a node with a GPU, `seconds` after the start. In each second, solve used 100 J and MPI_Send
/// 20 J.
fn snapshot(seconds: f64) -> Snapshot {
    let device = |name: &str, energy: &str, joules: f64| DeviceFigures {
        device: name.to_owned(),
        energy: energy.to_owned(),
        joules,
        watts: Some(joules / seconds),
        division: EnergyDivision { idle_joules_ranks: 0.25 * joules, ..EnergyDivision::default() },
        ..DeviceFigures::default()
    };
    let energy = |rank: &str, region: &str, joules| RegionEnergy {
        rank: rank.to_owned(),
        device: "cpu".to_owned(),
        region: region.to_owned(),
        joules,
        dynamic_joules: None,
    };
    let time = |region: &str, calls, seconds| RegionTime {
        rank: "0".to_owned(),
        region: region.to_owned(),
        calls,
        seconds,
    };
    let rank = |rank: &str, events, dropped_records| RankFigures {
        rank: rank.to_owned(),
        losses: RecordLosses { events, dropped_records, ..RecordLosses::default() },
        current_region: "MPI_Send".to_owned(),
        ..RankFigures::default()
    };
    Snapshot {
        node: "n1".to_owned(),
        run: "run-1".to_owned(),
        seconds,
        devices: vec![
            device("cpu", "measured", 160.0 * seconds),
            device("GPU-0", "estimated", 40.0 * seconds),
        ],
        region_energy: vec![
            energy("0", "solve", 60.0 * seconds),
            energy("1", "solve", 40.0 * seconds),
            energy("1", "MPI_Send", 20.0 * seconds),
        ],
        kernel_energy: vec![KernelEnergy {
            device: "GPU-0".to_owned(),
            kernel: "void axpy<double>(int)".to_owned(),
            joules: 30.0 * seconds,
        }],
        region_time: vec![time("solve", 7, 1.5), time("MPI_Send", 9000, 0.5)],
        ranks: vec![rank("0", 18_000, 0), rank("1", 17_000, 3)],
        notes: vec!["no energy counter of the GPU was found".to_owned()],
        ..Snapshot::default()
    }
}

fn page() -> Page {
    let flame = Flame {
        title: "all devices".to_owned(),
        caller: vec![0, 0, 1, 2],
        name: vec![0, 0, 1, 2],
        joules: vec![0.0, 0.0, 100.0, 20.0],
        calls: vec![0, 1, 7, 9000],
        ..Flame::default()
    };
    let names = ["main", "solve", "MPI_Send"].map(str::to_owned).to_vec();
    let json = serde_json::json!({
        "schema": "", "state": "running", "run": ampere_report::page::RunWords::default(),
        "totals": Totals::default(), "sentences": [], "notes": [], "devices": [],
        "other_devices": { "rows": [], "left_out": 0 }, "power": [], "quality": [], "monitor": [],
        "assignment": [], "tables": null,
    });
    let mut page: Page = serde_json::from_value(json).expect("a page");
    page.run.command = ["mpirun", "./solver"].map(str::to_owned).to_vec();
    page.run.seconds = 12.0;
    page.tables = Some(Arc::new(Tables { names, flames: vec![flame], ..Tables::default() }));
    page
}

fn node(node: &str, state: NodeState, joules: f64) -> NodeLine {
    NodeLine {
        node: node.to_owned(),
        state,
        joules,
        watts: (state == NodeState::Running).then_some(120.0),
        ranks: 2,
        ..NodeLine::default()
    }
}

fn rank_of_job((node, joules): (&str, f64)) -> RankLine {
    RankLine { rank: "0".to_owned(), node: node.to_owned(), joules }
}

fn viewer() -> Viewer {
    let mut viewer = Viewer::default();
    viewer.figures.add(snapshot(10.0));
    viewer.figures.see_page(page());
    viewer.figures.add(snapshot(12.0));
    press(&mut viewer, "1");
    viewer
}

fn press(viewer: &mut Viewer, keys: &str) {
    keys.chars().for_each(|key| {
        viewer.press(if key == '\n' { Key::Enter } else { Key::Char(key) });
    });
}

#[track_caller]
fn shows(viewer: &mut Viewer, size: (u16, u16), expected: Expect) {
    expected.assert_eq(&text(&viewer.draw(size, None)));
}

#[test]
fn functions_are_shown_with_devices_and_losses() {
    shows(
        &mut viewer(),
        (80, 24),
        expect![[r#"
             ampere mpirun ./solver                       at 12.0 s  2 ranks  35000 events
             cpu      1.92 kJ     160 W  power ██
             GPU-0      480 J    40.0 W  estimated  power ██
             behind by 0.0 s  idle 600 J  3 dropped
             no energy counter of the GPU was found
             1 functions  2 ranks  3 kernels  4 devices  5 nodes  6 tree
                 TOTAL J▼  OF TOTAL     W NOW       CALLS    SECONDS FUNCTION
                     1200     50.0%       100           7       1.50 solve
                      240     10.0%      20.0        9000       0.50 MPI_Send














            F1Help   F3Search F4Filter F5Tree   F6Sort   F10Quit   TabView   SpacePause
        "#]],
    );
}

#[test]
fn kernels_are_shown_first_as_soon_as_one_has_ended_unless_a_view_was_chosen() {
    let follow = |keys: &str| {
        let mut viewer = Viewer::default();
        viewer.figures.add(Snapshot { kernel_energy: Vec::new(), ..snapshot(10.0) });
        viewer.refresh();
        assert_eq!(viewer.view(), View::Functions);
        press(&mut viewer, keys);
        viewer.figures.add(snapshot(12.0));
        viewer.refresh();
        viewer.view()
    };
    assert_eq!([follow(""), follow("2"), follow("j")], [View::Kernels, View::Ranks, View::Functions]);
}

#[test]
fn call_paths_of_a_rank_that_have_not_come_yet_are_waited_for() {
    let mut viewer = viewer();
    press(&mut viewer, "2j");
    assert_eq!(viewer.press(Key::Enter), Asked::Figures);
    let waits = text(&viewer.draw((80, 24), None));
    assert!(waits.contains("6 tree  rank 1") && waits.contains("no call paths of this rank yet"), "{waits}");
    assert_eq!((viewer.rank(), viewer.needs_page()), (None, true), "the page with the ranks is requested");
    let mut page = page();
    if let Some(tables) = &mut page.tables {
        Arc::make_mut(tables).ranks.each = ["0", "1"].map(str::to_owned).to_vec();
    }
    viewer.figures.see_page(page);
    viewer.refresh();
    let came = text(&viewer.draw((80, 24), None));
    assert!(came.contains("6 tree  rank 1") && came.contains("solve"), "{came}");
    assert_eq!(viewer.rank(), Some(1));
    // A line that was closed for one rank does not hide the call paths of another rank.
    press(&mut viewer, "g\n");
    assert_eq!(viewer.list.table.rows.len(), 1);
    press(&mut viewer, "2g\n");
    assert_eq!((viewer.rank(), viewer.list.table.rows.len()), (Some(0), 4));
    press(&mut viewer, "g\nr");
    assert_eq!((viewer.rank(), viewer.list.table.rows.len()), (Some(1), 4));
}

#[test]
fn a_small_terminal_has_the_parts_that_fit() {
    shows(
        &mut viewer(),
        (40, 10),
        expect![[r#"
             ampere mpirun …ver at 12.0 s  2 ranks
             2 devices    2.40 kJ     200 W  estima…
             1 functions
                 TOTAL J▼  OF TOTAL FUNCTION
                     1200     50.0% solve
                      240     10.0% MPI_Send



            F1Help   F3Search F4Filter F5Tree
        "#]],
    );
    for size in [(0, 0), (1, 1), (3, 5), (12, 6), (80, 2), (1000, 3)] {
        for view in "123456h".chars() {
            let mut viewer = viewer();
            press(&mut viewer, &view.to_string());
            viewer.draw(size, Some("no answer"));
        }
    }
}

#[test]
fn losses_are_shown_in_full_on_every_terminal() {
    for width in 40..=200 {
        let shown = text(&viewer().draw((width, 24), None));
        let line = shown.lines().find(|line| line.contains("dropped")).map(str::trim_end);
        assert!(line.is_some_and(|line| line.ends_with(" 3 dropped")), "{width}: {shown}");
        let first = shown.lines().next().map(str::trim_end);
        assert!(
            first.is_some_and(|first| first.ends_with("ranks") || first.ends_with("events")),
            "{width}: {shown}"
        );
    }
}

#[test]
fn each_view_has_its_rows() {
    let mut viewer = viewer();
    for (key, expected) in [
        (
            "2",
            expect![[r#"
                | 1 functions  2 ranks  3 kernels  4 devices  5 nodes  6 tree
                | RANK           TOTAL J▼  OF TOTAL     W NOW       EVENTS NOW IN
                | 0                   720     30.0%      60.0        18000 MPI_Send
                | 1                   720     30.0%      60.0        17000 MPI_Send
                |"#]],
        ),
        (
            "3",
            expect![[r#"
                | 1 functions  2 ranks  3 kernels  4 devices  5 nodes  6 tree
                |     TOTAL J▼  OF TOTAL     W NOW KERNEL
                |          360     15.0%      30.0 axpy<double>
                |
                |"#]],
        ),
        (
            "4",
            expect![[r#"
                | 1 functions  2 ranks  3 kernels  4 devices  5 nodes  6 tree
                |     TOTAL J▼     W NOW       IDLE J     LOST J    BAD QUALITY    DEVICE
                |         1920       160          480          0      0 measured   cpu
                |          480      40.0          120          0      0 estimated  GPU-0
                |"#]],
        ),
        (
            "5",
            expect![[r#"
                | 1 functions  2 ranks  3 kernels  4 devices  5 nodes  6 tree
                |     TOTAL J▼  OF TOTAL     W NOW    IDLE  RANKS STATE    NODE
                |         2400    100.0%       200       -      2 running  n1
                |
                |"#]],
        ),
        (
            "6",
            expect![[r#"
                | 1 functions  2 ranks  3 kernels  4 devices  5 nodes  6 tree
                |     TOTAL J▼  OF TOTAL       SELF J       CALLS CALL PATH
                |          120    100.0%            0             - all devices
                |          120    100.0%            0           1   - main
                |          120    100.0%          100           7     - solve"#]],
        ),
    ] {
        press(&mut viewer, key);
        let shown = framed(&viewer.draw((80, 16), None));
        expected.assert_eq(&shown.lines().skip(4).take(5).collect::<Vec<_>>().join("\n"));
    }
}

#[test]
fn a_python_program_has_a_view_of_its_functions_with_the_c_code_that_they_call() {
    let mut viewer = viewer();
    assert!(!text(&viewer.draw((80, 16), None)).contains("python"));
    viewer.press(Key::BackTab);
    assert_eq!(viewer.view(), View::Tree, "a program without Python functions");
    let mut snapshot = snapshot(14.0);
    snapshot.region_energy[0].region = "train (model.py)".to_owned();
    let python = Rows {
        name: vec![0, 1],
        joules: vec![300.0, 90.0],
        dynamic_joules: vec![60.0, 20.0],
        seconds: vec![2.5, 0.5],
        ..Rows::default()
    };
    let names = ["train (model.py)", "load (data.py)"].map(str::to_owned).to_vec();
    let mut page = page();
    (page.totals.joules, page.run.seconds) = (400.0, 14.0);
    page.tables = Some(Arc::new(Tables { names, python, dynamic_joules: Some(100.0), ..Tables::default() }));
    viewer.figures.add(snapshot);
    viewer.figures.see_page(page);
    viewer.press(Key::Tab);
    assert_eq!((viewer.view(), viewer.needs_page()), (View::Python, true));
    for (width, expected) in [
        (
            80,
            expect![[r#"
        | 1 functions  2 ranks  3 kernels  4 devices  5 nodes  6 tree  7 python
        |   DYNAMIC J▼      TOTAL J  OF DYNAMIC    SECONDS PYTHON FUNCTION WITH C CODE
        |         60.0          300       60.0%       2.50 train (model.py)
        |         20.0           90       20.0%       0.50 load (data.py)"#]],
        ),
        (
            120,
            expect![[r#"
        | 1 functions  2 ranks  3 kernels  4 devices  5 nodes  6 tree  7 python
        |   DYNAMIC J▼      TOTAL J  OF DYNAMIC    SECONDS                          PYTHON FUNCTION WITH C CODE
        |         60.0          300       60.0%       2.50 ██████████████▍          train (model.py)
        |         20.0           90       20.0%       0.50 ████▊                    load (data.py)"#]],
        ),
    ] {
        let shown = framed(&viewer.draw((width, 16), None));
        expected.assert_eq(&shown.lines().skip(4).take(4).collect::<Vec<_>>().join("\n"));
    }
}

#[test]
fn rows_are_sorted_filtered_and_found_by_keys() {
    let mut viewer = viewer();
    let mut rows = |keys: &str| {
        press(&mut viewer, keys);
        let shown = text(&viewer.draw((80, 16), None));
        let names: Vec<&str> =
            shown.lines().skip(6).take(2).filter_map(|line| line.split(' ').next_back()).collect();
        (names.join(" "), viewer.list.key().unwrap_or_default().to_owned())
    };
    assert_eq!(rows("").0, "solve MPI_Send");
    assert_eq!(rows(">>>").0, "MPI_Send solve"); // by calls
    assert_eq!(rows("I").0, "solve MPI_Send");
    assert_eq!(rows("I/SOL\n").1, "solve");
    assert_eq!(rows("\\send\n").0, "MPI_Send ");
    assert_eq!(viewer.press(Key::Escape), Asked::Nothing);
    assert_eq!(viewer.list.table.rows.len(), 2);
    press(&mut viewer, "\\nonsense\n");
    assert!(text(&viewer.draw((80, 16), None)).contains("no row contains this text"));
}

#[test]
fn call_paths_close_and_search_opens_them() {
    let mut viewer = viewer();
    press(&mut viewer, "t");
    assert_eq!(viewer.list.table.rows.len(), 4);
    press(&mut viewer, "g-");
    assert_eq!(viewer.list.table.rows.len(), 1);
    press(&mut viewer, "/send\n");
    assert_eq!(viewer.list.cursor, 3, "what is closed is found");
    assert_eq!(viewer.press(Key::Char('t')), Asked::Figures);
    assert_eq!(viewer.view(), View::Functions);
}

#[test]
fn the_tree_and_the_lines_above_it_are_of_one_moment_or_the_difference_is_shown() {
    let mut viewer = viewer();
    press(&mut viewer, "t");
    let mut page = page();
    page.run.seconds = 11.5;
    page.totals = Totals { joules: 240.0, idle_joules: 77.0, ..Totals::default() };
    page.devices = vec![DeviceLine { name: "cpu".to_owned(), joules: 1800.0, ..DeviceLine::default() }];
    viewer.figures.add(snapshot(13.0));
    viewer.figures.see_page(page);
    viewer.figures.show_joules_of_page();
    viewer.refresh();
    let shown = text(&viewer.draw((100, 24), None));
    for words in [" at 11.5 s ", "1.80 kJ", "idle 77.0 J", " 120     50.0% "] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("call paths at"), "{shown}");
    // The collector was too busy to send call paths.
    viewer.figures.add(snapshot(14.0));
    viewer.refresh();
    let later = text(&viewer.draw((100, 24), None));
    assert!(later.contains(" at 14.0 s ") && later.contains("6 tree  call paths at 11.5 s"), "{later}");
}

#[test]
fn the_final_figures_are_shown_instead_of_the_last_live_ones() {
    let mut viewer = viewer();
    viewer.figures.end();
    viewer.show_result(vec!["energy  5.00 J".to_owned()]);
    let end = text(&viewer.draw((80, 24), Some("the run has ended: out/summary.json")));
    assert!(
        end.starts_with(" the run has ended: out/summary.json") && end.contains(" energy  5.00 J"),
        "{end}"
    );
    assert!(!end.contains("1.92 kJ") && !end.contains("FUNCTION"), "{end}");
    assert_eq!(viewer.press(Key::Char('1')), Asked::Figures);
    let live = text(&viewer.draw((80, 24), None));
    assert!(live.contains("ended, figures at 12.0 s") && live.contains("FUNCTION"), "{live}");
    press(&mut viewer, "e");
    assert_eq!(text(&viewer.draw((80, 24), Some("the run has ended: out/summary.json"))), end);
    // The results were written again, with figures that were computed from the trace.
    viewer.show_result(vec!["energy  6.00 J".to_owned()]);
    let again = text(&viewer.draw((80, 24), None));
    assert!(again.contains(" energy  6.00 J") && !again.contains("5.00 J"), "{again}");
    viewer.press(Key::Char('1'));
    viewer.show_result(vec!["energy  7.00 J".to_owned()]);
    assert!(text(&viewer.draw((80, 24), None)).contains("FUNCTION"), "the view that was chosen stays");
    assert_eq!(viewer.press(Key::Char('q')), Asked::Quit);
}

#[test]
fn busy_cores_are_of_those_that_the_run_can_use_and_other_programs_are_named_where_there_is_room() {
    let mut viewer = viewer();
    let cpu = NodeCpu {
        seconds: 10.0,
        own_busy_seconds: 4.0,
        node_busy_seconds: 19.0,
        cpus: 2,
        ..NodeCpu::default()
    };
    viewer.figures.snapshot.collector.node_cpu = Some(cpu);
    let line = |width, viewer: &mut Viewer| {
        let shown = text(&viewer.draw((width, 24), None));
        shown.lines().find(|line| line.contains("dropped")).expect("the line").trim_end().to_owned()
    };
    let rest = "behind by 0.0 s  idle 600 J  3 dropped";
    assert_eq!(line(100, &mut viewer), format!(" 0.4 of 2 cores busy, others 1.5  {rest}"));
    assert_eq!(line(70, &mut viewer), format!(" 0.4 of 2 cores busy  {rest}"));
    assert_eq!(line(60, &mut viewer), format!(" {rest}"));
}

#[test]
fn the_result_has_all_lines_of_the_screen_but_two() {
    let mut viewer = viewer();
    let lines = 24 - LINES_BESIDE_RESULT;
    viewer.show_result((1..=lines).map(|line| format!("line {line}")).collect());
    let shown = text(&viewer.draw((80, 24), Some("the run has ended")));
    assert!(shown.contains(&format!("\n line {lines}\n The result; q quits")), "{shown}");
}

#[test]
fn a_filter_that_hides_all_ranks_is_named() {
    let mut viewer = viewer();
    press(&mut viewer, "2\\nonsense\n");
    assert_eq!(viewer.press(Key::Enter), Asked::Nothing);
    let shown = text(&viewer.draw((80, 24), None));
    assert!(shown.contains("no row contains this text: Escape shows all"), "{shown}");
}

#[test]
fn the_cursor_stays_on_its_row_when_figures_come() {
    let mut viewer = viewer();
    press(&mut viewer, "j");
    assert_eq!(viewer.list.key(), Some("MPI_Send"));
    let mut next = snapshot(14.0);
    next.region_energy[2].joules = 5000.0;
    viewer.figures.add(next);
    viewer.refresh();
    assert_eq!((viewer.list.key(), viewer.list.cursor), (Some("MPI_Send"), 0));
}

#[test]
fn several_nodes_are_all_shown_or_only_the_first() {
    let mut viewer = viewer();
    viewer.figures.job = Some(Job {
        totals: Totals { joules: 3000.0, watts: Some(120.0), ..Totals::default() },
        losses: Losses {
            records: RecordLosses { dropped_records: 5, ..RecordLosses::default() },
            ..Losses::default()
        },
        nodes: vec![node("n1", NodeState::Running, 2400.0), node("n2", NodeState::Gone, 600.0)],
        functions: vec![ampere_figures::nodes::job::NamedJoules { name: "of_all".to_owned(), joules: 900.0 }],
        ranks: [("n2", 600.0), ("n1", 500.0)].map(rank_of_job).to_vec(),
        ..Job::default()
    });
    viewer.refresh();
    press(&mut viewer, "5");
    shows(
        &mut viewer,
        (80, 12),
        expect![[r#"
             ampere mpirun .…lver 2 nodes: 3.00 kJ 120 W  at 12.0 s  2 ranks  35000 events
             2 devices    2.40 kJ     200 W  estimated
             behind by 0.0 s  idle 600 J  5 dropped
             1 functions  2 ranks  3 kernels  4 devices  5 nodes  6 tree
                 TOTAL J▼  OF TOTAL     W NOW    IDLE  RANKS STATE    NODE
                     2400     80.0%       120       -      2 running  n1
                      600     20.0%         -       -      2 gone     n2




            F1Help   F3Search F4Filter F5Tree   F6Sort   F10Quit   TabView   SpacePause
        "#]],
    );
    press(&mut viewer, "2");
    assert_eq!(viewer.press(Key::Enter), Asked::Nothing);
    let shown = text(&viewer.draw((80, 24), None));
    assert!(shown.contains(" Only call paths of ranks on n1 are here."), "{shown}");
    press(&mut viewer, "j\n");
    assert_eq!((viewer.view(), viewer.rank.as_deref()), (View::Tree, Some("0")));
    press(&mut viewer, "1");
    assert!(text(&viewer.draw((80, 24), None)).contains("of_all"));
    press(&mut viewer, "a");
    let alone = text(&viewer.draw((80, 24), None));
    assert!(alone.contains("only n1") && alone.contains("solve") && !alone.contains("of_all"), "{alone}");
}

#[test]
fn hostile_names_are_only_names() {
    let mut viewer = Viewer::default();
    let mut hostile = snapshot(10.0);
    let name = format!("\x1b[2J\n\"'<b>\u{202e}{}", "x".repeat(10_000));
    hostile.region_energy[0].region.clone_from(&name);
    hostile.devices[0].device.clone_from(&name);
    hostile.region_energy.iter_mut().for_each(|row| row.device.clone_from(&name));
    hostile.ranks[0].current_region.clone_from(&name);
    hostile.notes.push(name.clone());
    hostile.run.clone_from(&name);
    viewer.figures.add(hostile);
    let mut page = page();
    page.run.command.push(name.clone());
    if let Some(tables) = &mut page.tables {
        Arc::make_mut(tables).names[1].clone_from(&name);
    }
    viewer.figures.see_page(page);
    viewer.figures.job = Some(Job { nodes: vec![node(&name, NodeState::Gone, 1.0)], ..Job::default() });
    viewer.refresh();
    for key in "123456".chars() {
        press(&mut viewer, &key.to_string());
        let shown = text(&viewer.draw((80, 24), None));
        assert_eq!(shown.lines().count(), 24);
        assert!(
            !shown.chars().any(|c| c != '\n' && c.is_control()) && !shown.contains('\u{202e}'),
            "{shown}"
        );
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    }
}

#[test]
fn functions_are_ordered_by_dynamic_joules_where_they_are_known() {
    let mut viewer = viewer();
    let mut active = snapshot(14.0);
    active.devices.truncate(1);
    let baseline = Baseline { watts: 100.0, kind: "set".to_owned(), samples: 0 };
    active.devices[0].active = Some(ActiveFigures { baseline, static_joules: 1400.0, dynamic_joules: 840.0 });
    for row in &mut active.region_energy {
        row.dynamic_joules = Some(if row.region == "MPI_Send" { 240.0 } else { 30.0 });
    }
    viewer.figures.add(active);
    viewer.refresh();
    let shown = text(&viewer.draw((100, 24), None));
    let line = |name: &str| {
        let line =
            shown.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}: {shown}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("FUNCTION")[..4], ["DYNAMIC", "J▼", "TOTAL", "J"], "{shown}");
    assert_eq!(line(" MPI_Send")[..3], ["240.0", "280", "28.6%"], "{shown}");
    assert_eq!(line(" solve")[..3], ["60.0", "1400", "7.1%"], "{shown}");
    assert!(shown.find(" MPI_Send") < shown.find(" solve"), "{shown}");
    press(&mut viewer, "2");
    for (width, titles) in [(80, " RANK         DYNAMIC J▼"), (60, " RANK         DYNAMIC J▼")] {
        let shown = text(&viewer.draw((width, 24), None));
        assert!(shown.lines().any(|line| line.starts_with(titles)), "{shown}");
    }
    let shown = text(&viewer.draw((80, 24), None));
    let ranks = shown
        .lines()
        .filter(|line| line.ends_with("MPI_Send"))
        .map(|line| line.split_whitespace().take(4).map(str::to_owned).collect::<Vec<_>>().join(" "));
    assert_eq!(ranks.collect::<Vec<_>>(), ["1 270.0 840.0 32.1%", "0 30.0 840.0 3.6%"], "{shown}");
}

#[test]
fn functions_with_hardly_any_joules_are_one_row_until_they_are_searched_for() {
    let mut viewer = viewer();
    let mut many = snapshot(14.0);
    let small = (0..30).map(|at| RegionEnergy {
        region: format!("tiny_{at}"),
        joules: 0.001,
        ..many.region_energy[0].clone()
    });
    let small: Vec<RegionEnergy> = small.collect();
    many.region_energy.extend(small);
    viewer.figures.add(many);
    viewer.refresh();
    let mut rows = |keys: &str| {
        press(&mut viewer, keys);
        let shown = text(&viewer.draw((80, 50), None));
        let rows = shown.lines().skip(7).take_while(|line| !line.is_empty());
        rows.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let all = rows("");
    assert_eq!((all.len(), all[2].as_str()), (3, "<1 0.0% 0.0 0.00 ... and 30 more"), "{all:?}");
    assert_eq!(rows("I").len(), 32, "in another order each has its place");
    assert_eq!(rows("I\\tiny_7\n").len(), 1);
    viewer.press(Key::Escape);
    press(&mut viewer, "/tiny_7\n");
    assert_eq!(viewer.list.key(), Some("tiny_7"));
    viewer.press(Key::Escape);
    assert_eq!(viewer.list.table.rows.len(), 3);
}

#[test]
fn a_function_with_a_large_part_of_all_joules_is_shown_if_it_has_hardly_any_dynamic_ones() {
    let mut viewer = viewer();
    let mut waiting = snapshot(14.0);
    waiting.devices[0].active = Some(ActiveFigures {
        baseline: Baseline { watts: 100.0, kind: "set".to_owned(), samples: 0 },
        static_joules: 1400.0,
        dynamic_joules: 840.0,
    });
    let small = |region: &str, joules| RegionEnergy {
        region: region.to_owned(),
        joules,
        ..waiting.region_energy[0].clone()
    };
    let small = [small("sleep", 1000.0), small("tiny_1", 100.0), small("tiny_2", 100.0)];
    waiting.region_energy.extend(small);
    let rows = waiting.region_energy.iter_mut();
    rows.for_each(|row| row.dynamic_joules = Some(if row.region == "solve" { 400.0 } else { 0.1 }));
    viewer.figures.add(waiting);
    viewer.refresh();
    let rows: Vec<&str> = viewer.list.table.rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(rows, ["solve", "MPI_Send", "sleep", ""], "the last row sums the other two");
}

#[test]
fn a_process_has_its_whole_name_where_there_is_room_and_always_its_number() {
    let mut viewer = viewer();
    let mut launched = snapshot(14.0);
    for rank in ["Process 12422 (python3.13)", "Process 4194303 (a_long_name_000)"] {
        launched.ranks.push(RankFigures { rank: rank.to_owned(), ..RankFigures::default() });
    }
    viewer.figures.add(launched);
    press(&mut viewer, "2");
    for (width, names) in [
        (120, [" Process 12422 (python3.13) ", " Process 4194303 (a_long_name_000) "]),
        (80, [" 12422 python3.13 ", " 4194303 a_long_name_000 "]),
        (50, [" 12422 python3.13 ", " 4194303 a_long_n… "]),
    ] {
        let shown = text(&viewer.draw((width, 24), None));
        for name in names {
            assert!(shown.lines().any(|line| line.starts_with(name)), "{name}: {shown}");
        }
    }
}

#[test]
fn processes_without_a_rank_are_called_processes() {
    let mut viewer = viewer();
    let mut local = snapshot(14.0);
    local.devices.truncate(1);
    let names = ["Process 9804 (python3.13)", "Process 9805 (python3.13)"];
    for (rank, name) in local.ranks.iter_mut().zip(names) {
        (rank.rank, rank.current_region) = (name.to_owned(), "burn_the_most (work.py)".to_owned());
    }
    let baseline = Baseline { watts: 100.0, kind: "set".to_owned(), samples: 0 };
    local.devices[0].active = Some(ActiveFigures { baseline, static_joules: 1400.0, dynamic_joules: 840.0 });
    for row in &mut local.region_energy {
        row.rank = names[usize::from(row.rank == "1")].to_owned();
        row.dynamic_joules = Some(0.1 * row.joules);
    }
    viewer.figures.add(local);
    press(&mut viewer, "2");
    for width in [80, 100, 120] {
        let shown = text(&viewer.draw((width, 24), None));
        assert!(shown.contains("2 processes  3 kernels") && shown.contains(" PROCESS "), "{shown}");
        assert!(!shown.contains("rank") && !shown.contains("RANK"), "{shown}");
        let row = |of: &&str| of.contains("9804 (python3.13) ") || of.starts_with(" 9804 python3.13 ");
        assert!(shown.lines().any(|line| row(&line)), "{width}: {shown}");
        assert!(shown.contains(" burn_the_most"), "{width}: {shown}");
    }
}

#[test]
fn joules_of_waiting_stand_next_to_total_joules() {
    let mut viewer = viewer();
    let mut waiting = snapshot(14.0);
    waiting.devices.truncate(1);
    let baseline = Baseline { watts: 100.0, kind: "set".to_owned(), samples: 0 };
    waiting.devices[0].active =
        Some(ActiveFigures { baseline, static_joules: 1400.0, dynamic_joules: 840.0 });
    waiting.region_energy.iter_mut().for_each(|row| row.dynamic_joules = Some(0.1 * row.joules));
    waiting.waiting.waited = vec![Waited { rank: "1".to_owned(), joules: 155.0, ..Waited::default() }];
    let caused = CausedWaiting { rank: "0".to_owned(), joules: 155.0, ..CausedWaiting::default() };
    waiting.waiting.caused = vec![caused];
    viewer.figures.add(waiting);
    press(&mut viewer, "2");
    let rows = |viewer: &mut Viewer, size| {
        let shown = framed(&viewer.draw(size, None));
        shown.lines().skip_while(|line| !line.contains("RANK")).take(3).collect::<Vec<_>>().join("\n")
    };
    expect![[r#"
        | RANK       DYNAMIC J▼   TOTAL J  OF DYNAMIC   WAITED J   CAUSED J NOW IN
        | 0               84.00     840.0       10.0%          0      155.0 MPI_Send
        | 1               84.00     840.0       10.0%      155.0          0 MPI_Send"#]]
    .assert_eq(&rows(&mut viewer, (80, 24)));
    expect![[r#"
        | RANK       DYNAMIC J▼   TOTAL J  OF DYNAMIC  DYN W NOW   WAITED J   CAUSED J       EVENTS NOW IN
        | 0               84.00     840.0       10.0%          -          0      155.0        18000 MPI_Send
        | 1               84.00     840.0       10.0%          -      155.0          0        17000 MPI_Send"#]].assert_eq(&rows(&mut viewer, (120, 24)));
    for width in 40..=200 {
        let shown = rows(&mut viewer, (width, 24));
        assert_eq!(shown.contains("WAITED"), shown.contains("TOTAL J"), "{shown}");
        assert!(shown.contains("NOW "), "{width}: {shown}");
    }
}

#[test]
fn notes_that_have_no_room_are_shown_in_full_by_a_key() {
    let mut viewer = viewer();
    let long =
        format!("38.9 % of the node's busy CPU time {}was this run's own", "and more of it ".repeat(9));
    viewer.figures.snapshot.notes.push(long.clone());
    assert!(text(&viewer.draw((80, 24), None)).contains("  N notes in full"));
    press(&mut viewer, "N");
    let shown = text(&viewer.draw((80, 24), None));
    let below = shown.split_once("any key goes back").expect("the notes").1;
    let words: Vec<&str> = below.split_whitespace().collect();
    assert!(words.join(" ").contains(&long), "{shown}");
    assert_eq!(viewer.press(Key::Char('q')), Asked::Nothing, "any key goes back");
    assert!(text(&viewer.draw((80, 24), None)).contains("FUNCTION"));
}

#[test]
fn help_lists_the_keys_and_any_key_closes_it() {
    let mut viewer = viewer();
    press(&mut viewer, "?");
    shows(
        &mut viewer,
        (80, 24),
        expect![[r#"
             Keys, as in htop; any key goes back
              a number, Tab      functions, ranks, kernels, devices, nodes, tree
              arrows, PgUp PgDn  move; Home and End: first and last row
              F3 or /            search; n or F3: the next one
              F4 or \            show only rows with this text; Escape: all
              F5 or t            call paths as a tree, and back
              Enter + -          open and close a call path
              r, R               call paths of the next rank, or all; also Enter on a rank
              F6 or >            sort by the next column; <: by the one before
              I                  sort the other way round
              a                  with several nodes: all, or only the first
              Space              pause: the figures stand still
              N                  the notes above, in full
              q F10 Ctrl-C       quit; the run continues
              Ctrl-Z             return to the shell, until fg
              OF TOTAL           part of all joules of the run
              OF DYNAMIC         part of its dynamic joules: above what devices draw anyway
              W NOW, DYN W NOW   mean power of the last two seconds; its dynamic part
              WAITED, CAUSED J   static and dynamic joules of waiting in MPI
              SELF (DYN) J       joules of a function without the functions that it calls
              IDLE, (idle)       joules in no function; of a node, their part
              LOST, BAD          events not recorded; readings not believed

            F1Help   F3Search F4Filter F5Tree   F6Sort   F10Quit   TabView   SpacePause
        "#]],
    );
    assert_eq!(viewer.press(Key::Char('q')), Asked::Nothing);
    assert_eq!(viewer.press(Key::Function(10)), Asked::Quit);
    press(&mut viewer, "/");
    assert_eq!(viewer.press(Key::Char('q')), Asked::Nothing);
    assert_eq!(viewer.press(Key::Interrupt), Asked::Quit);
}

#[test]
fn a_view_that_is_not_offered_has_no_key() {
    let mut viewer = viewer();
    press(&mut viewer, "27");
    assert_eq!(viewer.view(), View::Ranks);
    let mut snapshot = snapshot(14.0);
    snapshot.devices.retain(|device| device.kind != "gpu");
    snapshot.kernel_energy.clear();
    viewer.figures.add(snapshot);
    press(&mut viewer, "3");
    assert_eq!(viewer.view(), View::Ranks, "a run without GPUs");
    viewer.press(Key::Tab);
    assert_eq!(viewer.view(), View::Devices);
    press(&mut viewer, "?");
    let help = text(&viewer.draw((80, 24), None));
    assert!(help.contains("functions, ranks, devices, nodes, tree\n"), "{help}");
}
