//! Dashboards that Grafana can import, and alerts that fire when they should.

use ampere_tests::dashboard::{all, items, panels, queries, substituted, variables};
use ampere_tests::process::program;
use std::collections::HashSet;
use std::process::Command;

#[test]
fn grafana_can_import_them() {
    assert_eq!(all().len(), 5);
    for (file, dashboard) in all() {
        assert!(dashboard["schemaVersion"].as_u64() >= Some(36), "{file}: older than Grafana 10");
        assert!(dashboard["id"].is_null(), "{file}: an id would overwrite another dashboard");
        for field in ["title", "uid"] {
            assert!(dashboard[field].as_str().is_some_and(|text| !text.is_empty()), "{file}: no {field}");
        }
        let sources = items(&dashboard["templating"]["list"]).filter(|v| v["type"] == "datasource");
        assert_eq!(sources.map(|v| &v["name"]).collect::<Vec<_>>(), ["datasource"], "{file}");
        let names: Vec<_> = variables(&dashboard).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["run", "instance", "node", "device", "rank"], "{file}");
    }
}

#[test]
fn panels_have_a_place_a_unit_and_the_chosen_source() {
    for (file, dashboard) in all() {
        let (mut ids, mut taken) = (HashSet::new(), HashSet::new());
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap_or_default();
            assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{file}: {title}: its id is taken");
            let place = |side: &str| panel["gridPos"][side].as_u64().expect("a place");
            let x = place("x");
            let y = place("y");
            let w = place("w");
            let h = place("h");
            assert!(x + w <= 24, "{file}: {title}: wider than the grid");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{file}: {title}: over another panel");
            }
            if panel["type"] == "row" {
                continue;
            }
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
            assert!(unit.is_some(), "{file}: {title}: no unit");
            let references: HashSet<_> = items(&panel["targets"]).map(|target| &target["refId"]).collect();
            assert_eq!(references.len(), items(&panel["targets"]).count(), "{file}: {title}");
            for source in items(&panel["targets"]).chain([panel]).map(|part| &part["datasource"]["uid"]) {
                assert_eq!(source, "${datasource}", "{file}: {title}");
            }
        }
    }
}

#[test]
fn every_variable_is_known_here() {
    for (file, dashboard) in all() {
        for query in queries(&dashboard) {
            let text = substituted(&query.expression);
            assert!(!text.contains('$'), "{file}: {}: {text}", query.of);
        }
    }
}

/// A package's joules are also in those of its node: a sum over all devices would count them twice.
#[test]
fn parts_of_devices_are_not_added_to_them() {
    for (file, dashboard) in all() {
        let device = variables(&dashboard).into_iter().find(|(name, ..)| name == "device");
        assert!(device.is_some_and(|(_, selector, _)| selector.contains("within=~\"$within\"")), "{file}");
        let list = || items(&dashboard["templating"]["list"]);
        let within = list().find(|variable| variable["name"] == "within").expect("a variable");
        assert_eq!(within["current"]["value"], "^$", "{file}");
        let device = list().find(|variable| variable["name"] == "device").expect("a variable");
        assert!(device["allValue"].is_null(), "{file}: all means all that are in the list");
    }
}

/// Figures that were not measured must be marked.
#[test]
fn estimates_are_marked() {
    for (file, dashboard) in all() {
        let text = dashboard.to_string();
        assert!(text.contains("ESTIMATED, not measured"), "{file}");
        assert!(text.contains("SIMULATED, not measured"), "{file}");
        let marked =
            queries(&dashboard).iter().any(|query| query.expression.starts_with("count by (energy)"));
        assert!(marked, "{file}");
    }
}

/// Each alert fires in a case that is made for it, and no alert fires where nothing is wrong. Prometheus accepts both
/// configurations.
#[test]
fn alerts_fire_when_they_should() {
    let Some(promtool) = program("promtool") else {
        println!("skipped: no promtool");
        return;
    };
    let shipped = ampere_tests::root().join("dashboards");
    let place = tempfile::tempdir().expect("a directory");
    let test = place.path().join("alerts_test.yml");
    std::fs::write(&test, include_str!("alerts_test.yml")).expect("it can be written");
    for rules in ["rules.yml", "alerts.yml"] {
        std::fs::copy(shipped.join(rules), place.path().join(rules)).expect("rules can be copied");
    }
    let check = |arguments: &[&str], file: &std::path::Path| {
        let output = Command::new(&promtool).args(arguments).arg(file).output().expect("promtool runs");
        let is_good = output.status.success();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(is_good, "{said}");
    };
    check(&["test", "rules"], &test);
    check(&["check", "config"], &shipped.join("prometheus.yml"));
    check(&["check", "config", "--agent"], &shipped.join("agent.yml"));
}
