use super::*;
use ampere_figures::losses::Losses;
use ampere_figures::summary::Run;
use ampere_settings::Config;
use ampere_timeline::attributor::Attributor;

fn device(name: &str, joules: f64, contains: &[&str], regions: &[(&str, f64)]) -> Device {
    let rows: Vec<serde_json::Value> = regions
        .iter()
        .map(|(region, joules)| {
            serde_json::json!({"region": region, "calls": 1, "exclusive_joules": joules, "inclusive_joules": joules,
                "resolved_joules": 0.0, "exclusive_seconds": 1.0, "resolved_seconds": 0.0})
        })
        .collect();
    let attributed: f64 = regions.iter().map(|row| row.1).sum();
    serde_json::from_value(serde_json::json!({
        "node": "n", "name": name, "metric": name, "source": "s", "energy": "measured", "contains": contains,
        "samples": 1, "sampled_seconds": 10.0, "total_joules": joules,
        "views": [{"view": "ranks", "policy": "p", "sharing": "s", "attributed_joules": attributed,
            "idle_joules": joules - attributed, "lost_joules": 0.0, "conservation_error_joules": 0.0,
            "callpaths": ampere_figures::summary::Callpaths::default(), "regions": rows}],
    }))
    .expect("a device")
}

fn summary(energy: &str, devices: Vec<Device>) -> Summary {
    let attributor = Attributor::new(Config::default(), 1);
    let mut summary = Summary::new(&attributor, None, Run::default(), Losses::default());
    (summary.run.seconds, summary.run.energy, summary.devices) = (10.0, energy.to_owned(), devices);
    summary
}

#[test]
fn a_contained_device_is_not_counted_twice() {
    let rows = [("work", 60.0), ("MPI_Recv", 30.0)];
    let node = device("node", 100.0, &["GPU-0"], &rows);
    let said = sentences(&summary("measured", vec![node, device("GPU-0", 80.0, &[], &rows)]));
    assert_eq!(
        said,
        [
            "100 J in 10.0 s, 10.0 W on average; 10.0 % of it in no function",
            "most of the total in work (60.0 %), MPI_Recv (30.0 %)",
            "30.0 J (30.0 %) in MPI functions, where ranks exchange data and wait: most in MPI_Recv (30.0 J)",
        ]
    );
}

#[test]
fn estimated_joules_are_marked() {
    let said = sentences(&summary("estimated", vec![device("node", 100.0, &[], &[])]));
    assert_eq!(said, ["100 J in 10.0 s, 10.0 W on average, estimated; 100.0 % of it in no function"]);
    assert!(sentences(&summary("none", Vec::new())).is_empty());
}

#[test]
fn only_the_kernels_view_shows_its_own_idle_joules() {
    let mut gpu = device("GPU-0", 100.0, &[], &[("kernel", 40.0)]);
    gpu.views[0].view = "kernels".to_owned();
    assert_eq!(
        sentences(&summary("measured", vec![gpu])),
        [
            "100 J in 10.0 s, 10.0 W on average; 60.0 % of it in no function",
            "the largest part of the total in kernel (40.0 %)"
        ]
    );
    let mut unused = device("GPU-0", 100.0, &[], &[]);
    unused.views.clear();
    assert!(sentences(&summary("measured", vec![unused]))[0].ends_with("; 0.0 % of it in no function"));
}

#[test]
fn standard_errors_add_up_on_a_node_and_not_over_nodes() {
    let of = |node: &str, name: &str, error: f64| {
        let mut device = device(name, 100.0, &[], &[("work", 60.0)]);
        node.clone_into(&mut device.node);
        device.views[0].regions[0].sampled_error_joules = Some(error);
        device
    };
    let devices = vec![of("a", "GPU-0", 1.0), of("a", "GPU-1", 2.0), of("b", "GPU-0", 4.0)];
    let summary = summary("measured", devices);
    assert_eq!(Sums::of(&summary).sampled_errors, [("work", 5.0)].into());
}
