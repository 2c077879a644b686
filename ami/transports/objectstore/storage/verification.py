"""Tries what every promise of a queue rests on, before the first one: conditional writes, locks, links, renames."""

import errno
import fcntl
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ami.transports.objectstore.storage.errors import (
    CASConflictError,
    JQueueError,
    StorageError,
    StorageFullError,
    UnfitStorageError,
    from_os,
)

#: The object on which conditional writes are tried. It stays: a removed one would have to be made by every process.
MARKER = "conditional-writes"
CONTENT = b"Conditional writes are tried on this object. It stays.\n"

#: How a service says that it does not know a condition.
NOT_IMPLEMENTED = re.compile(r"\b501\b|Not ?Implemented|not (yet )?(supported|implemented)", re.IGNORECASE)
#: How a file system says that it does not know an operation. One that is full or read-only says something else.
UNSUPPORTED = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EMLINK, errno.EXDEV}

_verified: set[object] = set()
_verifying = threading.Lock()


def once(storage: object, verify: Callable[[], object]) -> None:
    """Verify a storage, named by what is hashable, once per process; a failure is tried again by the next call."""
    with _verifying:
        if storage not in _verified:
            verify()
            _verified.add(storage)


def _after_fork() -> None:
    """In a forked child: its parent's lock may be held by a thread that is not here."""
    global _verifying
    _verifying = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def trial(storage: object) -> Generator[str, JQueueError | None, None]:
    """Yield ``create`` or ``replace``, and be sent what that write of the marker raised; two writes, three at first.

    ``create`` writes it only where there is none, ``replace`` only where it has a version that it never has. A service
    that refuses every write is not found here: its writes raise CASConflictError.

    Raises:
        UnfitStorageError: the service wrote in spite of a condition, or does not know it.
        StorageError: the marker may not be written, or the service does not answer.
    """
    if not _is_refused((yield "create"), storage) and not _is_refused((yield "create"), storage):
        raise _ignores("create-only (If-None-Match)", storage)
    if not _is_refused((yield "replace"), storage):
        raise _ignores("compare-and-set (If-Match)", storage)


def verify_conditions(writes: Mapping[str, Callable[[], object]], storage: object) -> None:
    """Do the `trial` of a storage with its two conditional writes of the marker."""
    steps = trial(storage)
    error: JQueueError | None = None
    with suppress(StopIteration):
        while step := steps.send(error):
            error = None
            try:
                writes[step]()
            except JQueueError as raised:
                error = raised


def _is_refused(error: JQueueError | None, storage: object) -> bool:
    if isinstance(error, StorageError) and NOT_IMPLEMENTED.search(str(error.cause)):
        raise UnfitStorageError(f"{storage} has no conditional writes: {error}; {REMEDY}") from error
    if error is not None and not isinstance(error, CASConflictError):
        raise error
    return error is not None


REMEDY = "use a service that has them, a folder, or RabbitMQ"


def _ignores(condition: str, storage: object) -> UnfitStorageError:
    return UnfitStorageError(
        f"{storage} ignores the condition of a {condition} write: processes would overwrite each other's messages; "
        f"its service must keep conditional writes: {REMEDY}"
    )


def verify_folder(folder: Path) -> None:
    """Try locks, links and renames in a folder, in a new one that is removed again; once per process and folder.

    A full disk proves nothing and may still be drained: it is tried again by the next call.

    Raises:
        UnfitStorageError: the file system lacks one of them.
        StorageError: the folder cannot be written to.
    """
    with suppress(StorageFullError):
        once(folder, lambda: _verify_folder(folder))


def _verify_folder(folder: Path) -> None:
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        trial = Path(tempfile.mkdtemp(prefix=".trial-", dir=folder))
        try:
            _try_files(trial / "one", trial / "other", folder)
        finally:
            shutil.rmtree(trial, ignore_errors=True)
    except OSError as error:
        raise from_os(f"cannot write to {folder}: {error.strerror}", error) from error


def _try_files(one: Path, other: Path, folder: Path) -> None:
    for path in (one, other):
        path.touch()
    with _supported("locks (flock)", folder), open(one, "r+b") as first, open(one, "r+b") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            raise _lacks("locks (flock) that exclude", folder)
    with _supported("hard links", folder):
        os.link(one, one.with_name("link"))
        try:
            os.link(other, one.with_name("link"))
        except FileExistsError:
            pass
        else:
            raise _lacks("hard links that replace nothing", folder)
    with _supported("renames that replace", folder):
        inode = other.stat().st_ino
        try:
            os.rename(other, one)
        except FileExistsError:
            raise _lacks("renames that replace", folder) from None
        if one.stat().st_ino != inode or other.exists():
            raise _lacks("renames that replace", folder)


@contextmanager
def _supported(what: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in UNSUPPORTED:
            raise _lacks(f"{what}: {error.strerror}", folder) from error
        raise


def _lacks(what: str, folder: Path) -> UnfitStorageError:
    return UnfitStorageError(
        f"the file system of {folder} lacks {what}; a queue needs them: use a folder on a local disk, or another broker"
    )
