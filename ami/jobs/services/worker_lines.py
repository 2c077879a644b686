"""Lines about workers in a job's log: what was fetched and posted, by whom, and how fast the job advances.

No line is written for a poll that handed out nothing, and a throughput line at most once a minute for each job.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.cache import cache
from django.utils import timezone

from ami.jobs.models import Job
from ami.jobs.services.progress import ImageCounts, count_images

logger = logging.getLogger(__name__)

THROUGHPUT_SECONDS = 60
MOST_TASK_IDS = 10


def actor(user: Any, token: Any) -> str:
    """Return who called, with the fingerprint of the token: how its key begins, as the list of tokens shows it."""
    name = getattr(user, "email", "") or str(user)
    prefix = getattr(token, "prefix", "")
    return f"user={name}, token_id={prefix}…" if prefix else f"user={name}"


def fetched(job: Job, *, requested: int, delivered: int, by: str) -> None:
    """Record a fetch; one that got nothing goes to the server's log only, at DEBUG."""
    line = f"Tasks fetched: requested={requested}, delivered={delivered}, {by}"
    if delivered:
        job.log(line)
    else:
        logger.debug("job %s: %s", job.pk, line)


def inactive(job: Job, *, by: str) -> None:
    """Record in the server's log that tasks of a job that is not running were asked for."""
    logger.info("job %s: Tasks requested, but the job is %s; none delivered, %s", job.pk, job.status, by)


def unavailable(job: Job, error: Exception, *, by: str) -> None:
    """Record that no tasks could be fetched because NATS is away, at most once in ``THROUGHPUT_SECONDS``."""
    if _is_due(f"unavailable:{job.pk}"):
        job.log(f"Tasks not fetched: {error}, {by}", level="WARNING")


def posted(job: Job, task_ids: Sequence[str], *, refused: int, by: str) -> None:
    """Record a post of results by one line; a post of none, which only extends claims, is not recorded."""
    if task_ids or refused:
        line = f"Results posted: queued={len(task_ids) - refused}, refused={refused}, {by}"
        job.log(line, task_ids=[each for each in task_ids if each][:MOST_TASK_IDS])


def throughput(job: Job) -> None:
    """Record how fast the job advances, at most once in ``THROUGHPUT_SECONDS``, and not sooner after its start."""
    now = timezone.now()
    if job.started_at is None or now - job.started_at < timedelta(seconds=THROUGHPUT_SECONDS):
        return
    if not _is_due(f"throughput:{job.pk}"):
        return
    counts = count_images([job.pk]).get(job.pk, ImageCounts())
    job.log(throughput_line(counts, (now - job.started_at).total_seconds()))


def throughput_line(counts: ImageCounts, seconds: float) -> str:
    """Return the line: time since the start, settled images, images per minute, and the time that is left."""
    rate = counts.settled / seconds * 60
    left = _duration(counts.unsettled / rate * 60) if rate else "unknown"
    return (
        f"Throughput: elapsed={_duration(seconds)}, processed={counts.settled}/{counts.total}, "
        f"rate={rate:.1f} imgs/min, ETA={left}"
    )


def _is_due(line: str) -> bool:
    try:
        return bool(cache.add(line, 1, THROUGHPUT_SECONDS))
    except Exception as error:
        # Whatever the cache client raises: without a cache there is no line, and no cost.
        logger.debug("Cache failed to limit throughput lines: %r", error)
        return False


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m {rest:02d}s" if hours else f"{minutes}m {rest:02d}s"
