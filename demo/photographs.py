"""Scans a folder of photographs: one station per subfolder, times from the file names, else from EXIF data."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from PIL import Image

from ami.main.services.exif_times import HEAD_BYTES, time_in_exif
from ami.main.services.file_times import time_in_name

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp"})
MAX_BYTES = 64 * 1024 * 1024
MAX_PIXELS = 100_000_000


@dataclass(frozen=True)
class Photograph:
    """A readable picture; `taken_at` is station local time without a zone; `width` and `height` in pixels."""

    path: Path
    taken_at: datetime
    width: int
    height: int
    size_bytes: int


@dataclass(frozen=True)
class Skipped:
    """A skipped file."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Station:
    """A station's pictures in order of time, and its skipped files."""

    name: str
    photographs: tuple[Photograph, ...]
    skipped: tuple[Skipped, ...]


def scan_photographs(folder: Path, max_bytes: int = MAX_BYTES, max_pixels: int = MAX_PIXELS) -> list[Station]:
    """Return a folder's stations by name; files directly in it belong to a station named after it.

    Hidden files and `truth.json` are ignored; any other unusable file is listed as skipped, with the reason.

    Raises:
        NotADirectoryError: the folder does not exist.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"no folder of photographs: {folder}")
    stations = [_station(folder.resolve().name, _files(folder), max_bytes, max_pixels)]
    for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        try:
            stations.append(_station(inner.name, _files(inner), max_bytes, max_pixels))
        except OSError as error:
            stations.append(Station(inner.name, (), (Skipped(inner, f"cannot be listed: {error.strerror}"),)))
    return [station for station in stations if station.photographs or station.skipped]


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and path.name != "truth.json" and not path.is_dir():
            yield path


def _station(name: str, files: Iterator[Path], max_bytes: int, max_pixels: int) -> Station:
    looked_at = [_look(path, max_bytes, max_pixels) for path in files]
    photographs = [one for one in looked_at if isinstance(one, Photograph)]
    skipped = [one for one in looked_at if isinstance(one, Skipped)]
    return Station(name, tuple(sorted(photographs, key=lambda one: (one.taken_at, one.path))), tuple(skipped))


def _look(path: Path, max_bytes: int, max_pixels: int) -> Photograph | Skipped:
    """Check a file, cheap checks first: suffix, time, bytes, size in pixels, and last every pixel."""
    if path.suffix.lower() not in PICTURE_SUFFIXES:
        return Skipped(path, "not a picture")
    try:
        taken_at = time_in_name(path.as_posix()) or _exif_time(path)
        if taken_at is None:
            return Skipped(path, "no time such as YYYYMMDDHHMMSS in the name, and none in EXIF data")
        size_bytes = path.stat().st_size
        if not size_bytes:
            return Skipped(path, "empty file (0 bytes)")
        if size_bytes > max_bytes:
            return Skipped(path, f"too large: {size_bytes} bytes, more than {max_bytes}")
        size = _decoded_size(path, max_pixels)
    except Image.DecompressionBombError:
        return Skipped(path, f"too large: more than {max_pixels} pixels")
    except Exception as error:  # Pillow's plugins raise nearly anything on broken bytes
        return Skipped(path, f"not readable: {error}".replace(str(path), path.name)[:200])
    if size is None:
        return Skipped(path, f"too large: more than {max_pixels} pixels")
    return Photograph(path, taken_at.replace(tzinfo=None), *size, size_bytes)


def _exif_time(path: Path) -> datetime | None:
    with path.open("rb") as file:
        return time_in_exif(file.read(HEAD_BYTES))


def _decoded_size(path: Path, max_pixels: int) -> tuple[int, int] | None:
    """Return width and height after decoding the picture; None, without decoding it, if it has too many pixels."""
    with warnings.catch_warnings():
        # Our own limit is checked before decoding.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with Image.open(path) as image:
            size = image.size
            if size[0] * size[1] > max_pixels:
                return None
            image.draft("RGB", (size[0] // 8, size[1] // 8))  # a truncated JPEG shows at any scale
            image.load()
    return size
