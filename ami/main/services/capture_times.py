"""When the files of a storage source were taken: by their names, else by their EXIF data."""

import os
import stat
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from ami.main.models.stations import Deployment, S3StorageSource
from ami.main.services.exif_times import HEAD_BYTES, time_in_exif
from ami.main.services.file_times import time_in_name
from ami.main.services.litter import is_picture
from ami.main.services.paths import problem_of
from ami.main.services.sources import SourceFile, bucket_client, pictures
from ami.main.services.time_formats import time_by_format

#: So many objects of a bucket are asked for at once: each answer takes long and is short.
AT_ONCE = 8

#: A smaller file is opened though its name has a time: it may be an error page, or cut off.
SMALL_BYTES = 16 * 1024

#: What the admin shows.
SAMPLED_NAMES, SAMPLED_FILES = 5, 500

UNSTORABLE = "path that cannot be stored"
UNREADABLE = "file that cannot be read"
NO_PICTURE = "no picture by its first bytes"
UNNAMED = "no time in the name: a sync reads the EXIF data"
UNTIMED = "no time in the name or the EXIF data"


def read(station: Deployment, files: Sequence[SourceFile]) -> dict[str, datetime | str]:
    """Return by path when each file was taken, or the reason why it is no capture.

    Without a zone a time is the station's local time. Of a small file and of one without a time in its name, the first
    `HEAD_BYTES` are read.

    Raises:
        what the bucket's library raises when the bucket does not answer.
    """
    found: dict[str, datetime | str] = {file.path: file.litter or _in_name(station, file.path) for file in files}
    opened = [file.path for file in files if found[file.path] == UNTIMED or _is_small(file, found[file.path])]
    if opened and station.data_source:
        heads = _heads(station.data_source, opened)
        found |= {path: _in_head(head, found[path]) for path, head in zip(opened, heads, strict=True)}
    return found


def _in_name(station: Deployment, path: str) -> datetime | str:
    if not _storable(path):
        return UNSTORABLE
    form = station.data_source_time_format
    return (time_by_format(path, form) if form else time_in_name(path)) or UNTIMED


def _is_small(file: SourceFile, found: datetime | str) -> bool:
    return isinstance(found, datetime) and file.size < SMALL_BYTES


def _in_head(head: bytes, found: datetime | str) -> datetime | str:
    """Return the time in the name, else in the first bytes, of what begins like a picture.

    What cannot be read now is not refused for it: listing may be permitted where reading is not.
    """
    if isinstance(found, datetime):
        return found if is_picture(head) or not head else NO_PICTURE
    if is_picture(head):
        return time_in_exif(head) or UNTIMED
    return NO_PICTURE if head else UNREADABLE


def _storable(path: str) -> bool:
    """Whether the path fits its column, is valid UTF-8 and is a plain relative path."""
    return len(path) <= 1024 and not problem_of(path)


def in_names(station: Deployment) -> dict[str, datetime | str]:
    """Return what a few names of the station become: the time in the name, or the reason why there is none.

    No file is opened, and only the first `SAMPLED_FILES` of the listing are looked at, for a second or two.

    Raises:
        SourceError: the storage source cannot be listed.
    """
    named = (file.path for file in pictures(station, most=SAMPLED_FILES) if not file.litter)
    found = {path: _in_name(station, path) for path in islice(named, SAMPLED_NAMES)}
    return {path: UNNAMED if time == UNTIMED else time for path, time in found.items()}


def _heads(source: S3StorageSource, paths: Sequence[str]) -> Iterable[bytes]:
    if source.endpoint_url.startswith("file:"):
        root = Path(unquote(urlparse(source.endpoint_url).path)).resolve()
        return [_head_of_file(root / path) for path in paths]
    client = bucket_client(source)
    with ThreadPoolExecutor(AT_ONCE, "exif") as pool:
        return list(pool.map(partial(_head_of_object, client, source.bucket), paths))


def _head_of_file(path: Path) -> bytes:
    """Return a file's first bytes, none of what cannot be read or is no regular file any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return file.read(HEAD_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except (OSError, ValueError):
        return b""


def _head_of_object(client: Any, bucket: str, key: str) -> bytes:
    """Return an object's first bytes, none of one that is gone, may not be read or cannot be asked for."""
    from botocore.exceptions import ClientError, ParamValidationError

    try:
        answer = client.get_object(Bucket=bucket, Key=key, Range=f"bytes=0-{HEAD_BYTES - 1}")
    except (ClientError, ParamValidationError):
        return b""
    with answer["Body"] as body:  # A server that knows no ranges sends all of it.
        return bytes(body.read(HEAD_BYTES))
