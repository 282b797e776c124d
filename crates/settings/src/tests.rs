//! Tests of whole files, of mistakes and of the environment.

use crate::{Config, CustomUnit, GaugePeriod, Locations, Origin, SETTINGS};
use ampere_attribution::{Policy, Sharing};
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn a_whole_file_is_understood() {
    let text = r#"
        [[device]]
        name = "GPU-$1"
        node = 'frontier\d+'
        metric = 'A2rocm_smi:::energy_count:device=(\d)'
        kind = "cumulative"
        scale = 1e-6
        wraps_at = 4294967296
        delay = "2ms"
        baseline_watts = 60
        calibrated = true
        locations = ['HIP\[0:\d+\]']
        ranks = [0, 1]
        [[source]]
        name = "node meter"
        command = "ipmitool dcmi power reading"
        pattern = 'Instantaneous power reading:\s+(\d+)'
        unit = "W"
        scale = 0.1
        every = "2s"
        contains = ["package.*", "GPU-.*"]
        [[source]]
        name = "card"
        file = "/sys/card/energy"
        unit = "J"
        [attribution]
        policy = "busy_only"
        sharing = "independent"
        locations = "all"
        time = true
        stream_lag = "10s"
        [sampler]
        period = "500us"
        gauges = "2s"
        [estimate]
        idle_watts = 50
        [counters]
        watts_max = 2_000
        gap = 10
        stale = "3s"
        [metrics]
        most_series = 0x10
        allowed_hosts = ["a", "b"]
    "#;
    let config = Config::parse(text, "ampere.toml").unwrap();
    let device = &config.devices[0];
    let metric = "A2rocm_smi:::energy_count:device=3";
    assert_eq!(device.name_for("frontier09408", metric).as_deref(), Some("GPU-3"));
    assert_eq!(device.name_for("elcap1", metric), None);
    assert_eq!(device.name_for("frontier09408", &format!("{metric}0")), None, "the whole name must match");
    assert_eq!((device.delay, device.instantaneous), (Duration::from_millis(2), Some(false)));
    assert_eq!((device.baseline_watts, device.calibrated), (Some(60.0), true));
    assert_eq!((device.wraps_at, device.scale), (Some(1 << 32), Some(1e-6)));
    assert_eq!(device.listed_ranks(), Some(&vec![0, 1]));
    let [meter, card] = &config.sources.custom[..] else { panic!("{:?}", config.sources.custom) };
    assert_eq!(meter.origin, Origin::Command("ipmitool dcmi power reading".to_owned()));
    assert_eq!((meter.unit, meter.scale, meter.every), (CustomUnit::Watts, 0.1, Duration::from_secs(2)));
    assert!(meter.contains("package-0") && !meter.contains("apackage") && !meter.contains("node meter"));
    assert_eq!((card.unit, card.scale, card.every), (CustomUnit::Joules, 1.0, Duration::from_secs(1)));
    assert_eq!(&card.pattern.captures("at -1.5e3 J, 7").unwrap()[1], "-1.5e3", "the first number");
    let attribution = &config.attribution;
    assert_eq!((attribution.policy, attribution.sharing), (Some(Policy::BusyOnly), Sharing::Independent));
    assert_eq!((attribution.locations, attribution.time), (Locations::All, true));
    assert_eq!(attribution.stream_lag, Some(Duration::from_secs(10)));
    assert_eq!(config.sampler.period, Duration::from_micros(500));
    assert_eq!(config.sampler.gauges, GaugePeriod(Some(Duration::from_secs(2))));
    assert_eq!(config.sources.idle_watts, 50.0);
    assert_eq!((config.counters.watts_max, config.counters.gap), (Some(2000.0), Some(10.0)));
    assert_eq!(config.counters.stale, Duration::from_secs(3));
    assert_eq!((config.metrics.most_series, config.metrics.allowed_hosts.len()), (16, 2));
}

#[test]
fn mistakes_are_reported_with_their_line_and_the_remedy() {
    let cases = [
        ("[attribution]\npolcy = \"busy_only\"", "2: unknown key \"polcy\"; did you mean \"policy\"?"),
        ("\n[atribution]\n", "2: unknown key \"atribution\"; did you mean \"attribution\"?"),
        ("[[device]]\nnmae = \"x\"", "2: unknown key \"nmae\"; did you mean \"name\"?"),
        ("# comment\n[sampler]\nperiod = 5", "3: period: a text in quotes is expected, not a number"),
        ("attribution = 3", "1: attribution: a table of settings is expected"),
        ("[trace]\nwrite = \"off\"", "2: write: true or false is expected, not a text in quotes"),
        ("[metrics]\nmost_series = -1", "2: most_series: \"-1\" is not a whole number"),
        ("[attribution]\npolicy = \"fair\"", "2: policy: \"fair\": use active, time_sliced or busy_only"),
        ("[attribution]\nlocations = \"some\"", "2: locations: \"some\": use main or all"),
        (
            "[sampler]\nperiod = \"1 year\"",
            "2: period: \"1 year\" is not a time: write it like \"1ms\" (ns, us, ms, s)",
        ),
        ("[sampler]\nperiod = \"1us\"", "2: period: 1us: use 100us to 10s"),
        ("[sampler]\ngauges = \"1ms\"", "2: gauges: 1ms: use 100ms to 3600s"),
        ("[counters]\ngap = 0.5", "2: gap: 0.5: use a number of 1 or more"),
        ("[counters]\nwatts_max = 0", "2: watts_max: 0: use a number above 0"),
        ("[[device]]\nwraps_at = 0", "2: wraps_at: 0: use a number of 2 or more"),
        ("[[device]]\nwraps_at = 1", "2: wraps_at: 1: use a number of 2 or more"),
        ("[collector]\ncpus = \"3-1\"", "2: cpus: \"3-1\" is not a list of CPUs: write it like 0-3,8"),
        (
            "[[device]]\nname = \"x\"\nmetric = \"(\"",
            "3: metric: \"(\" is not a regular expression: unclosed group",
        ),
        ("\n[[device]]\nname = \"x\"", "2: a [[device]] needs a metric"),
        (
            "[[device]]\nname = \"GPU-$2\"\nmetric = 'energy:(\\d)'",
            "1: device \"GPU-$2\": name: there is no $2, metric = 'energy:(\\d)' has 1 group",
        ),
        (
            "[[device]]\nname = \"GPU$$-$1b\"\nmetric = 'energy:(\\d)'",
            "1: device \"GPU$$-$1b\": name: there is no $1b, metric = 'energy:(\\d)' has 1 group",
        ),
        (
            "[[device]]\nname = \"a\"\nmetric = 'e'\n[[device]]\nname = \"b\"\nmetric = 'e'",
            "4: device \"b\": metric = 'e' is already assigned to device \"a\"",
        ),
        (
            "[[device]]\nname = \"x\"\nmetric = \"e\"\nranks = \"some\"",
            "4: ranks: \"some\": use \"all\", \"found\" or a list like [0, 1]",
        ),
        ("device = 1", "1: write each device as a section [[device]]"),
        ("[[source]]\nnmae = \"x\"", "2: unknown key \"nmae\"; did you mean \"name\"?"),
        ("[[sourc]]\nname = \"x\"", "1: unknown key \"sourc\"; did you mean \"source\"?"),
        ("source = 1", "1: write each source as a section [[source]]"),
        ("[[source]]\ncommand = \"x\"", "1: a [[source]] needs a name"),
        ("[[source]]\nname = \"x\"", "1: source \"x\": it needs either a command or a file"),
        (
            "[[source]]\nname = \"x\"\ncommand = \"a\"\nfile = \"/b\"",
            "1: source \"x\": it needs either a command or a file",
        ),
        ("[[source]]\nname = \"x\"\nfile = \"/b\"", "1: source \"x\": it needs a unit, \"W\" or \"J\""),
        ("[[source]]\nunit = \"kWh\"", "2: unit: \"kWh\": use W or J"),
        ("[[source]]\nevery = \"0s\"", "2: every: 0ns: use 100ms to 60s"),
        ("[[source]]\nscale = 0", "2: scale: 0: use a number above 0"),
        (
            "[[source]]\npattern = 'Power: \\d+'",
            "2: pattern: \"Power: \\\\d+\" has 0 groups: put the number, and nothing else, in parentheses; (?:...) is no group",
        ),
        (
            "[[source]]\nname = \" \"\nfile = \"/b\"",
            "1: source \" \": a name has 1 to 64 bytes, and no blanks at its ends",
        ),
        (
            "[[source]]\nname = \"a:b\"\nfile = \"/b\"",
            "1: source \"a:b\": a name has no colons and no control characters",
        ),
        (
            "[[source]]\nname='a'\nfile='/b'\nunit='W'\n[[source]]\nname='a'\nfile='/b'\nunit='W'",
            "5: source \"a\": there is another [[source]] with this name",
        ),
        (
            "[[source]]\nname='a'\nfile='/b'\nunit='W'\ncontains=['c']\n[[source]]\nname='b'\nfile='/b'\nunit='W'\n\
             contains=['a']\n[[source]]\nname='c'\nfile='/b'\nunit='W'\ncontains=['b']",
            "11: source \"c\": \"a\" contains it, and so it cannot contain \"a\"",
        ),
        ("[sampler\n", "1: unclosed table, expected `]`"),
    ];
    for (text, expected) in cases {
        let error = Config::parse(text, "ampere.toml").unwrap_err().to_string();
        assert_eq!(error, format!("ampere.toml:{expected}"), "{text}");
    }
}

/// In a device's name, `$$` stands for a dollar sign, and a capture may be referred to by its name.
#[test]
fn a_name_is_refused_only_for_captures_that_its_metric_lacks() {
    for (name, metric, expected) in [
        ("A$$1", "energy", "A$1"),
        ("cost in $", "energy", "cost in $"),
        ("$$${1}b", r"energy:(\d)", "$7b"),
        ("GPU-$gpu", r"energy:(?<gpu>\d)", "GPU-7"),
    ] {
        let text = format!("[[device]]\nname = \"{name}\"\nmetric = '{metric}'");
        let config = Config::parse(&text, "ampere.toml").unwrap_or_else(|error| panic!("{error}"));
        let measured = if metric == "energy" { "energy" } else { "energy:7" };
        assert_eq!(config.devices[0].name_for("node", measured).as_deref(), Some(expected), "{name}");
    }
}

/// Returns the settings after setting one variable, or the error.
fn with(variable: &str, value: &str) -> Result<Config, String> {
    let mut config = Config::parse("[attribution]\npolicy = \"busy_only\"", "ampere.toml").unwrap();
    let lookup = |name: &str| (name == variable).then(|| value.to_owned());
    config.apply(&lookup).map_err(|error| error.to_string())?;
    Ok(config)
}

#[test]
fn a_variable_takes_precedence_over_the_file() {
    let config = |variable, value| with(variable, value).unwrap();
    assert_eq!(config("AMPERE_SLACK", "1s").attribution.policy, Some(Policy::BusyOnly));
    assert_eq!(config("AMPERE_POLICY", "time_sliced").attribution.policy, Some(Policy::TimeSliced));
    assert_eq!(config("AMPERE_COUNTER_GAP", "20").counters.gap, Some(20.0));
    assert_eq!(config("AMPERE_GAUGES", "off").sampler.gauges, GaugePeriod(None));
    assert!(config("AMPERE_TIME", "on").attribution.time);
    assert!(!config("AMPERE_TRACE", "0").trace);
    assert_eq!(config("AMPERE_COLLECTOR_CPUS", "0-2, 8").cpus.unwrap().0, [0, 1, 2, 8]);
    assert_eq!(config("AMPERE_COLLECTOR_CPUS", "").cpus, None);
    assert_eq!(config("AMPERE_ALLOWED_HOSTS", "a, b,").metrics.allowed_hosts, ["a", "b"]);
    assert_eq!(config("AMPERE_TOKEN_FILE", "").metrics.token_file, None);
    assert_eq!(config("AMPERE_PUE", "1.2").site.pue, Some(1.2));
    assert_eq!(config("AMPERE_CURRENCY", "EUR").site.currency.as_deref(), Some("EUR"));
    let wrong = |variable, value| with(variable, value).unwrap_err();
    for (variable, value) in
        [("AMPERE_PUE", "0.9"), ("AMPERE_GRAMS_PER_KWH", "-1"), ("AMPERE_PRICE_PER_KWH", "-0.01")]
    {
        assert!(wrong(variable, value).contains(" or more"), "{}", wrong(variable, value));
    }
    assert_eq!(wrong("AMPERE_SHARING", "x"), "AMPERE_SHARING: \"x\": use shared or independent");
    assert_eq!(wrong("AMPERE_TIME", "yes"), "AMPERE_TIME: \"yes\": use on or off");
    assert_eq!(
        wrong("AMPERE_COLLECTOR_CPUS", "4096"),
        "AMPERE_COLLECTOR_CPUS: \"4096\" is not a list of CPUs: CPUs are numbered up to 1023"
    );
}

#[test]
fn a_wrong_variable_of_a_counter_source_is_ignored() {
    let sources =
        |variable, value| with(variable, value).map(|config| (config.sources, config.left_out)).unwrap();
    let names = |value| sources("AMPERE_COUNTERS", value).0.names;
    assert_eq!(names(" rocm_smi, Estimate ,rocm_smi"), Some(vec!["rocm_smi", "estimate"]));
    assert_eq!((names("none"), names("auto"), names("")), (Some(vec![]), None, None));
    assert_eq!(names("rapl,foo"), Some(vec!["rapl"]));
    assert_eq!(names("foo"), None, "chosen automatically");
    let unknown = "AMPERE_COUNTERS: \"foo\" is not known; there are rocm_smi, amdsmi, nvml, cray_pm, rapl, perf, hwmon, \
                   custom, estimate, none and auto";
    assert_eq!(sources("AMPERE_COUNTERS", "rapl,foo").1, [unknown]);
    assert_eq!(sources("AMPERE_COUNTERS", "auto,rapl").1.len(), 1, "auto cannot be combined with a source");
    assert_eq!(sources("AMPERE_ESTIMATE_IDLE_WATTS", "250").0.idle_watts, 250.0);
    let (settings, left_out) = sources("AMPERE_ESTIMATE_IDLE_WATTS", "-4");
    assert_eq!(settings.idle_watts, 100.0);
    assert_eq!(left_out, ["AMPERE_ESTIMATE_IDLE_WATTS: -4: use a number of 0 or more"]);
}

#[test]
fn every_variable_has_one_row_and_a_mistyped_name_finds_it() {
    let names: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.variable).collect();
    assert_eq!(names.len(), SETTINGS.len());
    let meant = |name| crate::Setting::meant_by(name).map(|setting| setting.variable);
    assert_eq!(meant("AMPERE_COUNTER"), Some("AMPERE_COUNTERS"));
    assert_eq!(meant("AMPERE_POLICIE"), Some("AMPERE_POLICY"));
    assert_eq!(meant("AMPERE_ROOT"), None);
    assert_eq!(meant("AMPERE_QUITE_ANOTHER"), None);
}

/// A default, as the reference shows it, can be written into the file.
#[test]
fn defaults_have_the_same_text_when_written_and_read() {
    for setting in SETTINGS {
        let Some((table, key)) = setting.key else { continue };
        let default = setting.default();
        if let Some(value) = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) {
            let text = format!("[{table}]\n{key} = {value}\n");
            let config = Config::parse(&text, "ampere.toml").unwrap();
            assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()), "{text}");
        }
    }
}

#[test]
fn the_reference_has_every_key_and_variable() {
    let page = crate::reference::markdown();
    for setting in SETTINGS {
        assert_eq!(page.matches(&format!("| `{}` |", setting.variable)).count(), 1, "{}", setting.variable);
        assert!(setting.is_internal() || !setting.allowed().is_empty() && !setting.default().is_empty());
    }
    let committed =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/settings.md"));
    assert_eq!(
        page,
        committed.unwrap_or_default(),
        "run: ampere shipped DIR, and copy DIR/docs/settings.md to docs/src"
    );
}

#[test]
fn the_example_in_the_documentation_has_every_key() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/settings-file.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    Config::parse(example, "settings-file.md").unwrap();
    let tables = SETTINGS.iter().filter_map(|setting| setting.key);
    let of_devices = crate::device::KEYS.iter().map(|key| ("device", key.key));
    let of_sources = crate::custom::KEYS.iter().map(|key| ("source", key.key));
    // A source has either a command or a file, and the example has a command.
    for (table, key) in tables.chain(of_devices).chain(of_sources).filter(|key| *key != ("source", "file")) {
        let has_key = |section: &str| section.lines().any(|line| line.starts_with(&format!("{key} ")));
        let sections =
            example.split("\n[").filter(|section| section.trim_start_matches('[').starts_with(table));
        assert!(sections.into_iter().any(has_key), "[{table}] {key}");
    }
}
