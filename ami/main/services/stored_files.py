"""Files in the default storage, a folder or a bucket: which paths may be opened."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.storage import default_storage

from ami.main.services.paths import problem_of

#: The folders of generated files in the default storage.
CROPS, EXPORTS = "detections", "exports"
OURS = frozenset({CROPS, EXPORTS})


class FileRefused(Exception):
    """The path leaves its area or does not name a file; the message says which."""


def in_folder() -> bool:
    """Whether the default storage is a local folder; otherwise it is a bucket."""
    try:
        default_storage.path("x")
    except NotImplementedError:
        return False
    return True


@dataclass(frozen=True)
class Area:
    """One kind of stored file: the folders it must not be in, and whether it may be a link to a source folder."""

    closed: frozenset[str]
    may_link: bool = False

    def refuse(self, path: str) -> None:
        """Refuse a path outside the storage or in a closed folder.

        Raises:
            FileRefused: with the path and the reason.
        """
        if problem := problem_of(path) or ("" if path else "Is empty.") or ("Must not hold '//'." * ("//" in path)):
            raise FileRefused(f"{path[:200]!r}: {problem}")
        if path.strip("/").split("/")[0].casefold() in self.closed:
            raise FileRefused(f"{path[:200]!r}: this folder holds another kind of file.")

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            FileRefused: as `refuse`; also for what is not a regular file or links outside the area.
            OSError: the file does not exist.
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
            raise FileRefused(f"{path[:200]!r}: links outside its area.")
        return _open_regular(real)

    def read(self, path: str, most_bytes: int) -> bytes:
        """Return the file's content, which ``read(most_bytes)`` would allocate memory for, however small it is.

        Raises:
            FileRefused: as `open`; also for a larger file.
            OSError: as `open`.
        """
        with self.open(path) as file:
            # A bucket's file says its size before it is fetched as a whole.
            size = file.size if hasattr(file, "size") else os.fstat(file.fileno()).st_size
            if size > most_bytes:
                raise FileRefused(f"{path[:200]!r}: is larger than {most_bytes} bytes.")
            return file.read(size)

    def _roots(self) -> list[Path]:
        linked = settings.ANTENNA_LOCAL_SOURCE_ROOTS if self.may_link else ()
        return [_media(), *(Path(root).resolve() for root in linked)]


CAPTURE = Area(OURS, may_link=True)
CROP = Area(frozenset({EXPORTS}))
EXPORT = Area(frozenset({CROPS}))


def _media() -> Path:
    return Path(settings.MEDIA_ROOT).resolve()


def _open_regular(path: Path) -> IO[bytes]:
    """Open a regular file: not a link created meanwhile, not a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileRefused(f"{path.name[:200]!r}: is not a file.")
    return open(descriptor, "rb")
