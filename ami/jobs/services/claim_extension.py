"""Extends the claims of a pull client that shows it is alive, a bounded number of times (incident 22)."""

import logging
from collections.abc import Sequence

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from ami.celery import leases
from ami.jobs.errors import NatsUnavailable
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ACTIVE, ImageState
from ami.jobs.services import jetstream

logger = logging.getLogger(__name__)

MOST = 1000
"""Most claims that one request extends; the next request extends the others."""


def due_claims(job: Job, client: str, reply_subjects: Sequence[str] = ()) -> list[int]:
    """Return the keys of the client's claims that may be extended now; see `extend`. At most one query.

    ``reply_subjects`` are those of the results that it posts. The client that holds one of them is the same client,
    even if it describes itself otherwise with its results than with its polls, but not one with another token.
    """
    if job.status not in ACTIVE or not settings.NATS_MAX_EXTENSIONS:
        return []
    clients = Q(claimed_by=client)
    if reply_subjects:
        owner = client.rpartition("-")[0]
        holders = _claimed(job).filter(reply_subject__in=reply_subjects, claimed_by__startswith=f"{owner}-")
        clients |= Q(claimed_by__in=holders.values("claimed_by"))
    return list(_due(job).filter(clients).order_by("pk").values_list("pk", flat=True)[:MOST])


def extend(job: Job, due: Sequence[int]) -> int:
    """Extend these claims by NATS_TASK_TTR, in their rows and at NATS; return how many.

    Each is extended at most NATS_MAX_EXTENSIONS times, at intervals of at least a third of NATS_TASK_TTR. An expired
    claim is not extended: NATS may already have delivered the image to another client. The rows come first, so that an
    unreachable NATS delays a client once per interval, not at each request; the extension is then used up.
    """
    if not due:
        return 0
    with transaction.atomic():
        # Rows that are locked are skipped: a concurrent request extends them, or a result settles them.
        rows = _due(job).filter(pk__in=due).select_for_update(skip_locked=True, no_key=True)
        subjects = dict(rows.values_list("pk", "reply_subject"))
        # The condition again, because SQLite locks no rows.
        extended = _due(job).filter(pk__in=subjects)
        extended.update(lease_expires_at=leases.end(settings.NATS_TASK_TTR), extensions=F("extensions") + 1)
    try:
        jetstream.in_progress(job.pk, subjects.values())
    except NatsUnavailable as error:
        logger.warning("Claims of job %s not extended at NATS: %s", job.pk, error, extra={"job": job.pk})
    return len(subjects)


def _claimed(job: Job) -> QuerySet[JobImage]:
    return JobImage.objects.filter(job=job, state=ImageState.CLAIMED)


def _due(job: Job) -> QuerySet[JobImage]:
    return _claimed(job).filter(
        lease_expires_at__gt=Now(),
        # A third of the wait has passed when two thirds are left.
        lease_expires_at__lte=leases.end(settings.NATS_TASK_TTR * 2 / 3),
        extensions__lt=settings.NATS_MAX_EXTENSIONS,
    )
