"""The snapshots of a folder's journal: files, each named after the place in the journal that it includes."""

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ami.transports.objectstore.journal.frames import HEADER_BYTES, frame, frames, length_of
from ami.transports.objectstore.storage.errors import DamageError, StorageError, from_os

log = logging.getLogger(__name__)


class Snapshots:
    """The files ``snapshot-<segment>-<offset>`` of a folder; those in the making begin with a dot."""

    def __init__(self, folder: Path, durable: bool) -> None:
        self._folder = folder
        self._durable = durable

    def paths(self) -> list[Path]:
        """Return them, the oldest first."""
        return sorted(self._folder.glob("snapshot-*"))

    def newest(self) -> tuple[int, int]:
        """Return the place of the newest one, (0, 0) where there is none."""
        return max(map(_place, self.paths()), default=(0, 0))

    def whole(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        """Yield the place and the content of each that is not damaged, the newest first."""
        for path in reversed(self.paths()):
            try:
                content = path.read_bytes()
                _, body = next(frames(content, 0, str(path)), (0, b""))
                if HEADER_BYTES + len(body) != len(content):
                    raise DamageError(f"{path} is damaged at byte {HEADER_BYTES + len(body)} of {len(content)}")
            except FileNotFoundError:
                continue
            except (StorageError, OSError) as error:
                log.warning("Falling back to an older snapshot: %s", error)
                continue
            yield _place(path), body

    def write(self, place: tuple[int, int], content: bytes) -> Path:
        """Write one and return its file, which counts when it was given its name."""
        partial = self._folder / f".snapshot-{place[0]:08d}-{place[1]:010d}-{secrets.token_hex(4)}"
        try:
            with partial.open("wb") as file:
                file.write(frame(content))
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise from_os(f"{self._folder} took no snapshot: {error}", error) from error
        return partial

    def name(self, partial: Path) -> None:
        """Give a written one its name."""
        partial.rename(partial.with_name(partial.name[1:].rpartition("-")[0]))

    def newest_of_its_length(self) -> int | None:
        """Return the segment of the newest one that is as long as it says, without reading it; None without one."""
        for path in reversed(self.paths()):
            with suppress(FileNotFoundError), path.open("rb") as file:
                if length_of(file.read(HEADER_BYTES)) == os.fstat(file.fileno()).st_size:
                    return _place(path)[0]
        return None

    def drop_old(self, keep: int = 2) -> int:
        """Keep the last ones, and what is in the making after them; return the first segment that they need."""
        paths = self.paths()
        if len(paths) < keep:
            return 0
        for path in [*paths[:-keep], *self._folder.glob(".snapshot-*")]:
            if path.name.lstrip(".") < paths[-keep].name:
                path.unlink(missing_ok=True)
        return _place(paths[-keep])[0]


def _place(path: Path) -> tuple[int, int]:
    _, segment, offset = path.name.split("-")
    return int(segment), int(offset)
