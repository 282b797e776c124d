//! The node's collector, and what it samples.

use crate::inert::say;
use crate::process::log_of_this_process;
use crate::session_name::session_name;
use crate::start::{self, Purpose};
use ampere_model::{Definition, Device};
use ampere_ring::session::METRICS_ONLY;
use ampere_ring::{LogReader, LogWriter, Session};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the counters may take to open. A GPU library takes up to a second.
const DEVICES_LIMIT: Duration = Duration::from_secs(10);

pub struct Node {
    session: Session,
    pub devices: Vec<Device>,
    /// The collector's notes about counters that it could not open.
    pub notes: Vec<String>,
    /// In a session of our own, what says that this process is in it.
    own_log: Option<LogWriter>,
}

impl Node {
    /// Where the substrate plugin runs too, its collector is the node's one reader of counters. Else there is one for the
    /// metrics alone, which leaves nothing behind.
    pub fn find() -> Result<Node, String> {
        let (session, own_log) = if substrate_plugin_is_wanted() {
            let session = Session::open_or_create(&session_name()).map_err(|e| e.to_string())?;
            if !session.collector_is_alive() {
                return Err("ampere's collector does not run".to_owned());
            }
            (session, None)
        } else {
            join_own_session()?
        };
        let devices = wait_for_devices(&session)?;
        let notes = ampere_ring::files::read_text(&session.directory().join("sampler.notes"));
        Ok(Node { session, devices, notes: notes.lines().map(str::to_owned).collect(), own_log })
    }

    pub fn want_samples(&self) {
        self.session.want_samples();
    }

    pub fn samples_of(&self, device: u32) -> PathBuf {
        ampere_ring::samples::path_of(self.session.directory(), device as usize)
    }

    pub fn collector_is_alive(&self) -> bool {
        self.session.collector_is_alive()
    }

    /// The collector of our own session ends when the last process has said this.
    pub fn leave(&mut self) {
        if let Some(mut log) = self.own_log.take() {
            log.append(&Definition::Finished { left_out: 0 });
            self.session.leave();
        }
    }
}

fn join_own_session() -> Result<(Session, Option<LogWriter>), String> {
    let session =
        Session::open_or_create(&format!("{}{METRICS_ONLY}", session_name())).map_err(|e| e.to_string())?;
    let joined = start::ensure_collector(&session, Purpose::CountersOnly)
        .and_then(|()| log_of_this_process(&session, ampere_ring::clock::read_clocks()));
    match joined.map(|own| own.log) {
        Ok(log) => {
            session.join();
            let notes = ampere_ring::files::read_text(&session.directory().join("settings.notes"));
            notes.lines().for_each(say);
            Ok((session, Some(log)))
        }
        Err(why) => {
            if crate::session_name::is_of_this_process(&session_name()) {
                session.remove(); // nobody else would ever look at it
            }
            Err(why)
        }
    }
}

fn substrate_plugin_is_wanted() -> bool {
    let separator = std::env::var("SCOREP_SUBSTRATE_PLUGINS_SEP").ok().filter(|text| !text.is_empty());
    let separators = separator.unwrap_or_else(|| ",".to_owned());
    let plugins = std::env::var("SCOREP_SUBSTRATE_PLUGINS").unwrap_or_default();
    plugins.split(|c| separators.contains(c)).any(|plugin| plugin == "ampere")
}

/// The sampler removes its ring before it writes the list of devices, and makes it afterwards: a list that was read while one
/// and the same ring was there is whole.
fn wait_for_devices(session: &Session) -> Result<Vec<Device>, String> {
    let ring = session.directory().join("sampler.0.ring");
    let which = || std::fs::metadata(&ring).map(|found| found.ino()).ok();
    let begun = Instant::now();
    loop {
        let before = which();
        let devices = read_devices(session);
        if let (Some(devices), true) = (devices, before.is_some() && before == which()) {
            return Ok(devices);
        }
        if !session.collector_is_alive() {
            return Err("ampere's collector ended before it had opened a counter".to_owned());
        }
        if begun.elapsed() > DEVICES_LIMIT {
            return Err(format!(
                "ampere's collector has not opened its counters within {} s: leave out what hangs with AMPERE_COUNTERS",
                DEVICES_LIMIT.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read_devices(session: &Session) -> Option<Vec<Device>> {
    let mut log = LogReader::open(&session.directory().join("sampler.defs")).ok()??;
    let mut devices = Vec::new();
    let each = |definition| {
        if let Definition::Device(device) = definition {
            devices.push(device);
        }
    };
    log.read_new(each).ok()?;
    Some(devices)
}
