//! Attributes time like a counter, and compares the rows of the summary with timelines whose seconds are known.

use ampere_attribution::LocationIndex;
use ampere_figures::losses::Losses;
use ampere_figures::summary::{Callpath, Run, Summary};
use ampere_model::{LocationKind, RegionRef};
use ampere_settings::{Config, Locations};
use ampere_timeline::attributor::{Attributor, LocationInfo};
use ampere_timeline::topology::Evidence;

fn attributor(locations: Locations) -> (Attributor, [LocationIndex; 3]) {
    let mut config = Config::default();
    (config.attribution.time, config.attribution.locations) = (true, locations);
    let mut attributor = Attributor::new(config, 10);
    let location = |process, main| LocationInfo {
        node: "n".to_owned(),
        group: format!("MPI Rank {process}"),
        name: "thread".to_owned(),
        kind: LocationKind::CpuThread,
        rank: Some(process),
        main,
    };
    let evidence = |process| Evidence { process: Some(process), ..Evidence::default() };
    let all = [(0, true), (0, false), (1, true)].map(|(process, main)| {
        attributor.add_location_with(location(process, main), evidence(process.into()))
    });
    (attributor, all)
}

/// Returns the summary of two ranks, with times in ticks of 0.1 s. Rank 0: f [10, 110] with g [20, 50] in it; its second thread
/// h [20, 60]; rank 1: f [0, 10] and [130, 150].
fn summary(locations: Locations) -> Summary {
    let (mut attributor, [main, thread, other]) = attributor(locations);
    let [f, g, h] = [0, 1, 2].map(RegionRef);
    attributor.enter(other, 0, f);
    attributor.leave(other, 10);
    attributor.enter(main, 10, f);
    attributor.enter(main, 20, g);
    attributor.enter(thread, 20, h);
    attributor.leave(main, 50);
    attributor.leave(thread, 60);
    attributor.leave(main, 110);
    attributor.enter(other, 130, f);
    attributor.leave(other, 150);
    attributor.end_time();
    Summary::new(&attributor, None, Run::default(), Losses::default())
}

#[test]
fn a_time_profile_needs_no_counter() {
    let summary = summary(Locations::Main);
    assert_eq!(summary.run.energy, "none", "seconds are no energy");
    let [time] = &summary.devices[..] else { panic!("one device") };
    assert_eq!((time.name.as_str(), time.unit.as_str(), time.total_joules), ("time", "s", 15.0));
    let ranks = &time.views[0];
    assert_eq!((ranks.attributed_joules, ranks.idle_joules), (13.0, 2.0));
    let rows = |rows: &[Callpath]| -> Vec<(String, usize, f64, f64)> {
        let row = |row: &Callpath| {
            assert_eq!(
                (row.figures.exclusive_joules, row.figures.resolved_joules),
                (row.figures.exclusive_seconds, row.figures.exclusive_seconds)
            );
            let (group, depth) = (summary.name(row.location_group), summary.regions_of(row.path).len());
            (group.to_owned(), depth, row.figures.exclusive_joules, row.figures.inclusive_joules)
        };
        rows.iter().map(row).collect()
    };
    assert_eq!(
        rows(&ranks.callpaths),
        [
            ("MPI Rank 0".to_owned(), 1, 7.0, 10.0),
            ("MPI Rank 0".to_owned(), 2, 3.0, 3.0),
            ("MPI Rank 1".to_owned(), 1, 3.0, 3.0),
        ]
    );
    assert!(time.views[1].callpaths.is_empty());
    assert!(ranks.conservation_error_joules < 1e-12);
}

#[test]
fn threads_share_the_time_of_their_rank() {
    let summary = summary(Locations::All);
    let ranks = &summary.devices[0].views[0];
    let spent = |name: &str, depth: usize| -> f64 {
        let is_it = |row: &&Callpath| {
            summary.name(row.location_group) == name && summary.regions_of(row.path).len() == depth
        };
        ranks.callpaths.iter().filter(is_it).map(|row| row.figures.exclusive_joules).sum()
    };
    // g and h run together for 3 s, then f and h for 1 s: each gets half.
    assert_eq!((spent("MPI Rank 0", 2), spent("MPI Rank 1", 1)), (1.5, 3.0));
    assert!((spent("MPI Rank 0", 1) - (6.0 + 0.5 + 2.0)).abs() < 1e-12);
}
