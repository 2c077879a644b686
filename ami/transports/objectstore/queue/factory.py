"""Opens a queue's store on the journal that fits its storage."""

import time
from pathlib import Path

from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.queue import opcodes as op
from ami.transports.objectstore.queue.batch import encode, encode_line
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.port import Storage
from ami.transports.objectstore.storage.reserve import Reserve


def open_store(storage: Storage, prefix: str = "") -> Store:
    """Return the store of the queue under ``prefix`` (empty, or ending in a slash) of any storage."""
    return Store(ObjectJournal(storage, prefix))


def open_folder(folder: Path, *, durable: bool = True, reserve: Reserve | None = None) -> Store:
    """Return the store of the queue in a local folder, whose journal is appended to.

    On a full disk ``reserve`` is given up for what adds no message.
    """
    power_failure, _ = encode(time.time(), [encode_line([op.POWER_FAILURE])], [], "doubt")
    return Store(FolderJournal(folder, power_failure=power_failure, durable=durable, reserve=reserve))
