//! Settings of devices, and counters, that a run shows to be doubtful: a pattern that matches nothing, two settings for the
//! same metric, a counter that seldom rises. Settings may be right for the next run, with other nodes and ranks, so each
//! results in a note and not in an error.

use crate::agreement;
use crate::attributor::{Attributor, Device, Unit};
use crate::topology::metric_number;
use ampere_attribution::LocationIndex;
use ampere_model::text::compact;
use ampere_model::{LocationKind, Quality, quantity_of_name};
use ampere_settings::{DeviceSetting, listed, plain, suggested, suggested_first};
use std::collections::{BTreeMap, BTreeSet};

/// Returns one line for each doubtful setting, now that everything is known about the run, and for each pair of counters that
/// disagree. `metrics`: the names of all metrics of the run.
pub fn notes(attributor: &Attributor, metrics: &BTreeSet<String>) -> Vec<String> {
    let mut notes = setting_notes(attributor, metrics);
    notes.extend(node_notes(attributor));
    notes
}

/// Returns one line for each doubtful setting. These notes depend on all nodes of the run.
pub fn setting_notes(attributor: &Attributor, metrics: &BTreeSet<String>) -> Vec<String> {
    let mut notes = Vec::new();
    let run = Run::new(attributor, metrics);
    for (at, setting) in attributor.config().devices.iter().enumerate() {
        run.note_unmatched(at, setting, &mut notes);
        run.note_ranks(setting, &mut notes);
        run.note_streams(setting, &mut notes);
    }
    notes
}

pub fn node_notes(attributor: &Attributor) -> Vec<String> {
    let mut notes = Vec::new();
    let run = Run::new(attributor, &NO_METRICS);
    run.note_one_name(&mut notes);
    run.note_several_gpus(&mut notes);
    notes.extend(
        run.nodes.iter().filter_map(|node| run.one_gpu_for_all(node).or_else(|| run.hidden_gpus(node))),
    );
    run.note_models(&mut notes);
    run.note_seldom_risen(&mut notes);
    notes.extend(agreement::notes(attributor));
    notes
}

/// Returns one line for each node of another tool's trace for which it cannot be determined on which GPUs the kernels ran.
pub fn gpu_doubts(attributor: &Attributor) -> Vec<String> {
    let run = Run::new(attributor, &NO_METRICS);
    run.nodes.iter().filter_map(|node| run.gpu_doubt(node)).collect()
}

static NO_METRICS: BTreeSet<String> = BTreeSet::new();

struct Run<'a> {
    attributor: &'a Attributor,
    metrics: &'a BTreeSet<String>,
    nodes: BTreeSet<&'a str>,
}

impl<'a> Run<'a> {
    fn new(attributor: &'a Attributor, metrics: &'a BTreeSet<String>) -> Run<'a> {
        let of_locations = attributor.locations.iter().map(|location| location.node.as_str());
        let of_devices = attributor.devices.iter().map(|device| device.info.node.as_str());
        Run { attributor, metrics, nodes: of_locations.chain(of_devices).collect() }
    }

    fn nodes_of(&self, setting: &DeviceSetting) -> BTreeSet<&'a str> {
        let own = |device: &&Device| device.setting().is_some_and(|s| s.patterns() == setting.patterns());
        self.attributor.devices.iter().filter(own).map(|device| device.info.node.as_str()).collect()
    }

    /// Notes a setting that applies to no device: it matches none, or earlier settings apply to those that it matches.
    fn note_unmatched(&self, at: usize, setting: &DeviceSetting, notes: &mut Vec<String>) {
        let all = &self.attributor.config().devices;
        let taken = self.taken(at, setting);
        for (first, devices) in &taken {
            let of = devices[0];
            let more =
                if devices.len() > 1 { format!(" and {} more", devices.len() - 1) } else { String::new() };
            notes.push(format!(
                "[[device]] {:?} and {:?} both match {} on {}{more}: the first is taken",
                all[*first].name, setting.name, of.info.metric, of.info.node
            ));
        }
        if !taken.is_empty() || !self.nodes_of(setting).is_empty() {
            return;
        }
        let by_metric = self.metrics.iter().any(|name| setting.metric.is_match(name));
        let by_node = |node: &regex::Regex| self.nodes.iter().any(|name| node.is_match(name));
        match &setting.node {
            Some(node) if !by_node(node) => notes.push(format!(
                "[[device]] {:?}: no node matches node = '{}': {}",
                setting.name,
                plain(node.as_str()),
                suggested(plain(node.as_str()), self.nodes.iter().copied())
            )),
            _ if by_metric => notes.push(format!(
                "[[device]] {:?}: metric = '{}' matches metrics without samples only",
                setting.name,
                plain(setting.metric.as_str())
            )),
            _ => notes.push(format!(
                "[[device]] {:?}: metric = '{}' matches nothing: {}",
                setting.name,
                plain(setting.metric.as_str()),
                self.suggested_metrics(plain(setting.metric.as_str()))
            )),
        }
    }

    /// Returns the metrics that could have been meant, those of energy and power first.
    fn suggested_metrics(&self, pattern: &str) -> String {
        let is_device = |name: &str| self.attributor.devices.iter().any(|device| device.info.metric == name);
        let is_energy = |name: &str| is_device(name) || quantity_of_name(name).is_some();
        suggested_first(pattern, self.metrics.iter().map(String::as_str), is_energy)
    }

    /// Returns the devices that a setting matches although an earlier setting applies to them, by the earlier setting.
    fn taken(&self, at: usize, setting: &DeviceSetting) -> BTreeMap<usize, Vec<&'a Device>> {
        let all = &self.attributor.config().devices;
        let mut taken: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for device in &self.attributor.devices {
            let matches = |s: &DeviceSetting| s.name_for(&device.info.node, &device.info.metric).is_some();
            let first = all.iter().position(matches).filter(|first| *first < at && matches(setting));
            if let Some(first) = first {
                taken.entry(first).or_default().push(device);
            }
        }
        taken
    }

    /// Notes listed ranks that are on no node of the setting's devices.
    fn note_ranks(&self, setting: &DeviceSetting, notes: &mut Vec<String>) {
        let nodes = self.nodes_of(setting);
        let Some(wanted) = setting.listed_ranks().filter(|_| !nodes.is_empty()) else { return };
        let here = self.attributor.locations.iter().filter(|l| l.main && nodes.contains(l.node.as_str()));
        let known: BTreeSet<u32> = here.filter_map(|location| location.rank).collect();
        let missing: Vec<String> =
            wanted.iter().filter(|rank| !known.contains(rank)).map(u32::to_string).collect();
        if !missing.is_empty() {
            let known: Vec<String> = known.iter().take(16).map(u32::to_string).collect();
            let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            notes.push(format!(
                "[[device]] {:?}: ranks = {wanted:?}: no rank {} on {}: there is {there}",
                setting.name,
                missing.join(", "),
                listed(nodes.iter().copied())
            ));
        }
    }

    /// Notes patterns of GPU streams that match no stream.
    fn note_streams(&self, setting: &DeviceSetting, notes: &mut Vec<String>) {
        let nodes = self.nodes_of(setting);
        let Some(patterns) = setting.locations.as_ref().filter(|_| !nodes.is_empty()) else { return };
        let here = self.attributor.locations.iter().filter(|l| nodes.contains(l.node.as_str()));
        let streams: BTreeSet<&str> =
            here.filter(|l| l.kind == LocationKind::Gpu).map(|location| location.name.as_str()).collect();
        for pattern in patterns.iter().filter(|pattern| !streams.iter().any(|name| pattern.is_match(name))) {
            notes.push(format!(
                "[[device]] {:?}: locations = '{}' matches no GPU stream: {}",
                setting.name,
                plain(pattern.as_str()),
                suggested(plain(pattern.as_str()), streams.iter().copied())
            ));
        }
    }

    /// Notes several devices of a node that have the same name, and so cannot be distinguished.
    fn note_one_name(&self, notes: &mut Vec<String>) {
        let mut named: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for device in &self.attributor.devices {
            named.entry((&device.info.node, &device.info.name)).or_default().push(&device.info.metric);
        }
        for ((node, name), metrics) in named.into_iter().filter(|(_, metrics)| metrics.len() > 1) {
            notes.push(format!(
                "{} devices on {node} are named {name:?} ({}): /metrics shows their sum",
                metrics.len(),
                listed(metrics.iter().copied())
            ));
        }
    }

    /// Notes ranks that the settings of several GPUs list, which is possible, but may be a mistake.
    fn note_several_gpus(&self, notes: &mut Vec<String>) {
        for (at, location) in self.attributor.locations.iter().enumerate().filter(|(_, l)| l.main) {
            let configured = self.attributor.assignment(at).links.iter().filter(|link| {
                let device = &self.attributor.devices[link.device];
                device.setting().is_some_and(|s| s.listed_ranks().is_some())
                    && metric_number(&device.info.metric).is_some()
            });
            // Only GPUs of one family count: another library's counter of the same GPU is not another GPU.
            let mut families: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for link in configured {
                let info = &self.attributor.devices[link.device].info;
                let family = info.metric.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
                families.entry(family).or_default().push(&info.name);
            }
            for names in families.into_values().filter(|names| names.len() > 1) {
                notes.push(format!(
                    "{} on {} is in the ranks of {} GPUs by configuration: {}",
                    location.group,
                    location.node,
                    names.len(),
                    listed(names.iter().copied())
                ));
            }
        }
    }

    /// Returns a line if all ranks have the same GPU number: if each task has its own cgroup, every rank's own GPU may be number 0.
    fn one_gpu_for_all(&self, node: &str) -> Option<String> {
        let gpus = self.attributor.devices.iter().enumerate();
        let gpus: Vec<usize> = gpus
            .filter(|(at, d)| d.info.node == node && self.attributor.counted_part(*at).is_gpu())
            .map(|(at, _)| at)
            .collect();
        let mains = self.attributor.locations.iter().enumerate();
        let mains: Vec<usize> = mains.filter(|(_, l)| l.main && l.node == node).map(|(at, _)| at).collect();
        let only = |rank: &usize| {
            let links = &self.attributor.assignment(*rank).links;
            let mut on = links.iter().filter(|link| gpus.contains(&link.device));
            on.next().filter(|_| on.next().is_none())
        };
        let first = mains.first().and_then(only).filter(|_| mains.len() > 1 && gpus.len() > 1)?;
        let by_variable = first.reason.contains("VISIBLE_DEVICES=");
        (by_variable && mains.iter().all(|rank| only(rank) == Some(first))).then(|| {
            format!(
                "all {} ranks on {node} have {} and {} GPUs have a counter: where each task has its own cgroup, every rank's \
                 GPU is number 0; set ranks = [...] in a [[device]] for each GPU then",
                mains.len(),
                first.reason,
                gpus.len()
            )
        })
    }

    /// Returns a line if there are GPUs with joules that no process may use: another job may have used them.
    fn hidden_gpus(&self, node: &str) -> Option<String> {
        let attributor = self.attributor;
        let is_hidden = |(at, device): &(usize, &Device)| {
            device.info.node == node
                && attributor.counts(*at)
                && attributor.is_hidden(*at)
                && attributor.engine.totals(device.views.ranks).total_joules > 0.0
        };
        let hidden = attributor.devices.iter().enumerate().filter(is_hidden);
        let names: Vec<&str> = hidden.map(|(_, device)| device.info.name.as_str()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "the *_VISIBLE_DEVICES of all processes on {node} hide {}: the joules of these GPUs are in the total, although \
                 another job may have used them",
                compact(&names)
            )
        })
    }

    /// Returns a line if counters of a node's GPUs have joules but no kernels, and it is unclear which GPU ran the kernels:
    /// nothing shows it, or several processes use the same GPU number, and may each see only their own GPU.
    fn gpu_doubt(&self, node: &str) -> Option<String> {
        let Run { attributor, .. } = self;
        let has_kernels = |at: usize| attributor.engine.has_run(LocationIndex(at as u32));
        let locations = attributor.locations.iter().enumerate();
        let streams: Vec<(usize, &str)> = locations
            .filter(|(at, of)| of.node == node && of.kind == LocationKind::Gpu && has_kernels(*at))
            .map(|(at, of)| (at, of.name.as_str()))
            .collect();
        let draws =
            |device: usize| streams.iter().any(|(at, _)| attributor.assignment(*at).draws_from(device));
        // Streams of other contexts may be on the same GPU.
        let is_in_doubt = |device: usize| {
            let may_be_on_it = |at: usize| {
                let assignment = attributor.assignment(at);
                assignment.links.is_empty() && assignment.is_undecided_about(device)
            };
            attributor.counted_part(device).is_of_context() && streams.iter().any(|(at, _)| may_be_on_it(*at))
        };
        let devices = attributor.devices.iter().enumerate();
        let unused: Vec<(usize, &Device)> = devices
            .filter(|(at, device)| {
                let info = &device.info;
                let is_gpu = info.traits.kind == "gpu" || attributor.counted_part(*at).is_gpu();
                // The links of a run that ampere measured have other evidence.
                info.node == node && info.unit == Unit::Joules && is_gpu && info.source == "trace"
            })
            .filter(|(at, device)| {
                let joules = attributor.engine.totals(device.views.ranks).total_joules;
                joules > 0.0 && !attributor.is_left_out(*at) && (!draws(*at) || is_in_doubt(*at))
            })
            .collect();
        if unused.is_empty() {
            return None;
        }
        let number = |device: &usize| attributor.counted_part(*device).number();
        let names = listed(unused.iter().map(|(_, device)| device.info.name.as_str()));
        let has_unnumbered = unused.iter().any(|(at, _)| number(at).is_none());
        let unknown: BTreeSet<&str> = streams
            .iter()
            .filter(|(at, _)| {
                let assignment = attributor.assignment(*at);
                assignment.links.is_empty() && (!assignment.gpu_is_known || has_unnumbered)
            })
            .map(|(_, name)| *name)
            .collect();
        if !unknown.is_empty() {
            return Some(format!(
                "which GPU ran the kernels of {} on {node} cannot be told: they have none of the joules of {names} in the kernels view; \
                 set locations = [...] in a [[device]] for each GPU",
                listed(unknown.into_iter())
            ));
        }
        let mut processes: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for (at, _) in &streams {
            let process = attributor.links().process_of(LocationIndex(*at as u32));
            if let Some((number, process)) = attributor.assignment(*at).by_number_alone.zip(process) {
                processes.entry(number).or_default().insert(process);
            }
        }
        let has_other = unused.iter().any(|(at, _)| number(at).is_some());
        let (called, all) = processes.into_iter().find(|(_, all)| has_other && all.len() > 1)?;
        Some(format!(
            "{} processes on {node} call their GPU {called}, and {names} used joules without kernels: whether they share one GPU, or \
             each sees only its own, cannot be told; set ranks = [...] in a [[device]] for each GPU",
            all.len()
        ))
    }

    /// Notes counters that rise although, by its model, the GPU has no counter of its own.
    fn note_models(&self, notes: &mut Vec<String>) {
        let devices = self.attributor.devices.iter().enumerate();
        let counting = devices.filter(|(at, _)| self.attributor.counts(*at));
        for (at, device) in
            counting.filter(|(at, _)| self.attributor.counted_part(*at).contradicts_its_model())
        {
            notes.push(format!(
                "{} on {} is the second die of a package by its model ({}), so the first die's counter should include its \
                 energy. But its own counter rises, and is used for its joules",
                device.info.name,
                device.info.node,
                self.attributor.counted_part(at).evidence.model
            ));
        }
    }

    /// Notes counters that have risen once or never: it is unknown when in the run their joules were used, or whether any
    /// joules were used.
    fn note_seldom_risen(&self, notes: &mut Vec<String>) {
        let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (at, device) in self.attributor.devices.iter().enumerate() {
            let is_counter = device.info.unit == Unit::Joules
                && device.info.quality != Quality::Estimated
                && !device.is_power()
                && !self.attributor.counted_part(at).evidence.silent;
            if is_counter
                && device.rise_count() < 2
                && device.counter_figures().samples > 0
                && self.attributor.counts(at)
            {
                nodes.entry(&device.info.node).or_default().push(&device.info.name);
            }
        }
        notes.extend(nodes.into_iter().map(|(node, names)| {
            format!(
                "{} on {node} rose fewer than twice in this run: up to one step of the counter is missing or is counted in excess, and it \
                 is not known when it was used",
                listed(names.into_iter())
            )
        }));
    }
}
