//! The environment variables that there are, wherever they are read.

use ampere_ring::session::{ENV_DISABLE, ENV_SESSION_BOOT};
use ampere_settings::edit_distance;

pub const PREFIX: &str = "AMPERE_";
/// Read by the collector, with `Config::apply`.
pub const OF_CONFIG: [&str; 17] = [
    "AMPERE_POLICY",
    "AMPERE_SHARING",
    "AMPERE_LOCATIONS",
    "AMPERE_TIME",
    "AMPERE_STREAM_LAG",
    "AMPERE_MOST_SERIES",
    "AMPERE_TRACE",
    "AMPERE_BY_LOCAL_RANK",
    "AMPERE_GAUGES",
    "AMPERE_COLLECTOR_CPUS",
    "AMPERE_SLACK",
    "AMPERE_SAMPLE_PERIOD",
    "AMPERE_COUNTER_WATTS_MAX",
    "AMPERE_COUNTER_GAP",
    "AMPERE_COUNTER_STALE",
    "AMPERE_TOKEN_FILE",
    "AMPERE_ALLOWED_HOSTS",
];
/// Read by the counters, with `Settings::apply_environment`.
pub const OF_COUNTERS: [&str; 8] = [
    ampere_counters::ENV_COUNTERS,
    ampere_counters::ENV_ROCM_SMI_LIBRARY,
    ampere_counters::ENV_AMDSMI_LIBRARY,
    ampere_counters::ENV_NVML_LIBRARY,
    ampere_counters::ENV_ROCM_SMI_RESOLUTION,
    ampere_counters::ENV_IDLE_WATTS,
    ampere_counters::ENV_WATTS_PER_CORE,
    ampere_counters::ENV_SYS_ROOT,
];
/// Read by the plugin, the host and this program.
const OTHERS: [&str; 13] = [
    "AMPERE_CONFIG",
    "AMPERE_OUTPUT",
    "AMPERE_LISTEN",
    "AMPERE_SHM",
    "AMPERE_EVENTS",
    "AMPERE_RING_BYTES",
    "AMPERE_FINALIZE_TIMEOUT",
    "AMPERE_START_TIMEOUT",
    "AMPERE_COLLECTOR",
    ENV_DISABLE,
    "AMPERE_SESSION",
    ENV_SESSION_BOOT,
    "AMPERE_HOST_PLUGIN",
];

pub fn all() -> impl Iterator<Item = &'static str> {
    OF_CONFIG.into_iter().chain(OF_COUNTERS).chain(OTHERS)
}

pub fn is_known(name: &str) -> bool {
    all().any(|known| known == name)
}

/// The one that is meant by a name that is none, if it can be told.
pub fn meant_by(name: &str) -> Option<&'static str> {
    let nearest = all().min_by_key(|known| edit_distance(name, known))?;
    // A third of it is another word altogether.
    (edit_distance(name, nearest) * 3 <= nearest.len() - PREFIX.len()).then_some(nearest)
}

/// One line for each variable that looks like one of ours and is none. Of others nothing is said: AMPERE_ROOT and the like
/// come from environment modules.
pub fn tell_of_misspelt() {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let unknown = names.filter(|name| name.starts_with(PREFIX) && !is_known(name));
    for (name, meant) in unknown.filter_map(|name| meant_by(&name).map(|meant| (name, meant))) {
        say!("ampere: {name} is not known and changes nothing: did you mean {meant}?");
    }
}
