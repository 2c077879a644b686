"""A queue on a local disk, shared by all processes of the machine: in one file, or as a journal in a folder."""

import asyncio
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ami.jqueue.adapters.storage.file_blob import FileBlob
from ami.jqueue.adapters.storage.moved import MARK_NAME, folder_mark, refuse_interrupted, refuse_moved
from ami.jqueue.core.keyed import KeyedStorage
from ami.jqueue.domain.errors import StorageError
from ami.transports.objectstore.queue.factory import open_folder
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.verification import verify_folder

T = TypeVar("T")


class LocalFileSystemStorage(KeyedStorage, is_complete=True):
    """The file at ``path`` with the queue in the wire format, or the folder at ``path`` with the queue's journal.

    What is there decides. Where nothing is, the first write makes a file, or a folder where ``journal`` is given, with
    its parents. Neither becomes the other: ``python -m ami.jqueue import`` does that, and from then on the imported one
    raises StorageError. POSIX only; no network file systems.
    """

    def __init__(self, path: str | os.PathLike[str], *, journal: bool = False) -> None:
        super().__init__()
        self.path = Path(path)
        self.journal = journal
        # A process may change its working folder.
        self._place = self.path.absolute()
        self._blob = FileBlob(self._place)
        self._mark = str(self._place / MARK_NAME)

    @property
    def is_keyed(self) -> bool:
        """Whether it keeps a journal, as a folder does."""
        return self._store is not None or self.journal or self._place.is_dir()

    def store(self) -> Store:
        if os.path.exists(self._mark):
            refuse_moved(self._place, folder_mark(self._place))
        return super().store()

    async def read(self) -> tuple[bytes, str | None]:
        """Return (the queue in the wire format, etag), ``(b"", None)`` where nothing was ever enqueued."""
        return await (super().read() if self.is_keyed else asyncio.to_thread(self._accessed, self._read))

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        """Write the file as `ObjectStoragePort` says; the first write creates only. A journal raises JQueueError."""
        if self.is_keyed:
            return await super().write(content, if_match)
        return await asyncio.to_thread(self._accessed, lambda: self._write(content, if_match))

    def _read(self) -> tuple[bytes, str | None]:
        content, etag = self._blob.read()
        refuse_moved(self._place, content)
        return content, etag

    def _write(self, content: bytes, if_match: str | None) -> str:
        # What a link names is replaced, not the link.
        verify_folder(self._place.resolve().parent)
        return self._blob.write(content, if_match)

    def _accessed(self, access: Callable[[], T]) -> T:
        refuse_interrupted(self._place)
        try:
            return access()
        except OSError as error:
            raise StorageError(f"{self._place} failed: {error}", error) from error

    def _open(self) -> Store:
        store = self._accessed(self._open_folder)
        # A storage has no end of its own: its files are closed when it is collected.
        weakref.finalize(store, store._journal.close)
        return store

    def _open_folder(self) -> Store:
        if self._place.is_file():
            refuse_moved(self._place, self._place.read_bytes())
            raise StorageError(
                f"{self._place} is a file, not a journal: leave 'journal' out, or import it into a folder with "
                f"python -m ami.jqueue import {self._place} FOLDER"
            )
        verify_folder(self._place)
        return open_folder(self._place)
