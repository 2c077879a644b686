"""Stores posted results: the body in storage under a key derived from its hash, and one row per key (incident 45)."""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from celery import Signature
from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import storages
from django.db import transaction
from django.db.models import Case, F, Value, When
from django.utils import timezone

from ami.celery.bulk_message import UnconfirmedTasks
from ami.jobs.errors import ResultMissing
from ami.jobs.models import Job, StoredResult
from ami.jobs.signals import result_stored
from ami.queues.publish import publish_many, signature

COMPRESSION = 1
GZIP = 31
CHUNK_BYTES = 1024**2
KEEP_SECONDS = 24 * 3600
PURGE_BATCH = 1000
MARK_BATCH = 200

#: The task that handles one stored result.
HANDLE_RESULT = "ami.jobs.tasks.process_nats_pipeline_result"


def store(job: Job, reply_subject: str, result: Mapping[str, Any]) -> StoredResult:
    """Serialize and store a result; see ``store_text``."""
    return store_text(job, reply_subject, json.dumps({"reply_subject": reply_subject, "result": result}).encode())


def store_text(job: Job, reply_subject: str, text: bytes | memoryview) -> StoredResult:
    """Store one posted item unchanged and return its row; an equal item is not stored again.

    Raises:
        OSError: the storage failed; nothing was accepted.
    """
    key = f"job_{job.pk}/{hashlib.sha256(text).hexdigest()}.json.gz"
    if known := StoredResult.objects.filter(key=key).first():
        return known
    packed, size_bytes = _packed(text)
    storage = storages["results"]
    # A file without a row belongs to an aborted or a concurrent post. The storage then gives this file another name,
    # and the row decides which of the two files counts.
    name = storage.save(key, File(packed))
    row, created = StoredResult.objects.get_or_create(
        key=key, defaults={"job": job, "name": name, "size_bytes": size_bytes, "reply_subject": reply_subject}
    )
    if not created:
        storage.delete(name)
        return row
    transaction.on_commit(
        lambda: result_stored.send(sender=StoredResult, job_id=job.pk, key=key, size_bytes=size_bytes), robust=True
    )
    return row


def _packed(text: bytes | memoryview) -> tuple[io.BytesIO, int]:
    packed = io.BytesIO()
    compress = zlib.compressobj(COMPRESSION, zlib.DEFLATED, GZIP)
    with memoryview(text) as view:
        for start in range(0, len(view), CHUNK_BYTES):
            packed.write(compress.compress(view[start : start + CHUNK_BYTES]))
    packed.write(compress.flush())
    size_bytes = packed.tell()
    packed.seek(0)
    return packed, size_bytes


def load(row: StoredResult) -> bytearray:
    """Return the JSON of the stored item: an object with ``reply_subject``, ``result`` and any other posted keys.

    Raises:
        ResultMissing: the body is missing, damaged, or larger than ANTENNA_RESULT_MAX_BYTES.
        OSError: the storage is unreachable.
    """
    text = bytearray()
    try:
        with storages["results"].open(row.name, "rb") as file, gzip.GzipFile(fileobj=file) as unpacked:
            while chunk := unpacked.read(CHUNK_BYTES):
                text += chunk
                if len(text) > settings.ANTENNA_RESULT_MAX_BYTES:
                    raise ResultMissing(f"The body of {row.key} is larger than ANTENNA_RESULT_MAX_BYTES.")
    except (FileNotFoundError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ResultMissing(f"The body of {row.key} is not in the storage: {error}") from error
    return text


def publish(rows: Sequence[StoredResult]) -> list[str]:
    """Publish the task that handles each stored result, after commit; return their ids, in the same order.

    A handled result is not published again: the id of its old task is returned. A row that is there twice is published
    once.

    Raises:
        kombu.exceptions.OperationalError: the broker did not take every task; the audit publishes the others later.
    """
    ids = {row.pk: row.task_id for row in rows if row.handled_at is not None and row.task_id}
    signatures = {row.pk: _signature(row) for row in rows if row.pk not in ids}
    ids |= {key: signature.id for key, signature in signatures.items()}
    try:
        publish_many(signatures.values())
    except UnconfirmedTasks as error:
        refused = {each.id for each in error.unconfirmed}
        _mark_published({key: each.id for key, each in signatures.items() if each.id not in refused})
        raise
    _mark_published({key: each.id for key, each in signatures.items()})
    return [ids[row.pk] for row in rows]


def _signature(row: StoredResult) -> Signature:
    return signature(HANDLE_RESULT, job_id=row.job_id, result_key=row.key, reply_subject=row.reply_subject)


def _mark_published(ids: Mapping[int, str]) -> None:
    """Record the tasks of results, by their keys."""
    for first in range(0, len(ids), MARK_BATCH):
        part = dict(list(ids.items())[first : first + MARK_BATCH])
        task_id = Case(*(When(pk=key, then=Value(task_id)) for key, task_id in part.items()))
        StoredResult.objects.filter(pk__in=part).update(
            task_id=task_id, published_at=timezone.now(), publishes=F("publishes") + 1
        )


def mark_handled(row: StoredResult) -> None:
    """Record that the result is completely saved."""
    StoredResult.objects.filter(pk=row.pk, handled_at=None).update(handled_at=timezone.now(), error="")


def mark_failed(key: str, error: str) -> None:
    """Record that the task of this result was buried; the audit skips it, a replay of the dead letter handles it."""
    row = StoredResult.objects.filter(key=key, handled_at=None)
    row.update(error=(error or "failed").replace("\x00", "")[:10_000])


def delete_handled(job_id: int) -> int:
    """Delete the handled results of a job that starts over, so that an equal result is handled again."""
    rows = StoredResult.objects.filter(job_id=job_id).exclude(handled_at=None)
    names = list(rows.values_list("name", flat=True))
    rows.delete()
    transaction.on_commit(lambda: _delete_bodies(names), robust=True)
    return len(names)


def purge() -> int:
    """Delete up to PURGE_BATCH results that were handled more than KEEP_SECONDS ago; return how many."""
    old = timezone.now() - timedelta(seconds=KEEP_SECONDS)
    rows = list(StoredResult.objects.filter(handled_at__lt=old).order_by("handled_at")[:PURGE_BATCH])
    _delete_bodies([row.name for row in rows])
    StoredResult.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)


def _delete_bodies(names: list[str]) -> None:
    for name in names:
        storages["results"].delete(name)
