//! Hints for the next step, each from a rule.

use super::facts::{Facts, Row, WAITING_PART_MIN};
use super::levels::{self, Levels};
use super::{names, tables};
use crate::filter::much_measuring;
use crate::over_ranks::Spread;
use crate::{other_jobs, over_ranks, waits};
use ampere_figures::gauges::OverTheRun;
use ampere_figures::summary::{Device, NodeCpu, Summary, View, topmost};
use ampere_model::digits::{count, energy, percent, significant};
use ampere_model::regions::is_mpi;
use ampere_model::text::short;
use ampere_settings::Config;
use std::collections::HashSet;

/// The maximum number of hints that are shown.
pub const HINTS_MAX: usize = 3;
/// A smaller part of the whole does not cause a hint.
const PART_MIN: f64 = 0.05;
/// Ranks that spend a larger part in MPI functions get a hint that they wait.
const MPI_PART_MIN: f64 = 0.2;
/// If a rank used more joules than the mean by this fraction, the other ranks wait for it.
const IMBALANCE_MIN: f64 = 0.1;
/// The number of functions that are searched for the one that makes a rank use more.
const UNBALANCED_FUNCTIONS_MAX: usize = 16;
/// A kernel does not draw steady power if its mean power is below this fraction of its highest power, and its lowest power is
/// below half of the highest.
const STEADY_PART: f64 = 0.8;
/// A function with at most this fraction of the dynamic joules, but with a large fraction of all joules, only waits.
const WAITING_DYNAMIC_PART_MAX: f64 = 0.02;
/// A sampled program that uses no CPU for a smaller part of its time causes no hint.
const SLEEPING_PART_MIN: f64 = 0.3;
/// A device at this temperature soon lowers its clock.
const HOT_CELSIUS: f64 = 95.0;
/// A device that was throttled for a smaller part of the time causes no hint.
const THROTTLED_PART_MIN: f64 = 0.01;
/// If measuring takes at least this fraction of the program's CPU time, there is a hint.
const MEASURING_PART_MIN: f64 = 0.05;
/// A shorter run gets no hint about measuring, because the start of the collector takes a large part of such a run.
const JUDGED_SECONDS_MIN: f64 = 1.0;
/// A program that keeps less than this fraction of one core busy hardly notices that no core is free for the collector. The
/// fraction is small, because other programs may leave the program less CPU time than it asks for.
const JUDGED_CPU_PART_MIN: f64 = 0.03;
/// If the node's processors are busy for this fraction of the time, none is free.
const FULL_PART: f64 = 0.95;
/// The maximum length of a name in a hint, in characters.
const NAME_ROOM: usize = 32;

/// The rules, the most important first.
const RULES: [fn(&Facts) -> Option<String>; 12] = [
    missing_cpus,
    measuring_overhead,
    throttling,
    unused_devices,
    changing_power,
    imbalance,
    mpi_share,
    waiting,
    sleeping,
    others_on_the_node,
    python,
    default_watts,
];

pub fn of(facts: &Facts) -> Vec<String> {
    RULES.iter().filter_map(|rule| rule(facts)).take(HINTS_MAX).collect()
}

fn measuring_overhead(facts: &Facts) -> Option<String> {
    much_measuring(facts.summary).or_else(|| sampling_overhead(facts))
}

/// The CPU time that samples of stacks, records of switches and the collector take.
struct SamplingCost {
    /// The cost in the program and that of the collector, as parts of the program's CPU time.
    stacks: f64,
    collector: f64,
    /// The part of the program's CPU time that samples of stacks take, which is included in `stacks`.
    samples: f64,
    switches_per_second: f64,
}

/// Whether no processor of a node was free.
fn is_full(cpu: NodeCpu) -> bool {
    cpu.node_busy_seconds >= FULL_PART * cpu.seconds * cpu.node_cpus as f64
}

impl SamplingCost {
    /// Returns the cost if it is large. The collector takes CPU time from the program only if no processor is free.
    fn of(summary: &Summary) -> Option<SamplingCost> {
        let stacks = summary.overhead.stacks.as_ref().filter(|stacks| stacks.program_seconds > 0.0)?;
        let seconds = summary.run.seconds;
        let is_noticed = stacks.program_seconds >= JUDGED_CPU_PART_MIN * seconds;
        let is_full = summary.run.node_cpu.is_some_and(is_full);
        let collector = if is_full && is_noticed { summary.overhead.collector_cpu_seconds } else { 0.0 };
        let cost = SamplingCost {
            stacks: stacks.cost_seconds / stacks.program_seconds,
            collector: collector / stacks.program_seconds,
            samples: stacks.samples as f64 * stacks.sample_seconds.unwrap_or_default()
                / stacks.program_seconds,
            switches_per_second: stacks.switches as f64 / seconds,
        };
        (seconds >= JUDGED_SECONDS_MIN && cost.part() >= MEASURING_PART_MIN).then_some(cost)
    }

    fn part(&self) -> f64 {
        self.stacks + self.collector
    }

    /// Whether the cost is large because more threads run than there are processors.
    fn is_for_missing_cpus(&self) -> bool {
        self.collector > self.stacks || self.samples <= 0.5 * self.stacks
    }

    fn words(&self) -> String {
        format!("measuring took about {:.0} % of the program's CPU time", 100.0 * self.part())
    }
}

fn sampling_overhead(facts: &Facts) -> Option<String> {
    let cost = SamplingCost::of(facts.summary)?;
    if cost.is_for_missing_cpus() && missing_cpus(facts).is_some() {
        return None; // the hint about missing CPUs includes the cost
    }
    let advice = if cost.collector > cost.stacks {
        match others_have_the_cores(facts) {
            Some(others) => format!("{others}: use a free node"),
            None => "no core is free for the collector: leave it one".to_owned(),
        }
    } else if cost.is_for_missing_cpus() {
        let rate = count(cost.switches_per_second.round() as u64);
        format!("{rate} switches of threads a second: run fewer threads on a core")
    } else {
        "sample less often, for example --sample 10ms".to_owned()
    };
    let [stacks, collector] = [cost.stacks, cost.collector].map(|part| percent(part, 1.0));
    let parts = match cost.collector > 0.0 {
        true => format!(" ({stacks} in the program, {collector} the collector)"),
        false => String::new(),
    };
    Some(format!("{}{parts}; {advice}", cost.words()))
}

/// Describes the cores that other programs used, if these are more than the run itself used.
fn others_have_the_cores(facts: &Facts) -> Option<String> {
    let cores = facts.summary.run.node_cpu?.node_cpus;
    facts.cores_of_busier_others().map(|others| format!("other programs used {others:.2} of {cores} cores"))
}

/// Returns the hint about GPUs that no process used. Those that no process could use may be another job's.
fn unused_devices(facts: &Facts) -> Option<String> {
    let unused = facts.gpus.iter().filter(|device| !facts.is_used(device));
    let (hidden, unused): (Vec<&Device>, Vec<&Device>) = unused.partition(|device| device.hidden);
    let all: f64 = ampere_figures::summary::topmost(facts.summary).map(|device| device.total_joules).sum();
    let hint = |devices: &[&Device], verb: &str, what: &str| {
        let joules: f64 = devices.iter().map(|device| device.total_joules).sum();
        (joules >= PART_MIN * all && joules > 0.0).then(|| {
            let (which, part) = (tables::which(devices, NAME_ROOM), percent(joules, all));
            format!("no process {verb} {which}, {} ({part} of total): {what}", energy(joules))
        })
    };
    let hidden = hint(&hidden, "may use", "another job may have");
    hidden.or_else(|| hint(&unused, "used", "ask for fewer GPUs"))
}

/// Returns all gauges of a quantity with their devices.
fn gauges_of<'a>(facts: &Facts<'a>, quantity: &str) -> impl Iterator<Item = (&'a Device, &'a OverTheRun)> {
    let devices = facts.summary.devices.iter();
    let all = devices.flat_map(|device| device.gauges.iter().map(move |gauge| (device, gauge)));
    all.filter(move |(_, gauge)| gauge.quantity == quantity)
}

/// Returns the hint about a device that lowered its clock, that ran at its power limit, or that was hot enough for that.
fn throttling(facts: &Facts) -> Option<String> {
    throttled(facts).or_else(|| at_power_limit(facts)).or_else(|| hot(facts))
}

/// Returns the hint about the device that was throttled longest. Thermal throttling comes first, because cooling can be repaired.
fn throttled(facts: &Facts) -> Option<String> {
    let all: Vec<_> =
        gauges_of(facts, "throttled_ratio").filter(|(_, gauge)| gauge.mean >= THROTTLED_PART_MIN).collect();
    let is_thermal = |gauge: &OverTheRun| gauge.which == "thermal";
    let key = |gauge: &OverTheRun| (is_thermal(gauge), gauge.mean);
    let (device, gauge) = all.iter().max_by(|a, b| {
        let ((thermal, part), (other_thermal, other_part)) = (key(a.1), key(b.1));
        thermal.cmp(&other_thermal).then(part.total_cmp(&other_part))
    })?;
    let devices: HashSet<_> = all.iter().map(|(device, _)| (&device.node, &device.name)).collect();
    let others = match devices.len() - 1 {
        0 => String::new(),
        1 => ", another device too".to_owned(),
        others => format!(", {others} other devices too"),
    };
    let seconds = device.sampled_seconds;
    let [throttled, whole] = [gauge.mean * seconds, seconds].map(|seconds| match seconds < 10.0 {
        true => significant(seconds, 2),
        false => format!("{seconds:.0}"),
    });
    let advice = if is_thermal(gauge) { "look at its cooling" } else { "its power limit slows it down" };
    let (name, which) = (short(&device.name, NAME_ROOM), &gauge.which);
    Some(format!("{name} was throttled for about {throttled} s of {whole} s ({which}){others}: {advice}"))
}

/// Returns the hint about the device that ran longest at its power limit.
fn at_power_limit(facts: &Facts) -> Option<String> {
    let ratio = |gauge: &OverTheRun| gauge.at_limit_ratio.unwrap_or_default();
    let limits = gauges_of(facts, "power_limit_watts");
    let (device, limit) = limits.max_by(|a, b| ratio(a.1).total_cmp(&ratio(b.1)))?;
    (ratio(limit) >= PART_MIN).then(|| {
        let name = short(&device.name, NAME_ROOM);
        let watts = limit.mean;
        let part = 100.0 * ratio(limit);
        format!("{name} ran at its power limit of {watts:.0} W for {part:.0} % of the time")
    })
}

/// Returns the hint about a device that was hot enough to lower its clock.
fn hot(facts: &Facts) -> Option<String> {
    let temperatures = gauges_of(facts, "temperature_celsius");
    let (device, hottest) = temperatures.max_by(|a, b| a.1.max.total_cmp(&b.1.max))?;
    (hottest.max >= HOT_CELSIUS).then(|| {
        let name = short(&device.name, NAME_ROOM);
        format!("{name} reached {:.0} C: it may have lowered its clock; look at its cooling", hottest.max)
    })
}

/// Returns the hint about a kernel whose power changes while it runs.
fn changing_power(facts: &Facts) -> Option<String> {
    let changes = |row: &&Row| {
        let changes =
            row.watts.is_some_and(|(mean, least, most)| mean < STEADY_PART * most && least < 0.5 * most);
        changes && row.joules >= PART_MIN * facts.whole
    };
    let row = facts.kernels.iter().find(changes)?;
    let (mean, least, most) = row.watts?;
    let name = names::shorten(row.name, NAME_ROOM);
    let levels = match row.devices.as_slice() {
        [device] => levels::of(facts.summary, device, row.name),
        _ => None,
    };
    Some(match levels {
        Some(Levels { before, seconds, after }) => {
            let [before, after] = [before, after].map(|watts| significant(watts, 3));
            let seconds = significant(seconds, 2);
            format!("{name} drew {before} W in its first {seconds} s, {after} W after that")
        }
        None => format!("{name} drew {least:.0} to {most:.0} W, mean {mean:.0} W: see report.html"),
    })
}

/// Returns the hint that ranks wait for ranks that have no CPU, because there are more ranks than cores, or because other
/// programs have the cores. The hint includes the cost of measuring, if that has the same reason.
fn missing_cpus(facts: &Facts) -> Option<String> {
    let run = &facts.summary.run;
    let cores = run.node_cpu?.cpus;
    let others_have_most = facts.cores_of_others().filter(|others| 2.0 * others > cores as f64);
    let (why, advice) = match (1..run.ranks as u64).contains(&cores) {
        true => {
            let others =
                others_have_most.map(|cores| format!(", and other programs used {cores:.2} of them"));
            let why =
                format!("{} ranks on {cores} cores{}", run.ranks, others.as_deref().unwrap_or_default());
            (why, if others.is_some() { "one rank per core of a free node" } else { "one rank per core" })
        }
        false => (others_have_the_cores(facts)?, "a free node"),
    };
    let waiting = waits::of(facts.summary).filter(|waiting| waiting.joules >= PART_MIN * run.total_joules)?;
    waits::without_cpu(waiting)?;
    let cost = SamplingCost::of(facts.summary).filter(SamplingCost::is_for_missing_cpus);
    let cost = cost.map_or_else(String::new, |cost| format!(", and {}", cost.words()));
    Some(format!("{why}: ranks wait for others without a CPU{cost}; use {advice}"))
}

/// Returns the hint about a rank that used more than the others, apart from its time in MPI.
fn imbalance(facts: &Facts) -> Option<String> {
    let views = facts.views(&facts.host_devices, "ranks");
    let (whole, more) = unbalanced(facts)?;
    let who = whole.most_on.map_or("one rank", |(_, group)| facts.summary.name(group));
    let who = short(&who.replace("MPI Rank", "rank"), NAME_ROOM);
    let more = significant(100.0 * more, 2);
    // Other programs make a rank take longer, but its dynamic joules are those of its own CPU time.
    let advice = match facts.cores_of_others().filter(|_| !over_ranks::is_dynamic(&views)) {
        None => "balance the work",
        Some(_) => "other programs may be the cause",
    };
    let place = unbalanced_function(facts, &views, &whole);
    let place = place.map_or_else(String::new, |name| format!(", most in {name}"));
    Some(format!("{who} used {more} % more than the mean outside MPI{place}: {advice}"))
}

/// Returns the joules of ranks outside MPI, and the fraction by which one rank exceeds their mean, if it is large.
pub(super) fn unbalanced<'a>(facts: &Facts<'a>) -> Option<(Spread<'a>, f64)> {
    let views = facts.views(&facts.host_devices, "ranks");
    let whole = over_ranks::outside_mpi(facts.summary, &views)?;
    let more = whole.most / whole.mean() - 1.0;
    let has_ended = facts.summary.run.bad_status().is_none();
    let is_mpi = facts.summary.names.iter().any(|name| over_ranks::is_mpi_rank(name));
    let is_large = is_mpi
        && has_ended
        && whole.ranks > 1
        && more >= IMBALANCE_MIN
        && whole.joules >= PART_MIN * facts.whole;
    is_large.then_some((whole, more))
}

/// Returns the function that has most of the joules that one rank used in addition to the mean of the ranks.
fn unbalanced_function(facts: &Facts, views: &[(&Device, &View)], whole: &Spread) -> Option<String> {
    let rows = over_ranks::functions(facts.summary, views, UNBALANCED_FUNCTIONS_MAX).rows;
    let more = |row: &Spread| row.most - (row.joules - row.others.1) / whole.ranks as f64;
    let of_rank = rows.iter().filter(|row| row.most_on == whole.most_on);
    let outside_mpi = of_rank.filter(|row| !is_mpi(facts.summary.name(row.what)));
    let most = outside_mpi.max_by(|a, b| more(a).total_cmp(&more(b)))?;
    (more(most) >= 0.5 * more(whole)).then(|| names::shorten(facts.summary.name(most.what), NAME_ROOM))
}

/// Returns the hint about ranks that wait for each other.
fn mpi_share(facts: &Facts) -> Option<String> {
    let (joules, _) = facts.mpi();
    // If the energy of waiting is known, the first lines show it.
    let waits = facts.summary.run.ranks > 1
        && facts.summary.run.bad_status().is_none()
        && facts.summary.run.waiting.is_none();
    (waits && joules >= MPI_PART_MIN * facts.whole && facts.whole > 0.0).then(|| {
        let part = percent(joules, facts.whole);
        let joules = if facts.is_dynamic { "dynamic joules" } else { "the joules" };
        format!("MPI has {part} of {joules}: ranks wait; try fewer, or more work")
    })
}

/// Returns the hint about a function that mostly waits: it has static joules for its time, but hardly any dynamic ones, so
/// tables show it far down. A sampled function is not named: the time that a thread waits is charged to the function of its last
/// sample, which need not be the function that waits.
fn waiting(facts: &Facts) -> Option<String> {
    let all = facts.all_of_host_devices();
    let waits = |row: &&Row| {
        let is_large = row.all_joules >= WAITING_PART_MIN * all;
        is_large
            && row.bounds.is_some()
            && row.joules <= WAITING_DYNAMIC_PART_MAX * facts.whole
            && !is_mpi(row.name)
    };
    let rows = facts.functions.iter().filter(|_| facts.is_dynamic && facts.whole > 0.0).filter(waits);
    let row = rows.max_by(|a, b| a.all_joules.total_cmp(&b.all_joules))?;
    let [of_all, of_dynamic] = [percent(row.all_joules, all), percent(row.joules, facts.whole)];
    let name = names::shorten(row.name, NAME_ROOM);
    Some(format!("{name} waits: {of_all} of all joules, {of_dynamic} of the dynamic ones"))
}

/// Returns the hint that a sampled program used no CPU for a large part of its time, which no function shows. It is not known how
/// many threads used the CPU time together, so the hint states the shortest time that the program can have been without a CPU.
fn sleeping(facts: &Facts) -> Option<String> {
    let run = &facts.summary.run;
    let cpu = run.node_cpu.filter(|_| run.nodes.len() == 1)?;
    let idle = cpu.seconds - cpu.own_busy_seconds;
    let is_only_sampled = !facts.functions.is_empty() && facts.functions.iter().all(|row| row.calls == 0);
    let program = short(super::file_name(run.command.first()?), NAME_ROOM);
    let is_long = idle >= SLEEPING_PART_MIN * cpu.seconds;
    // On a full node the program may have waited for a CPU.
    (is_only_sampled && !is_full(cpu) && facts.kernels.is_empty() && is_long).then(|| {
        let [idle, all] = [idle, cpu.seconds].map(|seconds| significant(seconds, 2));
        format!(
            "{program} used no CPU for at least {idle} of {all} s: samples see only CPU time; mark regions to see where it waits \
             (book: Mark your code)"
        )
    })
}

/// Returns the hint that other processes kept the node's processors busy, and that their energy is in the counters.
fn others_on_the_node(facts: &Facts) -> Option<String> {
    let cpu = facts.summary.run.node_cpu.filter(|cpu| cpu.has_others())?;
    if other_jobs::joules(facts.summary) > 0.0 {
        return None; // the joules of other jobs are shown
    }
    // A GPU's counter does not include work on the processors.
    if !topmost(facts.summary).any(|device| ["node", "cpu"].contains(&device.kind.as_str())) {
        return None;
    }
    let part = percent(cpu.busy_seconds_of_others(), cpu.node_busy_seconds);
    (!facts.is_estimated())
        .then(|| format!("others had {part} of the busy CPU time: their energy is in these joules"))
}

/// Returns the hint that the functions of a Python program are those of its interpreter.
fn python(facts: &Facts) -> Option<String> {
    let is_interpreter = |row: &&Row| row.name == "_PyEval_EvalFrameDefault";
    let row = facts.functions.iter().find(is_interpreter)?;
    let has_option = facts.summary.run.command.windows(2).any(|words| words == ["-X", "perf"])
        || facts.summary.run.command.iter().any(|word| word == "-Xperf");
    (row.joules >= PART_MIN * facts.whole).then(|| match has_option {
        true => {
            "-X perf has shown no function of the Python program: it needs Python 3.12 or later".to_owned()
        }
        false => {
            "python3 -X perf (Python 3.12 or later) shows the functions of the Python program".to_owned()
        }
    })
}

/// Returns the hint that energy was estimated with watts that were not set for this node.
fn default_watts(facts: &Facts) -> Option<String> {
    let device = facts.host_devices.iter().find(|device| device.energy == "estimated")?;
    (!are_watts_set(device)).then(|| {
        "set this node's watts: [estimate] idle_watts and watts_per_core in a file, and --config FILE"
            .to_owned()
    })
}

/// Whether a device is estimated with watts of its node, and not with the default ones.
pub(super) fn are_watts_set(device: &Device) -> bool {
    let usual = Config::default().sources;
    device
        .estimate
        .is_some_and(|set| set.idle_watts != usual.idle_watts && set.watts_per_core != usual.watts_per_core)
}
