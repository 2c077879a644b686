"""The closed segments and snapshots of a journal in object storage: objects that are written once."""

import json
from collections import OrderedDict

from ami.transports.objectstore.journal.head import Head
from ami.transports.objectstore.journal.port import BehindError
from ami.transports.objectstore.storage.errors import StorageError
from ami.transports.objectstore.storage.port import Storage

SEGMENTS, SNAPSHOTS = "segments/", "snapshots/"

#: So many are kept in memory for reading payloads.
KEPT_SEGMENTS = 256


class ClosedSegments:
    """Their keys by number, as heads and snapshots list them, and the contents of those used last."""

    def __init__(self, storage: Storage, prefix: str) -> None:
        self.keys: dict[int, str] = {}
        self._storage = storage
        self._prefix = prefix
        self._contents: OrderedDict[str, bytes] = OrderedDict()

    def content(self, number: int) -> bytes:
        """Return what is in a segment. Raises BehindError for one that is not there."""
        key = self.keys.get(number, "")
        content = self._contents.get(key)
        if content is None:
            stored = self._storage.read(f"{self._prefix}{key}") if key else None
            if stored is None:
                raise BehindError(f"segment {number} of {self._prefix or 'the queue'} is missing")
            content = self._contents[key] = stored.content
            while len(self._contents) > KEPT_SEGMENTS:
                self._contents.popitem(last=False)
        self._contents.move_to_end(key)
        return content

    def read_snapshot(self, key: str) -> tuple[dict[int, str], bytes]:
        """Return the keys of the segments that a snapshot needs, and its content. Raises BehindError where missing."""
        stored = self._storage.read(f"{self._prefix}{key}")
        if stored is None:
            raise BehindError(f"the snapshot {self._prefix}{key} is missing")
        line, _, content = stored.content.partition(b"\n")
        try:
            return {int(number): name for number, name in json.loads(line).items()}, content
        except ValueError as error:
            raise StorageError(f"the snapshot {self._prefix}{key} cannot be read: {error}", error) from error

    def write_snapshot(self, key: str, kept: dict[int, str], content: bytes) -> None:
        self._storage.create(f"{self._prefix}{key}", json.dumps(kept).encode() + b"\n" + content)

    def begin(self, head: Head, kept: dict[int, str]) -> None:
        """Start over with those of a head and of its snapshot."""
        self.keys = {**head.keys, **kept}

    def drop(self, kept: dict[int, str], first: int) -> None:
        """Delete what a follower that begins at ``first`` does not need; also what killed and slower writers left.

        No process can need it again: a head that named it would have to replace one that no longer exists.
        """
        self.keys = {number: key for number, key in self.keys.items() if number in kept or number >= first}
        names = set(kept.values())
        for folder in (SEGMENTS, SNAPSHOTS):
            for key in self._storage.list(f"{self._prefix}{folder}"):
                name = key.removeprefix(self._prefix)
                if int(name.removeprefix(folder).partition("-")[0]) < first and name not in names:
                    self._storage.delete(key)
                    self._contents.pop(name, None)
