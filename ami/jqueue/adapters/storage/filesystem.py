"""A queue in a folder of one machine, shared by all its processes."""

import fcntl
import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ami.jqueue.adapters.storage.imported_jobs import import_jobs
from ami.jqueue.core.codec import decode
from ami.jqueue.core.keyed import KeyedStorage
from ami.jqueue.domain.errors import StorageError
from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.queue.factory import open_folder
from ami.transports.objectstore.queue.store import Store


class LocalFileSystemStorage(KeyedStorage):
    """The folder at ``path``, made with its parents when the queue is first used. POSIX only; no network file systems.

    A regular file there is taken for a queue in the wire format: its jobs are imported once, and the file is kept as
    ``<path>.imported``. A file that is something else is left alone, and every use of the queue raises StorageError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        # Absolute, since a process may change its working folder.
        self._path = Path(path).absolute()

    def _open(self) -> Store:
        try:
            # In this order: an import makes the folder, renames the file, then moves the folder in place.
            if self._path.is_file() or (not self._path.exists() and self._partial.exists()):
                self._import()
        except OSError as error:
            raise StorageError(f"{self._path} could not be imported: {error}", error) from error
        store = open_folder(self._path)
        # A storage has no end of its own: its files are closed when it is collected.
        weakref.finalize(store, store._journal.close)
        return store

    @property
    def _partial(self) -> Path:
        return self._beside("importing")

    def _beside(self, ending: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{ending}")

    def _import(self) -> None:
        """Make a folder of the file. Killed at any point, the next one finds either the file or the whole folder."""
        with _locked(self._beside("lock")):
            if self._path.is_file():
                state = decode(self._path.read_bytes())
                shutil.rmtree(self._partial, ignore_errors=True)
                # A new folder has no power failure behind it.
                journal = FolderJournal(self._partial, power_failure=b"")
                import_jobs(Store(journal), state)
                journal.close()
                _to_disk(self._partial.parent)
                self._path.rename(self._free_name())
            if self._partial.exists() and not self._path.exists():
                self._partial.rename(self._path)
                _to_disk(self._path.parent)

    def _free_name(self) -> Path:
        names = ("imported", *(f"imported-{number}" for number in range(2, 1000)))
        return next(path for path in map(self._beside, names) if not path.exists())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _to_disk(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
