use super::*;
use crate::page::flame::{Frames, boxes};
use crate::page::ranks::Groups;
use crate::page::rows::Names;
use ampere_figures::losses::Losses;
use ampere_figures::summary::{Device, Run, Summary};
use ampere_figures::waits::{Pairs, Waiting};
use proptest::prelude::*;

/// Returns name, caller's name, joules and calls of each box.
fn named(tables: &Tables, flame: &Flame) -> Vec<(String, String, f64, u64)> {
    let name =
        |at: usize| if at == 0 { flame.title.clone() } else { tables.names[flame.name[at] as usize].clone() };
    let boxes = (1..flame.caller.len())
        .map(|at| (name(at), name(flame.caller[at] as usize), flame.joules[at], flame.calls[at]));
    let mut boxes: Vec<_> = boxes.collect();
    boxes.sort_by(|a, b| a.0.cmp(&b.0));
    boxes
}

fn functions(tables: &Tables) -> Vec<(&str, f64, u64, f64)> {
    let of = &tables.functions;
    let rows = (0..of.name.len())
        .map(|at| (tables.names[of.name[at] as usize].as_str(), of.joules[at], of.calls[at], of.seconds[at]));
    rows.collect()
}

#[test]
fn a_live_page_has_the_figures_of_the_summary() {
    let attributor = crate::tests::attributor();
    let run = || Run { seconds: 10.0, complete: true, ..Run::default() };
    let whole = Page::of(&Summary::new(&attributor, None, run(), Losses::default()));
    let outline = Summary::outline(&attributor, Run { complete: false, ..run() }, Losses::default());
    let page = Page::outline(&outline, crate::first::hints(&outline));
    assert_eq!((whole.state, page.state), (State::Over, State::Running));
    assert_eq!(format!("{:?}", whole.totals), format!("{:?}", page.totals));
    assert_eq!(whole.sentences, page.sentences);
    let (mut live, known) = (live::LiveTables::default(), whole.tables.unwrap());
    let tables = live.tables(&attributor, &outline, None);
    assert_eq!(functions(&known), functions(&tables));
    assert_eq!(functions(&known).len(), 4);
    let (of_known, of_live) = (named(&known, &known.flames[0]), named(&tables, &tables.flames[0]));
    assert_eq!(of_known, of_live);
    assert_eq!(
        (known.flames[0].idle_joules, known.mpi.len()),
        (tables.flames[0].idle_joules, tables.mpi.len())
    );
    assert_eq!(known.ranks.label, ["0"]);
    assert_eq!((&known.ranks.label, &known.heat.joules), (&tables.ranks.label, &tables.heat.joules));
    // The tables are requested again, for one rank alone.
    let again = live.tables(&attributor, &outline, Some(0));
    let mut alone = named(&again, &again.flames[0]);
    alone
        .iter_mut()
        .filter(|row| row.1.starts_with("all devices"))
        .for_each(|row| "all devices".clone_into(&mut row.1));
    assert_eq!((alone, again.flames[0].title.as_str()), (of_live, "all devices, rank 0"));
    let nothing = live.tables(&attributor, &outline, Some(9));
    assert_eq!(nothing.flames[0].joules, [0.0]);
}

/// Returns the notes of a page, from these notes of a run on `n1` to `n3` with the device `cpu on n`.
fn notes(notes: &[&str]) -> Vec<String> {
    let attributor = crate::tests::attributor();
    let nodes = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
    let notes = notes.iter().map(|note| (*note).to_owned()).collect();
    let mut summary =
        Summary::new(&attributor, None, Run { nodes, notes, ..Run::default() }, Losses::default());
    "cpu".clone_into(&mut summary.devices[0].name);
    Page::of(&summary).notes
}

#[test]
fn a_note_is_on_the_page_once() {
    let of_one = ["no counter", "n1: 12 events came late", "n1: another matter"];
    assert_eq!(notes(&of_one), of_one);
    assert_eq!(notes(&["no counter", "no counter"]), ["no counter"]);
    let of_all =
        ["n1: 12 events came late", "n2: 7 events came late", "n3: 9 events came late", "n2: another"];
    assert_eq!(notes(&of_all), ["n1: 12 events came late (2 other nodes have such a note)", "n2: another"]);
    let device = "cpu on n: its energy is known for 4 s of 7 s";
    assert_eq!(
        notes(&[device, &device.replace('4', "5")]),
        [format!("{device} (another device has such a note)")]
    );
    // Notes that do not begin with the name of a node are different facts if their figures differ.
    let different = ["12 events came late", "7 events came late"];
    assert_eq!(notes(&different), different);
}

#[test]
fn devices_are_in_the_order_of_their_numbers() {
    let attributor = crate::tests::attributor();
    let mut summary = Summary::new(&attributor, None, Run::default(), Losses::default());
    let device = summary.devices[0].clone();
    let named = |name: &str| Device { name: name.to_owned(), ..device.clone() };
    summary.devices = ["node", "GPU-10", "GPU-9", "cpu", "GPU-0"].map(named).to_vec();
    let names: Vec<String> = Page::of(&summary).devices.into_iter().map(|device| device.name).collect();
    assert_eq!(names, ["node", "GPU-0", "GPU-9", "GPU-10", "cpu"]);
}

/// A live page has the same static and dynamic joules as the summary, too.
#[test]
fn a_live_page_has_the_dynamic_joules_of_the_summary() {
    let attributor = crate::tests::active(crate::tests::BASELINE);
    let whole = Page::of(&Summary::new(&attributor, None, Run::default(), Losses::default()));
    let outline = Summary::outline(&attributor, Run::default(), Losses::default());
    let page = Page::outline(&outline, crate::first::hints(&outline));
    assert_eq!(page.sentences[0], "10.0 J, of which the node draws 6.00 J anyway (0.6 W, from the settings)");
    assert_eq!(whole.sentences[0], page.sentences[0]);
    for page in [&whole, &page] {
        assert_eq!((page.devices[0].baseline_watts, page.power[0].baseline_watts), (Some(0.6), Some(0.6)));
        assert!(page.devices[0].remarks[0].contains(", of which the node draws"), "{:?}", page.devices[0]);
    }
    let (known, live) =
        (whole.tables.unwrap(), live::LiveTables::default().tables(&attributor, &outline, None));
    for tables in [&*known, &live] {
        let name = |at: &u32| tables.names[*at as usize].as_str();
        let names: Vec<&str> = tables.functions.name.iter().map(name).collect();
        assert_eq!((names[0], names[3]), ("work", "main"));
        let dynamic: Vec<f64> = tables.functions.dynamic_joules.iter().map(|of| rows::rounded(*of)).collect();
        assert_eq!(dynamic, [3.0, 1.0, 0.0, 0.0]);
        assert_eq!(tables.dynamic_joules.map(rows::rounded), Some(4.0));
        assert_eq!(tables.views[0].dynamic_joules.map(rows::rounded), Some(4.0));
        assert_eq!(tables.heat.joules, [[3.0], [1.0]]);
        let flame = &tables.flames[0];
        let of_boxes: f64 = flame.dynamic_joules.iter().sum();
        assert_eq!((flame.dynamic_joules.len(), rows::rounded(of_boxes)), (flame.joules.len(), 4.0));
        assert!(flame.idle_dynamic_joules < 1e-9);
    }
    let of_nothing =
        Page::of(&Summary::new(&crate::tests::active(""), None, Run::default(), Losses::default()));
    assert_eq!(of_nothing.power[0].baseline_watts, None, "a baseline that is not known is not drawn as 0 W");
}

#[test]
fn a_live_page_has_the_energy_of_other_jobs_as_the_summary_does() {
    let attributor = crate::tests::beside_another_job();
    let whole = Page::of(&Summary::new(&attributor, None, Run::default(), Losses::default()));
    let outline = Summary::outline(&attributor, Run::default(), Losses::default());
    let live = live::LiveTables::default().tables(&attributor, &outline, None);
    for tables in [&*whole.tables.unwrap(), &live] {
        let of = &tables.flames[0];
        assert_eq!([of.idle_joules, of.other_jobs_joules].map(rows::rounded), [1.8, 1.5]);
        assert!(of.idle_dynamic_joules < 1e-9, "{}", of.idle_dynamic_joules);
    }
}

/// MPI_Send used 0.5 J waiting, which `main` and `work` caused.
#[test]
fn a_page_has_the_energy_of_waiting() {
    let mut summary = Summary::new(&crate::tests::attributor(), None, Run::default(), Losses::default());
    let tables = Page::of(&summary).tables.unwrap();
    assert!(tables.functions.waited_joules.is_empty() && tables.flames[0].waited_joules.is_empty());
    assert!(tables.waits.label.is_empty());
    let names: Vec<String> =
        summary.paths.name.iter().map(|name| summary.names[*name as usize].to_string()).collect();
    let waits = |name: &str| match name {
        "MPI_Send" => [0.5, 0.0],
        "main" => [0.0, 0.25],
        "work" => [0.0, 0.25],
        _ => [0.0; 2],
    };
    let view = &mut summary.devices[0].views[0];
    let all = view.callpaths.iter_mut().map(|row| (names[row.path as usize].as_str(), &mut row.figures));
    let all = all.chain(view.regions.iter_mut().map(|row| (&*row.region, &mut row.figures)));
    for (name, figures) in all {
        let [waited, caused] = waits(name);
        (figures.waited_joules, figures.caused_waiting_joules) = (Some(waited), Some(caused));
    }
    let name = |rank: u32| format!("MPI Rank {rank}").into();
    let pairs = Pairs {
        first: vec![name(0), name(1)],
        last: vec![name(0), name(8)],
        ranks: vec![1, 8],
        waiting: vec![0],
        cause: vec![1],
        joules: vec![0.5],
    };
    summary.run.waiting = Some(Waiting { joules: 0.5, pairs, ..Waiting::default() });
    let page = Page::of(&summary);
    assert!(page.sentences.iter().any(|words| words.ends_with("were used waiting in MPI")), "{page:?}");
    let tables = page.tables.unwrap();
    let name = |at: &u32| tables.names[*at as usize].as_str();
    let of = &tables.functions;
    for (at, words) in of.name.iter().map(name).enumerate() {
        assert_eq!([of.waited_joules[at], of.caused_waiting_joules[at]], waits(words), "{words}");
    }
    let flame = &tables.flames[0];
    for (at, words) in flame.name.iter().map(name).enumerate().skip(1) {
        assert_eq!([flame.waited_joules[at], flame.caused_waiting_joules[at]], waits(words), "{words}");
    }
    assert_eq!(tables.views[0].rows.waited_joules.iter().sum::<f64>(), 0.5);
    let Waits { label, waiting, cause, joules } = &tables.waits;
    assert_eq!(
        (&label[..], &waiting[..], &cause[..], &joules[..]),
        (&["0".into(), "1-8".into()][..], &[0][..], &[1][..], &[0.5][..])
    );
}

#[test]
fn python_functions_have_the_c_functions_that_they_call_on_a_page_live_and_at_the_end() {
    let attributor = crate::tests::active_of(crate::tests::BASELINE, "main (a.py)");
    let whole = Page::of(&Summary::new(&attributor, None, Run::default(), Losses::default()));
    let outline = Summary::outline(&attributor, Run::default(), Losses::default());
    let mut live = live::LiveTables::default();
    let known = whole.tables.expect("tables");
    // The table of Python functions is that of all ranks, whichever rank is requested.
    let of_a_rank = live.tables(&attributor, &outline, Some(9));
    for tables in [&*known, &live.tables(&attributor, &outline, None), &of_a_rank] {
        let Rows { name, joules, dynamic_joules, seconds, calls, .. } = &tables.python;
        let names: Vec<&str> = name.iter().map(|at| tables.names[*at as usize].as_str()).collect();
        assert_eq!(names, ["main (a.py)"], "the only function of Python");
        let of_functions: f64 = tables.functions.joules.iter().sum();
        assert_eq!(joules[..], [rows::rounded(of_functions)], "all functions are below it");
        assert_eq!((&dynamic_joules[..], &seconds[..], calls.len()), (&[4.0][..], &[9.0][..], 0));
    }
    let other = Page::of(&Summary::new(&crate::tests::attributor(), None, Run::default(), Losses::default()));
    assert!(other.tables.is_some_and(|tables| tables.python.name.is_empty()));
}

#[test]
fn an_update_has_only_new_parts() {
    let page = Page::of(&Summary::new(&crate::tests::attributor(), None, Run::default(), Losses::default()));
    assert!(!page.power[0].segments[0].watts.is_empty());
    let (first, again) = (page.update(None), page.update(page.tables.as_ref()));
    assert!(first.tables.is_some() && again.tables.is_none());
    assert!(again.power[0].segments.is_empty() && again.totals.joules == page.totals.joules);
}

#[test]
fn small_frames_are_summed_below_their_caller() {
    // main calls a, b and c; b calls d.
    let caller = [0, 0, 1, 1, 1, 3];
    let joules = [0.0, 1.0, 5.0, 1.0, 0.5, 0.25];
    let calls = [0, 1, 2, 3, 4, 5];
    let name = |frame: u32| ["", "main", "a", "b", "c", "d"][frame as usize].to_owned();
    let dynamic = joules.map(|joules| joules / 2.0);
    let frames =
        Frames { caller: &caller, joules: &joules, dynamic: Some(&dynamic), calls: &calls, name: &name };
    let mut names = Names::default();
    let (flame, of) = boxes(&frames, 2, &mut names);
    let shown: Vec<(&str, u32, f64, u64)> = (1..flame.caller.len())
        .map(|at| {
            (names.all[flame.name[at] as usize].as_str(), flame.caller[at], flame.joules[at], flame.calls[at])
        })
        .collect();
    assert_eq!(shown, [("main", 0, 1.0, 1), ("a", 1, 5.0, 2), ("3 smaller call paths", 1, 1.75, 12)]);
    assert_eq!(flame.dynamic_joules, [0.0, 0.5, 2.5, 0.875]);
    assert_eq!((flame.small, of), (vec![3], vec![0, 1, 2, 3, 3, 3]));
}

#[test]
fn ranks_are_where_most_of_their_group_are() {
    let regions = |rank: usize| if rank.is_multiple_of(4) { "MPI_Wait" } else { "work\n" };
    let labels: Vec<String> = (0..256).map(|rank| rank.to_string()).collect();
    let ranks: Vec<(&str, &str)> =
        labels.iter().enumerate().map(|(rank, label)| (label.as_str(), regions(rank))).collect();
    let now = Now::of(&ranks);
    assert_eq!(
        now.functions.iter().map(|of| (of.name.as_str(), of.ranks)).collect::<Vec<_>>(),
        [("work\u{fffd}", 192), ("MPI_Wait", 64)]
    );
    assert_eq!(
        (now.cells.len(), now.cells[0].label.as_str(), now.cells[127].label.as_str()),
        (RANKS_MAX, "0-1", "254-255")
    );
    let few = Now::of(&ranks[..3]);
    assert_eq!(few.cells.iter().map(|cell| cell.function).collect::<Vec<_>>(), [Some(1), Some(0), Some(0)]);
    assert_eq!(Now::of(&[]), Now::default());
}

#[test]
fn processes_without_a_rank_are_not_among_the_ranks() {
    let groups = Groups::new(&["Process 7 (orterun)", "MPI Rank 10", "MPI Rank 2", "Process 8 (sh)"]);
    assert_eq!((groups.of, groups.ranks.has_others), (vec![2, 1, 0, 2], true));
    assert_eq!(groups.ranks.label, ["2", "10", "2 other processes"]);
    assert_eq!(groups.ranks.count, [1, 1, 2]);
    let now = Now::of(&[("Process 7 (orterun)", ""), ("0", "work"), ("1", "work")]);
    assert_eq!((now.functions.len(), now.functions[0].ranks, now.cells.len()), (1, 2, 2));
    assert_eq!(now.others, "and 1 other process: 7 orterun in no function");
    // Without ranks, processes are compared.
    let groups = Groups::new(&["Process 8", "Process 7"]);
    assert_eq!(
        (groups.ranks.label, groups.ranks.has_others),
        (vec!["Process 7".into(), "Process 8".into()], false)
    );
    let now = Now::of(&[("Process 7", "f"), ("Process 8", "f")]);
    assert_eq!((now.functions[0].ranks, now.cells.len(), now.others.as_str()), (2, 2, ""));
}

proptest! {
    /// However many boxes there may be, none of the joules and calls are missing.
    #[test]
    fn boxes_add_up(tree in prop::collection::vec((any::<prop::sample::Index>(), 0u16..100), 1..200), limit in 1usize..50) {
        let mut caller = vec![0u32];
        let mut joules = vec![0.0];
        for (above, value) in &tree {
            caller.push(above.index(caller.len()) as u32);
            joules.push(f64::from(*value));
        }
        let calls: Vec<u64> = joules.iter().map(|joules| *joules as u64).collect();
        let name = |frame: u32| format!("f{frame}");
        let frames = Frames { caller: &caller, joules: &joules, dynamic: None, calls: &calls, name: &name };
        let mut names = Names::default();
        let (flame, _) = boxes(&frames, limit, &mut names);
        prop_assert_eq!(flame.joules.iter().sum::<f64>(), joules.iter().sum::<f64>());
        prop_assert_eq!(flame.calls.iter().sum::<u64>(), calls.iter().sum::<u64>());
        prop_assert!(flame.caller.iter().enumerate().skip(1).all(|(at, above)| (*above as usize) < at));
        prop_assert!(flame.caller.len() <= 2 * limit + 2);
    }
}
