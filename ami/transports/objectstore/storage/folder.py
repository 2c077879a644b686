"""Objects in a local folder shared by several processes: each a file, framed so that a torn one is found."""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from ami.transports.objectstore.storage.errors import CASConflictError, StorageError, StorageFullError, from_os
from ami.transports.objectstore.storage.frame import HEADER_BYTES, TOKEN_BYTES, Torn, header, token_of, unframed
from ami.transports.objectstore.storage.keys import folder_of, quoted, unquoted
from ami.transports.objectstore.storage.lock import locked
from ami.transports.objectstore.storage.port import Stored
from ami.transports.objectstore.storage.reserve import Reserve

#: A temporary file of this age was left by a killed process; writing one takes much less.
LEFT_BEHIND_SECONDS = 3600.0

#: Ends the name of a folder. No quoted name holds it, so ``a`` and ``a/b`` can both be keys.
FOLDER = "+"


class FolderObjects:
    """A `Storage` in the folder at ``path``, made with its parents where there is none; POSIX and local disks only.

    Any number of processes and threads may use it, and one that forks may go on using it on both sides. A version is
    a random token, different for every write. With ``durable`` a write that returned survives a power failure;
    without, only the death of processes. A lock that others hold for ``lock_seconds`` raises StorageError. On a full
    disk ``reserve`` is given up, and the write is tried again.

    Raises:
        StorageError: the folder cannot be made.
    """

    is_remote = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durable: bool = True,
        lock_seconds: float = 10.0,
        reserve: Reserve | None = None,
    ) -> None:
        # Absolute, since a worker may change its working folder.
        self._root = os.path.abspath(path)
        self._unfinished = f"{self._root}/.unfinished"
        self._durable = durable
        self._lock_seconds = lock_seconds
        self._reserve = reserve
        with self._storage_errors("make"):
            self._make_folder(self._unfinished)
            self._clear_left_behind()

    def read(self, key: str) -> Stored | None:
        """Return the object; see the port. A file that is not exactly what was written raises StorageError."""
        path = self._path(key)
        with self._storage_errors("read", key):
            try:
                with open(path, "rb") as file:
                    framed = file.read()
            except FileNotFoundError:
                return None
        try:
            token, content = unframed(framed)
        except Torn as torn:
            raise StorageError(f"'{path}' is torn: {torn}") from None
        return Stored(content, token.hex())

    def create(self, key: str, content: bytes) -> str:
        return self._with_room(lambda: self._create(key, content))

    def replace(self, key: str, content: bytes, version: str) -> str:
        return self._with_room(lambda: self._replace(key, content, version))

    def _with_room(self, write: Callable[[], str]) -> str:
        try:
            return write()
        except StorageFullError:
            if self._reserve is None or not self._reserve.give_up():
                raise
            return write()

    def _create(self, key: str, content: bytes) -> str:
        path = self._path(key)
        with self._storage_errors("create", key):
            try:
                if os.path.lexists(path):
                    raise FileExistsError
                with self._written(content) as (file, version):
                    self._link(file, path)
            except FileExistsError:
                raise CASConflictError(f"'{key}' exists already") from None
            self._to_disk(os.path.dirname(path))
        return version

    def _replace(self, key: str, content: bytes, version: str) -> str:
        path = self._path(key)
        with self._storage_errors("replace", key):
            self._compare(key, version)
            with self._written(content) as (file, new_version), self._locked():
                self._compare(key, version)
                os.rename(file, path)
            self._to_disk(os.path.dirname(path))
        return new_version

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._storage_errors("delete", key), suppress(FileNotFoundError):
            # A replace that has compared the version must find the file that it compared.
            with self._locked():
                os.unlink(path)
            self._to_disk(os.path.dirname(path))

    def list(self, prefix: str) -> list[str]:
        """Return the keys that begin so; see the port. A file whose name is not a quoted key is not listed."""
        folder = quoted(name) if (name := folder_of(prefix)) else ""
        with self._storage_errors("list", prefix):
            spelled = list(self._names(folder))
        return sorted(key for name in spelled if (key := unquoted(name)) is not None and key.startswith(prefix))

    def signature(self, key: str) -> tuple[int, int, int] | None:
        """Return (inode, time of writing in ns, size), which no two versions share; None for a missing object.

        It costs one system call: what was read may be kept for as long as this stays the same.
        """
        with self._storage_errors("look at", key):
            try:
                seen = os.stat(self._path(key))
            except FileNotFoundError:
                return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size

    # Paths.

    def _path(self, key: str) -> str:
        folder, _, name = quoted(key).rpartition("/")
        return f"{self._folder(folder)}/{name}"

    def _folder(self, spelled: str) -> str:
        return f"{self._root}/{spelled.replace('/', f'{FOLDER}/')}{FOLDER}" if spelled else self._root

    def _names(self, spelled: str) -> Iterator[str]:
        """Yield the spelled keys in a folder and below it."""
        try:
            with os.scandir(self._folder(spelled)) as found:
                entries = list(found)
        except FileNotFoundError:
            return
        for entry in entries:
            name = f"{spelled}/{entry.name}" if spelled else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield name
            elif name.endswith(FOLDER):
                yield from self._names(name.removesuffix(FOLDER))

    # Writing.

    @contextmanager
    def _written(self, content: bytes) -> Iterator[tuple[str, str]]:
        """Give (path, version) of a file with ``content``, beside the others; what is left of it is removed then."""
        token = secrets.token_bytes(TOKEN_BYTES)
        path = f"{self._unfinished}/{token.hex()}"
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(header(token, content))
                file.write(content)
                file.flush()
                # The kernel's own clock ticks every few milliseconds: two versions could have the same signature.
                now = time.time_ns()
                os.utime(file.fileno(), ns=(now, now))
                if self._durable:
                    os.fsync(file.fileno())
            yield path, token.hex()
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _link(self, file: str, path: str) -> None:
        """Give a written file its name, which must be free; a rename would take the name of another."""
        try:
            os.link(file, path)
        except FileNotFoundError:
            self._make_folder(os.path.dirname(path))
            os.link(file, path)

    def _compare(self, key: str, version: str) -> None:
        path = self._path(key)
        try:
            with open(path, "rb", buffering=0) as file:
                found = token_of(file.read(HEADER_BYTES)).hex()
        except FileNotFoundError:
            found = None
        except Torn as torn:
            raise StorageError(f"'{path}' is torn: {torn}") from None
        if found != version:
            raise CASConflictError(f"'{key}' is no longer of version {version}")

    def _locked(self) -> AbstractContextManager[None]:
        return locked(f"{self._root}/.lock", self._lock_seconds)

    def _make_folder(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(folder)
        self._make_folder(parent)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        self._to_disk(parent)

    def _to_disk(self, folder: str) -> None:
        """Make the names in a folder as durable as the files."""
        if not self._durable:
            return
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _clear_left_behind(self) -> None:
        with os.scandir(self._unfinished) as found:
            for entry in found:
                with suppress(FileNotFoundError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFT_BEHIND_SECONDS:
                        os.unlink(entry.path)

    @contextmanager
    def _storage_errors(self, what: str, key: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise from_os(f"cannot {what} '{key or self._root}' in {self._root}: {error.strerror}", error) from error
