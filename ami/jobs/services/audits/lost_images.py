"""Fails or republishes images whose messages JetStream no longer delivers."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from ami.celery import leases
from ami.jobs.errors import NatsUnavailable
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ACTIVE, UNSETTLED, DispatchMode, ImageState
from ami.jobs.services import jetstream
from ami.jobs.services.audits.findings import Findings
from ami.jobs.services.audits.stalled_jobs import publish_run_jobs
from ami.jobs.services.image_errors import log_failures
from ami.jobs.services.image_settlement import RESET, settle_failed
from ami.jobs.services.jetstream.names import STREAM_MAX_AGE_SECONDS
from ami.jobs.services.job_completion import complete_if_settled

BATCH = 5000
JOBS_AT_ONCE = 100
GRACE_SECONDS = 30
"""Wait after the end of the lease; a result posted just before it may still be on its way."""


def fail_lost_images() -> Findings:
    """Fail images whose deliveries are used up; the job keeps its other results (incidents 30 and 41).

    An image is lost if its row was claimed NATS_MAX_DELIVER times and the lease is over, or, if a web process could
    not update the row, if a JetStream advisory names it. An image whose stored result is not handled yet is not lost.
    """
    findings = Findings()
    lost = _exhausted_rows()
    nats: Exception | None = None
    for job_ids in batched(_async_jobs(), JOBS_AT_ONCE):
        try:
            exhausted = jetstream.exhausted_images(job_ids)
        except NatsUnavailable as error:
            nats = error
            break
        for job_id, found in exhausted.items():
            claims = _claimed(job_id, found.deliveries)
            lost[job_id].update({pk: n for pk, n in found.deliveries.items() if pk in claims})
            _fail(job_id, lost.pop(job_id), findings)
            jetstream.acknowledge(found.replies)
    for job_id, images in lost.items():
        _fail(job_id, images, findings)
    if nats is not None:
        findings.unfixable += 1
    return findings


def _claimed(job_id: int, image_ids: Iterable[int]) -> set[int]:
    """Return those of the images that the job has; without images nothing is asked."""
    if not (ids := list(image_ids)):
        return set()
    rows = JobImage.objects.filter(job_id=job_id, source_image_id__in=ids)
    return set(rows.values_list("source_image_id", flat=True))


def _exhausted_rows() -> dict[int, dict[int, int]]:
    rows = JobImage.objects.filter(
        state=ImageState.CLAIMED,
        lease_expires_at__lt=leases.end(-GRACE_SECONDS),
        attempts__gte=settings.NATS_MAX_DELIVER,
        job__dispatch_mode=DispatchMode.ASYNC_API,
        job__status__in=ACTIVE,
    )
    lost: dict[int, dict[int, int]] = defaultdict(dict)
    for job_id, image_id, attempts in rows.values_list("job_id", "source_image_id", "attempts")[:BATCH]:
        lost[job_id][image_id] = attempts
    return lost


def _async_jobs() -> list[int]:
    jobs = Job.objects.filter(status__in=ACTIVE, dispatch_mode=DispatchMode.ASYNC_API, collected_at__isnull=False)
    return list(jobs.order_by("pk").values_list("pk", flat=True))


def _jobs_with_published_images() -> list[int]:
    """Return the asynchronous jobs that wait for results."""
    published = JobImage.objects.filter(job=OuterRef("pk"), state__in=UNSETTLED - {ImageState.PENDING})
    return list(Job.objects.filter(Exists(published), pk__in=_async_jobs()).order_by("pk").values_list("pk", flat=True))


def _fail(job_id: int, images: dict[int, int], findings: Findings) -> None:
    if not images:
        return
    findings.checked += len(images)
    waiting = _with_stored_result(job_id, set(images))
    failures: list[tuple[int, str]] = []
    with transaction.atomic():
        for image_id, deliveries in images.items():
            reason = f"lost after {deliveries} deliveries"
            if image_id not in waiting and settle_failed(job_id, [image_id], reason):
                failures.append((image_id, reason))
    findings.fixed += len(failures)
    log_failures(Job(pk=job_id), failures, level="WARNING")
    complete_if_settled(job_id)


def _with_stored_result(job_id: int, image_ids: set[int]) -> set[int]:
    """Return the images whose last delivery has a stored result that is not handled yet."""
    claims = JobImage.objects.filter(job_id=job_id, source_image_id__in=image_ids).exclude(reply_subject="")
    answered = Job.objects.get(pk=job_id).stored_results.filter(handled_at=None, error="").values("reply_subject")
    return set(claims.filter(reply_subject__in=answered).values_list("source_image_id", flat=True))


def republish_expired_images() -> Findings:
    """Reset images whose messages expired or whose stream was deleted, and publish the job again (hazard 12)."""
    findings = Findings()
    reasons: dict[int, str] = {}
    old = timezone.now() - timedelta(seconds=STREAM_MAX_AGE_SECONDS)
    for job_ids in batched(_jobs_with_published_images(), JOBS_AT_ONCE):
        for job_id, state in jetstream.consumer_states(job_ids).items():
            findings.checked += 1
            rows = JobImage.objects.filter(job_id=job_id, state__in=UNSETTLED - {ImageState.PENDING})
            if state is not None:
                rows = rows.filter(published_at__lt=old)
            if again := rows.update(**RESET):
                findings.fixed += 1
                reasons[job_id] = f"{again} messages are missing on JetStream; publishing them again."
    publish_run_jobs(reasons)
    return findings


def batched(job_ids: Iterable[int], size: int) -> Iterator[Sequence[int]]:
    """Yield the jobs in groups, in their order."""
    left = iter(job_ids)
    while group := list(islice(left, size)):
        yield group
