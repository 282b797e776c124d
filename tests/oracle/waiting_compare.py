#!/usr/bin/python3
"""Compares the waiting of `ampere attribute` with that of waiting.py, on random traces.

    waiting_compare.py AMPERE FIRST COUNT [OPTION..]      FIRST is the first trace's seed; OPTIONS are those of waiting_traces.py

It compares `run.waiting`, the `waited_joules` of each device's rows, and the `caused_waiting_joules` of all devices' rows. Each trace that
differs is a line on standard error, at most 20 of them, and makes the exit status 1.
"""
import json, subprocess, sys, tempfile
from collections import Counter
import waiting
from waiting_traces import RandomProgram


def paths_of(summary):
    """-> the call path of each row of the tree"""
    names, parents = summary["names"], summary["paths"]["parent"]
    paths = []
    for parent, name in zip(parents, summary["paths"]["name"]):
        assert parent is None or parent < len(paths), "a parent follows its child"
        paths.append((paths[parent] + ";" if parent is not None else "") + names[name])
    return paths


def column(summary, device, paths, name):
    """-> a column of the device's ranks view, by rank and call path; a summary without any waiting has no such column"""
    joules = Counter()
    for view in device["views"]:
        if view["view"] == "ranks":
            rows = view["callpaths"]
            for path, group, value in zip(rows["path"], rows["location_group"], rows.get(name, [])):
                joules[summary["names"][group], paths[path]] += value or 0.0
    return joules


def sums(rows):
    joules = Counter()
    for row in rows:
        joules[row["rank"], row["path"]] += row["joules"]
    return joules


def differences(summary, expected):
    paths, nothing = paths_of(summary), {"joules": 0.0, "matched_messages": 0, "unmatched_messages": 0, "kinds": {}}
    waiting_of_run = summary["run"].get("waiting", nothing)
    for name in "matched_messages", "unmatched_messages":
        if waiting_of_run[name] != expected[name]:
            yield f"{name}: {waiting_of_run[name]} is not {expected[name]}"
    whole = sum(device["total"] for device in expected["devices"])
    joules = {"joules": sum(device["joules"] for device in expected["devices"])}
    yield from different("run.waiting", {"joules": waiting_of_run["joules"]}, joules, whole)
    kinds = Counter()
    for row in (row for device in expected["devices"] for row in device["waited"]):
        kinds[row["kind"]] += row["joules"]
    yield from different("run.waiting.kinds", waiting_of_run["kinds"], kinds, whole)
    caused, caused_here = Counter(), Counter()
    for device in summary["devices"]:
        there = next(d for d in expected["devices"] if d["name"] == device["name"])
        found = column(summary, device, paths, "waited_joules")
        yield from different(f"{device['name']} waited", found, sums(there["waited"]), there["total"])
        caused.update(column(summary, device, paths, "caused_waiting_joules"))
        caused_here.update(sums(there["caused"]))
    yield from different("caused", caused, caused_here, whole)


def different(what, found, expected, total):
    """Figures have nine digits; small ones have fewer, because waiting.py subtracts sums."""
    for key in sorted({*found, *expected}, key=str):
        a, b = found.get(key, 0.0), expected.get(key, 0.0)
        if abs(a - b) > 6e-9 * max(abs(a), abs(b)) + 1e-12 * abs(total):
            yield f"{what} {key}: {a!r} is not {b!r}"


def compare(ampere, seed, options, seen):
    with tempfile.TemporaryDirectory() as place:
        generated = RandomProgram(seed, options).generate()
        generated.write(place + "/t")
        command = [ampere, "attribute", place + "/t/traces.otf2", "--config", place + "/t/ampere.toml", "--policy", generated.policy, "--json"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            return [f"exit status {run.returncode}: {run.stderr.strip()}"]
        _, waits, expected = waiting.compute(place + "/t/traces.otf2", generated.config())
        seen.update(wait[2] for wait in waits.listed())
        return list(differences(json.loads(run.stdout), expected))


def main():
    ampere, first, count, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    seen, wrong = Counter(), 0
    for seed in range(first, first + count):
        found = compare(ampere, seed, options, seen)
        wrong += bool(found)
        if found and wrong <= 20:
            print(f"{' '.join([str(seed), *options])}: {found[0]}" + (f" (and {len(found) - 1} more)" if found[1:] else ""), file=sys.stderr)
    print(f"{count - wrong} of {count} random traces agree with waiting.py, with these waits: {dict(sorted(seen.items()))}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
