"""When the captures of a storage source were taken: by their names, else by their EXIF data."""

import os
import stat
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from ami.main.models.stations import Deployment, S3StorageSource
from ami.main.services.exif_times import HEAD_BYTES, time_in_exif
from ami.main.services.file_times import time_in_name
from ami.main.services.sources import SourceFile, bucket_client

#: So many objects of a bucket are asked for at once: each answer takes long and is short.
AT_ONCE = 8


def times_of(station: Deployment, files: Sequence[SourceFile]) -> dict[str, datetime]:
    """Return the time of each file that has one, by path; without a zone it is the station's local time.

    Only a file without a time in its name is opened, and at most its first `HEAD_BYTES` are read.

    Raises:
        what the bucket's library raises when the bucket does not answer.
    """
    found = {file.path: moment for file in files if (moment := time_in_name(file.path))}
    nameless = [file.path for file in files if file.path not in found and file.size]
    if nameless and station.data_source:
        read = zip(nameless, _heads(station.data_source, nameless), strict=True)
        found |= {path: moment for path, head in read if (moment := time_in_exif(head))}
    return found


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
    """Return an object's first bytes, none of one that is gone or may not be read."""
    from botocore.exceptions import ClientError

    try:
        answer = client.get_object(Bucket=bucket, Key=key, Range=f"bytes=0-{HEAD_BYTES - 1}")
    except ClientError:
        return b""
    with answer["Body"] as body:  # A server that knows no ranges sends all of it.
        return bytes(body.read(HEAD_BYTES))
