"""Lists the picture files of a storage source by path, resumable from any path."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlparse

from django.conf import settings

from ami.environment.deferred import deferred
from ami.main.models.stations import Deployment, S3StorageSource
from ami.main.services import path_patterns
from ami.main.services.litter import litter_of
from ami.main.services.paths import problem_of
from ami.main.services.stored_files import OURS

if TYPE_CHECKING:
    from ami.main.services import outbound
else:
    outbound = deferred("ami.main.services.outbound")

#: The formats of cameras, from which crops can be cut (ami.ml.services.pictures).
PICTURES = r"(?i).*\.(jpe?g|png)$"

#: A member's pattern may backtrack endlessly on one name; unlike `re`, `regex` has a timeout.
MATCH_SECONDS = 0.5

#: A person waits for a sample of a listing.
SAMPLE_SECONDS = 2.0
HASTY = {"connect_timeout": 2, "read_timeout": 3, "retries": {"max_attempts": 0}}


class SourceError(Exception):
    """The storage source cannot be listed; the message says why and what to change."""


@dataclass(frozen=True)
class SourceFile:
    """One file: ``path`` from the source's root with ``/``, size in bytes, and why it is no capture (`litter`)."""

    path: str
    size: int
    last_modified: datetime
    litter: str = ""


def _pattern(station: Deployment) -> Any:
    """Return the compiled pattern of a station. Raises `path_patterns.PatternRefused`."""
    if station.data_source_regex:
        return path_patterns.compiled(station.data_source_regex)
    import regex

    return regex.compile(PICTURES)


def pictures(station: Deployment, after: str = "", most: int | None = None) -> Iterator[SourceFile]:
    """Yield the files that match the station's pattern and have a path greater than ``after``, ordered by path.

    Those that are no captures by their place, name or size have their reason: only folders below the station's count.
    With ``most``, so many files are listed at most, of any place in each folder, within `SAMPLE_SECONDS`.

    Raises:
        SourceError: no source, an invalid pattern, a folder outside the allowed ones, an unreachable bucket.
    """
    source = station.data_source
    if source is None:
        raise SourceError(f"Station {station.pk} has no storage source; choose one in its settings.")
    try:
        pattern = _pattern(station)
    except path_patterns.PatternRefused as error:
        raise SourceError(f"data_source_regex '{station.data_source_regex}': {error}") from error
    place = _place(station, source)._replace(most=most)
    walk = _walk_folder if source.endpoint_url.startswith("file:") else _walk_bucket
    top, files = len(place.prefix), walk(source, place, after)
    if most is not None:
        end = time.monotonic() + SAMPLE_SECONDS
        files = takewhile(lambda _: time.monotonic() < end, islice(files, most))
    matching = (file for file in files if _matches(pattern, file.path))
    return (replace(file, litter=litter_of(file.path[top:].lstrip("/"), file.size)) for file in matching)


class Place(NamedTuple):
    """The source's prefix and the station's full prefix, without outer ``/``; how many entries of a folder to list."""

    source_prefix: str
    prefix: str
    most: int | None = None


def _place(station: Deployment, source: S3StorageSource) -> Place:
    """Return the prefixes to list. They are validated again: rows may be older than the validation of the form.

    A leading ``/`` was once allowed and is harmless.
    """
    inner, outer = station.data_source_subdir.strip("/"), source.prefix.strip("/")
    for field, text in (("data_source_subdir", inner), ("The prefix of the storage source", outer)):
        if problem := problem_of(text):
            raise SourceError(f"{field} '{text[:200]}': {problem}")
    return Place(outer, "/".join(part for part in (outer, inner) if part))


def _matches(pattern: Any, path: str) -> bool:
    try:
        return bool(pattern.match(path, timeout=MATCH_SECONDS))
    except TimeoutError:
        raise SourceError(f"data_source_regex takes too long on '{path[:100]}'; write a simpler one.") from None


def _walk_folder(source: S3StorageSource, place: Place, after: str) -> Iterator[SourceFile]:
    root = Path(unquote(urlparse(source.endpoint_url).path)).resolve()
    top, start = (root / place.source_prefix).resolve(), (root / place.prefix).resolve()
    allowed = [Path(folder).resolve() for folder in _allowed_folders()]
    if not top.is_relative_to(root) or not any(start.is_relative_to(folder) for folder in allowed):
        raise SourceError(
            f"Folder {start} is outside ANTENNA_LOCAL_SOURCE_ROOTS ({', '.join(map(str, allowed))}); add it there."
        )
    # Compare after resolving links.
    if not start.is_relative_to(top):
        raise SourceError(f"data_source_subdir '{place.prefix[:200]}' leads out of the storage source '{source.name}'.")
    if any(start.is_relative_to(folder) for folder in _closed_folders()):
        raise SourceError(
            f"Folder {start} holds files that Antenna made, of every project; choose a folder of captures."
        )
    if not start.is_dir():
        raise SourceError(f"Folder {start} of storage source '{source.name}' does not exist on this machine.")
    return _descend(start, f"{place.prefix}/" if place.prefix else "", after, place.most)


def _closed_folders() -> list[Path]:
    """Return the media folders of generated files (crops, exports), which hold those of every project."""
    return [Path(settings.MEDIA_ROOT).resolve() / name for name in OURS]


def _allowed_folders() -> list[str]:
    return list(settings.ANTENNA_LOCAL_SOURCE_ROOTS or [settings.MEDIA_ROOT])


def _descend(folder: Path, prefix: str, after: str, most: int | None) -> Iterator[SourceFile]:
    # Sort folders with a trailing "/", so that "a.b" and "a/b" have the order of their full paths.
    try:
        with os.scandir(folder) as scan:
            entries = sorted(
                islice(scan, most), key=lambda entry: entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
            )
    except PermissionError as error:
        if litter_of(f"{folder.name}/", size=1):  # Such as lost+found, which only root may read.
            return
        raise SourceError(f"Folder {folder} cannot be read; permit it to the user of the workers.") from error
    for entry in entries:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if Path(entry.path).resolve() in _closed_folders():
                continue
            if f"{path}/" > after or after.startswith(f"{path}/"):
                yield from _descend(Path(entry.path), f"{path}/", after, most)
        elif path > after and entry.is_file(follow_symlinks=False):
            stat = entry.stat()
            yield SourceFile(path, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))


def _walk_bucket(source: S3StorageSource, place: Place, after: str) -> Iterator[SourceFile]:
    client = bucket_client(source) if place.most is None else bucket_client(source, HASTY)
    pages = client.get_paginator("list_objects_v2")
    folder = f"{place.prefix}/" if place.prefix else ""
    try:
        for page in pages.paginate(Bucket=source.bucket, Prefix=folder, StartAfter=after):
            for item in page.get("Contents", ()):
                # A server may return keys outside the prefix.
                if item["Key"].startswith(folder):
                    yield SourceFile(item["Key"], item["Size"], item["LastModified"])
    except outbound.EndpointRefused as error:
        raise SourceError(f"Storage source '{source.name}': {error}") from error


def bucket_client(source: S3StorageSource, options: dict[str, Any] | None = None) -> Any:
    """Return a client of the source's bucket, kept from addresses that are closed to users; options are botocore's.

    Raises:
        SourceError: its library is not installed.
    """
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as error:
        raise SourceError("Listing a bucket needs boto3; install requirements/production.txt.") from error
    client = boto3.client(
        "s3",
        region_name=source.region or None,
        endpoint_url=source.endpoint_url or None,
        aws_access_key_id=source.access_key or None,
        aws_secret_access_key=source.secret_key or None,
        config=Config(**(options or {})),
    )
    outbound.pin_s3(client)
    return client
