"""The segment files of a folder's journal."""

import os
from collections import OrderedDict
from pathlib import Path

from ami.transports.objectstore.journal.port import BehindError
from ami.transports.objectstore.storage.errors import DamageError, StorageError

#: So many segments stay open for reading payloads.
OPEN_SEGMENTS = 16


class Segments:
    """The files ``00000001.log``, ``00000002.log`` ... of a folder; those used last stay open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: OrderedDict[int, int] = OrderedDict()

    def numbers(self) -> list[int]:
        """Return which there are."""
        return sorted(int(path.stem) for path in self._folder.glob("*.log"))

    def path(self, number: int) -> Path:
        """Return the file of a segment."""
        return self._folder / f"{number:08d}.log"

    def fd(self, number: int, create: bool = False) -> int:
        """Return the open file of a segment. Raises BehindError for one that is not there."""
        fd = self._open.get(number)
        if fd is None:
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            try:
                fd = self._open[number] = os.open(self.path(number), flags, 0o600)
            except FileNotFoundError as error:
                raise BehindError(f"{self.path(number)} is missing", error) from error
            while len(self._open) > OPEN_SEGMENTS:
                self.close(next(iter(self._open)))
        self._open.move_to_end(number)
        return fd

    def size(self, number: int) -> int:
        """Return how many bytes a segment has. Raises BehindError for one that is not there."""
        found = os.fstat(self.fd(number))
        if not found.st_nlink:
            # Removed or replaced while it was open: nothing that is written to it stays.
            self.close(number)
            found = os.fstat(self.fd(number))
        return found.st_size

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Return a part of a segment. Raises DamageError where it is shorter."""
        try:
            content = os.pread(self.fd(number), length, offset) if length > 0 else b""
        except OSError as error:
            raise StorageError(f"{self.path(number)} cannot be read: {error}", error) from error
        if len(content) != length:
            raise DamageError(f"{self.path(number)} ends before byte {offset + length}")
        return content

    def remove(self, number: int) -> None:
        """Remove a segment."""
        self.path(number).unlink(missing_ok=True)
        self.close(number)

    def keep_only(self, number: int) -> None:
        """Close all others: the disk keeps a removed file for as long as a process has it open."""
        if len(self._open) > 1:
            for each in [each for each in self._open if each != number]:
                self.close(each)

    def close_removed(self) -> None:
        """Close those that another process removed."""
        for number, fd in list(self._open.items()):
            if not os.fstat(fd).st_nlink:
                self.close(number)

    def close(self, number: int | None = None) -> None:
        """Close a segment's file, or all of them."""
        for each in [number] if number is not None else list(self._open):
            if (fd := self._open.pop(each, None)) is not None:
                os.close(fd)

    def __del__(self) -> None:
        self.close()
