//! The node's collector and the devices that it samples.

use crate::error::Error;
use crate::inert::report;
use crate::process::log_of_this_process;
use crate::start;
use ampere_model::{Counted, Definition, Device, OTHER_JOBS_CPU_TIME};
use ampere_ring::session::METRICS_ONLY;
use ampere_ring::session_name::{is_of_this_process, session_name};
use ampere_ring::start::Purpose;
use ampere_ring::{LogReader, LogWriter, Session};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest time that opening the counters may take. A GPU library takes up to a second.
const OPENING_TIME_MAX: Duration = Duration::from_secs(10);

/// The node's session, and the devices that its collector has found.
pub struct Node {
    session: Session,
    /// The devices that the collector samples.
    pub devices: Vec<Device>,
    /// The collector's notes about counters that it could not open.
    pub notes: Vec<String>,
    /// The log that shows that this process is in the session, if the session was made for the metrics alone.
    own_log: Option<LogWriter>,
}

impl Node {
    /// Finds the collector of the substrate plugin, if that is loaded as well: only one process of a node reads counters.
    /// Otherwise starts one for the metrics alone, which leaves no results.
    pub fn find() -> Result<Node, Error> {
        let (session, own_log) = if substrate_plugin_is_wanted(|name| std::env::var(name).ok()) {
            let session = Session::open_or_create(&session_name())?;
            if !session.collector_is_alive() {
                return Err(Error::CollectorIsNotRunning);
            }
            (session, None)
        } else {
            join_own_session()?
        };
        let devices = wait_for_devices(&session)?;
        let notes = ampere_ring::files::read_text(&session.directory().join("sampler.notes"));
        Ok(Node { session, devices, notes: notes.lines().map(str::to_owned).collect(), own_log })
    }

    /// Asks the collector to keep the series of samples.
    pub fn want_samples(&self) {
        self.session.want_samples();
    }

    pub fn samples_of(&self, device: u32) -> PathBuf {
        ampere_ring::samples::path_of(self.session.directory(), device as usize)
    }

    /// Whether the collector's process is running.
    pub fn collector_is_alive(&self) -> bool {
        self.session.collector_is_alive()
    }

    /// Leaves a session of our own, whose collector ends when the last process has left.
    pub fn leave(&mut self) {
        if let Some(mut log) = self.own_log.take() {
            log.append(&Definition::Finished { left_out: 0 });
            self.session.leave();
        }
    }
}

fn join_own_session() -> Result<(Session, Option<LogWriter>), Error> {
    let session = Session::open_or_create(&format!("{}{METRICS_ONLY}", session_name()))?;
    let joined = start::ensure_collector(&session, Purpose::CountersOnly)
        .and_then(|()| log_of_this_process(&session, ampere_ring::clock::read_clocks()));
    match joined.map(|own| own.log) {
        Ok(log) => {
            session.join();
            let notes = ampere_ring::files::read_text(&session.directory().join("settings.notes"));
            notes.lines().for_each(report);
            Ok((session, Some(log)))
        }
        Err(why) => {
            if is_of_this_process(&session_name()) {
                session.remove(); // no other process would remove it
            }
            Err(why)
        }
    }
}

/// Whether Score-P's variables make it load the substrate plugin.
fn substrate_plugin_is_wanted(variable: impl Fn(&str) -> Option<String>) -> bool {
    let separator = variable("SCOREP_SUBSTRATE_PLUGINS_SEP").filter(|text| !text.is_empty());
    let separators = separator.unwrap_or_else(|| ",".to_owned());
    let plugins = variable("SCOREP_SUBSTRATE_PLUGINS").unwrap_or_default();
    plugins.split(|c| separators.contains(c)).any(|plugin| plugin == "ampere")
}

/// Waits for a complete list of devices. The sampler removes its ring before it writes the list, and makes a new one afterwards:
/// a list is complete if the same ring existed before and after it was read.
fn wait_for_devices(session: &Session) -> Result<Vec<Device>, Error> {
    let ring = session.directory().join("sampler.0.ring");
    let ring_inode = || std::fs::metadata(&ring).map(|found| found.ino()).ok();
    let begun = Instant::now();
    loop {
        let before = ring_inode();
        let devices = read_devices(session);
        if let (Some(devices), true) = (devices, before.is_some() && before == ring_inode()) {
            return Ok(devices);
        }
        if !session.collector_is_alive() {
            return Err(Error::CollectorEnded);
        }
        if begun.elapsed() > OPENING_TIME_MAX {
            return Err(Error::CountersNotOpened(OPENING_TIME_MAX));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read_devices(session: &Session) -> Option<Vec<Device>> {
    let mut log = LogReader::open(&session.directory().join("sampler.defs")).ok()??;
    let mut devices = Vec::new();
    let each = |definition| {
        if let Definition::Device(device) = definition
            && is_offered(&device.metric)
        {
            devices.push(device);
        }
    };
    log.read_new(each).ok()?;
    Some(devices)
}

/// Whether a series of the sampler is a metric for Score-P. Units of work, ranges and events are no energy. The CPU time of other
/// jobs is left out, because Score-P's trace has no CPU times to compare it with.
fn is_offered(metric: &str) -> bool {
    metric != OTHER_JOBS_CPU_TIME && Counted::of_metric(metric).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_energy_is_offered() {
        let series =
            [OTHER_JOBS_CPU_TIME, "ampere::events::instructions", "ampere::work::steps", "cray_pm:::energy"];
        assert_eq!(series.map(is_offered), [false, false, false, true]);
    }

    #[test]
    fn the_substrate_plugin_is_wanted_if_score_ps_list_names_it() {
        let lists = [
            ("ampere", "", true),
            ("a,ampere", "", true),
            ("a;ampere", "", false),
            ("a;ampere", ":;", true),
            ("ampere2", "", false),
            ("", "", false),
        ];
        for (plugins, separators, expected) in lists {
            let variable = |name: &str| {
                let text = if name == "SCOREP_SUBSTRATE_PLUGINS" { plugins } else { separators };
                Some(text.to_owned())
            };
            assert_eq!(substrate_plugin_is_wanted(variable), expected, "{plugins:?} by {separators:?}");
        }
        assert!(!substrate_plugin_is_wanted(|_| None));
    }
}
