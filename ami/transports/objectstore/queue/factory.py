"""Opens the store of a queue on the journal that fits its storage."""

import time
from pathlib import Path

from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.queue.batch import encode, line
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.port import Storage


def open_store(storage: Storage, prefix: str = "") -> Store:
    """Return the store of the queue under ``prefix`` (empty, or ending in a slash) of any storage."""
    return Store(ObjectJournal(storage, prefix))


def open_folder(folder: Path, *, durable: bool = True) -> Store:
    """Return the store of the queue in a local folder, whose journal is appended to instead of replaced."""
    doubt, _ = encode(time.time(), [line(["d"])], [], "doubt")
    return Store(FolderJournal(folder, doubt=doubt, durable=durable))
