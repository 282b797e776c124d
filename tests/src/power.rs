//! The attributed power in a run's trace, as python3-otf2 reads it.

use crate::runs::{succeed, text};
use std::path::Path;
use std::process::Command;

/// Integrates the power of each location of `traces.otf2` and compares it with `summary.json` in one directory.
const CHECK: &str = r#"
import collections, json, os, sys
import otf2

run = sys.argv[1]
summary = json.load(open(os.path.join(run, "summary.json")))
joules, last, values = collections.Counter(), {}, collections.Counter()
with otf2.reader.open(os.path.join(run, "traces.otf2")) as trace:
    ticks = trace.timer_resolution
    first = trace.definitions.clock_properties.global_offset
    length = trace.definitions.clock_properties.trace_length
    for location, event in trace.events:
        if not isinstance(event, otf2.events.Metric) or event.metric.members[0].name != "attributed power":
            continue
        member = event.metric.members[0]
        assert (member.unit, member.metric_mode) == ("W", otf2.MetricMode.ABSOLUTE_LAST), member
        stream = location.type == otf2.LocationType.ACCELERATOR_STREAM
        assert stream or location.type == otf2.LocationType.CPU_THREAD, location
        assert first <= event.time <= first + length
        watts, node = event.value, location.group.system_tree_parent
        while node.class_name != "node": node = node.parent
        key = node.name, location.group.name, location.name
        if key in last:
            assert event.time > last[key] and watts >= 0, (key, event.time, last[key], watts)
            joules["kernels" if stream else "ranks", *key] += watts * (event.time - last[key]) / ticks
        last[key] = event.time
        values[key] += 1

names, parts = summary["names"], {(d["node"], p) for d in summary["devices"] for p in d.get("contains", [])}
expected, totals = collections.Counter(), collections.Counter()
for device in summary["devices"]:
    if (device["node"], device["name"]) in parts or device.get("unit", "J") != "J": continue
    for view in device["views"]:
        totals[view["view"]] += view["attributed_joules"]
        table = view["callpaths"]
        for group, location, own in zip(table["location_group"], table["location"], table["exclusive_joules"]):
            expected[view["view"], device["node"], names[group], names[location]] += own
for key in expected.keys() | joules.keys():
    # Rows have nine digits.
    assert abs(expected[key] - joules[key]) <= 1e-8 * expected[key] + 1e-9, (key, expected[key], joules[key])
for view, total in totals.items():
    found = sum(j for key, j in joules.items() if key[0] == view)
    assert abs(found - total) <= 1e-9 * total, (view, found, total)
print(len(values), sum(values.values()), json.dumps(totals))
"#;

/// Panics if the integral of a power differs from the joules that the summary attributes there. Returns the number of locations
/// with a power, and the number of values.
#[track_caller]
pub fn assert_power_matches_summary(run: &Path) -> (usize, usize) {
    let output = text(&succeed(Command::new("/usr/bin/python3").args(["-c", CHECK]).arg(run)).stdout);
    let mut numbers = output.split_whitespace().map(|word| word.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
