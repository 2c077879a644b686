"""A whole queue in one regular file, replaced by compare-and-set."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ami.jqueue.domain.errors import CASConflictError

#: The mode of a new file: jobs may hold what others on the machine must not read.
MODE = 0o600


class FileBlob:
    """The file at ``path``, made with its parents by the first write. POSIX only; no network file systems.

    An etag is the SHA-256 of the content in hexadecimal; an empty file has none, like a missing one. A write is on the
    disk when it returns, and the file holds the whole of the old or of the new content at any moment. Every call
    blocks, and raises OSError.

    Writers hold an exclusive ``flock`` of the file itself, readers a shared one, as the library `jqueue` does: its
    programs may use the file at the same time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[bytes, str | None]:
        """Return (content, etag), ``(b"", None)`` for a missing or empty file."""
        try:
            with _locked(self.path, os.O_RDONLY, fcntl.LOCK_SH) as fd:
                content = _content(fd)
        except FileNotFoundError:
            return b"", None
        return content, etag_of(content)

    def write(self, content: bytes, if_match: str | None) -> str:
        """Replace the content where its etag is ``if_match``; return the new etag. Raises CASConflictError."""
        with self.held() as held:
            if held.etag != if_match:
                raise CASConflictError(f"another writer changed {self.path} first")
            held.replace(content)
        return hashlib.sha256(content).hexdigest()

    @contextmanager
    def held(self, *, create: bool = True) -> Iterator["HeldFile"]:
        """Keep every other writer out, and readers too. Raises FileNotFoundError where it may not ``create`` it."""
        if create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        with _locked(self.path, flags, fcntl.LOCK_EX) as fd:
            yield HeldFile(self.path, fd)


class HeldFile:
    """A locked file."""

    def __init__(self, path: Path, fd: int) -> None:
        # A link stays one: what it names is replaced.
        self._path = Path(os.path.realpath(path))
        self._fd = fd
        self.content = _content(fd)
        self.etag = etag_of(self.content)

    def replace(self, content: bytes) -> None:
        """Put another file in its place, with the same mode."""
        new = self._path.with_name(f"{self._path.name}.writing")
        try:
            write_durably(new, content, os.fstat(self._fd).st_mode & 0o7777)
            new.replace(self._path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        if not os.fstat(self._fd).st_nlink:
            self._repeat(content)
        names_to_disk(self._path.parent)

    def _repeat(self, content: bytes) -> None:
        """Write the content into the replaced file, too, which has no name any more.

        A program of `jqueue` that waits for this lock reads and compares that file, and must not find in it what was
        true before, nor an empty queue.
        """
        with suppress(OSError), open(self._fd, "r+b", closefd=False) as file:
            file.seek(0)
            file.truncate()
            file.write(content)


def etag_of(content: bytes) -> str | None:
    """Return the SHA-256 of the content in hexadecimal, None for no bytes."""
    return hashlib.sha256(content).hexdigest() if content else None


def write_durably(path: Path, content: bytes, mode: int = MODE) -> None:
    """Write a file and wait for the disk."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def names_to_disk(folder: Path) -> None:
    """Let the names in a folder survive a power failure."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _locked(path: Path, flags: int, lock: int) -> Iterator[int]:
    """Open and lock the file that is at ``path`` once the lock is held: another may have replaced it meanwhile."""
    while True:
        fd = os.open(path, flags | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(fd, lock)
            if _is_at(path, fd):
                yield fd
                return
        finally:
            os.close(fd)


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _content(fd: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        return file.read()
