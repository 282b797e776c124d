#!/usr/bin/python3
"""Tests waiting.py with small traces whose joules are worked out by hand, and with random traces, for which general rules must hold.

    waiting_tests.py [TRACES [FIRST [OPTION..]]]      random traces (default 50) from a seed (default 1), with waiting_traces.py's options
"""
import collections, json, sys, tempfile
import otf2
from otf2 import CollectiveOp
import attribute, waiting
from waiting import THIS_GROUP
from waiting_traces import CPU_TIME, NO_ROOT, Metric, RandomProgram, Draft, region_of

ENERGY = "node energy"
CASES = []


def case(function):
    CASES.append(function)
    return function


# Small traces, worked out by hand. Times are milliseconds, and each rank on a node with N ranks has 100 W as long as all N are in
# a function.

def job(ranks, nodes=None, communicators=None, samples=None):
    """-> a draft in which each rank is in main, and its ranks. The counter of each node shows 100 W for each rank, from 0 to 10 s."""
    draft = Draft()
    nodes = nodes or ["node0"] * ranks
    lines = [draft.rank(node) for node in nodes]
    draft.communicators = {"world": list(range(ranks)), **(communicators or {})}
    for node in sorted(set(nodes)):
        watts = 100.0 * nodes.count(node)
        draft.counter(Metric(ENERGY, "J"), samples or [(t, 5.0 + watts * t / 1000) for t in range(0, 10001, 100)], node)
    for line in lines:
        line.enter(0, "main")
    return draft, lines


def work(line, start, end, region):
    line.enter(start, region)
    line.leave(end)


def send(line, start, end, to, region="MPI_Send", communicator="world"):
    line.call(start, end, region, ("mpi_send", to, communicator, 7, 8))


def receive(line, start, end, of, region="MPI_Recv", communicator="world"):
    line.call(start, end, region, ("mpi_recv", of, communicator, 7, 8))


def collective(line, start, end, operation, root=NO_ROOT, communicator="world"):
    line.call(start, end, region_of(operation), ("mpi_collective_end", getattr(CollectiveOp, operation), communicator, root, 8, 8))


def computed(draft, **config):
    """-> joules waited and caused by (rank's number, innermost function, kind) over all devices, and all that waiting.py prints"""
    for rank in draft.ranks:
        while rank.stack and not config.get("cut"):
            rank.leave(10000)
    if "devices" not in config:
        consumers = [f"{line.group}/{line.name}" for line in draft.ranks]
        config["devices"] = [{"name": "node", "metric": ENERGY, "consumers": consumers, "activity": CPU_TIME,
                              "baseline_watts": config.pop("baseline", 0.0)}]
    with tempfile.TemporaryDirectory() as place:
        draft.write(place + "/t")
        _, _, out = waiting.compute(place + "/t/traces.otf2", config)
    sums = {"waited": {}, "caused": {}}
    for device in out["devices"]:
        for column, cells in sums.items():
            for row in device[column]:
                key = int(row["rank"].split()[-1]), row["path"].split(";")[-1], row["kind"]
                cells[key] = cells.get(key, 0.0) + row["joules"]
    return sums["waited"], sums["caused"], out


def same(found, expected):
    assert found.keys() == expected.keys(), f"{found} is not {expected}"
    for key, joules in expected.items():
        assert abs(found[key] - joules) < 1e-6, f"{key}: {found[key]} is not {joules}"


@case
def a_receive_waits_for_its_send():
    draft, (a, b) = job(2)
    receive(a, 1000, 4100, of=1)
    work(b, 500, 2000, "f")
    work(b, 2000, 4000, "g")
    send(b, 4000, 4100, to=0)
    waited, caused, out = computed(draft)
    same(waited, {(0, "MPI_Recv", "late sender"): 300.0})                   # from 1 s to 4 s, 100 W
    same(caused, {(1, "f", "late sender"): 100.0, (1, "g", "late sender"): 200.0})      # f from 1 s to 2 s, g from 2 s to 4 s
    assert (out["matched_messages"], out["unmatched_messages"]) == (1, 0)


@case
def shares_are_of_time_and_not_of_power():
    draft, (a, b) = job(2, samples=[(0, 1.0), (2000, 1.0), (10000, 4801.0)])            # nothing for 2 s, then 600 W
    receive(a, 1000, 4100, of=1)
    work(b, 500, 2000, "f")
    work(b, 2000, 4000, "g")
    send(b, 4000, 4100, to=0)
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Recv", "late sender"): 600.0})                   # 300 W from 2 s to 4 s
    same(caused, {(1, "f", "late sender"): 200.0, (1, "g", "late sender"): 400.0})      # a third and two thirds of the time


@case
def a_blocking_send_waits_for_its_receive():
    draft, (a, b) = job(2)
    send(a, 1000, 3100, to=1, region="MPI_Ssend")
    work(b, 0, 3000, "busy")
    receive(b, 3000, 3100, of=0)
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Ssend", "late receiver"): 200.0})
    same(caused, {(1, "busy", "late receiver"): 200.0})


@case
def a_rank_waits_where_it_asks_for_a_message():
    for ask, waits in ("MPI_Probe", True), ("mpi_mprobe_", True), ("MPI_Probe_f08ts", True), ("MPI_Iprobe", False):
        draft, (a, b) = job(2)
        work(a, 1000, 4100, ask)
        receive(a, 4200, 4300, of=1)
        work(b, 500, 4000, "f")
        send(b, 4000, 4100, to=0)
        waited, caused, _ = computed(draft)
        same(waited, {(0, ask, "late sender"): 300.0} if waits else {})
        same(caused, {(1, "f", "late sender"): 300.0} if waits else {})


@case
def a_rank_that_waits_in_the_receive_did_not_ask_for_its_message():
    draft, (a, b) = job(2)
    work(a, 1000, 2000, "MPI_Probe")
    receive(a, 3000, 4100, of=1)
    send(b, 4000, 4100, to=0)
    same(computed(draft)[0], {(0, "MPI_Recv", "late sender"): 100.0})
    draft, (a, b) = job(2)                      # a receive that was started before
    a.call(500, 600, "MPI_Irecv", ("mpi_irecv_request", 1))
    work(a, 1000, 4100, "MPI_Probe")
    a.call(4200, 4300, "MPI_Wait", ("mpi_irecv", 1, "world", 7, 8, 1))
    send(b, 4000, 4100, to=0)
    same(computed(draft)[0], {})
    draft, (a, b) = job(2)                      # the last probe is the one that found the message
    work(a, 1000, 4100, "MPI_Probe")
    work(a, 4150, 4180, "MPI_Probe")
    receive(a, 4200, 4300, of=1)
    send(b, 4000, 4100, to=0)
    same(computed(draft)[0], {})


@case
def a_send_that_ends_before_its_receive_waits_for_nothing():
    for end, joules in (1500, None), (2980, None), (2981, 198.1), (3000, 200.0), (3001, 200.0):        # 1 % of 2 s is 20 ms
        draft, (a, b) = job(2)
        send(a, 1000, end, to=1)
        receive(b, 3000, 3100, of=0)
        same(computed(draft)[0], {(0, "MPI_Send", "late receiver"): joules} if joules else {})


@case
def a_cause_is_passed_on():
    draft, (a, b, c) = job(3)
    receive(a, 1000, 5300, of=1)                # waits from 1 s until b sends at 5.2 s: 420 J
    work(b, 0, 2000, "some work")
    receive(b, 2000, 5100, of=2)                # waits from 2 s until c sends at 5 s: 300 J
    send(b, 5200, 5300, to=0)
    work(c, 0, 5000, "long work")
    send(c, 5000, 5100, to=1)
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Recv", "late sender"): 420.0, (1, "MPI_Recv", "late sender"): 300.0})
    # a waits for 4.2 s. Meanwhile b works for 1 s, waits for 3 s for c, which works, receives for 0.1 s without waiting, and is in
    # main for 0.1 s.
    same(caused, {(1, "some work", "late sender"): 100.0, (2, "long work", "late sender"): 600.0,
                  (1, "MPI_Recv", "late sender"): 10.0, (1, "main", "late sender"): 10.0})


@case
def a_cause_is_passed_on_only_while_the_late_rank_waits():
    draft, (a, b, c) = job(3)
    receive(b, 1000, 4100, of=2)                # waits from 1 s to 4 s for c, which is in "early" and then in "late"
    work(c, 0, 3000, "early")
    work(c, 3000, 4000, "late")
    send(c, 4000, 4100, to=1)
    receive(a, 3500, 4300, of=1)                # waits from 3.5 s to 4.3 s: 0.5 s for c's "late", 0.1 s b receives, 0.2 s b is in main
    send(b, 4300, 4400, to=0)
    _, caused, _ = computed(draft)
    same(caused, {(2, "early", "late sender"): 200.0, (2, "late", "late sender"): 100.0 + 50.0,
                  (1, "MPI_Recv", "late sender"): 10.0, (1, "main", "late sender"): 20.0})


@case
def all_wait_for_the_last_in_a_barrier():
    for operation, kind in ("BARRIER", "barrier"), ("ALLREDUCE", "n-to-n"), ("REDUCE_SCATTER_BLOCK", "n-to-n"):
        draft, lines = job(3)
        work(lines[2], 500, 4000, "late")
        for line, entry in zip(lines, [1000, 2000, 4000]):
            collective(line, entry, 4100, operation)
        waited, caused, _ = computed(draft)
        name = region_of(operation)
        same(waited, {(0, name, kind): 300.0, (1, name, kind): 200.0})
        same(caused, {(2, "late", kind): 500.0})


@case
def the_others_wait_for_the_root():
    draft, lines = job(3)
    work(lines[1], 500, 4000, "late")
    collective(lines[0], 1000, 4100, "BCAST", root=1)
    collective(lines[1], 4000, 4100, "BCAST", root=1)
    collective(lines[2], 5000, 5100, "BCAST", root=1)       # later than the root: it waits for nothing
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Bcast", "1-to-n"): 300.0})
    same(caused, {(1, "late", "1-to-n"): 300.0})


@case
def the_root_waits_for_the_last():
    draft, lines = job(3, communicators={"turned": [2, 1, 0]})
    collective(lines[0], 1000, 4100, "GATHERV", root=2, communicator="turned")          # rank 2 of "turned"
    collective(lines[1], 2000, 4100, "GATHERV", root=2, communicator="turned")          # it waits for nothing
    work(lines[2], 500, 4000, "late")
    collective(lines[2], 4000, 4100, "GATHERV", root=2, communicator="turned")
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Gatherv", "n-to-1"): 300.0})
    same(caused, {(2, "late", "n-to-1"): 300.0})


@case
def members_of_the_roots_group_in_an_intercommunicator_do_not_wait():
    for operation, root, waits in ("BCAST", 2, {(1, "MPI_Bcast", "1-to-n"): 200.0}), ("REDUCE", 0, {(0, "MPI_Reduce", "n-to-1"): 100.0}):
        draft, lines = job(3)
        for number, (line, entry) in enumerate(zip(lines, [1000, 2000, 4000])):
            named = root if operation == "BCAST" or number != 2 else THIS_GROUP
            named = THIS_GROUP if operation == "BCAST" and number == 0 else named
            collective(line, entry, 4100, operation, root=named)
        same(computed(draft)[0], waits)


@case
def a_scan_waits_for_lower_ranks():
    draft, lines = job(3)
    for line, entry, end in zip(lines, [3000, 1000, 5000], [3100, 3200, 5100]):
        collective(line, entry, end, "SCAN")
    waited, caused, _ = computed(draft)
    same(waited, {(1, "MPI_Scan", "n-to-n"): 200.0})
    same(caused, {(0, "main", "n-to-n"): 200.0})


@case
def members_of_an_incomplete_or_contradictory_collective_do_not_wait():
    draft, lines = job(3)
    collective(lines[0], 1000, 4100, "BARRIER")
    collective(lines[1], 4000, 4100, "BARRIER")                                         # rank 2 never comes
    assert computed(draft)[0] == {}
    draft, lines = job(2)
    collective(lines[0], 1000, 4100, "BCAST", root=1)
    collective(lines[1], 4000, 4100, "BCAST", root=0)
    assert computed(draft)[0] == {}


@case
def a_call_that_waits_for_several_waits_for_the_last():
    draft, (a, b, c) = job(3)
    a.call(100, 100, "MPI_Irecv", ("mpi_irecv_request", 1))
    a.call(200, 200, "MPI_Irecv", ("mpi_irecv_request", 2))
    a.call(1000, 5100, "MPI_Waitall", ("mpi_irecv", 2, "world", 7, 8, 2), ("mpi_irecv", 1, "world", 7, 8, 1))
    work(b, 500, 3000, "late")
    b.call(3000, 3010, "MPI_Isend", ("mpi_isend", 0, "world", 7, 8, 1))
    work(c, 500, 5000, "later")
    send(c, 5000, 5100, to=0)
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Waitall", "late sender"): 400.0})
    same(caused, {(2, "later", "late sender"): 400.0})


@case
def the_first_of_waits_that_end_at_the_same_time_counts():
    draft, (a, b, c) = job(3)
    a.call(1000, 4100, "MPI_Waitall", ("mpi_irecv", 2, "world", 7, 8, 2), ("mpi_irecv", 1, "world", 7, 8, 1))
    work(b, 500, 4000, "late")
    work(c, 500, 4000, "late")
    send(b, 4000, 4100, to=0)
    send(c, 4000, 4100, to=0)
    same(computed(draft)[1], {(2, "late", "late sender"): 300.0})
    draft, lines = job(3, communicators={"turned": [2, 1, 0]})
    for line, entry in zip(lines, [1000, 4000, 4000]):
        collective(line, entry, 4100, "BARRIER", communicator="turned")
    same(computed(draft)[1], {(2, "main", "barrier"): 300.0})               # number 0 of the communicator


@case
def a_request_to_send_does_not_wait():
    draft, (a, b) = job(2)
    a.call(1000, 3100, "MPI_Isend", ("mpi_isend", 1, "world", 7, 8, 1))
    receive(b, 3000, 3100, of=0)
    assert computed(draft)[0] == {}


@case
def a_receive_that_is_never_left_does_not_wait():
    draft, (a, b) = job(2)
    a.enter(1000, "MPI_Recv")
    a.at(4100, "mpi_recv", 1, "world", 7, 8)
    send(b, 4000, 4100, to=0)
    _, _, out = computed(draft, cut=True)
    assert (out["matched_messages"], out["devices"][0]["joules"]) == (1, 0)


@case
def events_outside_of_functions_match_and_do_not_wait():
    draft, (a, b) = job(2)
    a.leave(500)
    a.at(4100, "mpi_recv", 1, "world", 7, 8)
    send(b, 4000, 4100, to=0)
    a.at(5000, "mpi_send", 1, "world", 7, 8)
    receive(b, 4500, 5100, of=0)                # waits for the event itself, for 0.5 s; a has no function, so that nothing caused it
    a.at(6000, "mpi_send", 9, "world", 7, 8)    # there is no such number
    _, _, out = computed(draft)
    assert (out["matched_messages"], out["unmatched_messages"], out["devices"][0]["joules"]) == (2, 1, 0)


@case
def a_blocking_send_waits_for_the_request_to_receive():
    draft, (a, b) = job(2)
    send(a, 1000, 3100, to=1)
    work(b, 0, 3000, "busy")
    b.call(3000, 3010, "MPI_Irecv", ("mpi_irecv_request", 4))
    b.call(6000, 6010, "MPI_Wait", ("mpi_irecv", 0, "world", 7, 8, 4))
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Send", "late receiver"): 200.0})
    same(caused, {(1, "busy", "late receiver"): 200.0})


@case
def an_exchange_waits_once():
    draft, (a, b) = job(2)
    work(b, 0, 4000, "late")
    for line, entry, other in (a, 1000, 1), (b, 4000, 0):
        line.call(entry, 4100, "MPI_Sendrecv", ("mpi_send", other, "world", 7, 8), ("mpi_recv", other, "world", 7, 8))
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Sendrecv", "late sender"): 300.0})
    same(caused, {(1, "late", "late sender"): 300.0})


@case
def messages_match_in_order_and_the_rest_is_counted():
    draft, (a, b) = job(2)
    receive(a, 500, 600, of=1)                  # the first one sent, at 0.3 s
    send(b, 300, 310, to=0)
    a.call(700, 710, "MPI_Isend", ("mpi_isend", 1, "world", 9, 8, 3))
    a.call(710, 720, "MPI_Wait", ("mpi_request_cancelled", 3))              # no message
    receive(a, 1000, 4100, of=1)                # the second one, at 4 s
    send(b, 4000, 4100, to=0)
    send(b, 4200, 4300, to=0)                   # never received
    receive(a, 5000, 6000, of=1, communicator="other")                      # never sent in this communicator
    a.call(7000, 7100, "MPI_Recv", ("mpi_recv", 1, "world", 8, 8))          # never sent with this tag
    draft.communicators["other"] = [0, 1]
    waited, _, out = computed(draft)
    same(waited, {(0, "MPI_Recv", "late sender"): 300.0})
    assert (out["matched_messages"], out["unmatched_messages"]) == (2, 3)


@case
def a_partner_that_enters_after_the_call_has_ended_is_not_waited_for():
    for entry, joules in (4100, 310.0), (4101, 310.0), (4102, None):        # the send is entered 0, 1 and 2 ms after the receive is left
        draft, (a, b) = job(2)
        receive(a, 1000, 4100, of=1)
        send(b, entry, 4200, to=0)
        same(computed(draft)[0], {(0, "MPI_Recv", "late sender"): joules} if joules else {})


@case
def clocks_of_nodes_are_trusted_to_their_error():
    def between(nodes, end, error):
        draft, (a, b) = job(2, nodes)
        receive(a, 1000, end, of=1)
        send(b, 1100, 1200, to=0)
        return computed(draft, clock_error_seconds=error)[0].get((0, "MPI_Recv", "late sender"))
    two = ["node0", "node1"]
    assert between(two, 1200, 0.0) == between(two, 1200, 0.05) == 10.0      # 0.1 s is not shorter than 2 x 0.05 s
    assert between(two, 1200, 0.051) is None
    assert between(["node0"] * 2, 1200, 0.051) == 10.0                      # one clock
    assert between(two, 1090, 0.004) is None                                # the send is 10 ms after the end, and 8 ms are allowed
    assert abs(between(two, 1090, 0.005) - 9.0) < 1e-9


@case
def a_wait_uses_joules_of_the_node_of_the_rank_that_waits():
    draft, (a, b) = job(2, ["node0", "node1"])
    receive(a, 1000, 4100, of=1)
    work(b, 0, 4000, "late")
    send(b, 4000, 4100, to=0)
    _, caused, out = computed(draft)
    assert [(device["node"], device["joules"]) for device in out["devices"]] == [("node0", 300.0), ("node1", 0.0)]
    same(caused, {(1, "late", "late sender"): 300.0})


@case
def there_are_no_joules_without_samples():
    draft, (a, b) = job(2)
    draft.lines[-1].events = [event for event in draft.lines[-1].events if 2000 <= event[0] <= 3500]
    receive(a, 1000, 4100, of=1)
    send(b, 4000, 4100, to=0)
    same(computed(draft)[0], {(0, "MPI_Recv", "late sender"): 150.0})


@case
def frames_within_the_call_do_not_wait():
    draft, (a, b) = job(2)
    a.enter(1000, "MPI_Recv")
    work(a, 2000, 2500, "progress")
    a.at(4100, "mpi_recv", 1, "world", 7, 8)
    a.leave(4100)
    send(b, 4000, 4100, to=0)
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Recv", "late sender"): 250.0})
    same(caused, {(1, "main", "late sender"): 250.0})


@case
def each_policy_charges_the_wait():
    def scene(**config):
        draft, (a, b) = job(2, samples=[(0, 5.0), (10000, 2005.0)])
        receive(a, 1000, 4100, of=1)
        work(b, 0, 4000, "late")
        send(b, 4000, 4100, to=0)
        clock = Metric(CPU_TIME, "s", -9, kind=otf2.Type.UINT64)
        seconds = {a: [(0, 0), (1000, 1.0), (3500, 1.0), (4000, 1.25), (10000, 7.25)], b: [(0, 0), (10000, 10.0)]}
        for line, points in seconds.items():
            line.leave(10000)
            events = [(t, "metric", (clock, int(s * 1e9))) for t, s in points]
            line.events = sorted(events + line.events, key=lambda event: event[0])
        return computed(draft, **config)[0][0, "MPI_Recv", "late sender"]
    assert abs(scene(policy="time_sliced") - 300.0) < 1e-9
    assert abs(scene(policy="busy_only") - 2000.0 * 3 / 20) < 1e-9          # 3 s of the 20 s that frames ran
    # Static: 50 W x 3 s, half of it. Dynamic: 1,500 J by active seconds: 0.25 of 7.25 + 10.
    assert abs(scene(policy="active", baseline=50.0) - (75.0 + 1500.0 * 0.25 / 17.25)) < 1e-6


@case
def time_in_no_function_causes_no_waiting():
    draft, (a, b) = job(2)
    b.events, b.stack = [], []
    receive(a, 1000, 4100, of=1)
    send(b, 4000, 4100, to=0)                   # its first function
    assert computed(draft)[:2] == ({}, {})
    draft, (a, b) = job(2)
    b.events, b.stack = [], []
    work(b, 0, 1500, "f")
    receive(a, 1000, 4100, of=1)
    send(b, 4000, 4100, to=0)
    waited, caused, _ = computed(draft)         # both in a function for 0.5 s: 100 W; then a alone: 200 W
    same(waited, {(0, "MPI_Recv", "late sender"): 550.0})
    same(caused, {(1, "f", "late sender"): 550.0})


@case
def a_circle_of_waits_ends():
    draft, (a, b) = job(2)
    other = draft.line(b.group, "thread 1", b.node)
    receive(a, 1000, 4100, of=1)                # waits until b's other thread sends, at 4 s
    receive(b, 2000, 5100, of=0)                # waits until a sends, at 5 s
    send(other, 4000, 4100, to=0)
    send(a, 5000, 5100, to=1)
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Recv", "late sender"): 300.0, (1, "MPI_Recv", "late sender"): 300.0})
    # From 2 s to 4 s each waits for the other: the last rank before the circle closes has it.
    same(caused, {(1, "main", "late sender"): 100.0, (1, "MPI_Recv", "late sender"): 200.0,
                  (0, "MPI_Recv", "late sender"): 200.0 + 10.0, (0, "main", "late sender"): 90.0})


@case
def a_rank_does_not_wait_for_itself():
    draft, (a, b) = job(2)
    other = draft.line(a.group, "thread 1", a.node)
    receive(a, 1000, 4100, of=0)
    send(other, 4000, 4100, to=0)
    assert computed(draft)[0] == {}


@case
def non_blocking_collectives_wait_in_mpi_wait():
    draft, lines = job(2)
    for line, entry, start, end in (lines[0], 500, 1000, 4100), (lines[1], 4000, 6000, 6100):
        line.call(entry, entry + 10, "MPI_Ibarrier", ("non_blocking_collective_request", 5))
        line.call(start, end, "MPI_Wait", ("non_blocking_collective_complete", CollectiveOp.BARRIER, "world", NO_ROOT, 0, 0, 5))
    waited, caused, _ = computed(draft)
    same(waited, {(0, "MPI_Wait", "barrier"): 300.0})
    same(caused, {(1, "main", "barrier"): 300.0})


# Rules that must hold for random traces.

def literal_causes(trace, wait):
    """Rules 19 to 22 to the letter: between two events of any rank nothing changes, so one instant stands for all."""
    times = {wait.frame.enter, wait.until}
    for runs in trace.runs.values():
        for start, end, frame in runs:
            times |= {start, end} | ({frame.wait.until} if frame.wait else set())
    times = sorted(time for time in times if wait.frame.enter <= time <= wait.until)
    ticks = collections.Counter()
    for start, end in zip(times, times[1:]):
        rank, passed = wait.partner, {wait.frame.rank}
        while True:
            passed.add(rank)
            frame = next((f for s, e, f in trace.runs[trace.main[rank]] if s <= start < e), None)
            if frame is None or frame.wait is None or start >= frame.wait.until or frame.wait.partner in passed:
                break
            rank = frame.wait.partner
        if frame is not None:
            ticks[rank, frame.path] += end - start
    return ticks


def check_random(seed, options, seen):
    with tempfile.TemporaryDirectory() as place:
        generated = RandomProgram(seed, options).generate()
        generated.write(place + "/t")
        config = generated.config()
        trace, waits, out = waiting.compute(place + "/t/traces.otf2", config)
        again = attributed(place + "/t", config)
    for runs in trace.runs.values():
        for frame in {frame for _, _, frame in runs if frame.wait}:
            assert dict(waiting.Causes(trace).of(frame.wait)) == literal_causes(trace, frame.wait), frame.path
            assert frame.enter < frame.wait.until <= frame.leave
            seen[frame.wait.kind] += 1
            seen["passed on"] += any(rank != frame.wait.partner for rank, _ in waiting.Causes(trace).of(frame.wait))
    for device in out["devices"]:
        waited, caused = (sum(row["joules"] for row in device[column]) for column in ("waited", "caused"))
        assert abs(waited - caused) <= 1e-9 * device["total"], (waited, caused)
        assert all(row["joules"] >= 0 for column in ("waited", "caused") for row in device[column])
        exclusive, per_path = again[device["name"]], collections.Counter()
        for row in device["waited"]:
            per_path[row["path"]] += row["joules"]
        for path, joules in per_path.items():
            assert joules <= exclusive[path] + 1e-9 * device["total"], (path, joules, exclusive[path])
        seen["devices with waiting"] += waited > 0


def attributed(directory, config):
    """-> for each device, attribute.py's joules of each call path"""
    import contextlib, io
    out, before = io.StringIO(), sys.argv
    with open(directory + "/oracle.json", "w") as file:
        json.dump(config, file)
    sys.argv = ["attribute.py", directory + "/traces.otf2", directory + "/oracle.json"]
    with contextlib.redirect_stdout(out):
        attribute.main()
    sys.argv = before
    return {device["name"]: device[config["policy"]]["exclusive"] for device in json.loads(out.getvalue())["devices"]}


def main():
    for function in CASES:
        try:
            function()
        except BaseException:
            print(f"failed: {function.__name__}", file=sys.stderr)
            raise
    traces, first, options = int(sys.argv[1]) if sys.argv[1:] else 50, int(sys.argv[2]) if sys.argv[2:] else 1, sys.argv[3:]
    seen = collections.Counter()
    for seed in range(first, first + traces):
        try:
            check_random(seed, options, seen)
        except BaseException:
            print(f"failed: the random trace {seed} {' '.join(options)}", file=sys.stderr)
            raise
    print(f"{len(CASES)} cases and {traces} random traces passed: {dict(seen)}")


if __name__ == "__main__":
    main()
