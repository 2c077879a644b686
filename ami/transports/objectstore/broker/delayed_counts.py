"""How many delayed messages each queue will get: where each goes stands in the message itself."""

from collections import Counter
from collections.abc import Mapping

from amqp.exceptions import AMQPError

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.envelope import unseal
from ami.transports.objectstore.broker.expiry_marks import SWEEP
from ami.transports.objectstore.broker.wheel import Delayed
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import StorageError

#: So many messages are read at a time; the queues of more are known after the next counts.
MOST_READ = 500
#: With more than so many, they are counted for all queues together.
MOST_COUNTED = 5000


class DelayedCounts:
    """Counts a broker's delayed messages; remembers where each goes, so that each is read once."""

    def __init__(self) -> None:
        self._queues: dict[str, tuple[str, ...]] = {}

    def read(self, broker: BrokerStorage) -> tuple[int, Mapping[str, int] | None]:
        """Return how many there are, and how many by queue; None where that is not known of all of them."""
        wheel = broker.wheel
        found = [
            (store, entry)
            for store in map(wheel.store, wheel.slots())
            for entry in list(store.look().entries.values())
            if entry.is_waiting and entry.entrypoint != SWEEP
        ]
        if len(found) > MOST_COUNTED:
            self._queues.clear()
            return len(found), None
        self._queues = {entry.id: self._queues[entry.id] for _, entry in found if entry.id in self._queues}
        for store, entry in [each for each in found if each[1].id not in self._queues][:MOST_READ]:
            self._queues[entry.id] = _queues_of(broker, store, entry)
        if len(self._queues) < len({entry.id for _, entry in found}):
            return len(found), None
        return len(found), Counter(queue for queues in self._queues.values() for queue in queues)


def _queues_of(broker: BrokerStorage, store: Store, entry: Entry) -> tuple[str, ...]:
    try:
        message = Delayed.load(entry.id, entry.created, store.payload(entry), entry.entrypoint)
        if message.only_queue is not None:
            return (message.only_queue,)
        info = unseal(message.payload)["properties"]["delivery_info"]
        exchange, key = str(info.get("exchange") or ""), str(info.get("routing_key") or "")
        return tuple(broker.declarations.current().route(exchange, key))
    except (AMQPError, StorageError):
        return ()  # It is damaged, or was delivered meanwhile; the command ``check`` names what is damaged.
