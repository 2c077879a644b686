"""Hands out images to pull workers, each under a lease."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Case, CharField, IntegerField, Value, When

from ami.celery import leases
from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import UNSETTLED, ImageState
from ami.jobs.services import jetstream
from ami.jobs.services.image_settlement import lock_images
from ami.jobs.services.jetstream import Delivery
from ami.ml.schemas import PipelineProcessingTask
from ami.ml.services.capture_files import public_url

MOST_UNHANDLED = 20_000
"""Back-pressure: a job with this many unhandled results hands out no more images."""


def claim(job: Job, batch: int, *, client: str = "", base_url: str = "") -> list[PipelineProcessingTask]:
    """Fetch up to ``batch`` deliveries, mark their rows as claimed by ``client``, and return them as tasks.

    Deliveries of settled images are acknowledged and not handed out.

    Raises:
        NatsUnavailable: nothing was handed out.
    """
    if StoredResult.objects.filter(job=job, handled_at=None).count() >= MOST_UNHANDLED:
        return []
    deliveries = jetstream.fetch(job.pk, batch)
    newest = {delivery.image_id: delivery for delivery in deliveries}
    rows = JobImage.objects.filter(job=job, source_image_id__in=newest, state__in=UNSETTLED)
    open_rows = {row.source_image_id: row for row in rows.select_related("source_image")}
    _drop_settled(delivery for delivery in deliveries if delivery.image_id not in open_rows)
    mine = [newest[image_id] for image_id in sorted(open_rows)]
    config = config_of_tasks(job)
    _mark_claimed(job, mine, client)
    return [
        PipelineProcessingTask(
            id=str(delivery.image_id),
            image_id=str(delivery.image_id),
            image_url=public_url(open_rows[delivery.image_id].source_image, base_url),
            reply_subject=delivery.reply_subject,
            config=config,
        )
        for delivery in mine
    ]


def config_of_tasks(job: Job) -> dict[str, Any] | None:
    """Return the configuration that tasks of the job carry now; None if they carry none."""
    return job.pipeline.task_config(job.project_id) if settings.ANTENNA_TASK_CONFIG and job.pipeline else None


def _drop_settled(deliveries: Iterable[Delivery]) -> None:
    jetstream.acknowledge([delivery.reply_subject for delivery in deliveries])


def _mark_claimed(job: Job, deliveries: list[Delivery], client: str) -> None:
    """Mark the rows claimed by one conditional statement, because results may settle images at the same time."""
    if not deliveries:
        return
    replies = [When(source_image_id=d.image_id, then=Value(d.reply_subject)) for d in deliveries]
    attempts = [When(source_image_id=d.image_id, then=Value(d.deliveries)) for d in deliveries]
    images = [delivery.image_id for delivery in deliveries]
    with transaction.atomic():
        lock_images(job.pk, images)
        JobImage.objects.filter(job=job, source_image_id__in=images, state__in=UNSETTLED).update(
            state=ImageState.CLAIMED,
            reply_subject=Case(*replies, output_field=CharField()),
            attempts=Case(*attempts, output_field=IntegerField()),
            lease_expires_at=leases.end(settings.NATS_TASK_TTR),
            claimed_by=client,
            extensions=0,
        )
