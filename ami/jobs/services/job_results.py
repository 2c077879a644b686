"""Saves a pipeline response for a job: one transaction per image, which also settles the image."""

from collections import defaultdict

from django.db import transaction

from ami.jobs.models import Job, JobImage
from ami.jobs.services.image_settlement import settle_processed
from ami.main.models import SourceImage
from ami.ml.schemas import DetectionResponse, PipelineResultsResponse
from ami.ml.services.adoption import reassign_results
from ami.ml.services.crops import captures_without_crops
from ami.ml.services.image_results import save_image
from ami.ml.services.name_lookup import NameLookup
from ami.ml.tasks import create_detection_images
from ami.queues.publish import publish_task


def save_results(job: Job, response: PipelineResultsResponse, *, only: set[int] | None = None) -> set[int]:
    """Save a response and publish the task for its crops; return the keys of the job's images in it.

    Images that do not belong to the job are logged and skipped; a response without any image of the job changes
    nothing (hazard 5). Saving is idempotent: a replay repairs rows and adds none.

    Raises:
        PipelineNotConfigured: the pipeline or an algorithm is not registered; nothing was saved.
        django.db.OperationalError: a lost connection or a deadlock; call it again.
    """
    by_image = _by_image(response)
    images = _images_of_job(job, by_image)
    if only is not None:
        images = {pk: image for pk, image in images.items() if pk in only}
    if images:
        wanted = [detection for pk in sorted(images) for detection in by_image[str(pk)]]
        lookup = NameLookup.of(response.pipeline, wanted, job.project_id, job.pipeline)
        for pk in sorted(images):
            _save_one(job, images[pk], by_image[str(pk)], lookup)
    if unknown := sorted(set(by_image) - {str(pk) for pk in images}):
        job.log(f"Results for {len(unknown)} images that the job does not have.", level="WARNING", ids=unknown[:100])
    publish_crops(images)
    return set(images)


def publish_crops(images: dict[int, SourceImage]) -> None:
    """Publish one task for those images that have a detection without a crop, no matter which result made it."""
    if without := captures_without_crops(images):
        publish_task(create_detection_images, source_image_ids=without)


def _save_one(job: Job, image: SourceImage, detections: list[DetectionResponse], lookup: NameLookup) -> None:
    with transaction.atomic():
        reassign_results(image, lookup.twins)
        saved = save_image(image, detections, lookup)
        settle_processed(job.pk, image.pk, detections=saved.detections, classifications=saved.classifications)


def _by_image(response: PipelineResultsResponse) -> dict[str, list[DetectionResponse]]:
    by_image: dict[str, list[DetectionResponse]] = defaultdict(list)
    for picture in response.source_images:
        by_image[picture.id] = []
    for detection in response.detections:
        by_image[detection.source_image_id].append(detection)
    return dict(by_image)


def _images_of_job(job: Job, by_image: dict[str, list[DetectionResponse]]) -> dict[int, SourceImage]:
    # Only canonical keys: "007" does not name image 7.
    keys = [
        int(key) for key in by_image if key.isascii() and key.isdecimal() and len(key) < 19 and str(int(key)) == key
    ]
    rows = JobImage.objects.filter(job=job, source_image_id__in=keys).select_related("source_image__deployment")
    return {row.source_image_id: row.source_image for row in rows}
