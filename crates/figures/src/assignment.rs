//! The links between consumers and devices: each with its reason for `summary.json`, and as a few lines for `summary.txt`.

use ampere_model::LocationKind;
use ampere_model::text::{compact, printable};
use ampere_timeline::attributor::{Attributor, ViewKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A consumer's link to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub node: String,
    /// The device; `None` if the consumer draws from no GPU.
    pub device: Option<String>,
    /// The view: "ranks" or "kernels".
    pub view: String,
    /// The consumer: a process ("MPI Rank 0"), or a GPU stream of one ("MPI Rank 0/HIP[0:0]").
    pub consumer: String,
    /// The reason why the consumer draws from this device, or from none.
    pub reason: String,
}

/// Returns all links, sorted by node, device, view and consumer.
pub fn of_attributor(attributor: &Attributor, only: Option<ViewKind>) -> Vec<Link> {
    let mut all = Vec::new();
    for (at, location) in attributor.locations.iter().enumerate() {
        let view = match location.kind {
            LocationKind::CpuThread if location.main => ViewKind::Ranks,
            LocationKind::Gpu => ViewKind::Kernels,
            _ => continue,
        };
        if only.is_some_and(|only| only != view) {
            continue;
        }
        let assignment = attributor.assignment(at);
        let consumer = match view {
            ViewKind::Ranks => location.group.clone(),
            ViewKind::Kernels => format!("{}/{}", attributor.owner_of(at), location.name),
        };
        let link = |device, reason: &String| Link {
            node: location.node.clone(),
            device,
            view: view.as_str().to_owned(),
            consumer: consumer.clone(),
            reason: reason.clone(),
        };
        let name = |device: usize| attributor.devices[device].info.name.clone();
        all.extend(
            assignment
                .links
                .iter()
                .filter(|l| !attributor.is_left_out(l.device))
                .map(|l| link(Some(name(l.device)), &l.reason)),
        );
        all.extend(assignment.no_gpu.iter().map(|why| link(None, why)));
    }
    sort(&mut all);
    all.dedup(); // a process' threads are one consumer
    all
}

/// Sorts links by node, device, view and consumer.
pub(crate) fn sort(links: &mut [Link]) {
    links.sort_by_key(|link| {
        let natural = |name: &String| (name.len(), name.clone()); // "GPU-10" after "GPU-9"
        let device = link.device.as_ref().map(natural);
        (link.node.clone(), device.is_none(), device, link.view == "kernels", natural(&link.consumer))
    });
}

/// Returns one line for all links with the same reason: `GPU-0, GPU-1 <- MPI Rank 0-7: why`, with the nodes if there are several.
pub fn lines(links: &[Link]) -> Vec<String> {
    let nodes: BTreeSet<&str> = links.iter().map(|link| link.node.as_str()).collect();
    // Collects the consumers of each device and reason, in the order of the links.
    let mut by_device: Vec<(&Link, Vec<&str>)> = Vec::new();
    let mut known = BTreeMap::new();
    for link in links {
        let at = *known.entry((&link.node, &link.device, &link.view, &link.reason)).or_insert_with(|| {
            by_device.push((link, Vec::new()));
            by_device.len() - 1
        });
        by_device[at].1.push(&link.consumer);
    }
    // Joins devices that have the same consumers for the same reason.
    let mut groups: Vec<(&Link, Vec<&str>, Vec<&str>)> = Vec::new();
    let mut known = BTreeMap::new();
    for (link, consumers) in by_device {
        let device = link.device.as_deref().unwrap_or("no GPU");
        let at =
            *known.entry((&link.node, &link.view, &link.reason, consumers.clone())).or_insert_with(|| {
                groups.push((link, Vec::new(), consumers));
                groups.len() - 1
            });
        groups[at].1.push(device);
    }
    // Joins nodes on which devices, consumers and reason are the same.
    let mut of_nodes: Vec<(String, Vec<&str>)> = Vec::new();
    let mut known = BTreeMap::new();
    for (link, devices, consumers) in groups {
        let text = format!("{} <- {}: {}", compact(&devices), compact(&consumers), link.reason);
        let at = *known.entry(text.clone()).or_insert_with(|| {
            of_nodes.push((text, Vec::new()));
            of_nodes.len() - 1
        });
        of_nodes[at].1.push(&link.node);
    }
    let line = |(text, of): (String, Vec<&str>)| {
        printable(&if nodes.len() > 1 { format!("{}: {text}", compact(&of)) } else { text })
    };
    of_nodes.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_reasons_are_one_line() {
        let link = |device: Option<&str>, rank: u32, reason: &str| Link {
            node: "n".to_owned(),
            device: device.map(str::to_owned),
            view: "ranks".to_owned(),
            consumer: format!("MPI Rank {rank}"),
            reason: reason.to_owned(),
        };
        let links = [
            link(Some("GPU-0"), 0, "shared"),
            link(Some("GPU-0"), 1, "shared"),
            link(Some("GPU-0"), 2, "its own"),
            link(Some("GPU-1"), 0, "shared"),
            link(Some("GPU-1"), 1, "shared"),
            link(None, 3, "none"),
        ];
        assert_eq!(
            lines(&links),
            [
                "GPU-0..1 <- MPI Rank 0-1: shared",
                "GPU-0 <- MPI Rank 2: its own",
                "no GPU <- MPI Rank 3: none"
            ]
        );
        let mut elsewhere = links[2].clone();
        elsewhere.node = "m".to_owned();
        assert_eq!(
            lines(&[elsewhere, links[5].clone()]),
            ["m: GPU-0 <- MPI Rank 2: its own", "n: no GPU <- MPI Rank 3: none"]
        );
    }
}
