"""Reads the objects in a folder: what is declared at a broker, and who is alive there."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ami.transports.objectstore.broker.declaration_store import KEY
from ami.transports.objectstore.broker.declarations import Declarations
from ami.transports.objectstore.storage.errors import StorageError
from ami.transports.objectstore.storage.frame import Torn, unframed

#: The folders of objects in a broker's folder.
LAYOUT, ALIVE = FOLDERS = ("objects", "alive")


def torn_objects(broker: Path) -> Iterator[str]:
    """Yield a sentence for each object that is not what was written."""
    for folder in (broker / name for name in FOLDERS):
        for path in sorted(folder.rglob("*")):
            # What is unfinished, and the lock, are no objects.
            if any(part.startswith(".") for part in path.relative_to(folder).parts):
                continue
            try:
                with suppress(FileNotFoundError, IsADirectoryError):
                    unframed(path.read_bytes())
            except Torn as torn:
                yield f"{path}: {torn}"


def transient_queues(broker: Path) -> set[str]:
    """Return the queues whose messages need not survive a power failure, as far as the layout tells it."""
    with suppress(FileNotFoundError, Torn, StorageError):
        _, content = unframed((broker / LAYOUT / KEY).read_bytes())
        return {name for name, record in Declarations.load(content).queues.items() if record.is_transient}
    return set()
