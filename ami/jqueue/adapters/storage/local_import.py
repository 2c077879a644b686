"""Imports a queue on a local disk from a file into a journal, and back."""

import os
import shutil
from contextlib import closing
from pathlib import Path

from ami.jqueue.adapters.storage.file_blob import FileBlob, HeldFile, names_to_disk, write_durably
from ami.jqueue.adapters.storage.filesystem import LocalFileSystemStorage
from ami.jqueue.adapters.storage.imported_jobs import import_jobs
from ami.jqueue.adapters.storage.moved import MARK_NAME, folder_mark, mark_of, moved_to, partial_of
from ami.jqueue.core.codec import decode, encode
from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.queue.factory import open_folder
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.verification import verify_folder


def import_queue(source: Path, target: Path) -> int | None:
    """Make the folder ``target`` of the file ``source``, or the file ``target`` of the folder ``source``.

    From then on ``source`` raises StorageError in every program, and names ``target``. A file's content stays as
    ``<source>.imported``, a folder keeps its journal. Killed at any point, the next call finishes it; until then
    ``source`` is the queue, or both raise StorageError.

    Returns the number of jobs; None where an earlier call had imported them. Raises ValueError for paths that cannot
    be imported, StorageError for a file that is not a queue, UnfitStorageError, OSError.
    """
    source, target = source.absolute(), target.absolute()
    if source == target:
        raise ValueError(f"{source} cannot be imported into itself: name another path")
    if (source / "tail").is_file():
        return _into_file(source, target)
    if source.is_dir():
        raise ValueError(f"{source} is a folder without a journal")
    try:
        with FileBlob(source).held(create=False) as held:
            return _into_folder(held, source, target)
    except FileNotFoundError:
        raise ValueError(f"{source} does not exist") from None


def _into_folder(held: HeldFile, source: Path, target: Path) -> int | None:
    partial = partial_of(target)
    if _is_new(source, target, held.content):
        state = decode(held.content)
        verify_folder(target.parent)
        shutil.rmtree(partial, ignore_errors=True)
        # A new folder has no power failure behind it.
        journal = FolderJournal(partial, power_failure=b"")
        import_jobs(Store(journal), state)
        journal.close()
        names_to_disk(partial.parent)
        os.link(os.path.realpath(source), _free_name(source))
        held.replace(mark_of(str(target)))
        _finish(partial, target)
        return len(state.jobs)
    _finish(partial, target)
    return None


def _into_file(source: Path, target: Path) -> int | None:
    partial = partial_of(target)
    if _is_new(source, target, folder_mark(source)):
        storage = LocalFileSystemStorage(source, journal=True)
        # Nothing is promised there any more: neither locks nor links are tried.
        with closing(open_folder(source)) as store, store.lock:
            state = storage.state(store)
            if not all(job.entrypoint for job in state.jobs):
                raise ValueError(f"{source} is a queue of a Celery broker: its messages are not jobs")
            verify_folder(target.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_durably(partial, encode(state))
            names_to_disk(partial.parent)
            FileBlob(source / MARK_NAME).write(mark_of(str(target)), None)
        _finish(partial, target)
        return len(state.jobs)
    _finish(partial, target)
    return None


def _is_new(source: Path, target: Path, mark: bytes) -> bool:
    """Whether ``source`` has not been imported into ``target`` yet. Raises ValueError where it cannot be."""
    moved = moved_to(mark)
    if moved not in (None, str(target)):
        raise ValueError(f"{source} was imported into {moved} already")
    if moved is None and target.exists():
        raise ValueError(f"{target} exists already: name a new path")
    return moved is None


def _finish(partial: Path, target: Path) -> None:
    if partial.exists() and not target.exists():
        partial.rename(target)
        names_to_disk(target.parent)


def _free_name(path: Path) -> Path:
    endings = ("imported", *(f"imported-{number}" for number in range(2, 1000)))
    return next(name for ending in endings if not (name := path.with_name(f"{path.name}.{ending}")).exists())
