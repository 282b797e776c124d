//! Tests with files of settings before and after.

use super::*;

fn setting(name: &str, metric: &str, milliseconds: f64) -> Setting {
    Setting {
        name: name.to_owned(),
        metric: metric.to_owned(),
        delay: milliseconds * 1e-3,
        error: 0.0005,
        how: "2026-11-20, on n1: an estimate, by 20 periods of 1 s".to_owned(),
    }
}

fn gpu(number: usize, milliseconds: f64) -> Setting {
    setting(&format!("GPU-{number}"), &format!("rocm_smi:::energy_count:device={number}"), milliseconds)
}

#[track_caller]
fn after(old: &str, settings: &[Setting]) -> String {
    amend(old, "ampere.toml", "n1", settings).unwrap_or_else(|why| panic!("{why}")).text
}

#[track_caller]
fn refused(old: &str, settings: &[Setting], why: &str) {
    let error = amend(old, "ampere.toml", "n1", settings).unwrap_err().to_string();
    assert!(error.contains(why) && error.starts_with("ampere.toml"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn a_new_file_has_a_section_for_each_counter() {
    let text = after("", &[gpu(0, 119.84), setting("package-0", "rapl:::energy:package-0", 0.0)]);
    assert_eq!(
        text,
        r#"[[device]]
name = "GPU-0"
metric = 'rocm_smi:::energy_count:device=0'
# ampere calibrate, 2026-11-20, on n1: an estimate, by 20 periods of 1 s
delay = "119.8ms"

[[device]]
name = "package-0"
metric = 'rapl:::energy:package-0'
# ampere calibrate, 2026-11-20, on n1: an estimate, by 20 periods of 1 s
delay = "0.0ms"
"#
    );
}

const EXISTING: &str = r#"# Our cluster. Do not touch.
  # (indented)

[attribution]   # how
policy = "busy_only"

[[device]] # the first GPU
name    = "GPU zero"    # as people call it
metric = 'rocm_smi:::energy_count:device=0'
# was guessed
delay = "7ms"   # how far the sensor lags
ranks = [0,
         1]     # two

[sampler]
period = "2ms"

[[device]]
	name = "the rest"
	metric = 'rocm_smi:::energy_count:device=(1|2)'
# the end
"#;

#[test]
fn what_is_there_stays_as_it_is() {
    let text = after(EXISTING, &[gpu(0, 120.0), gpu(1, 30.0), setting("node", "cray_pm:::energy", 55.5)]);
    let mark = "# ampere calibrate, 2026-11-20, on n1: an estimate, by 20 periods of 1 s\n";
    let expected = EXISTING
        .replace("delay = \"7ms\"   #", &format!("{mark}delay = \"120.0ms\"   #"))
        .replace("(1|2)'\n", &format!("(1|2)'\n{mark}delay = \"30.0ms\"\n"));
    let new =
        format!("\n[[device]]\nname = \"node\"\nmetric = 'cray_pm:::energy'\n{mark}delay = \"55.5ms\"\n");
    assert_eq!(text, expected.replace("# the end\n", &format!("{new}# the end\n")));
}

#[test]
fn again_is_the_same_again() {
    let settings = [gpu(0, 120.0), gpu(1, 30.0), setting("node", "cray_pm:::energy", 55.5)];
    let once = after(EXISTING, &settings);
    assert_eq!(after(&once, &settings), once);
    let other = after(&once, &[gpu(0, 121.0)]);
    assert_eq!(other, once.replace("\"120.0ms\"", "\"121.0ms\""));
    assert_eq!(after(EXISTING, &[]), EXISTING);
}

#[test]
fn lines_end_as_they_did() {
    let old = EXISTING.replace('\n', "\r\n");
    let new = after(&old, &[gpu(0, 120.0)]);
    assert_eq!(new.matches('\n').count(), new.matches("\r\n").count());
    assert_eq!(new.replace("\r\n", "\n"), after(EXISTING, &[gpu(0, 120.0)]));
}

#[test]
fn the_delay_is_in_force_where_it_was_measured() {
    let settings = [gpu(0, 120.0), setting("odd.(name)'s $x", "a'b.c(d)$", 30.0)];
    let config = Config::parse(&after(EXISTING, &settings), "ampere.toml").unwrap();
    let delay = |metric: &str| {
        let device = config.devices.iter().find(|device| device.name_for("n1", metric).is_some());
        device.map(|device| (device.name_for("n1", metric).unwrap(), device.delay))
    };
    assert_eq!(
        delay("rocm_smi:::energy_count:device=0"),
        Some(("GPU zero".into(), Duration::from_millis(120)))
    );
    assert_eq!(delay("a'b.c(d)$"), Some(("odd.(name)'s $x".into(), Duration::from_millis(30))));
    assert_eq!(delay("a'bXc(d)$"), None);
    // The section of another node does not apply to this one.
    let old = "[[device]]\nname = \"a\"\nnode = 'other'\nmetric = 'rocm_smi:::energy_count:device=0'\n";
    let config = Config::parse(&after(old, &[gpu(0, 5.0)]), "ampere.toml").unwrap();
    assert_eq!(config.devices.iter().map(|d| d.delay.as_millis()).collect::<Vec<_>>(), [0, 5]);
}

#[test]
fn one_section_of_several_counters_has_one_delay() {
    let old = "[[device]]\nname = \"GPU-$1\"\nmetric = '.*device=(\\d)'\n";
    let text = after(old, &[gpu(0, 30.4), gpu(1, 30.0), gpu(2, 29.5)]);
    assert!(text.contains("delay = \"30.0ms\"") && text.matches("delay").count() == 1, "{text}");
    refused(
        old,
        &[gpu(0, 120.0), gpu(1, 30.0)],
        "about GPU-1 and GPU-0, whose delays differ (30.0ms and 120.0ms)",
    );
}

#[test]
fn what_cannot_be_amended_is_left_alone() {
    refused("[[device]\n", &[gpu(0, 1.0)], "ampere.toml:1");
    refused("[attribution]\npolcy = 1\n", &[gpu(0, 1.0)], "did you mean \"policy\"?");
    let inline = "device = [{ name = \"a\", metric = 'b' }]\n";
    refused(inline, &[gpu(0, 1.0)], "write its devices as [[device]] sections");
}

#[test]
fn damage_is_noticed() {
    // These are possible errors of toml_edit: a lost comment, a changed setting, a delay without effect.
    let settings = [gpu(0, 120.0)];
    let good = after(EXISTING, &settings);
    let mut expected = Config::parse(EXISTING, "x").unwrap();
    expected.devices[0].delay = Duration::from_millis(120);
    let is_good = |new: &str| check(EXISTING, new, &expected, &settings, "n1", "x");
    is_good(&good).unwrap();
    for (from, to) in [
        ("# Our cluster. Do not touch.\n", ""),
        ("ranks = [0,", "ranks = [2,"),
        ("busy_only", "time_sliced"),
        ("\"120.0ms\"", "\"12.0ms\""),
        ("[sampler]", "[samplr]"),
        ("2ms", "3ms"),
    ] {
        assert!(good.contains(from));
        let why = is_good(&good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(why.contains("nothing was written"), "{from}: {why}");
    }
    // All lines are there, and one more.
    let more = good.replacen("policy", "time = true\npolicy", 1);
    assert!(is_good(&more).unwrap_err().to_string().contains("other settings would change"));
    let wrong = format!("{good}[[device]]\nname = \"GPU-5\"\nmetric = 'device=6'\ndelay = \"5.0ms\"\n");
    let why =
        check(EXISTING, &wrong, &expected, &[gpu(0, 120.0), gpu(5, 5.0)], "n1", "x").unwrap_err().to_string();
    assert!(why.contains("the delay of GPU-5 would not be in force"), "{why}");
}

#[test]
fn files_are_replaced_at_once_with_their_mode_and_links() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let names = || {
        let entries = std::fs::read_dir(directory.path()).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    std::fs::write(path("real.toml"), EXISTING).unwrap();
    std::fs::set_permissions(path("real.toml"), std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.toml", path("link.toml")).unwrap();
    let target = Target::check(&path("link.toml")).unwrap();
    assert_eq!(names(), ["link.toml", "real.toml"], "looking leaves nothing");
    let remarks = target.write("n1", &[gpu(0, 120.0)]).unwrap();
    assert!(remarks[0].ends_with("[[device]] \"GPU zero\" has now delay = \"120.0ms\""), "{remarks:?}");
    assert_eq!(names(), ["link.toml", "real.toml"]);
    assert!(std::fs::symlink_metadata(path("link.toml")).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(path("real.toml")).unwrap().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_to_string(path("real.toml")).unwrap(), after(EXISTING, &[gpu(0, 120.0)]));

    // A file that became unusable during the measurement is not changed.
    std::fs::write(path("real.toml"), "half a li").unwrap();
    assert!(target.write("n1", &[gpu(0, 120.0)]).is_err());
    assert_eq!(std::fs::read_to_string(path("real.toml")).unwrap(), "half a li");

    Target::check(&path("new.toml")).unwrap().write("n1", &[gpu(0, 120.0)]).unwrap();
    assert!(Config::load(Some(&path("new.toml"))).is_ok());
    std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
    for (name, why) in [
        ("", "is a directory"),
        ("absent/x.toml", "cannot write"),
        ("dangling", "is a link to a file that is not there"),
        ("real.toml/x", "cannot write"),
    ] {
        let error = Target::check(&path(name)).err().unwrap_or_else(|| panic!("{name}"));
        assert!(format!("{error:#}").contains(why), "{name}: {error:#}");
    }
    assert!(format!("{:#}", Target::check(Path::new("/dev/null")).err().unwrap()).contains("no plain file"));
}

/// The owner of the directory, for example, may have put links in the way of what is written there.
#[test]
fn links_in_the_way_are_not_written_through() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("precious"), "mine").unwrap();
    std::fs::set_permissions(path("precious"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(path("ampere.toml"), EXISTING).unwrap();
    std::fs::set_permissions(path("ampere.toml"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let put = || {
        for name in [format!(".ampere.toml.{}", std::process::id()), ".ampere-ampere.toml.part".to_owned()] {
            let _ = std::fs::remove_file(path(&name));
            std::os::unix::fs::symlink("precious", path(&name)).unwrap();
        }
    };
    put();
    let target = Target::check(&path("ampere.toml")).unwrap();
    put();
    target.write("n1", &[gpu(0, 120.0)]).unwrap();
    assert_eq!(std::fs::read_to_string(path("precious")).unwrap(), "mine");
    assert_eq!(std::fs::metadata(path("precious")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(path("ampere.toml")).unwrap(), after(EXISTING, &[gpu(0, 120.0)]));
    // A file that has become a link since it was checked is not read either.
    std::fs::remove_file(path("ampere.toml")).unwrap();
    std::os::unix::fs::symlink("precious", path("ampere.toml")).unwrap();
    assert!(target.write("n1", &[gpu(0, 120.0)]).is_err());
    assert_eq!(std::fs::read_to_string(path("precious")).unwrap(), "mine");
}
