"""Reads the objects in a broker's folder: its declarations and its consumers' records."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ami.transports.objectstore.broker.declaration_store import KEY
from ami.transports.objectstore.broker.declarations import Declarations
from ami.transports.objectstore.broker.names import file_name
from ami.transports.objectstore.storage.errors import StorageError
from ami.transports.objectstore.storage.frame import Torn, unframed

#: The folder to which unreadable bytes are moved or copied; nothing removes them.
ASIDE = ".unreadable"

#: The folders of objects in a broker's folder.
DECLARATIONS, ALIVE = FOLDERS = ("objects", "alive")


def torn_objects(broker: Path) -> Iterator[str]:
    """Yield a sentence for each damaged object."""
    yield from (f"{path}: {torn}" for path, torn in _torn(broker))


def set_torn_objects_aside(broker: Path) -> Iterator[Path]:
    """Move each damaged object into a folder beside the others; yield where it was moved."""
    for path, _ in _torn(broker):
        aside = broker / ASIDE / f"{path.parent.name}-{path.name}-{time.time_ns()}"
        aside.parent.mkdir(exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            path.rename(aside)
            yield aside


def _torn(broker: Path) -> Iterator[tuple[Path, Torn]]:
    for folder in (broker / name for name in FOLDERS):
        for path in sorted(folder.rglob("*")):
            # Unfinished files and the lock are not objects.
            if any(part.startswith(".") for part in path.relative_to(folder).parts):
                continue
            try:
                with suppress(FileNotFoundError, IsADirectoryError):
                    unframed(path.read_bytes())
            except Torn as torn:
                yield path, torn


def declared_queues(broker: Path) -> dict[str, tuple[str, bool]]:
    """Return the declared queues by the names of their folders, as far as the declarations can be read: their name,
    and whether they are transient, so that their messages need not survive a power failure.
    """
    with suppress(FileNotFoundError, Torn, StorageError):
        _, content = unframed((broker / DECLARATIONS / KEY).read_bytes())
        queues = Declarations.load(content).queues
        return {file_name(name): (name, record.is_transient) for name, record in queues.items()}
    return {}
