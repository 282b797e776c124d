//! Explains the columns that the tables of a report show, each of them once.

use crate::first::names::{RECURSION, is_recursive};
use crate::first::screen::Shown;
use crate::first::tables::{ERROR_HEAD, ERROR_OR_RANGE_HEAD, RANGE_HEAD};
use ampere_figures::shares;
use ampere_figures::summary::{RESOLVED_SAMPLES_MIN, Summary};
use std::collections::BTreeSet;

/// The head of the column that names processes and threads.
pub const GROUP_HEAD: &str = "location group";
/// The heads of columns about ranks: the first is followed by "mean" and "most"; the second is above the numbers of ranks.
pub const RANKS_HEADS: [&str; 2] = ["least rank", "ranks"];
/// The heads of the same columns in a run without MPI ranks, which are about processes.
pub const PROCESSES_HEADS: [&str; 2] = ["least process", "processes"];

/// The columns that have not been explained yet.
#[derive(Default)]
pub struct Legend {
    heads: BTreeSet<String>,
    has_recursion: bool,
    explained: BTreeSet<String>,
    /// Whether there are sampled functions.
    is_sampled: bool,
}

impl Legend {
    pub fn of(summary: &Summary) -> Legend {
        let views = summary.devices.iter().flat_map(|device| &device.views);
        let mut rows = views.flat_map(|view| &view.regions);
        Legend { is_sampled: rows.any(|row| row.sampled_error_joules.is_some()), ..Legend::default() }
    }

    /// Adds a table that has been shown.
    pub fn add(&mut self, table: &Shown) {
        self.heads.extend(table.heads.iter().cloned());
        self.has_recursion |= table.names.iter().any(|name| is_recursive(name));
    }

    /// Leaves out the tables that were added since the last explanation.
    pub fn skip(&mut self) {
        self.heads.clear();
    }

    /// Returns the explanations of the columns that were added, without those that were returned before. `what`
    /// is the subject of a row in the first of these tables: "function" or "kernel".
    pub fn take(&mut self, what: &str, is_active: bool) -> Vec<String> {
        let heads = std::mem::take(&mut self.heads);
        let mut lines: Vec<String> = explanations(what, is_active, self.is_sampled)
            .into_iter()
            .filter(|(of, _)| of.iter().any(|head| heads.contains(*head)))
            .map(|(_, line)| line)
            .collect();
        if std::mem::take(&mut self.has_recursion) {
            lines.push(RECURSION.to_owned());
        }
        lines.retain(|line| self.explained.insert(line.clone()));
        lines
    }
}

/// Returns the explanation of each column, in the order in which they are printed.
fn explanations(what: &str, is_active: bool, is_sampled: bool) -> Vec<(Vec<&'static str>, String)> {
    let dynamic = if is_active { "dynamic " } else { "" };
    let range = if is_active {
        format!(
            "the dynamic joules of samples in which only this {what} was active, and of all in which it was active at all; -: others were nearly always active, too"
        )
    } else {
        format!(
            "the joules of samples in which only this {what} ran, and of all in which it ran at all; -: others nearly always ran, too"
        )
    };
    let error = format!("of a sampled {what}, whose calls are not counted: the standard error of its joules");
    let own = match what {
        "kernel" => "the joules of the kernel".to_owned(),
        what => format!("the joules of the {what} itself, without those of others that it calls"),
    };
    let own = if is_active { format!("{own}, static and dynamic") } else { own };
    let seconds = match (what, is_sampled) {
        ("kernel", _) => "s: the time in the kernel itself, the sum over processes".to_owned(),
        (_, false) => format!(
            "s: the time in the {what} itself, running or waiting, the sum over threads and processes"
        ),
        (_, true) => format!(
            "s: the time in the {what} itself, running or waiting, the sum over threads and processes; for a sampled {what}, the time around its samples, with short waits"
        ),
    };
    let row = |heads: &[&'static str], line: String| (heads.to_vec(), line);
    let each = |[least, several]: [&'static str; 2], one: &str| {
        let of_one = format!(
            "{least}, mean, most: of the {one} with the least, of {several} on average, and of the {one} with the most"
        );
        [row(&[least], of_one), row(&[several], format!("{several}: the number of {several} that have it"))]
    };
    let mut all = vec![
        row(&["J"], format!("J: {own}")),
        row(&["static J"], "static J: its part of the energy that the device draws anyway".to_owned()),
        row(
            &["dynamic J"],
            "dynamic J: the energy that it used above what the device draws anyway".to_owned(),
        ),
        row(&[shares::OF_DYNAMIC], "of dynamic: its share of the run's dynamic joules".to_owned()),
        row(&[shares::OF_TOTAL], "of total: its share of the run's joules".to_owned()),
        row(&[ERROR_HEAD, ERROR_OR_RANGE_HEAD], format!("±: {error}")),
        row(&[RANGE_HEAD], format!("(least..most): {range}")),
        row(&[ERROR_OR_RANGE_HEAD], format!("range, (least..most): {range}")),
        row(&[shares::OF_TIME], "of time: its share of the run's time".to_owned()),
        row(&["s"], seconds),
        row(&["inclusive"], "inclusive: with the functions that it calls".to_owned()),
        row(
            &["calls"],
            "calls: how often it was called; calls of sampled functions are not counted".to_owned(),
        ),
        row(
            &["W", "dynamic W"],
            format!(
                "{dynamic}W: over samples that belonged only to this {what}; \"below res.\": there are fewer than {RESOLVED_SAMPLES_MIN}, or they are under 5 % of its time; its joules are modelled by time"
            ),
        ),
        row(&[GROUP_HEAD], format!("{GROUP_HEAD}: a process, one of its threads, or a GPU's context")),
    ];
    all.extend(each(RANKS_HEADS, "rank"));
    all.extend(each(PROCESSES_HEADS, "process"));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(heads: &[&str], name: &str) -> Shown {
        let heads = heads.iter().map(|head| (*head).to_owned()).collect();
        Shown { lines: Vec::new(), heads, names: vec![name.to_owned()] }
    }

    #[test]
    fn columns_that_are_shown_are_explained_once_and_no_others() {
        let mut legend = Legend::default();
        legend.add(&table(&["J", "of total", "function"], "main"));
        assert_eq!(
            legend.take("function", false),
            [
                "J: the joules of the function itself, without those of others that it calls",
                "of total: its share of the run's joules"
            ]
        );
        legend.add(&table(&["J", "s", ERROR_HEAD], "main > x3"));
        let more = legend.take("function", false);
        assert!(more.len() == 2 && more[0].starts_with("±: ") && more[1].starts_with("s: "), "{more:?}");
        assert_eq!(legend.take("function", false), [""; 0]);
    }

    #[test]
    fn the_depth_of_a_recursion_is_explained_where_there_is_one() {
        let mut legend = Legend::default();
        legend.add(&table(&[], "main > fib x18 > leaf"));
        assert!(legend.take("function", true)[0].starts_with("x2, x3, ...: "));
        legend.add(&table(&[], "main > fib x18"));
        assert_eq!(legend.take("function", true), [""; 0]);
    }
}
