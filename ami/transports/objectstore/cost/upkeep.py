"""What keeping journals short costs: segments that are closed, read elsewhere and deleted, and snapshots."""

from ami.transports.objectstore.cost.ledger import SEGMENT, SNAPSHOT, Ledger
from ami.transports.objectstore.cost.requests import Requests
from ami.transports.objectstore.journal.objects import SEGMENT_BYTES
from ami.transports.objectstore.queue.commands import Ack, Claim, Enqueue
from ami.transports.objectstore.queue.factory import open_store
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.memory import MemoryObjects

#: So many messages go through at once, fewer where they are large: what is counted here depends on bytes alone.
TOGETHER = 10

#: So many workers at most consume the queue here.
TRIED = 2

#: The first snapshot finds nothing of an earlier one to delete: the way from it to the second is what is counted.
FIRST, SECOND = 1, 2


def upkeep(message_bytes: int, workers: int) -> Requests:
    """Return the requests per message that are not its own, where ``workers`` consume a queue.

    Messages of ``message_bytes``, as they are stored, go through real stores until these have made two snapshots. More
    than two workers are not tried: each of them reads every segment once.
    """
    storage = MemoryObjects()
    publisher, consumers = Ledger(storage), [Ledger(storage) for _ in range(min(workers, TRIED))]
    stores = [open_store(ledger) for ledger in consumers]
    together = max(1, min(TOGETHER, SEGMENT_BYTES // (8 * message_bytes)))
    passed, counted = 0, []
    for snapshots in (FIRST, SECOND):
        while sum(ledger.created(SNAPSHOT) for ledger in consumers) < snapshots:
            names = [f"{number:032x}" for number in range(passed, passed + together)]
            _pass([Enqueue(name, bytes(message_bytes)) for name in names], publisher, stores)
            passed += together
        counted.append((passed, _counted([publisher, *consumers])))
    (before, first), (after, second) = counted
    each = second.minus(first).times(1 / (after - before))
    return each._replace(get=each.get * workers / len(consumers))


def _pass(messages: list[Enqueue], publisher: Ledger, stores: list[Store]) -> None:
    """Let some messages through. Everybody reads the head first, as they do half a second after the last time."""
    open_store(publisher).commit(messages)
    share = -(-len(messages) // len(stores))
    for store in stores:
        store.look()
        [entries] = store.commit([Claim(share, "worker", 60.0)])
        if entries:
            store.commit([Ack(entry.id) for entry in entries])


def _counted(ledgers: list[Ledger]) -> Requests:
    """Return what was asked of segments and snapshots, and the replace of the head that makes a snapshot count."""
    asked = Requests.total(ledger.requests(SEGMENT, SNAPSHOT) for ledger in ledgers)
    return asked.plus(Requests(put=sum(ledger.created(SNAPSHOT) for ledger in ledgers)))
