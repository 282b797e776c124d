#!/usr/bin/python3
"""Independent reference for energy attribution, to test against (needs Debian's python3-otf2).

usage: attribute.py TRACE.otf2 CONFIG.json [> result.json]

CONFIG.json: {"devices": [{"name": "GPU-0", "node": "frontier09408" (optional),
                           "metric": "A2rocm_smi:::energy_count:device=0",
                           "scale": 1e-6 (optional: joules or watts per unit; without it the metric's unit, base and exponent),
                           "kind": "cumulative" | "instantaneous" (optional),
                           "recorder": "MPI Rank 0" (optional: the location group, or "<group>/<location>", that recorded it; needed
                                                     where several recorded a metric of this name on one node),
                           "baseline_watts": 60.0 (optional, for `active`: what the device draws without this job),
                           "activity": "ampere::cpu_time" (optional, for `active`: a cumulative metric in seconds that locations record),
                           "kernels": {"MPI Rank 0": ["HIP[0:0]"]} (optional, for `active` and a GPU: streams of each process, by its
                                                                    location group; a stream is named like a consumer),
                           "consumers": ["HIP[0:0]", "MPI Rank 0/Master thread"]}]}
A consumer is a location: its name, or "<location group>/<location>". Names that the trace lacks are ignored.
All readings are taken to be correct. For misreadings, a test must know the right values itself.

Three policies, all conserving (attributed + idle == total of the counter between first and last sample):
  time_sliced  the counter is linear between two samples; at every instant its slope is shared evenly
               by the consumers whose call stack is not empty, or is idle if there is none.
  busy_only    the whole increase of a sample interval goes to the frames that ran in it, in proportion
               to their exclusive run time there, and to idle only if none ran at all.
  active       an interval's joules are static (baseline watts times its length, at most all of them) and dynamic (the rest). Static
               joules are divided as by time_sliced; dynamic ones in proportion to the time that each frame was active in the interval,
               and are idle if nothing was. A location with the activity metric was active for the seconds that the metric counts; one
               without it, whenever a frame was open. The activity of a process's locations that are not consumers is divided among the
               frames of its first consumer, by the time that each was open in the interval. On a device with "kernels", only
               those count: a process was active while at least one of its streams had a frame open. 'exclusive' is static + dynamic. With
               this policy, 'resolved' and 'possible' are the dynamic joules of the intervals in which only this call path was active, and of
               those in which it was active at all.
'exclusive' is keyed by call path ("main;solve;MPI_Send"); 'inclusive' by region, recursion counted once.
'resolved' is the least that a call path can have spent: the sample intervals in which one consumer was in it from end to end and no
other consumer was active. 'possible' is the most: all sample intervals in which it ran at all. If two samples have the same time,
the joules between them may belong to paths that ran until then. Both are keyed by call path; 'possible_regions' is 'possible' by
innermost region.
A power metric's value holds from its sample until the next one or, if OTF2's mode is "last", from the previous sample until its own.
A location whose event file is missing is skipped, and listed under "skipped". A region that is never left ends with the last enter,
leave or sample of its location.
"""
import bisect, json, os, sys
from collections import defaultdict
import otf2


def node_of(location):
    node = location.group.system_tree_parent
    while node is not None and node.class_name != "node":
        node = node.parent
    return node.name if node is not None else ""


CONTEXTS = otf2.events.CallingContextLeave, otf2.events.CallingContextEnter, otf2.events.CallingContextSample


def path_of(context):
    return path_of(context.parent) + [context.region.name] if context is not None else []


def read(trace_path):
    """-> (skipped, segments per location key, samples and definition per (node, metric, recorder), ticks a second)"""
    events_dir = os.path.splitext(trace_path)[0]
    stacks, opened = defaultdict(list), {}
    segments, samples, skipped, units = defaultdict(list), defaultdict(list), [], {}
    with otf2.reader.open(trace_path) as reader:
        present = []
        for location in reader.definitions.locations:
            path = os.path.join(events_dir, f"{location._ref}.evt")
            (present if os.path.exists(path) else skipped).append(location)
        nodes = {location: node_of(location) for location in reader.definitions.locations}
        hz = reader.timer_resolution
        for location, event in reader.events(present):
            stack = stacks[location]
            if isinstance(event, (otf2.events.Enter, otf2.events.Leave, *CONTEXTS)):
                if stack and event.time > opened[location]:
                    segments[location].append((opened[location], event.time, tuple(stack)))
                opened[location] = event.time
                if isinstance(event, otf2.events.Enter):
                    stack.append(event.region.name)
                elif isinstance(event, CONTEXTS):
                    stack[:] = path_of(event.calling_context)[:-1 if isinstance(event, CONTEXTS[0]) else None]
                elif stack:
                    stack.pop()
            elif isinstance(event, otf2.events.Metric):
                values = zip(event.metric.members, event.values) if hasattr(event, "values") else [(event.member, event.value)]
                for member, value in values:
                    recorder = (location.group.name, location.name)
                    series = samples[nodes[location], member.name, recorder]
                    series.append((event.time, value))
                    units[nodes[location], member.name, recorder] = member
    by_key = {}
    for location, runs in segments.items():
        by_key[nodes[location], location.name, location.group.name] = runs
    return [f"{l.group.name}/{l.name}" for l in skipped], by_key, samples, units, hz


RELATIVE = [getattr(otf2.enums.MetricMode, f"RELATIVE_{m}") for m in ("POINT", "LAST", "NEXT")]
PREFIX = {"n": 1e-9, "u": 1e-6, "\u00b5": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}


def scale_of(member):
    """Joules or watts per unit, by the metric's definition."""
    unit = member.unit.strip()
    prefix = PREFIX.get(unit[:-1], 1.0) if unit[-1:] in ("J", "W") else 1.0
    base = 2.0 if member.base == otf2.enums.Base.BINARY else 10.0
    return prefix * base ** member.exponent


def cumulative(series, scale, kind, hz, backward=False):
    """-> times, joules since the first sample"""
    times = [t for t, _ in series]
    if kind == "instantaneous":
        total, joules = 0.0, [0.0]
        for (t0, v0), (t1, v1) in zip(series, series[1:]):
            total += (v1 if backward else v0) * scale * (t1 - t0) / hz
            joules.append(total)
        return times, joules
    return times, [(v - series[0][1]) * scale for _, v in series]


def at(times, joules, t):
    if t <= times[0]:
        return joules[0]
    if t >= times[-1]:
        return joules[-1]
    i = bisect.bisect_right(times, t)
    t0, t1 = times[i - 1], times[i]
    return joules[i - 1] + (joules[i] - joules[i - 1]) * (t - t0) / (t1 - t0)


def time_sliced(times, joules, consumers):
    changes = []
    for c, runs in enumerate(consumers):
        for start, end, path in runs:
            changes.append((start, 1, c, path))
            changes.append((end, 0, c, path))
    changes.sort(key=lambda x: (x[0], x[1]))
    active, spent, idle, previous = {}, defaultdict(float), 0.0, times[0]
    for t, entering, c, path in changes + [(times[-1], 0, None, None)]:
        now = min(max(t, times[0]), times[-1])
        delta = at(times, joules, now) - at(times, joules, previous)
        if active:
            for current in active.values():
                spent[current] += delta / len(active)
        else:
            idle += delta
        previous = now
        if entering:
            active[c] = path
        elif c is not None and active.get(c) is path:
            del active[c]
    return spent, idle


def busy_only(times, joules, consumers):
    spent, idle = defaultdict(float), 0.0
    cursors = [0] * len(consumers)
    for i in range(1, len(times)):
        lo, hi, run = times[i - 1], times[i], defaultdict(float)
        for c, runs in enumerate(consumers):
            k = cursors[c]
            while k < len(runs) and runs[k][1] <= lo:
                k += 1
            cursors[c] = k
            while k < len(runs) and runs[k][0] < hi:
                run[runs[k][2]] += min(runs[k][1], hi) - max(runs[k][0], lo)
                k += 1
        total, delta = sum(run.values()), joules[i] - joules[i - 1]
        if total > 0:
            for path, ticks in run.items():
                spent[path] += delta * ticks / total
        else:
            idle += delta
    return spent, idle


def union(runs, hz):
    """-> the activity of a process whose streams had these runs: the seconds for which at least one was open"""
    times, seconds = [0], [0.0]
    for start, end, _ in sorted(runs):
        start = max(start, times[-1])
        if end > start:
            times += [start, end]
            seconds += [seconds[-1], seconds[-1] + (end - start) / hz]
    return times, seconds


def active_parts(times, joules, consumers, baseline, hz):
    """consumers: (runs, own activity or None, activities of the process' other locations); an activity is (times, seconds)
    -> static, dynamic, least and most dynamic joules of each call path, idle joules"""
    static = [0.0]
    for i in range(1, len(times)):
        static.append(static[-1] + min(joules[i] - joules[i - 1], baseline * (times[i] - times[i - 1]) / hz))
    still, idle = time_sliced(times, static, [runs for runs, _, _ in consumers])
    moving, least, most = defaultdict(float), defaultdict(float), defaultdict(float)
    rose = lambda activity, a, b: at(*activity, b) - at(*activity, a)
    for i in range(1, len(times)):
        lo, hi, weight = times[i - 1], times[i], defaultdict(float)
        for runs, own, others in consumers:
            pieces = [(max(start, lo), min(end, hi), path) for start, end, path in runs if start < hi and end > lo]
            for start, end, path in pieces:
                weight[path] += rose(own, start, end) if own else (end - start) / hz
            elsewhere, open_ = sum(rose(other, lo, hi) for other in others), sum(end - start for start, end, _ in pieces)
            for start, end, path in pieces if elsewhere else []:
                weight[path] += elsewhere * (end - start) / open_
        total, delta = sum(weight.values()), (joules[i] - joules[i - 1]) - (static[i] - static[i - 1])
        ran = [path for path, seconds in weight.items() if seconds > 0]
        for path in ran:
            moving[path] += delta * weight[path] / total
            most[path] += delta
        if len(ran) == 1:
            least[ran[0]] += delta
        if not ran:
            idle += delta
    return still, moving, least, most, idle


def active(*arguments):
    still, moving, least, most, idle = active_parts(*arguments)
    spent = {path: still.get(path, 0.0) + moving.get(path, 0.0) for path in {*still, *moving}}
    rows = table(spent, idle)
    for name, joules_of in ("static", still), ("dynamic", moving), ("resolved", least), ("possible", most):
        rows[name] = {";".join(p): j for p, j in joules_of.items()}
    return rows


def bounds(times, joules, consumers):
    """-> least and most joules of each call path, from the sample intervals alone"""
    least, most, cursors = defaultdict(float), defaultdict(float), [0] * len(consumers)
    for i in range(1, len(times)):
        lo, hi, delta = times[i - 1], times[i], joules[i] - joules[i - 1]
        if lo == hi:
            for path in {path for runs in consumers for start, end, path in runs if start < lo <= end}:
                most[path] += delta
            continue
        ran = []                                            # (consumer, path, ticks)
        for c, runs in enumerate(consumers):
            k = cursors[c]
            while k < len(runs) and runs[k][1] <= lo:
                k += 1
            cursors[c] = k
            while k < len(runs) and runs[k][0] < hi:
                ran.append((c, runs[k][2], min(runs[k][1], hi) - max(runs[k][0], lo)))
                k += 1
        for path in {path for _, path, ticks in ran if ticks > 0}:
            most[path] += delta
        alone = {(c, path) for c, path, ticks in ran if ticks > 0}
        if len(alone) == 1 and sum(ticks for _, _, ticks in ran) == hi - lo:
            least[next(iter(alone))[1]] += delta
    return least, most


def table(spent, idle):
    inclusive = defaultdict(float)
    for path, joules in spent.items():
        for region in set(path):
            inclusive[region] += joules
    order = lambda d: dict(sorted(d.items(), key=lambda kv: -kv[1]))
    return {"attributed": sum(spent.values()), "idle": idle,
            "exclusive": order({";".join(p): j for p, j in spent.items()}), "inclusive": order(inclusive)}


def main():
    trace, config = sys.argv[1], json.load(open(sys.argv[2]))
    skipped, by_key, samples, units, hz = read(trace)
    out = {"trace": os.path.basename(os.path.dirname(os.path.abspath(trace))), "skipped": skipped, "devices": []}
    for device in config["devices"]:
        chosen = [(node, metric, recorder) for node, metric, recorder in sorted(samples)
                  if metric == device["metric"] and device.get("node", node) == node
                  and device.get("recorder", recorder[0]) in (recorder[0], "/".join(recorder))]
        if len({node for node, _, _ in chosen}) < len(chosen):
            sys.exit(f"{device['metric']} has several recorders, name one: {sorted('/'.join(r) for _, _, r in chosen)}")
        for node, metric, recorder in chosen:
            series, member = samples[node, metric, recorder], units[node, metric, recorder]
            names = set(device["consumers"])
            chosen_runs = [((group, loc), r) for (n, loc, group), r in sorted(by_key.items())
                           if n == node and (loc in names or f"{group}/{loc}" in names)]
            runs = [r for _, r in chosen_runs]
            if member.metric_mode in RELATIVE:
                sys.exit(f"{metric}: relative values are not covered here")
            scale = device.get("scale", scale_of(member))
            backward = member.metric_mode == otf2.enums.MetricMode.ABSOLUTE_LAST
            times, joules = cumulative(series, scale, device.get("kind", "cumulative"), hz, backward)
            least, most = bounds(times, joules, runs)
            clocks, consumers, seen = {}, [], set()
            for (n, name, who), readings in samples.items():
                if n == node and name == device.get("activity"):
                    per_unit = scale_of(units[n, name, who])
                    clocks[who] = [t for t, _ in readings], [v * per_unit for _, v in readings]
            own = {who for who, _ in chosen_runs}
            for who, r in chosen_runs:
                first = who[0] not in seen; seen.add(who[0])
                others = [c for other, c in clocks.items() if first and other[0] == who[0] and other not in own]
                consumers.append((r, clocks.get(who), others))
            if device.get("kernels"):
                streams_of = lambda group: set(device["kernels"].get(group, []))
                busy = lambda group: union([run for (n, loc, owner), r in by_key.items() for run in r
                                            if n == node and streams_of(group) & {loc, f"{owner}/{loc}"}], hz)
                firsts = {who[0]: at for at, (who, _) in reversed(list(enumerate(chosen_runs)))}
                consumers = [(r, ([0], [0.0]), [busy(who[0])] if firsts[who[0]] == at else [])
                             for at, (who, r) in enumerate(chosen_runs)]
            by_region = [[(start, end, path[-1:]) for start, end, path in run] for run in runs]
            _, most_of_regions = bounds(times, joules, by_region)
            named = lambda d: {";".join(p): j for p, j in sorted(d.items(), key=lambda kv: -kv[1])}
            out["devices"].append({
                "name": device["name"], "node": node, "metric": metric, "recorder": "/".join(recorder), "samples": len(times),
                "total": joules[-1], "has_kernels": bool(device.get("kernels")), "resolved": named(least), "possible": named(most),
                "possible_regions": named(most_of_regions),
                "time_sliced": table(*time_sliced(times, joules, runs)),
                "busy_only": table(*busy_only(times, joules, runs)),
                "active": active(times, joules, consumers, device.get("baseline_watts", 0.0), hz)})
    json.dump(out, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
