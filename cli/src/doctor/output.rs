//! Where the results go, and where /metrics is served.

use super::report::{Check, Group};
use super::{Wanted, bytes};
use ampere_collector::http;
use ampere_collector::output::{ADVICE, CLAIM, holds_results};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Less is soon full: a trace has 10 bytes an event, and as long as it runs 16 more.
const LITTLE: u64 = 1 << 30;

pub fn look(wanted: &Wanted) -> Vec<Check> {
    let mut group = Group::new("output");
    look_at_directory(&mut group, wanted.output.as_deref());
    look_at_port(&mut group, wanted.listen.as_deref());
    group.checks
}

fn look_at_directory(group: &mut Group, wanted: Option<&Path>) {
    let directory = wanted.unwrap_or(Path::new("."));
    let shown = match wanted {
        Some(directory) => directory.display().to_string(),
        None => match std::env::current_dir() {
            Ok(here) => format!("a new one in {}", here.display()),
            Err(error) => {
                return group.problem("directory", format!("there is no directory here: {error}"), ADVICE);
            }
        },
    };
    if let Some(directory) = wanted {
        if holds_results(directory) {
            return group.problem("directory", format!("{shown} holds the results of another run"), ADVICE);
        }
        let node = format!("{CLAIM}{}", ampere_ring::process::node_name());
        if directory.join(&node).exists() {
            let found = format!("{shown} is in use by another run, or holds one that was killed ({node})");
            return group.problem("directory", found, ADVICE);
        }
    }
    // What is missing is made by the run.
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let there = absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if let Err(why) = try_to_write(there) {
        return group.problem("directory", format!("{shown}: {why}"), ADVICE);
    }
    let free = rustix::fs::statvfs(there).map(|space| space.f_bavail.saturating_mul(space.f_frsize));
    match free {
        Ok(free) if free < LITTLE => {
            let advice = "set AMPERE_TRACE=off to write no trace, or choose another directory with -o or AMPERE_OUTPUT";
            group.note("directory", format!("{shown}: {} free", bytes(free)), Some(advice.to_owned()));
        }
        Ok(free) => group.ok("directory", format!("{shown}: {} free", bytes(free))),
        Err(_) => group.ok("directory", shown),
    }
}

/// By doing it: permissions do not say all, on a network's file system for one.
fn try_to_write(directory: &Path) -> Result<(), String> {
    let trial: PathBuf = directory.join(format!(".ampere-doctor-{}", std::process::id()));
    std::fs::create_dir(&trial)
        .map_err(|error| format!("cannot write to {}: {error}", directory.display()))?;
    let _ = std::fs::remove_dir(&trial);
    Ok(())
}

fn look_at_port(group: &mut Group, wanted: Option<&str>) {
    let address = match wanted.map(str::parse::<SocketAddr>) {
        None => http::DEFAULT_ADDRESS,
        Some(Ok(address)) => address,
        Some(Err(_)) => {
            let found = format!("{:?} is no address to listen on", wanted.unwrap_or_default());
            return group.problem("metrics", found, "write AMPERE_LISTEN (or --listen) like 127.0.0.1:9977");
        }
    };
    match http::bind(address) {
        Ok((_, Some(note))) => group.note("metrics", note, None),
        Ok((listener, None)) => {
            let bound = listener.local_addr().unwrap_or(address);
            group.ok("metrics", format!("http://{bound}/metrics"));
        }
        Err(why) => group.problem("metrics", why, ""),
    }
}
