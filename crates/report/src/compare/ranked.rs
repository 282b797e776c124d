//! Selects the rows that a table shows. Those that differ come first. Rows with less than one percent in all groups are summed in
//! one row.

use super::figures::By;
use super::statistics::{Difference, Sample, correct};
use super::{Comparison, Row};
use ampere_model::order::largest_first;

/// A row with a smaller part of the joules of each group is neither shown nor tested.
const PART_MIN: f64 = 0.01;

/// The rows of one table. Rows that differ most come first; among those without a clear difference, the largest.
pub(super) struct Ranked<'a> {
    /// Rows whose difference is not explained by the scatter of the runs, or whose scatter is not known.
    pub differ: Vec<&'a Row>,
    /// Rows with an interval that excludes zero, but which are not significant after the correction: among many rows, some
    /// intervals exclude zero by chance.
    pub by_chance: Vec<&'a Row>,
    /// The other rows with a difference that is not significant, or that is within the error of samples.
    pub unclear: Vec<&'a Row>,
    /// The number of rows that are small in all groups, and their sum.
    pub small: Option<(usize, Row)>,
}

impl Ranked<'_> {
    /// Returns the number of rows that are not small.
    pub fn count(&self) -> usize {
        self.differ.len() + self.by_chance.len() + self.unclear.len()
    }
}

impl Row {
    /// Whether the scatter of the runs alone may explain all differences of this row, before the correction for many rows.
    fn is_within_noise(&self) -> bool {
        self.differences.iter().all(|difference| difference.is_within_noise() != Some(false))
    }

    /// Whether a difference is larger than the scatter of the runs; `None` if that is not known.
    pub(super) fn is_significant(&self) -> Option<bool> {
        let known = self.differences.iter().filter_map(Difference::is_significant);
        known.reduce(|any, one| any || one)
    }

    /// Returns the largest mean of a group.
    pub(super) fn size(&self) -> f64 {
        self.groups.iter().map(|group| group.mean).fold(0.0, f64::max)
    }

    /// Returns the figure by which rows that differ are sorted.
    fn spread(&self) -> f64 {
        self.differences.iter().map(|difference| difference.of_means.abs()).fold(0.0, f64::max)
    }

    fn is_in_joules(&self) -> bool {
        self.figure().contains("joule") || self.figure() == "watts"
    }
}

impl Comparison {
    /// Returns the row with all joules of each group.
    pub(super) fn whole(&self) -> Option<&Row> {
        let figure = if self.kind.has_dynamic { "dynamic_joules" } else { "joules" };
        self.of_run(figure)
    }

    /// Returns a figure of the runs themselves.
    pub(super) fn of_run(&self, figure: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.by == By::Run && row.figure() == figure)
    }

    /// Decides which differences are significant. Only rows that tables show are tested, because small rows would hide the large
    /// ones. Joules that cannot be compared are not tested at all. The figures of the runs themselves are corrected together, and
    /// all other rows together, because many functions would hide a difference of the runs.
    pub(super) fn correct(&mut self) {
        let is_tested: Vec<bool> = self.rows.iter().map(|row| self.is_tested(row)).collect();
        let tested = self.rows.iter_mut().zip(is_tested).filter(|(_, is_tested)| *is_tested);
        let (of_runs, parts): (Vec<&mut Row>, Vec<&mut Row>) =
            tested.map(|(row, _)| row).partition(|row| matches!(row.by, By::Run | By::Work));
        for rows in [of_runs, parts] {
            let differences = rows.into_iter().flat_map(|row| &mut row.differences);
            correct(differences.filter(|difference| difference.p.is_some()).collect());
        }
    }

    fn is_tested(&self, row: &Row) -> bool {
        let is_shown = row.by == By::Run || row.figure == row.by.shown(self.kind);
        is_shown && !self.is_small(row) && self.is_comparable(row)
    }

    /// Whether a figure of the groups can be compared. The joules of some runs cannot.
    pub(super) fn is_comparable(&self, row: &Row) -> bool {
        self.incomparable.is_none() || !row.is_in_joules()
    }

    pub(super) fn is_small(&self, row: &Row) -> bool {
        match row.by {
            By::Run | By::Work | By::Device => row.is_zero(),
            By::Python | By::Function | By::Kernel | By::CallPath => {
                let parts = |at: usize| self.whole().map_or(0.0, |whole| PART_MIN * whole.groups[at].mean);
                let mut groups = row.groups.iter().enumerate();
                groups.all(|(at, group)| group.mean == 0.0 || group.mean < parts(at))
            }
        }
    }

    /// Returns the rows of a table, in the figure that tables show.
    pub(super) fn ranked(&self, by: By) -> Ranked<'_> {
        let is_shown = |row: &&Row| row.by == by && (by == By::Run || row.figure == by.shown(self.kind));
        let rows = self.rows.iter().filter(is_shown);
        let (small, mut rows): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| self.is_small(row));
        if by != By::Run {
            largest_first(&mut rows, |row| if self.is_comparable(row) { row.spread() } else { row.size() });
        }
        let is_unclear =
            |row: &&Row| row.is_significant() == Some(false) || self.is_within_sampling_error(row);
        let (rest, differ): (Vec<&Row>, _) = rows.into_iter().partition(is_unclear);
        let (mut unclear, by_chance): (Vec<&Row>, _) =
            rest.into_iter().partition(|row| row.is_within_noise() || self.is_within_sampling_error(row));
        if by != By::Run {
            largest_first(&mut unclear, |row| row.size());
        }
        let small = (by != By::Run && !small.is_empty()).then(|| (small.len(), self.sum(by, &small)));
        Ranked { differ, by_chance, unclear, small }
    }

    fn sum(&self, by: By, rows: &[&Row]) -> Row {
        let group = |at: usize| {
            let runs = rows.first().map_or(0, |row| row.groups[at].values.len());
            Sample::of((0..runs).map(|run| rows.iter().map(|row| row.groups[at].values[run]).sum()).collect())
        };
        let groups: Vec<Sample> = (0..self.groups.len()).map(group).collect();
        let differences = groups[1..].iter().map(|group| Difference::between(&groups[0], group)).collect();
        Row { by, name: String::new(), figure: by.shown(self.kind), groups, differences }
    }

    /// Returns the name of the sum of `count` small rows, in a shorter form if the usual one is longer than `room` characters.
    pub(super) fn name_of_small(&self, count: usize, room: usize) -> String {
        let whose = match self.groups.len() {
            2 if self.has_samples() => "both groups".to_owned(),
            2 => "both runs".to_owned(),
            many => format!("all {many} runs"),
        };
        let percent = 100.0 * PART_MIN;
        let whole = format!("{count} more, each below {percent:.0} % of {whose}");
        if whole.chars().count() <= room { whole } else { format!("{count} more, each < {percent:.0} %") }
    }
}
