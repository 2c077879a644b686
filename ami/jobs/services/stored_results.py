"""Stores posted results, one row per key, which is derived from the body's hash (incident 45)."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from celery.utils import uuid
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from ami.celery import storable
from ami.jobs.models import Job, StoredResult
from ami.jobs.services import result_bodies
from ami.jobs.services.result_bodies import Text, load
from ami.jobs.signals import result_stored
from ami.queues.old_rows import ROWS

__all__ = ["load", "store", "store_many", "store_text"]

KEEP_SECONDS = 24 * 3600

#: Bounds of one INSERT of rows with their bodies.
MOST_ROWS = 200
MOST_BYTES = 8 * 1024**2


def store(job: Job, reply_subject: str, result: Mapping[str, Any]) -> StoredResult:
    """Serialize and store a result; see ``store_text``."""
    return store_text(job, reply_subject, json.dumps({"reply_subject": reply_subject, "result": result}).encode())


def store_text(job: Job, reply_subject: str, text: Text) -> StoredResult:
    """Store one item unchanged and return its row; see `store_many`."""
    return store_many(job, [(reply_subject, text)])[0]


def store_many(job: Job, items: Sequence[tuple[str, Text]]) -> list[StoredResult]:
    """Store posted items unchanged, each a reply subject and a text, and return their rows, in the same order.

    An equal item is not stored again.

    Raises:
        OSError: the storage failed; what was stored before is published by the audit.
    """
    keys = [f"job_{job.pk}/{hashlib.sha256(text).hexdigest()}.json.gz" for _, text in items]
    # A small one that is stored already conflicts, which costs less than to look for it; a large one would be written.
    large = [key for key, (_, text) in zip(keys, items, strict=True) if len(text) > result_bodies.MOST_ROW_BYTES]
    rows = {row.key: row for row in (_without_bodies(large) if large else ())}
    new = {key: item for key, item in zip(keys, items, strict=True) if key not in rows}
    unsaved = (_unsaved(job, key, *item) for key, item in new.items())
    for chunk in _chunks(unsaved):
        rows |= {row.key: row for row in _insert(chunk)}
    for row in rows.values():
        row.job = job
    return [rows[key] for key in keys]


def _unsaved(job: Job, key: str, reply_subject: str, text: Text) -> StoredResult:
    row = StoredResult(job=job, key=key, reply_subject=reply_subject, task_id=uuid())
    result_bodies.attach(row, text)
    return row


def _chunks(rows: Iterable[StoredResult]) -> Iterator[list[StoredResult]]:
    chunk: list[StoredResult] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row.body or b"")
        if len(chunk) >= MOST_ROWS or size >= MOST_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _insert(rows: list[StoredResult]) -> list[StoredResult]:
    """Insert rows; return those that are in the database, of which another post may have inserted some."""
    StoredResult.objects.bulk_create(rows, ignore_conflicts=True)
    mine = {row.key: row for row in rows}
    stored = list(_without_bodies(mine))
    # The id is random, so it says which of two posts inserted the row.
    made = {row.key for row in stored if row.task_id == mine[row.key].task_id}
    result_bodies.delete(row.name for row in rows if row.key not in made)
    for row in stored:
        if row.key in made:
            transaction.on_commit(partial(_send_signal, row), robust=True)
    return stored


def _without_bodies(keys: Iterable[str]) -> Iterable[StoredResult]:
    return StoredResult.objects.filter(key__in=list(keys)).defer("body")


def _send_signal(row: StoredResult) -> None:
    result_stored.send(sender=StoredResult, job_id=row.job_id, key=row.key, size_bytes=row.size_bytes)


def mark_handled(rows: Iterable[StoredResult]) -> None:
    """Record that the results are completely saved, in the transaction that saves them."""
    if keys := [row.pk for row in rows]:
        StoredResult.objects.filter(pk__in=keys, handled_at=None).update(handled_at=timezone.now(), error="")


def mark_failed(error: str, **which: Any) -> None:
    """Record that the message of these results was buried; the audit skips them, a replay of it handles them."""
    rows = StoredResult.objects.filter(handled_at=None, **which)
    rows.update(error=storable.text((error or "failed").replace("\x00", ""), 10_000))


def delete_handled(job_id: int) -> int:
    """Delete the handled results of a job that starts over, so that an equal result is handled again."""
    rows = StoredResult.objects.filter(job_id=job_id).exclude(handled_at=None)
    names = list(rows.values_list("name", flat=True))
    rows.delete()
    transaction.on_commit(partial(result_bodies.delete, names), robust=True)
    return len(names)


def purge() -> int:
    """Delete the first results that were handled more than KEEP_SECONDS ago; return how many."""
    old = timezone.now() - timedelta(seconds=KEEP_SECONDS)
    return delete(StoredResult.objects.filter(handled_at__lt=old).order_by("handled_at"))


def delete(rows: "QuerySet[StoredResult]", most: int = ROWS) -> int:
    """Delete the first ``most`` of these results with their bodies; return how many they were."""
    names = dict(rows.values_list("pk", "name")[:most])
    result_bodies.delete(names.values())
    StoredResult.objects.filter(pk__in=names).delete()
    return len(names)
