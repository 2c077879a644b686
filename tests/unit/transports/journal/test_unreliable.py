"""Whatever a network does to the requests of whichever writers, each confirmed batch is there once."""

import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.queue.commands import Ack
from ami.transports.objectstore.storage.errors import CASConflictError, StorageError
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.soak import soak
from tests.support.transports.flaky_network import Fault, FlakyNetwork, hasty
from tests.support.transports.queue_state import assert_consistent, picture
from tests.support.transports.recording_follower import Reader
from tests.support.transports.small_stores import claim, content, held, on_objects, publish, snapshots_every

faults = st.lists(st.sampled_from([Fault.NONE, Fault.NONE, Fault.NONE, Fault.RIVAL, *Fault]), max_size=120)
writers = st.integers(0, 2)
appending = st.sampled_from(["append", "append", "blind", "save", "read", "forget"])


class Writers:
    """Three processes that append, and three that do so in between, on a network of a certain kind."""

    def __init__(self, network: FlakyNetwork, segment_bytes: int, rivals: list[tuple[int, bool]]) -> None:
        self.confirmed: list[bytes] = []
        self.readers = [Reader(ObjectJournal(network, segment_bytes=segment_bytes)) for _ in range(6)]
        self._bodies = (b"body %03d" % each for each in itertools.count())
        self._rivals = iter(rivals)
        network.rival = self._rival

    def append(self, reader: Reader) -> None:
        body = next(self._bodies)
        reader.append(body)
        self.confirmed.append(body)

    def blind(self, reader: Reader) -> None:
        body = next(self._bodies)
        reader.journal.append(body, None, durable=True)
        self.confirmed.append(body)

    def save(self, reader: Reader) -> None:
        reader.all()
        reader.save()

    def read(self, reader: Reader) -> None:
        reader.all()

    def forget(self, reader: Reader) -> None:
        reader.journal.forget()

    def _rival(self) -> None:
        which, saves = next(self._rivals, (0, False))
        reader = self.readers[3 + which]
        self.append(reader)
        if saves:
            reader.save()


@settings(max_examples=soak(250, 20_000), deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(writers, st.sampled_from(["append", "append", "blind", "save", "read", "forget"])),
        min_size=5,
        max_size=40,
    ),
    faults,
    st.lists(st.tuples(writers, st.booleans()), max_size=40),
    st.integers(20, 80),
    st.booleans(),
)
def test_confirmed_batches_are_stored_exactly_once(
    history: list[tuple[int, str]],
    plan: list[Fault],
    rivals: list[tuple[int, bool]],
    segment_bytes: int,
    is_remote: bool,
):
    network = FlakyNetwork(plan, is_remote=is_remote)
    writers = Writers(network, segment_bytes, rivals)
    with hasty():
        for which, step in history:
            with suppress(StorageError, CASConflictError):
                getattr(writers, step)(writers.readers[which])
        network.settle()
        last = Reader(ObjectJournal(network))
        found = list(last.all())
        last.append(b"last")
        for reader in writers.readers:
            assert reader.all() == [*found, b"last"]
    assert len(found) == len(set(found))
    assert set(writers.confirmed) <= set(found)


class Users:
    """Three processes that publish, claim and acknowledge, and one that publishes in between."""

    def __init__(self, network: FlakyNetwork) -> None:
        self.stores = [on_objects(network, 300) for _ in range(4)]
        self.published: list[str] = []
        self.confirmed: set[str] = set()
        self.claimed: list[str] = []
        self.acknowledged: set[str] = set()
        self._network = network
        self._names = map(str, itertools.count())
        self._held: dict[int, list[str]] = {0: [], 1: [], 2: []}
        network.rival = lambda: self.publish(3)

    def publish(self, which: int) -> None:
        self.published.append(next(self._names))
        self.again(which)

    def again(self, which: int) -> None:
        if self.published:
            name = self.published[-1]
            publish(self.stores[which], name, size=30)
            self.confirmed.add(name)

    def claim(self, which: int) -> None:
        claimed = claim(self.stores[which], 2, str(which), seconds=None)
        self.claimed += claimed
        self._held[which] += claimed

    def ack(self, which: int) -> None:
        if self._held[which]:
            name = self._held[which].pop(0)
            self.acknowledged.add(name)
            self.stores[which].commit([Ack(name)])

    def look(self, which: int) -> None:
        self.stores[which].look()

    def away(self, which: int) -> None:
        self.stores[which] = on_objects(self._network, 300)


steps = st.sampled_from(["publish", "publish", "publish", "again", "claim", "ack", "look", "away"])


@settings(max_examples=soak(130, 6000), deadline=None, derandomize=True)
@given(st.lists(st.tuples(writers, steps), max_size=50), faults, st.integers(200, 3000))
def test_every_confirmed_message_is_in_the_queue_once(history: list[tuple[int, str]], plan: list[Fault], every: int):
    network = FlakyNetwork(plan)
    users = Users(network)
    with hasty(), snapshots_every(every):
        for which, step in history:
            with suppress(StorageError, CASConflictError):
                getattr(users, step)(which)
        network.settle()
        publish(users.stores[0], "last")
        fresh = on_objects(network, 300)
        found = held(fresh)
        whole = picture(fresh.look())
        for store in users.stores:
            assert picture(store.look()) == whole
            assert_consistent(store.look())
    assert users.confirmed - users.acknowledged <= found.keys()
    assert found.keys() <= {*users.published, "last"}
    assert all(found[name] == content(name, 30)[: len(found[name])] for name in found)
    assert len(users.claimed) == len(set(users.claimed))


def test_threads_on_stores_of_their_own_lose_nothing_and_share_nothing():
    objects, count = MemoryObjects(), soak(40, 300)
    start = threading.Barrier(6)

    def work(me: int) -> list[str]:
        store, mine = on_objects(objects, 2000), []
        start.wait(60)
        for at in range(count):
            publish(store, f"{me}-{at}", size=20)
            for name in claim(store, 1, str(me), seconds=None):
                mine.append(name)
                if at % 3:
                    store.commit([Ack(name)])
        return mine

    with ThreadPoolExecutor(6) as pool, snapshots_every(20_000):
        claimed = [name for names in pool.map(work, range(6)) for name in names]
    assert Counter(claimed) == Counter(f"{me}-{at}" for me in range(6) for at in range(count))
    store = on_objects(objects, 2000)
    assert_consistent(store.look())
    assert len(held(store)) == 6 * -(-count // 3)
