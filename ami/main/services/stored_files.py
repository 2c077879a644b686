"""Files in our own storage: which paths are opened, and as what. A bucket is addressed, a folder is read."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.storage import default_storage

from ami.main.services.paths import problem_of

#: The folders of the default storage that the product writes itself.
CROPS, EXPORTS = "detections", "exports"
OURS = frozenset({CROPS, EXPORTS})


class FileRefused(Exception):
    """The path leaves its place, or names no file; the message says which."""


def in_folder() -> bool:
    """Whether the default storage is a folder of this machine; otherwise it is a bucket."""
    try:
        default_storage.path("x")
    except NotImplementedError:
        return False
    return True


@dataclass(frozen=True)
class Area:
    """One kind of file in the default storage: which of its folders this kind never lies in, and where it may link."""

    closed: frozenset[str]
    may_link: bool = False

    def refuse(self, path: str) -> None:
        """Refuse a path that leaves the storage or names another kind of file.

        Raises:
            FileRefused: with the path and the reason.
        """
        if problem := problem_of(path) or ("" if path else "Names no file."):
            raise FileRefused(f"{path[:200]!r}: {problem}")
        if path.strip("/").split("/")[0].casefold() in self.closed:
            raise FileRefused(f"{path[:200]!r}: other files lie in this folder.")

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            FileRefused: as `refuse`, and for what is not a file or links to a place where this kind does not lie.
            OSError: there is no such file.
        """
        self.refuse(path)
        if not in_folder():
            file: IO[bytes] = default_storage.open(path, "rb")
            return file
        try:
            real = Path(default_storage.path(path)).resolve(strict=True)
        except (SuspiciousFileOperation, ValueError, RuntimeError) as error:
            raise FileRefused(f"{path[:200]!r}: {error}") from error
        if not any(real.is_relative_to(root) for root in self._roots()) or any(
            real.is_relative_to(_media() / name) for name in self.closed
        ):
            raise FileRefused(f"{path[:200]!r}: links to another place.")
        return _open_regular(real)

    def _roots(self) -> list[Path]:
        linked = getattr(settings, "ANTENNA_LOCAL_SOURCE_ROOTS", None) if self.may_link else None
        return [_media(), *(Path(root).resolve() for root in linked or [])]


CAPTURE = Area(OURS, may_link=True)
CROP = Area(frozenset({EXPORTS}))
EXPORT = Area(frozenset({CROPS}))


def _media() -> Path:
    return Path(settings.MEDIA_ROOT).resolve()


def _open_regular(path: Path) -> IO[bytes]:
    """Open a file that is a file: not a link that was put there meanwhile, not a pipe that would never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileRefused(f"{path.name[:200]!r}: is not a file.")
    return open(descriptor, "rb")
