"""Turns results in messages of the old application, whose whole JSON is in them, into stored ones."""

import json
from collections.abc import Sequence
from datetime import date, time
from typing import Any, TypeGuard

from django.db.models import F, QuerySet
from django.utils import timezone

from ami.adopt.becomes import Arguments, CannotRun
from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.services import stored_results

#: Most keys in one query.
KEYS = 10_000

#: As long as the column that keeps it.
MAX_SUBJECT = StoredResult._meta.get_field("reply_subject").max_length or 0


def needs_job(arguments: Arguments) -> None:
    """Refuse what is about a job that this database lacks.

    Raises:
        CannotRun: there is no such job.
    """
    job_id = arguments.get("job_id")
    if not _is_key(job_id):
        raise CannotRun("it names no job")
    if not Job.objects.filter(pk=job_id).exists():
        raise CannotRun("this database lacks its job", f"job {job_id}")


def needs_job_and_images(arguments: Arguments) -> None:
    """Refuse a result of a job, or of images of that job, which this database lacks.

    Raises:
        CannotRun: it is not a result, or there is no such job, or the job has none of its images.
    """
    result, reply_subject = arguments.get("result_data"), arguments.get("reply_subject") or ""
    if not isinstance(result, dict):
        raise CannotRun("it holds no result")
    if not isinstance(reply_subject, str) or len(reply_subject) > MAX_SUBJECT or not reply_subject.isprintable():
        raise CannotRun("its reply subject is malformed")
    keys = sorted({int(key) for key in _image_ids(result) if key.isascii() and key.isdecimal() and len(key) < 19})
    job_id = arguments.get("job_id")
    if _is_key(job_id) and has_any(JobImage.objects.filter(job_id=job_id), "source_image_id", keys):
        return
    needs_job(arguments)
    if keys:
        raise CannotRun("its job has no rows for these images", f"job {job_id} has none of {keys[:10]}")


def has_any(rows: QuerySet[Any], field: str, keys: Sequence[int]) -> bool:
    """Whether there is a row with one of many keys: a message may name more of them than SQLite takes in a query."""
    chunks = (keys[start : start + KEYS] for start in range(0, len(keys), KEYS))
    return any(rows.filter(**{f"{field}__in": chunk}).exists() for chunk in chunks)


def from_batch(arguments: Arguments) -> Arguments:
    """Return the arguments of a stored result from those of `save_results`: a batch of the push mode, as JSON text.

    Raises:
        CannotRun: it is not JSON.
    """
    try:
        result = json.loads(arguments.get("results_json") or "null")
    except (RecursionError, TypeError, ValueError) as error:
        raise CannotRun("it holds no result") from error
    return {"job_id": arguments.get("job_id"), "result_data": result, "reply_subject": None}


def store(arguments: Arguments, task_id: str) -> Arguments:
    """Store a result as if it had been posted here, and return the arguments of the task that handles it.

    An equal result is stored once and handled once, however often it comes.
    """
    job = Job(pk=arguments["job_id"])  # `needs_job` has seen it.
    reply_subject = arguments.get("reply_subject") or ""
    item = {"reply_subject": reply_subject, "result": arguments["result_data"]}
    row = stored_results.store_text(job, reply_subject, json.dumps(item, default=_plain).encode())
    # The audit publishes again what was not handled in time; it begins to wait now.
    StoredResult.objects.filter(pk=row.pk).update(
        task_id=task_id, published_at=timezone.now(), publishes=F("publishes") + 1
    )
    return {"job_id": job.pk, "result_key": row.key, "reply_subject": reply_subject or None}


def _image_ids(result: dict[str, Any]) -> set[str]:
    """Return the images that a result or an error names."""
    images, detections = result.get("source_images"), result.get("detections")
    found = [item.get("id") for item in _objects(images)]
    found += [item.get("source_image_id") for item in _objects(detections)]
    return {str(key) for key in (*found, result.get("image_id")) if key is not None}


def _objects(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _is_key(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


def _plain(value: Any) -> Any:
    """Return the JSON of a value that kombu wrote as an object with its type: a date or a time above all."""
    return value.isoformat() if isinstance(value, (date, time)) else str(value)
