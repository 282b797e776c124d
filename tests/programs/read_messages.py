# Prints the messages, collectives and requests of a trace as JSON. Checks that the messages between two ranks are received in the
# order of sending, and that each request ends at most once, after its start.
import collections, json, otf2, sys
E = otf2.events
# Requests belong to the process and not to the thread, because another thread may complete one.
sent, received = collections.defaultdict(list), collections.defaultdict(list)
counts, collectives, last, begun, stacks = collections.Counter(), collections.Counter(), {}, set(), collections.defaultdict(list)
open_requests = collections.defaultdict(dict)
with otf2.reader.open(sys.argv[1]) as trace:
    def members(comm, rank):
        group = comm.group
        if group.group_type == otf2.GroupType.COMM_SELF: return [rank]
        return [int(location.group.name.split()[-1]) for location in group.members]
    def rank_of(location): return int(location.group.name.split()[-1])
    for location, event in trace.events:
        if not location.group.name.startswith('MPI Rank'): continue
        rank = rank_of(location)
        requests = open_requests[rank]
        def ended(what):
            assert requests.pop(event.request_id) == what, (what, event)
        if isinstance(event, (E.MpiSend, E.MpiIsend)):
            key = (rank, members(event.communicator, rank)[event.receiver])
            sent[key].append((event.msg_tag, event.msg_length, event.time))
        if isinstance(event, (E.MpiRecv, E.MpiIrecv)):
            key = (members(event.communicator, rank)[event.sender], rank)
            received[key].append((event.msg_tag, event.msg_length, event.time))
        if isinstance(event, E.Enter): stacks[location].append(event.region.name)
        if isinstance(event, E.Leave): assert stacks[location].pop() == event.region.name
        if isinstance(event, E.MpiIsend): requests[event.request_id] = 'send'
        if isinstance(event, E.MpiIrecvRequest): requests[event.request_id] = 'receive'
        if isinstance(event, E.NonBlockingCollectiveRequest): requests[event.request_id] = 'collective'
        if isinstance(event, E.MpiIsendComplete): ended('send')
        if isinstance(event, E.MpiIrecv): ended('receive')
        if isinstance(event, E.NonBlockingCollectiveComplete): ended('collective')
        if isinstance(event, E.MpiRequestCancelled): ended('receive')
        if isinstance(event, (E.MpiCollectiveEnd, E.NonBlockingCollectiveComplete)):
            root = '' if event.root == 0xffffffff else f' {event.root}'
            what = str(event.collective_op).split('.')[-1] + root + f' {members(event.communicator, rank)}'
            collectives[f'{what} {event.size_sent} {event.size_received} on {rank}'] += 1
        name = type(event).__name__
        if name not in ('Enter', 'Leave', 'Metric', 'ProgramBegin', 'ProgramEnd', 'CommCreate', 'CommDestroy', 'MpiRequestTest'): counts[name] += 1
def by_tag(of, key): return {tag: [m[1] for m in sorted(of[key], key=lambda m: m[2]) if m[0] == tag] for tag in {m[0] for m in of[key]}}
for key in list(received):
    s, r = by_tag(sent, key), by_tag(received, key)
    for tag in r: assert s.get(tag) == r[tag], (key, tag, len(s.get(tag, [])), len(r[tag]))
left = collections.Counter(what for requests in open_requests.values() for what in requests.values())
def sizes(of): return {f'{a} to {b}': sorted([*m, n] for m, n in collections.Counter(m[:2] for m in all).items()) for (a, b), all in sorted(of.items())}
print(json.dumps({'messages': sizes(sent), 'received': sizes(received), 'collectives': collectives, 'counts': counts, 'open': left}))
