#!/usr/bin/python3
"""Computes what waiting in MPI cost and which functions caused it, from an OTF2 trace alone. It is slow, shares no code with ampere, and
needs Debian's python3-otf2.

    waiting.py TRACE CONFIG.json [--waits]

CONFIG.json is that of attribute.py, with two more keys:
    {"policy": "time_sliced" | "busy_only" | "active" (default time_sliced),
     "clock_error_seconds": 1e-6 (how wrong the clocks of two nodes may be, default 0),
     "devices": [{"name", "metric", .., "consumers": ["MPI Rank 0/Master thread"]}]}
It prints JSON; --waits adds the list of all waits:
    {"matched_messages", "unmatched_messages", "devices": [{"name", "node", "total", "joules", "waited": [ROW..], "caused": [ROW..]}]}
    with ROW = {"rank": "MPI Rank 0", "path": "main;MPI_Recv", "kind": "late sender", "joules"}

The rules. [S] marks what follows Scalasca's classification of wait states, and [D] what had to be decided.

Terms
 1. A rank is a location group. A member of a communicator is a location, and the group of this location is the rank. A rank's main location
    is the first CPU thread of its group. Call paths, causes and joules are those of main locations. MPI events count on any location.
 2. The frame of an event is the innermost open frame of the event's location. The entry of an event is the enter of its frame, or its own
    time if no frame is open. A frame that is never left ends at the last enter or leave of its location.
 3. A wait belongs to a frame and is [E, T]: E is the frame's enter, T is the partner's entry. It counts only if T > E and the partner is
    another rank.
 4. If the partner's entry is after the frame's leave, a clock is wrong, or the match is. If it is at most 1 ms after the leave, or at most
    twice the clock error between different nodes, T is the leave. Otherwise there is no wait. [D] (Score-P corrects the clocks of processes,
    also on one node, so that a rank may leave a barrier tens of microseconds before the last one enters it.)
 5. Between different nodes, a wait that is shorter than twice the clock error does not count.
 6. If a frame has several waits (MPI_Waitall, MPI_Sendrecv), only the one with the latest T counts, for all of [E, T]. [S] If these are
    equal, a late sender takes precedence over a late receiver, and a late receiver over a collective. Among equal kinds, the first event
    of the location does. [D]

Messages
 7. MpiSend and MpiIsend send; MpiRecv and MpiIrecv receive. The k-th send of a communicator, sender, receiver and tag matches the k-th
    receive with the same four. They are ordered by these events, so requests to receive are ordered by their completion. [S] (Two requests of
    one sender and tag that complete in another order than they were made are therefore exchanged.) Lengths are not compared.
 8. A cancelled MpiIsend is no message. A cancelled request to receive has no MpiIrecv.
 9. Each pair is a matched message. Each send without a receive and each receive without a send is an unmatched one, and waits for nothing.
10. Late sender: the frame of the receiving event waits for the entry of the send.
    A rank that asks for a message before it receives it waits where it asks. A probe is a frame of MPI_Probe or MPI_Mprobe (also under
    Fortran's names). The last probe of a location belongs to the location's next receive that was entered, or whose request was made,
    after the probe was left, and that has a known sender. If the entry of that receive's send is not after the enter of the receive's
    own frame, the probe waits for the send. [D]
11. Late receiver: the frame of an MpiSend waits for the entry of the receive if it is left after that entry, or before it by at most 1 % of
    its own duration [D]: a send that did not wait is much shorter than that. For an MpiIrecv, the entry is that of its MpiIrecvRequest;
    without one there is no late receiver. An MpiIsend does not wait.

Collectives
12. The k-th MpiCollectiveEnd of a communicator on each of its members is one operation. It counts only if all members have one, with the same
    operation and root. A member enters at the entry of this event.
13. Kinds: "barrier" is BARRIER. "n-to-n" are ALLGATHER(V), ALLTOALL(V, W), ALLREDUCE, REDUCE_SCATTER(_BLOCK), SCAN and EXSCAN. "1-to-n" are
    BCAST and SCATTER(V). "n-to-1" are GATHER(V) and REDUCE. No member waits in other operations: creating and freeing handles, and unknown
    ones. [S]
14. In barriers and n-to-n operations, each member waits for the last of all to enter; in 1-to-n operations, for the root. In n-to-1
    operations, the root waits for the last of the others. In SCAN and EXSCAN, a member waits for the last of the members with lower numbers
    in the communicator. [S] If several enter last at the same time, the one with the lowest number is the last. [D]
15. Non-blocking collectives are matched by their NonBlockingCollectiveComplete events, apart from blocking ones. A member enters at the entry
    of the NonBlockingCollectiveRequest, and the frame of the NonBlockingCollectiveComplete waits. [D]
16. A member whose root is OTF2_COLLECTIVE_ROOT_THIS_GROUP has nothing to do in the operation: the root's data is for the other group of an
    intercommunicator. It does not wait, and the root of an n-to-1 operation does not wait for it. The others must name one root. A
    communicator has the members of both groups: python3-otf2 cannot read traces with definitions of intercommunicators. In barriers and
    n-to-n operations, a member waits for the last of both groups. [D] (Open MPI and MPICH let both groups wait for each other.)

Joules
17. The joules of a wait are those that the policy charges to the waiting frame itself within [E, T]. They are exact in time: within a sample
    interval, `time_sliced` counts the power in [E, T], `busy_only` the ticks in [E, T], and `active` the activity in [E, T].
18. Rows are by rank, call path and kind. The kind of a cause is the kind of the wait.

Causes
19. The joules of a wait are divided in proportion to time in [E, T]. At each instant t, the chain begins with the partner. If the
    innermost open frame of the main location of the chain's last rank has a wait [E', T'], and E' <= t < T', the partner of that wait is
    next. The call path of the chain's last rank at t gets the time.
20. All call paths of the late rank count, also MPI functions in which it does not wait: MPI_Init, a transfer, an unmatched receive.
21. An instant at which the chain's last rank has no open frame counts for nothing: shares are of the time that was found. If none was found,
    the wait has no joules. So both sums are equal. [D]
22. A chain ends before a rank that it contains already, the waiting rank included: the last rank then gets the time with the call path of its
    waiting frame. If clocks are exact and ranks have one thread, this does not happen, by rule 4. [D]
23. Waits depend on times only: causes are also passed on by waits of ranks for which no device is known.
"""
import json, os, sys
from collections import defaultdict
import otf2
import attribute

LATE_SENDER, LATE_RECEIVER = "late sender", "late receiver"
THIS_GROUP = 0xfffffffd
KINDS = {"BARRIER": "barrier", "BCAST": "1-to-n", "SCATTER": "1-to-n", "SCATTERV": "1-to-n",
         "GATHER": "n-to-1", "GATHERV": "n-to-1", "REDUCE": "n-to-1"}
KINDS.update({name: "n-to-n" for name in ("ALLGATHER", "ALLGATHERV", "ALLTOALL", "ALLTOALLV", "ALLTOALLW", "ALLREDUCE",
                                          "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "SCAN", "EXSCAN")})
# If several waits of a frame end at the same time, the first in this list counts (rule 6).
PRECEDENCE = {LATE_SENDER: 0, LATE_RECEIVER: 1}


class Frame:
    def __init__(self, rank, path, enter):
        self.rank, self.path, self.enter, self.leave, self.wait = rank, path, enter, None, None


class Wait:
    """A counted wait of a frame: from the frame's enter to `until`."""
    def __init__(self, frame, until, partner, kind, order):
        self.frame, self.until, self.partner, self.kind, self.order = frame, until, partner, kind, order

    def precedence(self):
        return (-self.until, PRECEDENCE.get(self.kind, 2), self.order)


class Send:
    def __init__(self, frame, entry, rank, order, blocking):
        self.frame, self.entry, self.rank, self.order, self.blocking = frame, entry, rank, order, blocking
        self.cancelled = False


class Receive:
    """`entry` is when the receive was entered or its request was made, or None if that is not known. `probe` is the frame that asked for
    the message."""
    def __init__(self, frame, entry, rank, order, probe=None):
        self.frame, self.entry, self.rank, self.order, self.probe = frame, entry, rank, order, probe


class Arrival:
    """A rank's part in a collective: when it came, and the frame in which it may wait for the others."""
    def __init__(self, frame, entry, rank, order, operation):
        self.frame, self.entry, self.rank, self.order, self.operation = frame, entry, rank, order, operation


def is_probe(region):
    name = region.lower().rstrip("_")
    for suffix in "_f08ts", "_f08":
        name = name.removesuffix(suffix)
    return name in ("mpi_probe", "mpi_mprobe")


def group_of(location):
    return location.group._ref


class Trace:
    def __init__(self, path):
        self.runs = defaultdict(list)           # exclusive pieces of each location: (start, end, frame)
        self.sends = defaultdict(list)          # per (communicator, sender, receiver, tag)
        self.receives = defaultdict(list)
        self.collectives = defaultdict(lambda: defaultdict(list))   # per communicator and non-blocking or not, then per member
        self.samples, self.units = defaultdict(list), {}
        self.stacks, self.opened, self.requests, self.probes = defaultdict(list), {}, {}, {}
        with otf2.reader.open(path) as reader:
            directory = os.path.splitext(path)[0]
            present = [l for l in reader.definitions.locations if os.path.exists(os.path.join(directory, f"{l._ref}.evt"))]
            self.hz = reader.timer_resolution
            self.nodes = {l: attribute.node_of(l) for l in present}
            self.main = {}
            for location in present:
                if location.type == otf2.LocationType.CPU_THREAD:
                    self.main.setdefault(group_of(location), location)
            self.names = {group_of(l): l.group.name for l in present}
            self.members = {comm._ref: [group_of(member) for member in comm.group.members] for comm in reader.definitions.comms}
            for order, (location, event) in enumerate(reader.events(present)):
                self.event(location, event, order)
        for location, stack in self.stacks.items():
            # A frame that is never left ends at the last enter or leave of its location.
            while stack:
                self.leave(location, self.opened[location])

    def event(self, location, event, order):
        kind, time = type(event).__name__, event.time
        stack = self.stacks[location]
        if kind == "Enter":
            self.piece(location, time)
            stack.append(Frame(group_of(location), (stack[-1].path if stack else ()) + (event.region.name,), time))
        elif kind == "Leave":
            if stack:
                self.leave(location, time)
        elif kind == "Metric":
            self.metric(location, event)
        else:
            frame = stack[-1] if stack else None
            self.mpi(kind, location, event, frame, frame.enter if frame else time, order)

    def piece(self, location, time):
        stack = self.stacks[location]
        if stack and time > self.opened[location]:
            self.runs[location].append((self.opened[location], time, stack[-1]))
        self.opened[location] = time

    def leave(self, location, time):
        self.piece(location, time)
        frame = self.stacks[location].pop()
        frame.leave = time
        if is_probe(frame.path[-1]):
            self.probes[location] = frame

    def metric(self, location, event):
        for member, value in zip(event.metric.members, event.values):
            key = self.nodes[location], member.name, (location.group.name, location.name)
            self.samples[key].append((event.time, value))
            self.units[key] = member

    def mpi(self, kind, location, event, frame, entry, order):
        rank, request = group_of(location), (location, getattr(event, "request_id", None))
        if kind in ("MpiSend", "MpiIsend"):
            send = Send(frame, entry, rank, order, kind == "MpiSend")
            self.sends[self.key(event, rank, self.other(event, rank, event.receiver))].append(send)
            if kind == "MpiIsend":
                self.requests[request] = send
        elif kind == "MpiIrecvRequest" or kind == "NonBlockingCollectiveRequest":
            self.requests[request] = entry
        elif kind == "MpiRequestCancelled":
            if isinstance(self.requests.get(request), Send):
                self.requests[request].cancelled = True
        elif kind in ("MpiRecv", "MpiIrecv"):
            entered = entry if kind == "MpiRecv" else self.requests.get(request)
            entered = None if isinstance(entered, Send) else entered
            sender, probe = self.other(event, rank, event.sender), self.probes.get(location)
            if probe is None or entered is None or entered < probe.leave or isinstance(sender, str):
                probe = None
            else:
                del self.probes[location]
            self.receives[self.key(event, sender, rank)].append(Receive(frame, entered, rank, order, probe))
        elif kind in ("MpiCollectiveEnd", "NonBlockingCollectiveComplete"):
            blocking = kind == "MpiCollectiveEnd"
            if not blocking and not isinstance(self.requests.get(request, entry), Send):
                entry = self.requests.get(request, entry)
            arrival = Arrival(frame, entry, rank, order, (event.collective_op, event.root))
            self.collectives[event.communicator._ref, blocking][rank].append(arrival)

    @staticmethod
    def key(event, sender, receiver):
        return event.communicator._ref, sender, receiver, event.msg_tag

    def other(self, event, rank, number):
        """-> the rank that has this number in the communicator, or an artificial name if there is none"""
        comm = event.communicator
        members = self.members[comm._ref] or [rank]         # MPI_COMM_SELF
        return members[number] if number < len(members) else f"number {number}"


class Waits:
    """Finds the waits of a trace, and leaves each in its frame."""
    def __init__(self, trace, clock_error_seconds):
        self.trace, self.error = trace, round(2 * clock_error_seconds * trace.hz, 6)
        self.matched = self.unmatched = 0
        self.messages()
        for (comm, _), arrivals in trace.collectives.items():
            self.collectives(trace.members.get(comm, []), arrivals)

    def consider(self, waiting, partner, entry, kind):
        """Rules 3 to 6. `waiting` is the Send, Receive or Arrival that may have waited."""
        frame = waiting.frame
        if frame is None or partner == waiting.rank or entry <= frame.enter:
            return
        node = lambda rank: self.trace.nodes[self.trace.main[rank]]
        allowed = self.error if node(waiting.rank) != node(partner) else 0
        after = entry - frame.leave
        if kind == LATE_RECEIVER and after * 100 > frame.leave - frame.enter:
            return
        if kind != LATE_RECEIVER and after * 1000 > self.trace.hz and after > allowed:
            return
        until = min(entry, frame.leave)
        if until <= frame.enter or until - frame.enter < allowed:
            return
        wait = Wait(frame, until, partner, kind, waiting.order)
        if frame.wait is None or wait.precedence() < frame.wait.precedence():
            frame.wait = wait

    def listed(self):
        frames = {frame for runs in self.trace.runs.values() for _, _, frame in runs if frame.wait is not None}
        return [[self.trace.names[frame.rank], ";".join(frame.path), frame.wait.kind, frame.enter, frame.wait.until, frame.leave,
                 self.trace.names[frame.wait.partner]] for frame in sorted(frames, key=lambda frame: (frame.enter, frame.rank))]

    def messages(self):
        sends, receives = self.trace.sends, self.trace.receives
        for key in {**sends, **receives}:
            sent = [send for send in sends.get(key, []) if not send.cancelled]
            received = receives.get(key, [])
            pairs = list(zip(sent, received))
            self.matched += len(pairs)
            self.unmatched += len(sent) + len(received) - 2 * len(pairs)
            for send, receive in pairs:
                self.consider(receive, send.rank, send.entry, LATE_SENDER)
                if receive.probe is not None and (receive.frame is None or send.entry <= receive.frame.enter):
                    asked = Receive(receive.probe, None, receive.rank, receive.order)
                    self.consider(asked, send.rank, send.entry, LATE_SENDER)
                if send.blocking and receive.entry is not None:
                    self.consider(send, receive.rank, receive.entry, LATE_RECEIVER)

    def collectives(self, members, arrivals):
        for i in range(min((len(arrivals.get(member, [])) for member in members), default=0)):
            instance = [arrivals[member][i] for member in members]
            operations, roots = {a.operation[0] for a in instance}, {a.operation[1] for a in instance} - {THIS_GROUP}
            if len(operations) == 1 and len(roots) == 1:
                self.collective(instance, *operations, *roots)

    def collective(self, instance, operation, root):
        name = str(operation).split(".")[-1]
        kind = KINDS.get(name)
        last = lambda some: max(some, key=lambda arrival: arrival.entry)    # the first of them at equal entries
        busy = [arrival for arrival in instance if arrival.operation[1] != THIS_GROUP]
        for number, arrival in enumerate(instance):
            if arrival not in busy or kind in ("1-to-n", "n-to-1") and root >= len(instance):
                continue
            if kind == "1-to-n":
                partner = instance[root]
            elif kind == "n-to-1":
                if number != root:
                    continue
                partner = last(busy)
            elif name in ("SCAN", "EXSCAN"):
                if number == 0:
                    continue
                partner = last(instance[:number])
            elif kind is not None:
                partner = last(instance)
            else:
                continue
            self.consider(arrival, partner.rank, partner.entry, kind)


class Causes:
    def __init__(self, trace):
        self.trace = trace

    def of(self, wait):
        """-> ticks of each (rank, call path) that caused the wait"""
        ticks = defaultdict(int)
        passed = frozenset([wait.frame.rank])
        for rank, path, length in self.within(wait.partner, wait.frame.enter, wait.until, passed):
            ticks[rank, path] += length
        return ticks

    def within(self, rank, start, end, passed):
        passed = passed | {rank}
        for begin, stop, frame in self.trace.runs[self.trace.main[rank]]:
            begin, stop = max(begin, start), min(stop, end)
            if begin >= stop:
                continue
            if frame.wait is not None and frame.wait.partner not in passed and begin < frame.wait.until:
                middle = min(stop, frame.wait.until)
                yield from self.within(frame.wait.partner, begin, middle, passed)
                begin = middle
            if begin < stop:
                yield rank, frame.path, stop - begin


def joules_of_waits(trace, device, policy):
    """-> for each device that this entry of the configuration selects: its node, its total joules, and the result of `spent`"""
    chosen = [key for key in sorted(trace.samples)
              if key[1] == device["metric"] and device.get("node", key[0]) == key[0]
              and device.get("recorder", key[2][0]) in (key[2][0], "/".join(key[2]))]
    if len({node for node, _, _ in chosen}) < len(chosen):
        sys.exit(f"{device['metric']} has several recorders, name one: {sorted('/'.join(r) for _, _, r in chosen)}")
    for node, metric, recorder in chosen:
        series, member = trace.samples[node, metric, recorder], trace.units[node, metric, recorder]
        scale = device.get("scale", attribute.scale_of(member))
        backward = member.metric_mode == otf2.enums.MetricMode.ABSOLUTE_LAST
        times, joules = attribute.cumulative(series, scale, device.get("kind", "cumulative"), trace.hz, backward)
        names = set(device["consumers"])
        locations = [l for l in trace.nodes if trace.nodes[l] == node and {l.name, f"{l.group.name}/{l.name}"} & names]
        locations = sorted((l for l in locations if trace.runs[l]), key=lambda l: (l.group.name, l.name))
        yield node, joules[-1], spent(trace, device, policy, times, joules, locations, node)


def pieces_of(runs):
    """Pieces of a location, divided where a wait ends. The last element of a piece is what its joules are counted for."""
    for start, end, frame in runs:
        until = frame.wait.until if frame.wait is not None else frame.enter
        if start < until:
            yield start, min(end, until), (frame, "wait")
        if end > until:
            yield max(start, until), end, (frame, "rest")


def spent(trace, device, policy, times, joules, locations, node):
    """-> joules of each (frame, "wait" or "rest"), by attribute.py's policies"""
    pieces = {l: list(pieces_of(trace.runs[l])) for l in locations}
    if policy != "active":
        return dict(getattr(attribute, policy)(times, joules, list(pieces.values()))[0])
    clocks = {}
    for (at, name, who), readings in trace.samples.items():
        if at == node and name == device.get("activity"):
            unit = attribute.scale_of(trace.units[at, name, who])
            clocks[who] = [t for t, _ in readings], [v * unit for _, v in readings]
    own, seen, consumers = {(l.group.name, l.name) for l in locations}, set(), []
    for location in locations:
        group = location.group.name
        others = [c for who, c in clocks.items() if group not in seen and who[0] == group and who not in own]
        seen.add(group)
        consumers.append((pieces[location], clocks.get((group, location.name)), others))
    still, moving, _, _, _ = attribute.active_parts(times, joules, consumers, device.get("baseline_watts", 0.0), trace.hz)
    return {piece: still.get(piece, 0.0) + moving.get(piece, 0.0) for piece in {*still, *moving}}


def rows(sums):
    ordered = sorted(sums.items(), key=lambda row: (-row[1], row[0]))
    return [{"rank": rank, "path": ";".join(path), "kind": kind, "joules": joules} for (rank, path, kind), joules in ordered]


def compute(path, config):
    trace = Trace(path)
    waits = Waits(trace, config.get("clock_error_seconds", 0.0))
    causes, shares, out = Causes(trace), {}, []
    for device in config["devices"]:
        for node, total, spent_by in joules_of_waits(trace, device, config.get("policy", "time_sliced")):
            waited, caused = defaultdict(float), defaultdict(float)
            for (frame, part), joules in spent_by.items():
                if part != "wait" or joules == 0:
                    continue
                if frame not in shares:
                    shares[frame] = causes.of(frame.wait)
                ticks, kind = shares[frame], frame.wait.kind
                for (rank, path_), length in ticks.items():
                    caused[trace.names[rank], path_, kind] += joules * length / sum(ticks.values())
                if ticks:
                    waited[trace.names[frame.rank], frame.path, kind] += joules
            out.append({"name": device["name"], "node": node, "total": total, "joules": sum(waited.values()),
                        "waited": rows(waited), "caused": rows(caused)})
    return trace, waits, {"matched_messages": waits.matched, "unmatched_messages": waits.unmatched, "devices": out}


def main():
    trace, waits, out = compute(sys.argv[1], json.load(open(sys.argv[2])))
    if "--waits" in sys.argv:
        out["waits"] = waits.listed()
    json.dump(out, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
