#!/usr/bin/python3
"""Random traces of MPI programs for waiting.py. Needs Debian's python3-otf2.

    waiting_traces.py SEED DIR [OPTION..]     makes DIR/traces.otf2, its settings DIR/ampere.toml, and waiting.py's DIR/waiting.json

OPTIONS add what the traces do not have otherwise: --nbc non-blocking collectives, --clock-error a known error of the nodes' clocks.
A trace is identified by its seed and the options.
"""
import json, os, random, sys
import otf2
from otf2 import CollectiveOp
import waiting

NO_ROOT = 0xffffffff
CPU_TIME = "ampere::cpu_time"


class Location:
    """A location, which is a line of the timeline, and its events, which are appended in time order."""
    def __init__(self, group, name, node, kind=otf2.LocationType.CPU_THREAD):
        self.group, self.name, self.node, self.kind, self.events, self.stack = group, name, node, kind, [], []

    def at(self, time, method, *values):
        assert not self.events or time >= self.events[-1][0], (time, self.events[-1])
        self.events.append((time, method, values))

    def enter(self, time, region):
        self.stack.append(region)
        self.at(time, "enter", region)

    def leave(self, time):
        self.at(time, "leave", self.stack.pop())

    def call(self, start, end, region, *events):
        """A call from start to end that records these MPI events at its end: (method, values...)."""
        self.enter(start, region)
        for event in events:
            self.at(end, *event)
        self.leave(end)


class Metric:
    def __init__(self, name, unit, exponent=0, mode=otf2.enums.MetricMode.ACCUMULATED_START, kind=otf2.Type.DOUBLE):
        self.name, self.unit, self.exponent, self.mode, self.kind = name, unit, exponent, mode, kind


class Draft:
    """A trace before it is written. Communicators are lists of ranks' numbers."""
    def __init__(self, hz=1000):
        self.hz, self.lines, self.communicators, self.ranks = hz, [], {}, []

    def line(self, *values, **named):
        self.lines.append(Location(*values, **named))
        return self.lines[-1]

    def rank(self, node="node0"):
        self.ranks.append(self.line(f"MPI Rank {len(self.ranks)}", "Master thread", node))
        return self.ranks[-1]

    def counter(self, metric, samples, node="node0"):
        line = self.line(f"samplers of {node}", f"sampler of {metric.name}", node, kind=otf2.LocationType.METRIC)
        for time, value in samples:
            line.at(time, "metric", metric, value)

    def write(self, directory, lost=()):
        """Writes the trace, and removes the events of the lines that are lost."""
        os.makedirs(directory)
        with otf2.writer.open(directory, timer_resolution=self.hz) as archive:
            self.define(archive.definitions)
            for line in self.lines:
                writer = archive.event_writer_from_location(self.locations[line])
                for time, method, values in line.events:
                    getattr(writer, method)(time, *[self.defined(value) for value in values])
        for line in lost:
            os.remove(os.path.join(directory, "traces", f"{self.locations[line]._ref}.evt"))

    def define(self, definitions):
        nodes, groups, self.locations, self.known = {}, {}, {}, {}
        self.definitions = definitions
        for line in self.lines:
            if line.node not in nodes:
                nodes[line.node] = definitions.system_tree_node(line.node, class_name="node")
            if line.group not in groups:
                groups[line.group] = definitions.location_group(line.group, system_tree_parent=nodes[line.node])
            self.locations[line] = definitions.location(line.name, type=line.kind, group=groups[line.group])
        for line in self.lines:
            for _, method, values in line.events:
                if method in ("enter", "leave") and values[0] not in self.known:
                    self.known[values[0]] = definitions.region(values[0])
        if self.communicators:
            self.define_communicators(definitions)

    def define_communicators(self, definitions):
        mpi, group = otf2.enums.Paradigm.MPI, otf2.enums.GroupType.COMM_GROUP
        mains = [self.locations[rank] for rank in self.ranks]
        definitions.group("MPI", group_type=otf2.enums.GroupType.COMM_LOCATIONS, paradigm=mpi, members=tuple(mains))
        members = lambda name, numbers: definitions.group(name, group_type=group, paradigm=mpi, members=tuple(mains[n] for n in numbers))
        for name, numbers in self.communicators.items():
            if numbers == "self":
                alone = definitions.group(name, group_type=otf2.enums.GroupType.COMM_SELF, paradigm=mpi, members=())
                self.known[name] = definitions.comm(name, group=alone)
            else:
                self.known[name] = definitions.comm(name, group=members(name, numbers))

    def defined(self, value):
        if isinstance(value, Metric):
            if value not in self.known:
                member = self.definitions.metric_member(value.name, metric_mode=value.mode, value_type=value.kind, unit=value.unit,
                                                        exponent=value.exponent)
                self.known[value] = self.definitions.metric_class([member])
            return self.known[value]
        return self.known[value] if isinstance(value, str) else value


# Random traces

OPERATIONS = ["BARRIER", "BCAST", "GATHER", "GATHERV", "SCATTER", "SCATTERV", "ALLGATHER", "ALLGATHERV", "ALLTOALL", "ALLTOALLV", "ALLTOALLW",
              "ALLREDUCE", "REDUCE", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "SCAN", "EXSCAN", "CREATE_HANDLE", "DESTROY_HANDLE"]
ROOTED = {"BCAST", "GATHER", "GATHERV", "SCATTER", "SCATTERV", "REDUCE"}
FUNCTIONS = ["solve", "f", "exchange", "kernel<int, 4>(float*)", "f"]


class RandomProgram:
    """A random MPI program, played operation by operation: each rank has a clock, and a call ends when its partners allow it."""
    def __init__(self, seed, options=()):
        self.random, self.options = random.Random(f"{seed} {sorted(options)}"), set(options)
        choose = self.random.choice
        self.draft = Draft(choose([1000, 10**6, 10**9, 2_100_000_000]))
        self.start, self.step = choose([1000, 10**9, 2**53]), choose([1, 3, 1000, 1_000_003])
        self.is_wild = self.one_in(8)               # calls end at random times
        self.has_threads = self.one_in(6)
        self.has_exact_clocks = "--clock-error" not in self.options and self.one_in(2)
        self.requests, self.pending, self.clocks, self.threads = 0, [], {}, {}
        for node in range(choose([1, 1, 2, 3])):
            for _ in range(choose([1, 2, 3])):
                self.rank(f"node{node}")
        self.lines = list(self.draft.ranks)
        numbers = list(range(len(self.lines)))
        communicators = {"world": numbers, "self": "self"}
        for name in ("halves", "others")[:self.below(3)]:
            communicators[name] = self.random.sample(numbers, 1 + self.below(len(numbers)))
        self.draft.communicators = communicators

    def below(self, limit):
        return self.random.randrange(limit)

    def one_in(self, times):
        return self.below(times) == 0

    def some_time(self, most=20):
        return 0 if self.one_in(4) else self.below(most) * self.step

    def rank(self, node):
        line = self.draft.rank(node)
        self.clocks[line] = self.start - self.below(100)
        if not self.one_in(8):
            self.enter(line, "main")

    def enter(self, line, region):
        line.enter(self.clocks[line], region)

    def leave(self, line):
        line.leave(self.clocks[line])

    def call(self, line, region, first, last, end):
        """An MPI call from now to `end`, which records some events when it is entered and others before it is left."""
        own, clock = self.one_in(6), self.clocks[line]
        if not line.stack and self.one_in(8):       # not in a function
            self.clocks[line] = max(end, clock)
            for event in first + last:
                line.at(self.clocks[line], *event)
            return
        if own:
            self.enter(line, self.random.choice(FUNCTIONS))
        self.enter(line, region)
        for event in first:
            line.at(clock, *event)
        if self.one_in(8):
            begin, stop = sorted(clock + self.random.randint(0, max(end - clock, 0)) for _ in "ab")
            line.enter(begin, "progress")
            line.leave(stop)
        self.clocks[line] = max(end, clock)
        for event in last:
            line.at(self.clocks[line], *event)
        self.leave(line)
        if own:
            self.clocks[line] += self.some_time()
            self.leave(line)

    def end(self, line, *entries):
        """-> the time at which a call that is entered now ends if it waits for these entries"""
        latest = self.clocks[line] if self.is_wild else max((self.clocks[line], *entries))
        return latest + self.some_time(4 if self.one_in(2) else 12)

    # The actions of a program. Each action chooses its ranks.

    def compute(self, line=None):
        line = line or self.random.choice(self.lines)
        if self.one_in(10) and line.stack and len(line.stack) == 1:
            self.leave(line)                        # nothing is open for a time
            self.clocks[line] += self.some_time()
            self.enter(line, "main")
        depth = self.below(4)
        for _ in range(depth):
            self.enter(line, self.random.choice(FUNCTIONS))
            self.clocks[line] += self.some_time(60 if self.one_in(3) else 20)
        for _ in range(depth):
            self.leave(line)
            self.clocks[line] += self.some_time()

    def two(self):
        """-> a communicator, and the numbers and lines of two of its ranks, which may be the same"""
        name = self.random.choice([n for n in self.draft.communicators if n != "self"])
        members = self.draft.communicators[name]
        i, j = self.below(len(members)), self.below(len(members))
        return name, i, j, self.lines[members[i]], self.lines[members[j]]

    def message(self):
        name, i, j, a, b = self.two()
        if a is b:
            return
        tag, size = self.below(3), self.below(1000)
        send, receive = ("mpi_send", j, name, tag, size), ("mpi_recv", i, name, tag, size)
        what, entry = self.below(10), {line: self.clocks[line] for line in (a, b)}
        waits_for = [entry[b]] if self.one_in(2) else []
        if what < 8:
            early = self.one_in(2)
            ends = self.end(a, *waits_for), self.end(b, entry[a])
            if what:                                # not sent, or not received, one time in eight each
                self.call(a, self.random.choice(["MPI_Send", "MPI_Ssend"]), [send] * early, [send] * (not early), ends[0])
            if what != 1:
                self.call(b, "MPI_Recv", [], [receive], ends[1])
        else:
            both = ("mpi_send", i, name, tag, size), ("mpi_recv", j, name, tag, size)
            ends = self.end(a, entry[b]), self.end(b, entry[a])
            self.call(a, "MPI_Sendrecv", [send], [both[1]], ends[0])
            self.call(b, "MPI_Sendrecv", [both[0]], [receive], ends[1])

    def ring(self):
        name = self.random.choice([n for n, m in self.draft.communicators.items() if isinstance(m, list)])
        members = self.draft.communicators[name]
        entries, tag, size = [self.clocks[self.lines[m]] for m in members], self.below(3), len(members)
        if size < 2:
            return
        for i, member in enumerate(members):
            line, before, after = self.lines[member], (i - 1) % size, (i + 1) % size
            self.call(line, "MPI_Sendrecv", [("mpi_send", after, name, tag, 8)], [("mpi_recv", before, name, tag, 8)],
                      self.end(line, entries[before]))

    def chain(self):
        """Each rank sends to the next one when it has received."""
        name, members = "world", self.random.sample(range(len(self.lines)), 1 + self.below(len(self.lines)))
        sent = None
        for a, b in zip(members, members[1:]):
            if self.one_in(2):
                self.compute(self.lines[a])
            sent = self.clocks[self.lines[a]]
            self.call(self.lines[a], "MPI_Send", [("mpi_send", b, name, 5, 8)], [], self.end(self.lines[a]))
            self.call(self.lines[b], "MPI_Recv", [], [("mpi_recv", a, name, 5, 8)], self.end(self.lines[b], sent))

    def request(self):
        self.requests += 1
        return self.requests

    def receive_later(self):
        name, i, j, a, b = self.two()
        tag, request = self.below(3), self.request()
        entry = self.clocks[b]
        posted = [("mpi_irecv_request", request)] if not self.one_in(10) else []
        region = self.random.choice(["MPI_Irecv", "MPI_Start"])
        self.call(b, region, [], posted, self.end(b))
        self.pending.append({"a": a, "b": b, "request": request, "entry": entry, "sent": None,
                             "send": (j, name, tag, 8), "event": ("mpi_irecv", i, name, tag, 8, request)})

    def send_to_later(self):
        waiting = [receive for receive in self.pending if receive["sent"] is None]
        if not waiting:
            return self.receive_later()
        receive = self.random.choice(waiting)
        line = receive["a"]
        receive["sent"] = self.clocks[line]
        if self.one_in(2):
            return self.call(line, "MPI_Send", [("mpi_send", *receive["send"])], [], self.end(line, receive["entry"]))
        self.isend(line, receive["send"])

    def probe(self):
        """A rank asks for a message and receives it. Other actions may come in between."""
        name, i, j, a, b = self.two()
        if a is b:
            return
        tag, sent, asks = 20 + self.below(2), self.clocks[a], ["MPI_Probe", "MPI_Mprobe", "mpi_probe_", "MPI_Iprobe"]
        self.call(b, self.random.choice(asks), [], [], self.end(b, sent))
        self.call(a, "MPI_Send", [("mpi_send", j, name, tag, 8)], [], self.end(a))
        for between in self.compute, self.wait:
            if self.one_in(4):
                between()
        if self.one_in(6):
            self.call(b, "MPI_Probe", [], [], self.end(b, sent))
        if self.one_in(3):
            request = self.request()
            self.call(b, "MPI_Imrecv", [], [("mpi_irecv_request", request)], self.end(b))
            self.call(b, "MPI_Wait", [], [("mpi_irecv", i, name, tag, 8, request)], self.end(b, sent))
        elif not self.one_in(6):
            self.call(b, "MPI_Recv", [], [("mpi_recv", i, name, tag, 8)], self.end(b, sent))

    def isend(self, line, send):
        request = self.request()
        self.call(line, "MPI_Isend", [], [("mpi_isend", *send, request)], self.end(line))
        self.pending.append({"b": line, "sent": self.clocks[line], "event": ("mpi_isend_complete", request)})

    def wait(self):
        line = self.random.choice(self.lines)
        mine = [one for one in self.pending if one["b"] is line and one["sent"] is not None]
        if not mine:
            return self.compute(line)
        done = self.random.sample(mine, 1 + self.below(len(mine)))
        region = self.random.choice(["MPI_Wait", "MPI_Test"] if len(done) == 1 else ["MPI_Waitall", "MPI_Waitsome"])
        self.call(line, region, [], [one["event"] for one in done], self.end(line, *[one["sent"] for one in done]))
        self.pending = [one for one in self.pending if one not in done]

    def cancel(self):
        name, i, j, a, b = self.two()
        request, tag = self.request(), 50 + self.below(2)
        if self.one_in(2):
            self.call(a, "MPI_Irecv", [], [("mpi_irecv_request", request)], self.end(a))
        else:
            self.call(a, "MPI_Isend", [("mpi_isend", j, name, tag, 8, request)], [], self.end(a))
        self.call(a, "MPI_Wait", [], [("mpi_request_cancelled", request)], self.end(a))
        if self.one_in(2) and a is not b:
            # The receive is recorded after the cancellation only if clocks are right and calls wait for each other.
            tag += 0 if self.has_exact_clocks and not self.is_wild else 10
            sent = self.clocks[a]
            self.call(a, "MPI_Send", [("mpi_send", j, name, tag, 8)], [], self.end(a))
            self.call(b, "MPI_Recv", [], [("mpi_recv", i, name, tag, 8)], self.end(b, sent))

    def to_myself(self):
        line = self.random.choice(self.lines)
        name = self.random.choice(["self", "world"])
        number = 0 if name == "self" else self.lines.index(line)
        send, receive = ("mpi_send", number, name, 6, 8), ("mpi_recv", number, name, 6, 8)
        self.call(line, "MPI_Sendrecv", [send], [receive], self.end(line))

    def thread(self):
        """A second thread of a rank sends or receives."""
        if not self.has_threads or len(self.lines) < 2:
            return self.compute()
        a, b = self.random.sample(range(len(self.lines)), 2)
        main, other = self.lines[a], self.lines[b]
        if main not in self.threads:
            self.threads[main] = self.draft.line(main.group, "OMP thread 1", main.node)
            self.clocks[self.threads[main]] = self.clocks[main]
        line = self.threads[main]
        entries = self.clocks[line], self.clocks[other]
        if self.one_in(2):
            self.call(line, "MPI_Send", [("mpi_send", b, "world", 10, 8)], [], self.end(line))
            self.call(other, "MPI_Recv", [], [("mpi_recv", a, "world", 10, 8)], self.end(other, entries[0]))
        else:
            self.call(other, "MPI_Send", [("mpi_send", a, "world", 11, 8)], [], self.end(other))
            self.call(line, "MPI_Recv", [], [("mpi_recv", b, "world", 11, 8)], self.end(line, entries[1]))

    def collective(self):
        name = self.random.choice(list(self.draft.communicators))
        members = self.draft.communicators[name]
        numbers = [self.below(len(self.lines))] if name == "self" else members
        operation = self.random.choice(self.random.choice([OPERATIONS, OPERATIONS, ["BARRIER"], sorted(ROOTED)]))
        lines = [self.lines[n] for n in numbers]
        root = self.below(len(lines)) if operation in ROOTED else NO_ROOT
        # Members of the root's group in an intercommunicator have nothing to do.
        idle = [n for n in range(len(lines)) if n != root and self.one_in(3)] if operation in ROOTED and self.one_in(4) else []
        events = [(getattr(CollectiveOp, operation), name, waiting.THIS_GROUP if n in idle else root, 8, 8) for n in range(len(lines))]
        if "--nbc" in self.options and self.one_in(3):
            return self.collective_later(lines, operation, root, events)
        entries, missing = [self.clocks[line] for line in lines], self.below(len(lines)) if self.one_in(20) else None
        for number, line in enumerate(lines):
            recorded = [("mpi_collective_end", *events[number])] if number != missing else []
            end = self.end(line, *needed(operation, root, number, entries))
            self.call(line, region_of(operation), [("mpi_collective_begin",)], recorded, end)

    def collective_later(self, lines, operation, root, events):
        requests, entries = [self.request() for _ in lines], [self.clocks[line] for line in lines]
        for line, request in zip(lines, requests):
            asked = [("non_blocking_collective_request", request)]
            self.call(line, region_of("I" + operation), [], asked, self.end(line))
        for _ in range(self.below(4)):
            self.compute()
        for number, (line, request) in enumerate(zip(lines, requests)):
            done = [("non_blocking_collective_complete", *events[number], request)]
            self.call(line, "MPI_Wait", [], done, self.end(line, *needed(operation, root, number, entries)))

    def generate(self):
        """-> the draft, with the settings for waiting.py and `ampere attribute`"""
        actions = [self.compute] * 5 + [self.message] * 4 + [self.ring, self.chain] + [self.receive_later, self.send_to_later, self.wait] * 2 \
            + [self.collective] * 4 + [self.cancel, self.to_myself, self.thread, self.probe, self.probe]
        for _ in range(5 + self.below(40)):
            self.random.choice(actions)()
        for line in self.draft.lines:
            while line.stack:
                self.leave(line)
                self.clocks[line] += self.some_time(3)
        policy = self.random.choice(["time_sliced", "busy_only", "active"])
        last = max(self.start, *self.clocks.values())
        error = self.shift_clocks()
        if self.one_in(6):
            self.cut_ends(last)
        if policy == "active" or self.one_in(4):
            self.cpu_times()
        devices = self.devices(last)
        lost = [self.random.choice(self.lines)] if len(self.lines) > 2 and self.one_in(12) else []
        return Generated(self.draft, lost, policy, error, devices)

    def shift_clocks(self):
        """The clocks of nodes and of ranks may be wrong. -> the error in seconds that is known"""
        if self.has_exact_clocks:
            return 0.0
        if self.one_in(2):
            self.shift("group", self.random.choice([3, self.step // 100 + 1, self.step // 5 + 1]))
        asked = "--clock-error" in self.options
        if not asked and not self.one_in(3):
            return 0.0
        error = 1 + self.below(20 * self.step)
        self.shift("node", 2 * error)
        return round(error / self.draft.hz, 9) if asked else 0.0

    def shift(self, what, most):
        """Shifts the times of each node or group of locations."""
        for one in sorted({getattr(line, what) for line in self.draft.lines}):
            lines = [line for line in self.draft.lines if getattr(line, what) == one]
            first = min((line.events[0][0] for line in lines if line.events), default=0)
            offset = max(self.random.randint(-most, most), 1 - first)
            for line in lines:
                line.events = [(time + offset, *event) for time, *event in line.events]

    def cut_ends(self, last):
        for line in self.random.sample(self.lines, 1 + self.below(len(self.lines))):
            end = self.random.randint(self.start, last)
            line.events = [event for event in line.events if event[0] <= end]

    def cpu_times(self):
        """A thread runs all of the time, none of it, or a part."""
        metric = Metric(CPU_TIME, "s", -9, kind=otf2.Type.UINT64)
        for line in self.draft.lines:
            if self.one_in(4) or not line.events:
                continue
            time, value, points = line.events[0][0], 0, []
            while time <= line.events[-1][0]:
                points.append((time, "metric", (metric, value)))
                passed = (1 + self.below(40)) * self.step
                value += int(passed * 1e9 / self.draft.hz * self.random.choice([0, 0, 1, 1, 0.37]))
                time += passed
            line.events = sorted(points + line.events, key=lambda event: event[0])

    def devices(self, last):
        devices = []
        for node in sorted({line.node for line in self.lines}):
            for number in range(1 + self.below(2)):
                kind = self.random.choice(["cumulative", "cumulative", "instantaneous"])
                metric = Metric(f"meter {number}", "", kind=self.random.choice([otf2.Type.UINT64, otf2.Type.INT64, otf2.Type.DOUBLE]))
                if kind == "instantaneous":
                    metric.mode = otf2.enums.MetricMode.ABSOLUTE_POINT
                self.draft.counter(metric, self.samples(kind, last), node)
                ranks = [n for n, line in enumerate(self.lines) if line.node == node and not self.one_in(4)]
                devices.append({"name": f"{node}-meter-{number}", "node": node, "metric": metric.name, "kind": kind, "scale": 1e-6,
                                "baseline_watts": self.random.choice([0.0, 1e-3, 0.3, 20.0, 1e3, 1e6]), "ranks": ranks})
        return devices

    def samples(self, kind, last):
        time, value, most = self.start - self.below(200), self.random.choice([1, 17, 2**33]), self.random.choice([2, 1000, 5_000_000])
        value = max(value, most // 50 + 1)  # a first value near 0 might not be a reading
        end, samples = self.start + int((last - self.start) * self.random.uniform(0.4, 1.3)), []
        while time <= end or len(samples) < 2:
            samples.append((time, value))
            rise = 0 if self.one_in(5) else self.below(most)
            value = rise if kind == "instantaneous" else value + rise
            time += 0 if len(samples) > 1 and self.one_in(15) else (1 + self.below(60)) * self.step
        return samples


def region_of(operation):
    return "MPI_" + operation.capitalize()


def needed(operation, root, number, entries):
    """-> the entries of the members that a member of a collective has to wait for"""
    kind = waiting.KINDS.get(operation)
    if kind == "1-to-n":
        return [entries[root]]
    if kind == "n-to-1":
        return entries if number == root else []
    return entries[:number] if operation in ("SCAN", "EXSCAN") else entries


class Generated:
    """A trace to be written, with its settings."""
    def __init__(self, draft, lost, policy, error, devices):
        self.draft, self.lost, self.policy, self.error, self.devices = draft, lost, policy, error, devices

    def write(self, directory):
        self.draft.write(directory, self.lost)
        with open(os.path.join(directory, "waiting.json"), "w") as file:
            json.dump(self.config(), file, indent=1)
        with open(os.path.join(directory, "ampere.toml"), "w") as file:
            file.write("".join(self.setting(device) for device in self.devices))
            if self.error:
                file.write(f"[attribution]\nclock_error = '{round(self.error * 1e9)}ns'\n")

    def config(self):
        devices = [{**device, "consumers": [f"MPI Rank {rank}/Master thread" for rank in device["ranks"]], "activity": CPU_TIME}
                   for device in self.devices]
        return {"policy": self.policy, "clock_error_seconds": self.error, "devices": devices}

    @staticmethod
    def setting(device):
        return (f"[[device]]\nname = '{device['name']}'\nnode = '{device['node']}'\nmetric = '{device['metric']}'\nkind = '{device['kind']}'\n"
                f"scale = {device['scale']!r}\nbaseline_watts = {device['baseline_watts']!r}\nranks = {device['ranks']}\n")


if __name__ == "__main__":
    RandomProgram(sys.argv[1], sys.argv[3:]).generate().write(sys.argv[2])
