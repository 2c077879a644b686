"""Lists the picture files of a storage source in the order of their paths, from any path on."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import regex
from django.conf import settings

from ami.main import outbound
from ami.main.models.stations import Deployment, S3StorageSource

#: What cameras write, and the formats that crops are cut from (ami.ml.pictures).
PICTURES = regex.compile(r".*\.(jpe?g|png)$", regex.IGNORECASE)

#: A member's pattern may backtrack for ever over one name; `re` could not be stopped.
MATCH_SECONDS = 0.5


class SourceError(Exception):
    """The storage source cannot be listed; the message says which and what to change."""


@dataclass(frozen=True)
class Found:
    """One picture file: ``path`` from the source's root with ``/``, size in bytes."""

    path: str
    size: int
    last_modified: datetime


def pictures(station: Deployment, after: str = "") -> Iterator[Found]:
    """Yield the station's pictures whose path sorts after ``after``, ordered by path.

    Raises:
        SourceError: no source, a pattern that is no regular expression, a folder outside the allowed ones.
    """
    source = station.data_source
    if source is None:
        raise SourceError(f"Station {station.pk} has no storage source; choose one in its settings.")
    try:
        pattern = regex.compile(station.data_source_regex) if station.data_source_regex else PICTURES
    except regex.error as error:
        raise SourceError(f"data_source_regex '{station.data_source_regex}' does not compile: {error}.") from error
    prefix = "/".join(part.strip("/") for part in (source.prefix, station.data_source_subdir) if part.strip("/"))
    walk = _walk_folder if source.endpoint_url.startswith("file:") else _walk_bucket
    return (found for found in walk(source, prefix, after) if _matches(pattern, found.path))


def _matches(pattern: Any, path: str) -> bool:
    try:
        return bool(pattern.match(path, timeout=MATCH_SECONDS))
    except TimeoutError:
        raise SourceError(f"data_source_regex takes too long on '{path[:100]}'; write a simpler one.") from None


def _walk_folder(source: S3StorageSource, prefix: str, after: str) -> Iterator[Found]:
    root = Path(unquote(urlparse(source.endpoint_url).path)).resolve()
    start = (root / prefix).resolve()
    allowed = [Path(folder).resolve() for folder in _allowed_folders()]
    if not start.is_relative_to(root) or not any(start.is_relative_to(folder) for folder in allowed):
        raise SourceError(
            f"Folder {start} is outside ANTENNA_LOCAL_SOURCE_ROOTS ({', '.join(map(str, allowed))}); add it there."
        )
    if not start.is_dir():
        raise SourceError(f"Folder {start} of storage source '{source.name}' does not exist on this machine.")
    return _descend(start, f"{prefix}/" if prefix else "", after)


def _allowed_folders() -> list[str]:
    return list(getattr(settings, "ANTENNA_LOCAL_SOURCE_ROOTS", None) or [settings.MEDIA_ROOT])


def _descend(folder: Path, prefix: str, after: str) -> Iterator[Found]:
    # "/" belongs to a folder's sort key, or "a.b" and "a/b" would come in another order than as whole paths.
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda entry: entry.name + ("/" if entry.is_dir(follow_symlinks=False) else ""))
    for entry in entries:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if f"{path}/" > after or after.startswith(f"{path}/"):
                yield from _descend(Path(entry.path), f"{path}/", after)
        elif path > after and entry.is_file(follow_symlinks=False):
            stat = entry.stat()
            yield Found(path, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))


def _walk_bucket(source: S3StorageSource, prefix: str, after: str) -> Iterator[Found]:
    pages = _client(source).get_paginator("list_objects_v2")
    folder = f"{prefix}/" if prefix else ""
    try:
        for page in pages.paginate(Bucket=source.bucket, Prefix=folder, StartAfter=after):
            for item in page.get("Contents", ()):
                yield Found(item["Key"], item["Size"], item["LastModified"])
    except outbound.EndpointRefused as error:
        raise SourceError(f"Storage source '{source.name}': {error}") from error


def _client(source: S3StorageSource) -> Any:
    try:
        import boto3
    except ModuleNotFoundError as error:
        raise SourceError("Listing a bucket needs boto3; install requirements/production.txt.") from error
    client = boto3.client(
        "s3",
        region_name=source.region or None,
        endpoint_url=source.endpoint_url or None,
        aws_access_key_id=source.access_key or None,
        aws_secret_access_key=source.secret_key or None,
    )
    outbound.pin_s3(client)
    return client
