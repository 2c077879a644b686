"""Where the tests' objects lie, in a form that another process understands."""

from typing import Any, NamedTuple

from ami.transports.objectstore.storage.cloud import CloudObjects
from ami.transports.objectstore.storage.folder import FolderObjects
from ami.transports.objectstore.storage.fork_safe import SubprocessStorage
from ami.transports.objectstore.storage.memory import MemoryObjects
from ami.transports.objectstore.storage.port import Storage


class StorageLocation(NamedTuple):
    """A kind of storage, and the keyword arguments that open it."""

    kind: str
    arguments: dict[str, Any]

    def open(self) -> Storage:
        """Return a storage there; all that open the same place see the same objects, except in memory."""
        return OPEN[self.kind](**self.arguments)


def _subprocess(**arguments: Any) -> SubprocessStorage:
    return SubprocessStorage(CloudObjects.s3(**arguments).place)


OPEN = {
    "memory": MemoryObjects,
    "folder": FolderObjects,
    "s3": CloudObjects.s3,
    "s3 in a subprocess": _subprocess,
}
