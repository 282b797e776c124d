//! The report of a node's collector, which the collector of the run's first node requests once a second, or less often if
//! there are many nodes. It has totals, ranks, and the functions and kernels with the most joules. Its size is limited, so
//! that one collector can gather the reports of a thousand nodes.

use crate::losses::Losses;
use crate::snapshot::{DeviceFigures, OTHER, Snapshot};
use crate::summary::least_trusted;
use crate::totals::Totals;
use ampere_model::order::largest_first;
use ampere_model::regions::is_mpi;
use ampere_model::sum;
use ampere_model::text::{short, short_distinct};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// The value of [`NodeReport::schema`].
pub const SCHEMA: &str = "ampere-node/1";
/// The maximum size of a report that is read.
pub const BYTES_MAX: usize = 128 << 10;
/// The maximum number of functions, and of kernels, in a report.
const NAMES_MAX: usize = 128;
/// The maximum number of bytes of their names. If names are long, there are fewer.
const NAME_BYTES: usize = 6 << 10;
/// Longer names are cut to this number of characters.
const NAME_CHARS_MAX: usize = 100;
/// The maximum number of ranks in a report.
const RANKS_MAX: usize = 1024;
/// The maximum number of ranks that a report counts.
const RANK_COUNT_MAX: usize = 1 << 20;
/// The maximum joules in a report. No node uses more, and the sum over all nodes stays finite.
const JOULES_MAX: f64 = 1e15;

/// A node's report about itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeReport {
    /// Always [`SCHEMA`], so that the receiver can check it.
    pub schema: String,
    /// The version of ampere that sent it.
    pub version: String,
    /// The run's id; empty before anything is known.
    pub run: String,
    pub node: String,
    /// Whether these are the node's final figures.
    pub is_last: bool,
    /// The quality of its joules.
    pub energy: String,
    /// The sums over the devices that are not contained in another.
    pub totals: Totals,
    #[serde(default)]
    pub losses: Losses,
    /// The number of the node's ranks. A process without a rank, such as a launcher, does not count.
    pub rank_count: usize,
    /// Each rank with its exclusive joules.
    pub ranks: Vec<(String, f64)>,
    /// The exclusive joules of the functions with the most joules.
    pub functions: Vec<(String, f64)>,
    /// The exclusive joules of the GPU kernels with the most joules.
    pub kernels: Vec<(String, f64)>,
}

/// The reason why a report is refused, as a message of one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The text is not a report of a node.
    #[error("its answer is not understood")]
    Nonsense,
    /// Another version of ampere sent it.
    #[error("its collector has another version of ampere ({0})")]
    Version(String),
    /// The report is about another run.
    #[error("its address now belongs to the collector of another run")]
    OtherRun,
    /// The report is about another node.
    #[error("its address belongs to another node's collector")]
    OtherNode,
    #[error("its figures are impossible")]
    Impossible,
    /// The joules are fewer than before.
    #[error("its joules decreased")]
    WentBack,
}

impl NodeReport {
    pub fn of(snapshot: &Snapshot) -> NodeReport {
        let topmost: HashSet<&str> = snapshot.topmost().map(|device| device.device.as_str()).collect();
        let mut functions = Sums::new();
        let mut ranks = Sums::new();
        for row in snapshot.region_energy.iter().filter(|row| topmost.contains(row.device.as_str())) {
            *functions.entry(&row.region).or_default() += row.joules;
            *ranks.entry(&row.rank).or_default() += row.joules;
        }
        let mut kernels = Sums::new();
        let mut with_kernels: HashSet<&str> = HashSet::new();
        for row in snapshot.kernel_energy.iter().filter(|row| topmost.contains(row.device.as_str())) {
            *kernels.entry(&row.kernel).or_default() += row.joules;
            with_kernels.insert(&row.device);
        }
        let of_all = |part: fn(&DeviceFigures) -> f64| sum(snapshot.topmost().map(part));
        let of_gpus = snapshot.topmost().filter(|device| with_kernels.contains(device.device.as_str()));
        let totals = Totals {
            joules: of_all(|device| device.joules),
            watts: snapshot.topmost().filter_map(|device| device.watts).reduce(|sum, watts| sum + watts),
            idle_joules: of_all(|device| device.division.idle_joules_ranks),
            other_jobs_joules: of_all(|device| device.division.other_jobs_joules),
            lost_joules: of_all(|device| device.division.lost_joules),
            mpi_joules: sum(functions.iter().filter(|row| is_mpi(row.0)).map(|row| *row.1)),
            gpu_joules: sum(of_gpus.map(|device| device.joules - device.division.pending_joules_kernels)),
            kernel_joules: sum(kernels.values().copied()),
        };
        let mut ranks: Vec<(String, f64)> = ranks.into_iter().map(row).collect();
        ranks.sort_by(|a, b| (a.0.len(), &a.0).cmp(&(b.0.len(), &b.0))); // "10" after "9"
        ranks.truncate(RANKS_MAX);
        NodeReport {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: snapshot.run.clone(),
            node: snapshot.node.clone(),
            is_last: snapshot.is_last,
            energy: least_trusted(snapshot.topmost().map(|device| device.energy.as_str())).to_owned(),
            totals,
            losses: snapshot.losses(),
            rank_count: snapshot.ranks.iter().filter(|process| process.is_rank()).count(),
            ranks,
            functions: largest(functions),
            kernels: largest(kernels),
        }
    }

    /// Reads a report from another node, which may be any text.
    pub fn read(text: &[u8]) -> Result<NodeReport, Refused> {
        /// A report of any version.
        #[derive(Deserialize)]
        struct Any {
            schema: String,
            #[serde(default)]
            version: String,
        }
        let mut report: NodeReport = match serde_json::from_slice(text) {
            Ok(report) => report,
            Err(_) => {
                let any: Any = serde_json::from_slice(text).map_err(|_| Refused::Nonsense)?;
                let is_other = any.schema != SCHEMA;
                return Err(if is_other {
                    Refused::Version(short(&any.version, 20))
                } else {
                    Refused::Nonsense
                });
            }
        };
        if report.schema != SCHEMA {
            return Err(Refused::Version(short(&report.version, 20)));
        }
        let totals = &report.totals;
        let rows = || report.ranks.iter().chain(&report.functions).chain(&report.kernels).map(|row| row.1);
        let figures = totals.energies().into_iter().chain(totals.watts);
        let attributed: f64 = report.functions.iter().map(|row| row.1).sum();
        let kernels: f64 = report.kernels.iter().map(|row| row.1).sum();
        let limit = totals.joules * (1.0 + 1e-6) + 1e-3;
        // With independent sharing, each rank is charged all joules of its devices.
        let limit_of_ranks = limit * report.rank_count.clamp(1, RANK_COUNT_MAX) as f64;
        let is_possible = figures.chain(rows()).all(|value| (0.0..JOULES_MAX).contains(&value))
            && [attributed, kernels].into_iter().all(|part| part <= limit_of_ranks)
            && totals.idle_joules + totals.lost_joules <= limit;
        if !is_possible {
            return Err(Refused::Impossible);
        }
        report.ranks.truncate(RANKS_MAX);
        report.rank_count = report.rank_count.min(RANK_COUNT_MAX);
        report.energy = short(&report.energy, 20);
        for names in [&mut report.functions, &mut report.kernels, &mut report.ranks] {
            names.truncate(RANKS_MAX);
            names.iter_mut().for_each(|row| row.0 = short_distinct(&row.0, NAME_CHARS_MAX));
        }
        Ok(report)
    }
}

type Sums<'a> = BTreeMap<&'a str, f64>;

/// Returns a row with a short name and whole microjoules. They are rounded down, so that a figure that has grown never looks
/// smaller.
fn row((name, joules): (&str, f64)) -> (String, f64) {
    (short_distinct(name, NAME_CHARS_MAX), (joules * 1e6).floor() / 1e6)
}

fn largest(mut sums: Sums) -> Vec<(String, f64)> {
    sums.remove(OTHER); // the rest of the total has no name
    let mut rows: Vec<(&str, f64)> = sums.into_iter().filter(|row| row.1 > 0.0).collect();
    largest_first(&mut rows, |(_, joules)| *joules);
    let mut bytes = 0;
    let rows = rows.into_iter().take(NAMES_MAX).map(row).take_while(|(name, _)| {
        bytes += name.len();
        bytes <= NAME_BYTES
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{DeviceFigures, RegionEnergy};

    fn snapshot(functions: usize) -> Snapshot {
        let device = |name: &str, within: &str| DeviceFigures {
            device: name.to_owned(),
            within: within.to_owned(),
            energy: "measured".to_owned(),
            joules: 10.0 * functions as f64,
            watts: Some(100.0),
            ..DeviceFigures::default()
        };
        let row = |at: usize, device: &str| RegionEnergy {
            rank: (at % 2).to_string(),
            device: device.to_owned(),
            region: if at == 0 {
                "MPI_Send".to_owned()
            } else {
                format!("function_{at}<{}>", "x".repeat(300))
            },
            joules: 1.0 + at as f64 / functions as f64,
            ..RegionEnergy::default()
        };
        let rows = |device| (0..functions).map(move |at| row(at, device));
        Snapshot {
            node: "n1".to_owned(),
            run: "one".to_owned(),
            devices: vec![device("node", ""), device("cpu", "node")],
            region_energy: rows("node").chain(rows("cpu")).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_joule_counts_once_and_a_message_is_small() {
        let report = NodeReport::of(&snapshot(10_000));
        assert_eq!((report.totals.joules, report.totals.watts), (100_000.0, Some(100.0)));
        assert_eq!(
            (report.totals.mpi_joules, report.ranks.len(), report.energy.as_str()),
            (1.0, 2, "measured")
        );
        assert!(report.functions.len() > 50, "{}", report.functions.len());
        let text = serde_json::to_vec(&report).unwrap();
        assert!(text.len() < 16 << 10, "{}", text.len());
        assert_eq!(NodeReport::read(&text).unwrap().functions, report.functions);
    }

    #[test]
    fn impossible_reports_are_refused() {
        let good = serde_json::to_value(NodeReport::of(&snapshot(3))).unwrap();
        let read = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut message = good.clone();
            change(&mut message);
            NodeReport::read(message.to_string().as_bytes()).map(drop)
        };
        assert_eq!(read(&|_| ()), Ok(()));
        assert_eq!(read(&|m| m["totals"]["joules"] = (-1.0).into()), Err(Refused::Impossible));
        assert_eq!(read(&|m| m["totals"]["joules"] = 1e30.into()), Err(Refused::Impossible));
        assert_eq!(
            read(&|m| m["totals"]["joules"] = 0.1.into()),
            Err(Refused::Impossible),
            "its parts are more"
        );
        assert_eq!(read(&|m| m["functions"][0][1] = serde_json::Value::Null), Err(Refused::Nonsense));
        assert_eq!(
            read(&|m| (m["schema"], m["version"]) = ("ampere-node/9".into(), "7.0\n".into())),
            Err(Refused::Version("7.0\u{fffd}".to_owned()))
        );
        let next = br#"{"schema": "ampere-node/2", "version": "2.0"}"#;
        assert_eq!(NodeReport::read(next).map(drop), Err(Refused::Version("2.0".to_owned())));
        for nonsense in
            ["", "[]", "{}", "<html>", r#"{"schema": "ampere-node/1", "totals": {"joules": 1e999}}"#]
        {
            assert_eq!(NodeReport::read(nonsense.as_bytes()).map(drop), Err(Refused::Nonsense), "{nonsense}");
        }
    }
}
