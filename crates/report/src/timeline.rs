//! Joules and watts over time, and the joules of a region's calls.

use crate::call_table::{NameNumber, Names};
use crate::over_ranks::is_compared;
use crate::table::{Column, Table};
use ampere_figures::summary::REST_NAMES;
use ampere_model::order::largest_first;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The items among which each bin's joules are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Ranks; for kernels, the ranks that started them
    #[default]
    Rank,
    /// Devices only
    Device,
    /// The innermost regions
    Region,
    /// The kinds of waits in MPI: only the joules that ranks used while they waited for each other
    Waiting,
    /// All ranks together: how unevenly they share the joules of all devices
    Balance,
}

impl By {
    /// Returns the name of the table's column.
    pub fn as_str(self) -> &'static str {
        match self {
            By::Rank => "rank",
            By::Device => "device",
            By::Region => "region",
            By::Waiting => "waiting",
            By::Balance => "balance",
        }
    }
}

/// The joules of one rank, device or region, by bin.
pub struct Series {
    pub node: String,
    pub device: String,
    /// The view that divides the joules; empty if they are not divided.
    pub view: &'static str,
    /// The rank or region; "(idle)" or "(lost)" for joules that belong to none.
    pub name: String,
    /// The joules of each bin. The last bins may be missing.
    pub joules: Vec<f64>,
    /// The static and the dynamic part of the joules of each bin, if they are known.
    pub parts: Option<[Vec<f64>; 2]>,
    /// The seconds in which the device's power was above a threshold, if only this time counts.
    pub seconds: f64,
}

impl Series {
    /// Whether the joules of the series belong to a rank or a region.
    pub fn is_attributed(&self) -> bool {
        !REST_NAMES.contains(&self.name.as_str())
    }
}

/// Makes a table with a row for each name that has joules in the time in which its device's power was above a threshold.
pub fn above(by: By, series: &[Series]) -> Table {
    let mut names = Names::default();
    let mut texts: [Vec<NameNumber>; 4] = Default::default();
    for series in series {
        let of = [&series.node, &series.device, series.view, &series.name].map(|name| names.number(name));
        texts.iter_mut().zip(of).for_each(|(column, name)| column.push(name));
    }
    let joules: Vec<f64> = series.iter().map(|series| series.joules.iter().sum()).collect();
    let seconds: Vec<f64> = series.iter().map(|series| series.seconds).collect();
    let watts = joules.iter().zip(&seconds).map(|(joules, seconds)| joules / seconds).collect();
    let sum = |parts: &Option<[Vec<f64>; 2]>, part: usize| Some(parts.as_ref()?[part].iter().sum());
    let parts = [0, 1].map(|part| series.iter().map(|series| sum(&series.parts, part)).collect());
    let mut columns = named(by, texts);
    let figures = [("seconds", seconds), ("joules", joules), ("watts", watts)];
    columns.extend(figures.map(|(name, figures)| (name, Column::Figure(figures))));
    columns.extend(columns_of_parts(parts));
    Table { names, columns }
}

/// Returns the columns of static and dynamic joules.
fn columns_of_parts(parts: [Vec<Option<f64>>; 2]) -> impl Iterator<Item = (&'static str, Column)> {
    ["static_joules", "dynamic_joules"].into_iter().zip(parts.map(Column::KnownFigure))
}

/// Makes a table with a row for each bin: the mean joules of the ranks, the joules of the rank with the most, and the quotient
/// of the most and the mean. The same figures of dynamic joules follow, if the dynamic joules of all ranks are known. If there
/// are MPI ranks, other processes are not included.
pub fn balance((seconds, length): (f64, f64), series: &[Series]) -> Table {
    // By rank: all joules and the dynamic ones.
    let mut ranks: BTreeMap<(&str, &str), [Vec<f64>; 2]> = BTreeMap::new();
    let mut has_dynamic = true;
    let bins = series.iter().map(|series| series.joules.len()).max().unwrap_or(0);
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let is_rank = is_compared(&names);
    for (_, series) in (0..).zip(series).filter(|(at, series)| series.is_attributed() && is_rank(*at)) {
        let [all, dynamic] =
            ranks.entry((&series.node, &series.name)).or_insert_with(|| [(); 2].map(|()| vec![0.0; bins]));
        all.iter_mut().zip(&series.joules).for_each(|(sum, joules)| *sum += joules);
        has_dynamic &= series.parts.is_some();
        let parts = series.parts.iter().flat_map(|[_, of_bins]| of_bins);
        dynamic.iter_mut().zip(parts).for_each(|(sum, joules)| *sum += joules);
    }
    let mut names = Names::default();
    let (mut nodes, mut most_of) = (Vec::new(), Vec::new());
    let mut figures: [Vec<f64>; 5] = Default::default();
    let mut of_dynamic: [Vec<Option<f64>>; 3] = Default::default();
    // The rank with the most, the mean, the most, and their quotient, which is 1 if no rank has joules.
    let compared = |kind: usize, bin: usize| {
        let mean = ranks.values().map(|sums| sums[kind][bin]).sum::<f64>() / ranks.len().max(1) as f64;
        let most = ranks.iter().max_by(|a, b| a.1[kind][bin].total_cmp(&b.1[kind][bin]));
        let (name, most) = most.map_or((("", ""), 0.0), |(name, sums)| (*name, sums[kind][bin]));
        (name, [mean, most, if mean > 0.0 { most / mean } else { 1.0 }])
    };
    for bin in 0..bins {
        let ((node, rank), [mean, most, imbalance]) = compared(0, bin);
        nodes.push(names.number(node));
        most_of.push(names.number(rank));
        let start = bin as f64 * seconds;
        let row = [start, length_of_bin(start, seconds, length), mean, most, imbalance];
        figures.iter_mut().zip(row).for_each(|(column, figure)| column.push(figure));
        let (_, row) = compared(1, bin);
        of_dynamic
            .iter_mut()
            .zip(row)
            .for_each(|(column, figure)| column.push(has_dynamic.then_some(figure)));
    }
    let heads = ["start", "seconds", "mean_joules", "most_joules", "imbalance"];
    let mut columns: Vec<_> = heads.into_iter().zip(figures.map(Column::Figure)).collect();
    columns.push(("ranks", Column::Count(vec![Some(ranks.len() as u64); bins])));
    columns.extend([("node", Column::Text(nodes)), ("rank", Column::Text(most_of))]);
    let heads = ["mean_dynamic_joules", "most_dynamic_joules", "dynamic_imbalance"];
    columns.extend(heads.into_iter().zip(of_dynamic.map(Column::KnownFigure)));
    Table { names, columns }
}

/// Returns the columns with the node, the device, and the rank or region.
fn named(by: By, texts: [Vec<NameNumber>; 4]) -> Vec<(&'static str, Column)> {
    let [node, device, view, name] = texts.map(Column::Text);
    let mut columns = vec![("node", node), ("device", device)];
    if by != By::Device {
        columns.extend([("view", view), (by.as_str(), name)]);
    }
    columns
}

/// Returns the part of a bin of `seconds` that is within a run of `length` seconds.
fn length_of_bin(start: f64, seconds: f64, length: f64) -> f64 {
    let rest = length - start;
    // Rounding may leave a bin after the end, which then has hardly any joules.
    if rest > seconds * 1e-6 { rest.min(seconds) } else { seconds }
}

/// Makes a table in which every name has a row for each bin. `seconds` is the length of a bin, and `length` that of the run,
/// which may end within the last bin.
pub fn table(by: By, (seconds, length): (f64, f64), series: &[Series]) -> Table {
    let mut names = Names::default();
    let bins = series.iter().map(|series| series.joules.len()).max().unwrap_or(0);
    let mut texts: [Vec<NameNumber>; 4] = Default::default();
    let (mut starts, mut joules) = (Vec::new(), Vec::new());
    let mut parts: [Vec<Option<f64>>; 2] = Default::default();
    for series in series {
        let of = [&series.node, &series.device, series.view, &series.name].map(|name| names.number(name));
        for bin in 0..bins {
            texts.iter_mut().zip(of).for_each(|(column, name)| column.push(name));
            starts.push(bin as f64 * seconds);
            let of_bin = |joules: &Vec<f64>| joules.get(bin).copied().unwrap_or(0.0);
            joules.push(of_bin(&series.joules));
            for (at, column) in parts.iter_mut().enumerate() {
                column.push(series.parts.as_ref().map(|parts| of_bin(&parts[at])));
            }
        }
    }
    let lengths: Vec<f64> = starts.iter().map(|start| length_of_bin(*start, seconds, length)).collect();
    let watts = joules.iter().zip(&lengths).map(|(joules, seconds)| joules / seconds).collect();
    let mut columns = named(by, texts);
    let figures = [("start", starts), ("seconds", lengths), ("joules", joules), ("watts", watts)];
    columns.extend(figures.map(|(name, figures)| (name, Column::Figure(figures))));
    columns.extend(columns_of_parts(parts));
    Table { names, columns }
}

#[allow(missing_docs)]
pub struct RegionCall {
    pub node: NameNumber,
    pub rank: NameNumber,
    pub thread: NameNumber,
    pub device: NameNumber,
    pub view: NameNumber,
    /// Seconds since the start of the first trace.
    pub start: f64,
    pub seconds: f64,
    pub exclusive_joules: f64,
    pub inclusive_joules: f64,
    pub resolved_joules: f64,
    /// The dynamic part of the exclusive and of the inclusive joules, if it is known.
    pub dynamic_joules: Option<[f64; 2]>,
    /// The number of calls, as in the table of calls.
    pub calls: Option<u32>,
}

/// The calls of a region, in the order in which they started.
#[derive(Default)]
pub struct RegionCalls {
    /// The names of regions and call paths.
    pub names: Names,
    pub calls: Vec<RegionCall>,
}

/// Statistics of the inclusive joules of a region's calls, for one device and view.
#[derive(Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Statistics {
    pub node: String,
    pub device: String,
    pub view: String,
    pub rows: usize,
    /// Whether the number of calls of each row is known, because no stacks were sampled.
    pub calls_are_known: bool,
    pub joules: f64,
    /// The least, the lower quartile, the median, the upper quartile, and the most.
    pub quartiles: [f64; 5],
    /// The indices of the rows that are outside the quartiles by more than 1.5 times the quartiles' distance, the furthest first.
    pub outliers: Vec<usize>,
}

impl RegionCalls {
    pub fn sort(&mut self) {
        self.calls.sort_by(|a, b| {
            let place = |call: &RegionCall| (call.node, call.device, call.view, call.rank, call.thread);
            a.start.total_cmp(&b.start).then_with(|| place(a).cmp(&place(b)))
        });
    }

    /// Makes a table with a row for each call and device.
    pub fn table(self) -> Table {
        let text = |of: fn(&RegionCall) -> NameNumber| Column::Text(self.calls.iter().map(of).collect());
        let figure = |of: fn(&RegionCall) -> f64| Column::Figure(self.calls.iter().map(of).collect());
        let part = |of: fn(&RegionCall, [f64; 2]) -> f64| {
            let known = self.calls.iter().map(|call| call.dynamic_joules.map(|dynamic| of(call, dynamic)));
            Column::KnownFigure(known.collect())
        };
        let columns = vec![
            ("node", text(|call| call.node)),
            ("rank", text(|call| call.rank)),
            ("thread", text(|call| call.thread)),
            ("device", text(|call| call.device)),
            ("view", text(|call| call.view)),
            ("start", figure(|call| call.start)),
            ("seconds", figure(|call| call.seconds)),
            ("exclusive_joules", figure(|call| call.exclusive_joules)),
            ("inclusive_joules", figure(|call| call.inclusive_joules)),
            ("resolved_joules", figure(|call| call.resolved_joules)),
            ("static_joules", part(|call, [dynamic, _]| (call.exclusive_joules - dynamic).max(0.0))),
            ("dynamic_joules", part(|_, [dynamic, _]| dynamic)),
            ("inclusive_dynamic_joules", part(|_, [_, dynamic]| dynamic)),
            ("calls", Column::Count(self.calls.iter().map(|call| call.calls.map(u64::from)).collect())),
        ];
        Table { names: self.names, columns }
    }

    /// Returns statistics for each device and view, in the order of the numbers of their names.
    pub fn statistics(&self) -> Vec<Statistics> {
        let mut groups: Vec<((NameNumber, NameNumber, NameNumber), Vec<usize>)> = Vec::new();
        for (at, call) in self.calls.iter().enumerate() {
            let key = (call.node, call.device, call.view);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, rows)) => rows.push(at),
                None => groups.push((key, vec![at])),
            }
        }
        groups.sort_by_key(|(key, _)| *key);
        groups.into_iter().map(|(key, rows)| self.statistics_of(key, &rows)).collect()
    }

    fn statistics_of(
        &self,
        (node, device, view): (NameNumber, NameNumber, NameNumber),
        rows: &[usize],
    ) -> Statistics {
        let name = |number: NameNumber| self.names.all()[number as usize].clone();
        let joules = |row: &usize| self.calls[*row].inclusive_joules;
        let mut sorted: Vec<f64> = rows.iter().map(joules).collect();
        sorted.sort_by(f64::total_cmp);
        let quartiles = [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| quantile(&sorted, part));
        let [_, lower, _, upper, _] = quartiles;
        let distance = |row: &usize| (lower - joules(row)).max(joules(row) - upper);
        let mut outliers: Vec<usize> =
            rows.iter().copied().filter(|row| distance(row) > 1.5 * (upper - lower)).collect();
        largest_first(&mut outliers, distance);
        Statistics {
            node: name(node),
            device: name(device),
            view: name(view),
            rows: rows.len(),
            calls_are_known: rows.iter().all(|row| self.calls[*row].calls.is_some()),
            joules: sorted.iter().sum(),
            quartiles,
            outliers,
        }
    }

    /// Formats a region's statistics in one line.
    pub fn line(&self, region: &str, of: &Statistics) -> String {
        let [least, lower, median, upper, most] = of.quartiles.map(ampere_model::text::joules);
        let on = if of.node.is_empty() { String::new() } else { format!(" on {}", of.node) };
        let mut line = format!(
            "{region}: {} {}, {} J of {}{on} ({}); median {median} J, quartiles {lower} and {upper} J, from {least} to {most} J",
            of.rows,
            match (of.calls_are_known, of.rows) {
                (true, 1) => "call",
                (true, _) => "calls",
                (false, _) => "times found by samples (its calls are not known)",
            },
            ampere_model::text::joules(of.joules),
            of.device,
            of.view,
        );
        let shown = of.outliers.iter().take(OUTLIERS_SHOWN).map(|row| {
            let call = &self.calls[*row];
            let rank = &self.names.all()[call.rank as usize];
            format!("{} J at {:.3} s ({rank})", ampere_model::text::joules(call.inclusive_joules), call.start)
        });
        let shown: Vec<String> = shown.collect();
        match of.outliers.len() {
            0 => line += "; no outliers",
            count => line += &format!("; outliers: {count}, the furthest {}", shown.join(", ")),
        }
        line
    }
}

/// The maximum number of outliers that a line names.
const OUTLIERS_SHOWN: usize = 3;

impl Statistics {
    /// Returns the statistics as JSON, for the head of a table.
    pub fn json(&self) -> Value {
        let [min, lower_quartile, median, upper_quartile, max] = self.quartiles;
        json!({
            "node": self.node, "device": self.device, "view": self.view, "rows": self.rows, "joules": self.joules,
            "min": min, "lower_quartile": lower_quartile, "median": median, "upper_quartile": upper_quartile,
            "max": max, "outliers": self.outliers,
        })
    }
}

/// Makes the head of a table in JSON.
pub fn head<const N: usize>(of: [(&str, Value); N]) -> Map<String, Value> {
    of.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns a quantile, interpolated between two values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(joules: f64, start: f64) -> RegionCall {
        RegionCall {
            node: 0,
            rank: 0,
            thread: 0,
            device: 1,
            view: 2,
            start,
            seconds: 1.0,
            exclusive_joules: 0.0,
            inclusive_joules: joules,
            resolved_joules: 0.0,
            dynamic_joules: None,
            calls: Some(1),
        }
    }

    #[test]
    fn a_region_has_statistics_of_its_calls() {
        let mut all = RegionCalls::default();
        let _ = ["rank 0", "GPU-0", "ranks"].map(|name| all.names.number(name));
        all.calls =
            [5.0, 4.0, 1.0, 2.0, 30.0].iter().zip(0..).map(|(j, at)| call(*j, f64::from(-at))).collect();
        all.sort();
        let statistics = all.statistics();
        assert_eq!(statistics[0].quartiles, [1.0, 2.0, 4.0, 5.0, 30.0]);
        assert_eq!((statistics[0].rows, statistics[0].joules), (5, 42.0));
        assert_eq!(statistics[0].outliers, [0], "the one that began first");
        all.names = Names::default();
        let _ = ["", "GPU-0", "ranks"].map(|name| all.names.number(name));
        assert_eq!(
            all.line("step", &all.statistics()[0]),
            "step: 5 calls, 42.00 J of GPU-0 (ranks); median 4.000 J, quartiles 2.000 and 5.000 J, from 1.000 to 30.00 J; \
             outliers: 1, the furthest 30.00 J at -4.000 s ()"
        );
        all.calls.iter_mut().for_each(|call| call.calls = None);
        let line = all.line("step", &all.statistics()[0]);
        assert!(
            line.starts_with("step: 5 times found by samples (its calls are not known), 42.00 J"),
            "{line}"
        );
    }

    #[test]
    fn every_name_has_a_row_for_each_bin() {
        let series = |name: &str, joules: &[f64], parts| Series {
            node: "n".to_owned(),
            device: "GPU-0".to_owned(),
            view: "ranks",
            name: name.to_owned(),
            joules: joules.to_vec(),
            parts,
            seconds: 0.5,
        };
        let all =
            [series("a, b", &[1.0], Some([vec![0.25], vec![0.75]])), series("(idle)", &[0.5, 2.0], None)];
        let table = table(By::Rank, (0.5, 0.75), &all);
        let mut csv = Vec::new();
        table.write(crate::table::TableForm::Csv, Map::new(), &mut csv).unwrap();
        assert_eq!(
            String::from_utf8(csv).unwrap(),
            "node,device,view,rank,start,seconds,joules,watts,static_joules,dynamic_joules\n\
             n,GPU-0,ranks,\"a, b\",0,0.5,1,2,0.25,0.75\nn,GPU-0,ranks,\"a, b\",0.5,0.25,0,0,0,0\n\
             n,GPU-0,ranks,(idle),0,0.5,0.5,1,,\nn,GPU-0,ranks,(idle),0.5,0.25,2,8,,\n"
        );
        let mut csv = Vec::new();
        above(By::Device, &all).write(crate::table::TableForm::Csv, Map::new(), &mut csv).unwrap();
        assert_eq!(
            String::from_utf8(csv).unwrap(),
            "node,device,seconds,joules,watts,static_joules,dynamic_joules\n\
             n,GPU-0,0.5,1,2,0.25,0.75\nn,GPU-0,0.5,2.5,5,,\n"
        );
        let mut json = Vec::new();
        table.write(crate::table::TableForm::Json, head([("by", "rank".into())]), &mut json).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&json["by"], &json["rows"][3]["watts"]), (&"rank".into(), &8.0.into()));
    }

    #[test]
    fn the_rank_with_the_most_joules_of_all_devices_is_compared_with_the_mean() {
        let series = |device: &str, name: &str, joules: &[f64]| Series {
            node: "n".to_owned(),
            device: device.to_owned(),
            view: "ranks",
            name: name.to_owned(),
            joules: joules.to_vec(),
            parts: Some([vec![0.5; joules.len()], joules.iter().map(|joules| joules - 0.5).collect()]),
            seconds: 0.0,
        };
        let mut all = [
            series("GPU-0", "a", &[1.0, 3.0]),
            series("cpu", "a", &[1.0]),
            series("GPU-1", "b", &[6.0, 1.0, 0.5]),
            series("cpu", "(idle)", &[9.0, 9.0, 9.0]),
        ];
        let csv = |all: &[Series]| {
            let mut csv = Vec::new();
            balance((0.5, 1.5), all).write(crate::table::TableForm::Csv, Map::new(), &mut csv).unwrap();
            String::from_utf8(csv).unwrap()
        };
        const HEAD: &str = "start,seconds,mean_joules,most_joules,imbalance,ranks,node,rank,\
             mean_dynamic_joules,most_dynamic_joules,dynamic_imbalance\n";
        let rows = "0,0.5,4,6,1.5,2,n,b,3.25,5.5,1.6923076923076923\n\
             0.5,0.5,2,3,1.5,2,n,a,1.5,2.5,1.6666666666666667\n1,0.5,0.25,0.5,2,2,n,b,0,0,1\n";
        assert_eq!(csv(&all), format!("{HEAD}{rows}"));
        all[1].parts = None;
        let rows = "0,0.5,4,6,1.5,2,n,b,,,\n0.5,0.5,2,3,1.5,2,n,a,,,\n1,0.5,0.25,0.5,2,2,n,b,,,\n";
        assert_eq!(csv(&all), format!("{HEAD}{rows}"));
    }
}
