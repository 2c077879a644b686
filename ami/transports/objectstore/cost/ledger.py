"""A storage that counts apart what is asked for: heads, segments, snapshots, the layout, presences; and by whom."""

import threading

from ami.transports.objectstore.cost.requests import Requests
from ami.transports.objectstore.storage.port import Storage, Stored
from ami.transports.objectstore.storage.request_counter import Counting

HEAD, SEGMENT, SNAPSHOT, LAYOUT, PRESENCE = PARTS = ("head", "segment", "snapshot", "layout", "presence")

#: The thread that renews leases and presence while everything else waits.
KEEPER = "objectstore-keeper"


class Ledger:
    """One process's way to a storage that others use, too. It takes itself for remote: what depends on that, counts."""

    is_remote = True

    def __init__(self, storage: Storage) -> None:
        self._counts = {(part, kept): Counting(storage) for part in PARTS for kept in (False, True)}

    def requests(self, *parts: str, by_keeper: bool = False) -> Requests:
        """Return what was asked of these parts (none given: of all), by the keeper or by everybody else."""
        counted = (self._counts[part, by_keeper] for part in parts or PARTS)
        return Requests.total(Requests.of(counting.traffic) for counting in counted)

    def created(self, part: str) -> int:
        """Return how many new objects were written."""
        return self._counts[part, False].traffic.create + self._counts[part, True].traffic.create

    def read(self, key: str) -> Stored | None:
        """Read, and count it."""
        return self._of(key).read(key)

    def create(self, key: str, content: bytes) -> str:
        """Create, and count it."""
        return self._of(key).create(key, content)

    def replace(self, key: str, content: bytes, version: str) -> str:
        """Replace, and count it."""
        return self._of(key).replace(key, content, version)

    def delete(self, key: str) -> None:
        """Delete, and count it."""
        self._of(key).delete(key)

    def list(self, prefix: str) -> list[str]:
        """List, and count it."""
        return self._of(prefix).list(prefix)

    def _of(self, key: str) -> Counting:
        return self._counts[part_of(key), threading.current_thread().name == KEEPER]


def part_of(key: str) -> str:
    """Return the part that a key belongs to."""
    if key.startswith("presence/"):
        return PRESENCE
    if key == "layout":
        return LAYOUT
    if "segments/" in key:
        return SEGMENT
    return SNAPSHOT if "snapshots/" in key else HEAD
