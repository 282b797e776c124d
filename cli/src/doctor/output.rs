//! Checks where the results go and where /metrics is served.

use super::findings::{Check, Group};
use super::{Wanted, bytes};
use ampere_collector::run_directory::output::{ADVICE, CLAIM, holds_results};
use ampere_endpoint::access::Access;
use ampere_endpoint::listen::{self, BindError, Listen};
use ampere_settings::Config;
use std::path::Path;

/// Less free space than this is soon used up, because a trace needs 10 bytes per event, and 16 more during the run.
const FREE_BYTES_MIN: u64 = 1 << 30;

pub fn check(wanted: &Wanted) -> Vec<Check> {
    let mut group = Group::new("output");
    look_at_directory(&mut group, wanted.output.as_deref());
    look_at_port(&mut group, wanted.listen.as_deref());
    look_at_token(&mut group, wanted.config.as_deref());
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
    let taken = wanted.and_then(why_taken);
    if let Some(why) = &taken {
        let next_to = format!("the results go next to it, for example to {shown}-2; {ADVICE}");
        group.note("directory", format!("{shown} {why}"), Some(next_to));
    }
    // A run makes missing directories, so the nearest directory that exists is tested. If the wanted directory is taken, its
    // parent is tested instead.
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let mut places = absolute.ancestors().skip(usize::from(taken.is_some()));
    let there = places.find(|path| path.exists()).unwrap_or(Path::new("/"));
    if let Err(error) = try_to_write(there) {
        let found = format!("{shown}: cannot write to {}: {error}", there.display());
        return group.problem("directory", found, ADVICE);
    }
    let free = rustix::fs::statvfs(there).map(|space| space.f_bavail.saturating_mul(space.f_frsize));
    match free {
        Ok(free) if free < FREE_BYTES_MIN => {
            let advice = "set AMPERE_TRACE=off to write no trace, or choose another directory with -o or AMPERE_OUTPUT";
            group.note("directory", format!("{shown}: {} free", bytes(free)), Some(advice.to_owned()));
        }
        _ if taken.is_some() => {}
        Ok(free) => group.ok("directory", format!("{shown}: {} free", bytes(free))),
        Err(_) => group.ok("directory", shown),
    }
}

/// Returns the reason why a run cannot use a directory, in words that follow the directory's name.
fn why_taken(directory: &Path) -> Option<String> {
    if holds_results(directory) {
        return Some("holds the results of another run".to_owned());
    }
    let node = format!("{CLAIM}{}", ampere_ring::process::node_name());
    let is_claimed = directory.join(&node).exists();
    is_claimed.then(|| format!("is in use by another run, or holds one that was killed ({node})"))
}

/// Tests whether a directory is writable by making a directory in it. Permissions do not show this reliably, for example on
/// network file systems.
fn try_to_write(directory: &Path) -> std::io::Result<()> {
    let trial = directory.join(format!(".ampere-doctor-{}", std::process::id()));
    std::fs::create_dir(&trial)?;
    let _ = std::fs::remove_dir(&trial);
    Ok(())
}

fn look_at_port(group: &mut Group, wanted: Option<&str>) {
    let wanted = match wanted.map(str::parse::<Listen>).transpose() {
        Ok(wanted) => wanted.unwrap_or_default(),
        Err(why) => return group.problem("metrics", why.to_string(), "correct it, or leave it out"),
    };
    match listen::bind(&wanted) {
        Ok((_, Some(note))) => group.note("metrics", note, None),
        Ok((bound, None)) if bound.is_open_to_others() => {
            let found = format!("{}/metrics, which other nodes can reach", bound.url());
            group.note(
                "metrics",
                found,
                Some(
                    "set AMPERE_TOKEN_FILE, or take the token that each run makes in its output directory"
                        .to_owned(),
                ),
            );
        }
        Ok((bound, None)) => {
            let url = bound.url();
            group.ok("metrics", if url.starts_with("http") { format!("{url}/metrics") } else { url });
        }
        Err(why @ BindError::Off) => group.note("metrics", format!("not served: {why}"), None),
        Err(why) => group.problem("metrics", why.to_string(), ""),
    }
}

/// Checks the token of requests. A run does not start if the token cannot be used.
fn look_at_token(group: &mut Group, config: Option<&Path>) {
    // Other mistakes in the settings are reported by another check.
    let Ok(config) = Config::load(config) else { return };
    match (&config.metrics.token_file, Access::load(&config)) {
        (Some(path), Ok(_)) => {
            group.ok("token", format!("{}: requests for metrics must present it", path.display()))
        }
        (_, Err(why)) => group.problem("token", why.to_string(), "correct it, or unset AMPERE_TOKEN_FILE"),
        (None, Ok(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::Status;
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn if_a_directory_has_results_the_place_next_to_it_is_checked() {
        let here = tempfile::tempdir().unwrap();
        let taken = here.path().join("out");
        std::fs::create_dir(&taken).unwrap();
        std::fs::write(taken.join("summary.json"), "{}").unwrap();
        let found = |directory: &Path| {
            let mut group = Group::new("output");
            look_at_directory(&mut group, Some(directory));
            group.checks.iter().map(|check| (check.status, check.found.clone())).collect::<Vec<_>>()
        };
        let shown = taken.display();
        let [(Status::Note, first), ..] = &found(&taken)[..] else { panic!("a note") };
        assert_eq!(*first, format!("{shown} holds the results of another run"));
        // Nothing can be made in /proc, even by root.
        let open = std::fs::File::open(&taken).unwrap();
        let in_proc = format!("/proc/self/fd/{}", open.as_raw_fd());
        let [(Status::Note, _), (Status::Problem, second)] = &found(Path::new(&in_proc))[..] else {
            panic!("a note and a problem");
        };
        assert!(second.starts_with(&format!("{in_proc}: cannot write to /proc/self/fd: ")), "{second}");
    }
}
