//! Finds the collectors of the other nodes in the first node's output directory.

use ampere_collector::run_directory::files::file_name;
use ampere_collector::run_directory::manifest::Manifest;
use ampere_collector::run_directory::nodes::head;
use ampere_collector::run_directory::output::CLAIM;
use ampere_endpoint::announcement::Announcement;
use ampere_endpoint::listen::{UNIX, own_addresses};
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The maximum number of nodes of a run that are gathered.
const NODES_MAX: usize = 4096;
/// The maximum number of a node's addresses that are tried.
const ADDRESSES_MAX: usize = 8;

/// Another node of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub name: String,
    /// The addresses at which the node's collector may answer.
    pub places: Result<Vec<SocketAddr>, Unreachable>,
    /// The joules of its summary, and whether the run has ended there.
    pub summary: Option<(f64, bool)>,
}

/// The reason why there is no address, as a message of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// The collector does not serve yet, or no longer serves.
    #[error("its collector serves nothing")]
    NotAnnounced,
    /// The collector has announced a socket.
    #[error("its collector serves on a Unix socket, which other nodes cannot reach")]
    Socket,
    /// The collector has announced a loopback address.
    #[error("its collector serves only on loopback")]
    Loopback,
    /// The nodes have no network in common.
    #[error("its collector has no address that other nodes can reach")]
    NoAddress,
}

/// Returns the nodes of the run with the id `run` in subdirectories that belong to this user, without those in `known`.
pub fn nodes(directory: &Path, run: &str, known: &BTreeSet<String>) -> Vec<Found> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries
        .filter(|entry| entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == geteuid().as_raw()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !known.contains(name));
    names.filter_map(|name| node(&directory.join(&name), name, run)).take(NODES_MAX).collect()
}

fn node(directory: &Path, name: String, run: &str) -> Option<Found> {
    let manifest = Manifest::load(&directory.join(format!("{CLAIM}{name}"))).ok();
    let manifest = manifest.filter(|manifest| manifest.run_id == run);
    let is_this_node = |node: &String| file_name(node) == name;
    let summary = head(&directory.join("summary.json"))
        .filter(|found| found.id == run && found.nodes.iter().any(is_this_node))
        .map(|found| (found.total_joules, !found.running));
    if manifest.is_none() && summary.is_none() {
        return None;
    }
    let is_this_machine = manifest.is_some_and(|manifest| manifest.is_of_this_machine());
    // No requests are sent to addresses that other users have put there.
    let announced = Announcement::read(directory).filter(|found| found.is_own);
    let places =
        announced.map_or(Err(Unreachable::NotAnnounced), |of| places(&of, is_this_machine, &own_addresses()));
    Some(Found { name, places, summary })
}

/// Returns the addresses at which the node's collector may answer. A loopback address is used only if the node is this machine.
/// An address that both nodes have, such as that of a bridge for containers, leads to this node: it is used only if there is no
/// other.
fn places(of: &Announcement, is_this_machine: bool, own: &[IpAddr]) -> Result<Vec<SocketAddr>, Unreachable> {
    if of.url.starts_with(UNIX) {
        return Err(Unreachable::Socket);
    }
    let listens: SocketAddr = of
        .url
        .strip_prefix("http://")
        .and_then(|address| address.parse().ok())
        .ok_or(Unreachable::NoAddress)?;
    let ip = listens.ip();
    if ip.is_loopback() {
        return if is_this_machine { Ok(vec![listens]) } else { Err(Unreachable::Loopback) };
    }
    if !ip.is_unspecified() {
        return Ok(vec![listens]);
    }
    let (shared, others): (Vec<IpAddr>, Vec<IpAddr>) = of.addresses.iter().partition(|ip| own.contains(ip));
    let mut all = if others.is_empty() { shared } else { others };
    if all.is_empty() && is_this_machine {
        all.push(Ipv4Addr::LOCALHOST.into());
    }
    all.truncate(ADDRESSES_MAX);
    let places: Vec<SocketAddr> = all.into_iter().map(|ip| SocketAddr::new(ip, listens.port())).collect();
    if places.is_empty() { Err(Unreachable::NoAddress) } else { Ok(places) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_asked_at_an_address_where_only_it_answers() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let own = [ip("10.0.0.1"), ip("172.17.0.1")];
        let of = |url: &str, addresses: &[&str], is_this_machine| {
            let announced = Announcement {
                url: url.to_owned(),
                addresses: addresses.iter().map(|text| ip(text)).collect(),
                ..Announcement::default()
            };
            places(&announced, is_this_machine, &own)
                .map(|places| places.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" "))
        };
        let any = "http://0.0.0.0:9977";
        assert_eq!(of(any, &["10.0.0.2", "172.17.0.1"], false).unwrap(), "10.0.0.2:9977");
        assert_eq!(of(any, &["10.0.0.1"], false).unwrap(), "10.0.0.1:9977", "one network namespace");
        assert_eq!(of("http://10.0.0.3:1", &["10.0.0.2"], false).unwrap(), "10.0.0.3:1");
        assert_eq!(of(any, &[], true).unwrap(), "127.0.0.1:9977");
        assert_eq!(of(any, &[], false), Err(Unreachable::NoAddress));
        assert_eq!(of("http://127.0.0.1:9977", &["10.0.0.2"], false), Err(Unreachable::Loopback));
        assert_eq!(of("unix:/run/ampere.sock", &[], true), Err(Unreachable::Socket));
    }
}
