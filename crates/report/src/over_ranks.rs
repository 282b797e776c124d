//! Compares the joules of a function or call path on all ranks: the sum, the least, the mean and the most of one rank, and the
//! ranks that stand out.

use ampere_figures::summary::{Device, Figures, Summary, View};
use ampere_model::digits::energy;
use ampere_model::order::largest_first;
use ampere_model::regions::is_mpi;

/// A rank stands out if it is further from the middle half of the ranks than this many times the width of that half.
const FAR_RATIO_MIN: f64 = 3.0;
/// The width of the middle half counts as at least this fraction of the median, so that small differences do not make a rank
/// stand out if the other ranks are very close to each other.
const ALIKE_DIFFERENCE_MAX: f64 = 0.05;
/// In rows with a smaller part of all joules than this, no rank stands out.
pub(crate) const SHARE_MIN: f64 = 0.01;
/// With fewer ranks than this, none stands out.
const RANKS_MIN: usize = 5;

/// The exclusive joules of a function or call path on each rank that it ran on; see [`is_dynamic`].
#[derive(Clone, Debug, PartialEq)]
pub struct Spread<'a> {
    /// The number of a function's name or of a call path in the summary; 0 if the spread is of neither.
    pub what: u32,
    /// The sum over all ranks and other processes.
    pub joules: f64,
    /// The sum of seconds over all ranks and other processes.
    pub seconds: f64,
    /// The sum of calls over all ranks and other processes.
    pub calls: u64,
    /// The number of ranks that it ran on. If there are no MPI ranks, each process counts as one.
    pub ranks: usize,
    /// If there are MPI ranks: the number of other processes that it ran on, such as the launcher, and their joules.
    pub others: (usize, f64),
    /// The joules of the rank that used least; 0 if no rank ran it.
    pub least: f64,
    /// The joules of the rank that used most.
    pub most: f64,
    /// The rank that used most; `None` if no rank ran it.
    pub most_on: Option<Rank<'a>>,
    /// Ranks that stand out and their joules, the most different first.
    pub standing_out: Vec<(Rank<'a>, f64)>,
}

/// A rank, or a process without one: its node, and the number of its location group's name.
pub type Rank<'a> = (&'a str, u32);

impl Spread<'_> {
    pub fn mean(&self) -> f64 {
        (self.joules - self.others.1) / self.ranks.max(1) as f64
    }

    /// Returns a text such as "; and 1 other process: 2.5 J", which starts with the separator from the ranks.
    pub fn other_processes(&self) -> String {
        match self.others {
            (0, _) => String::new(),
            (1, used) => format!("; and 1 other process: {}", energy(used)),
            (many, used) => format!("; and {many} other processes: {}", energy(used)),
        }
    }
}

/// The largest spreads, and the sum of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Spreads<'a> {
    /// The largest, in descending order of their joules.
    pub rows: Vec<Spread<'a>>,
    /// The number and the joules of the others.
    pub others: (usize, f64),
}

pub fn functions<'a>(summary: &'a Summary, views: &[(&'a Device, &'a View)], limit: usize) -> Spreads<'a> {
    spreads(summary, views, limit, summary.names.len(), |path| summary.paths.name[path as usize])
}

/// Returns the spreads of the call paths with the most joules.
pub fn callpaths<'a>(summary: &'a Summary, views: &[(&'a Device, &'a View)], limit: usize) -> Spreads<'a> {
    spreads(summary, views, limit, summary.paths.len(), |path| path)
}

/// Whether dynamic joules are compared, which is so if all devices have them.
pub fn is_dynamic(views: &[(&Device, &View)]) -> bool {
    !views.is_empty() && views.iter().all(|(_, view)| view.is_active())
}

/// Returns the function that selects the joules of a row of these views.
pub(crate) fn joules_of(views: &[(&Device, &View)]) -> fn(&Figures) -> f64 {
    let with_rows = views.iter().copied().filter(|(_, view)| !view.regions.is_empty());
    match is_dynamic(&with_rows.collect::<Vec<_>>()) {
        true => Figures::own_joules,
        false => |row| row.exclusive_joules,
    }
}

/// Compares the total joules of the ranks.
pub fn whole<'a>(summary: &'a Summary, views: &[(&'a Device, &'a View)]) -> Option<Spread<'a>> {
    spreads(summary, views, 1, 1, |_| 0).rows.pop()
}

/// Compares the joules that ranks used outside MPI. A rank that polls while it waits for another one may use more in MPI than
/// the other one does in its work.
pub fn outside_mpi<'a>(summary: &'a Summary, views: &[(&'a Device, &'a View)]) -> Option<Spread<'a>> {
    let is_in_mpi = |path: u32| is_mpi(summary.name(summary.paths.name[path as usize]));
    let both = spreads(summary, views, 2, 2, |path| u32::from(is_in_mpi(path)));
    both.rows.into_iter().find(|row| row.what == 0)
}

/// Whether a location group is an MPI rank. Other processes, such as a launcher, are not compared with ranks.
pub fn is_mpi_rank(group: &str) -> bool {
    group.starts_with("MPI Rank ")
}

/// Returns a function that states whether a process, by the number of its name, is compared with others: a rank is; if there are
/// no ranks, every process is.
pub fn is_compared<'a, N: AsRef<str>>(names: &'a [N]) -> impl Fn(u32) -> bool + 'a {
    let has_ranks = names.iter().any(|name| is_mpi_rank(name.as_ref()));
    move |group| !has_ranks || is_mpi_rank(names[group as usize].as_ref())
}

/// Compares the joules of ranks. `is_rank` is false for processes without a rank.
pub fn spread_of(joules: Vec<(Rank<'_>, f64)>, is_rank: impl Fn(u32) -> bool) -> Option<Spread<'_>> {
    (!joules.is_empty()).then(|| Sums { joules, ..Sums::default() }.spread(0, is_rank))
}

/// Makes the spreads of the largest items. There may be a million call paths, so ranks are distinguished only for those that are
/// shown. `key` maps a path to an item's number below `keys`.
fn spreads<'a>(
    summary: &'a Summary,
    views: &[(&'a Device, &'a View)],
    limit: usize,
    keys: usize,
    key: impl Fn(u32) -> u32,
) -> Spreads<'a> {
    let joules_of = joules_of(views);
    let mut sums: Vec<Option<f64>> = vec![None; keys];
    for row in views.iter().flat_map(|(_, view)| view.callpaths.iter()) {
        *sums[key(row.path) as usize].get_or_insert(0.0) += joules_of(&row.figures);
    }
    let mut largest: Vec<(u32, f64)> = (0..).zip(sums).filter_map(|(what, sum)| Some((what, sum?))).collect();
    largest_first(&mut largest, |(_, joules)| *joules);
    let others = largest.split_off(limit.min(largest.len()));
    let mut places: Vec<Option<usize>> = vec![None; keys];
    largest.iter().enumerate().for_each(|(at, (what, _))| places[*what as usize] = Some(at));
    let mut shown: Vec<Sums> = largest.iter().map(|_| Sums::default()).collect();
    // All devices that a rank draws from are on its node, so its joules are added up over the devices of one node at a time.
    let mut by_node: Vec<&(&Device, &View)> = views.iter().collect();
    by_node.sort_by_key(|(device, _)| &device.node);
    for on_node in by_node.chunk_by(|a, b| a.0.node == b.0.node) {
        let node = on_node[0].0.node.as_str();
        for (number, (_, view)) in (0..).zip(on_node) {
            let rows = view.callpaths.iter();
            for (row, at) in rows.filter_map(|row| Some((row, places[key(row.path) as usize]?))) {
                let joules = joules_of(&row.figures);
                let rank = (node, row.location_group);
                shown[at].add(rank, number, (joules, &row.figures), summary.names.len());
            }
        }
        shown.iter_mut().for_each(Sums::end_node);
    }
    let is_rank = is_compared(&summary.names);
    let rows = largest.iter().zip(shown).map(|((what, _), sums)| sums.spread(*what, &is_rank)).collect();
    Spreads { rows, others: (others.len(), others.iter().map(|(_, joules)| joules).sum()) }
}

#[derive(Default)]
struct Sums<'a> {
    seconds: f64,
    calls: u64,
    joules: Vec<(Rank<'a>, f64)>,
    /// For each location group of the node that is being added: the rank's index in `joules` plus 1, or 0 if it has none yet; and
    /// the rank's first device.
    places: Vec<(u32, u32)>,
    first_of_node: usize,
}

impl<'a> Sums<'a> {
    /// Adds a row to a rank. A rank's calls and times are in the rows of each of its devices, but are counted once.
    fn add(&mut self, rank: Rank<'a>, device: u32, (joules, figures): (f64, &Figures), groups: usize) {
        self.places.resize(groups, (0, 0));
        let (place, first_device) = &mut self.places[rank.1 as usize];
        if *place == 0 {
            self.joules.push((rank, 0.0));
            (*place, *first_device) = (self.joules.len() as u32, device);
        }
        self.joules[*place as usize - 1].1 += joules;
        if *first_device == device {
            self.seconds += figures.exclusive_seconds;
            self.calls = self.calls.saturating_add(figures.calls);
        }
    }

    fn end_node(&mut self) {
        for ((_, group), _) in &self.joules[self.first_of_node..] {
            self.places[*group as usize] = (0, 0);
        }
        self.first_of_node = self.joules.len();
    }

    fn spread(self, what: u32, is_rank: impl Fn(u32) -> bool) -> Spread<'a> {
        let (mut by_joules, others): (Vec<_>, Vec<_>) =
            self.joules.into_iter().partition(|((_, group), _)| is_rank(*group));
        by_joules.sort_by(|a, b| a.1.total_cmp(&b.1));
        let ranks = by_joules.len();
        let joules = |at: usize| by_joules.get(at.min(ranks.saturating_sub(1))).map_or(0.0, |row| row.1);
        let low = joules(ranks / 4);
        let middle = joules(ranks / 2);
        let high = joules(3 * ranks / 4);
        let width = (high - low).max(ALIKE_DIFFERENCE_MAX * middle);
        let distance = |joules: f64| (low - joules).max(joules - high);
        let is_far = |joules: f64| ranks >= RANKS_MIN && distance(joules) > FAR_RATIO_MIN * width;
        let mut standing_out: Vec<(Rank, f64)> =
            by_joules.iter().filter(|(_, joules)| is_far(*joules)).copied().collect();
        largest_first(&mut standing_out, |(_, joules)| distance(*joules));
        let sum = |rows: &[(Rank, f64)]| rows.iter().map(|(_, joules)| joules).sum::<f64>();
        Spread {
            what,
            joules: sum(&by_joules) + sum(&others),
            seconds: self.seconds,
            calls: self.calls,
            ranks,
            others: (others.len(), sum(&others)),
            least: joules(0),
            most: joules(ranks),
            most_on: by_joules.last().map(|(rank, _)| *rank),
            standing_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(joules: &[f64]) -> Spread<'static> {
        let joules = joules.iter().enumerate().map(|(rank, joules)| (("n", rank as u32), *joules)).collect();
        spread_of(joules, |_| true).expect("ranks")
    }

    #[test]
    fn one_rank_of_many_that_differs_stands_out() {
        let mut joules = vec![10.0; 16];
        assert_eq!(spread(&joules).standing_out, []);
        joules[3] = 10.9; // within the usual differences between ranks
        assert_eq!(spread(&joules).standing_out, []);
        joules[7] = 30.0;
        joules[9] = 1.0;
        let seen = spread(&joules);
        assert_eq!(seen.standing_out, [(("n", 7), 30.0), (("n", 9), 1.0)]);
        assert_eq!((seen.least, seen.most, seen.most_on, seen.ranks), (1.0, 30.0, Some(("n", 7)), 16));
        assert!((seen.mean() - (13.0 * 10.0 + 10.9 + 31.0) / 16.0).abs() < 1e-12);
    }

    #[test]
    fn a_process_without_a_rank_is_shown_next_to_the_ranks() {
        let names = ["MPI Rank 0", "Process 7 (orterun)", "MPI Rank 1"];
        let joules = (0..).zip([4.0, 100.0, 2.0]).map(|(group, joules)| (("n", group), joules)).collect();
        let seen = spread_of(joules, is_compared(&names)).expect("ranks");
        assert_eq!((seen.ranks, seen.least, seen.mean(), seen.most, seen.joules), (2, 2.0, 3.0, 4.0, 106.0));
        assert_eq!(seen.other_processes(), "; and 1 other process: 100 J");
        let alone = spread_of(vec![(("n", 1), 5.0)], is_compared(&names)).expect("a process");
        assert_eq!((alone.ranks, alone.mean(), alone.joules, alone.others), (0, 0.0, 5.0, (1, 5.0)));
        assert!((0..3).all(is_compared(&["Process 6", "Process 7", "HIP Context 0"])));
    }

    #[test]
    fn no_rank_stands_out_if_all_differ() {
        let joules: Vec<f64> = (0..32).map(f64::from).collect();
        assert_eq!(spread(&joules).standing_out, []);
        assert_eq!(spread(&[1.0, 100.0]).standing_out, []);
    }
}
