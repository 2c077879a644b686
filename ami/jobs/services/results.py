"""Saving what a pipeline found for a job: one transaction per image, its row in the job settled inside it."""

from collections import defaultdict

from django.db import transaction

from ami.jobs.models import Job, JobImage
from ami.jobs.services.settlement import settle_processed
from ami.main.models import SourceImage
from ami.ml.schemas import DetectionResponse, PipelineResultsResponse
from ami.ml.services.adoption import reassign_results
from ami.ml.services.crops import captures_without_crops
from ami.ml.services.name_lookup import NameLookup
from ami.ml.services.results import save_image


def save_results(job: Job, response: PipelineResultsResponse, *, only: set[int] | None = None) -> set[int]:
    """Save a response and publish the making of crops; return the images of the job that it was about.

    Images that do not belong to the job are logged and left alone; a response about none of them changes nothing
    (hazard 5), and creates nothing. Whatever is saved twice is the same rows: a replay repairs, it does not add.

    Raises:
        PipelineNotConfigured: the pipeline or an algorithm is not registered; nothing was saved.
        django.db.OperationalError: a lost connection or a deadlock; call it again.
    """
    found = _by_image(response)
    images = _images_of_job(job, found)
    if only is not None:
        images = {pk: image for pk, image in images.items() if pk in only}
    if images:
        wanted = [detection for pk in sorted(images) for detection in found[str(pk)]]
        lookup = NameLookup.of(response.pipeline, wanted, job.project_id, job.pipeline)
        for pk in sorted(images):
            _save_one(job, images[pk], found[str(pk)], lookup)
    if strangers := sorted(set(found) - {str(pk) for pk in images}):
        job.log(
            f"Results for {len(strangers)} images that the job does not have.", level="WARNING", ids=strangers[:100]
        )
    publish_crops(images)
    return set(images)


def publish_crops(images: dict[int, SourceImage]) -> None:
    """Publish one task for those of the images that have a box without a crop; the rows decide, not who made them."""
    from ami.ml.tasks import create_detection_images

    if without := captures_without_crops(images):
        transaction.on_commit(lambda: create_detection_images.apply_async(kwargs={"source_image_ids": without}))


def _save_one(job: Job, image: SourceImage, found: list[DetectionResponse], lookup: NameLookup) -> None:
    with transaction.atomic():
        reassign_results(image, lookup.twins)
        saved = save_image(image, found, lookup)
        settle_processed(job.pk, image.pk, detections=saved.detections, classifications=saved.classifications)


def _by_image(response: PipelineResultsResponse) -> dict[str, list[DetectionResponse]]:
    found: dict[str, list[DetectionResponse]] = defaultdict(list)
    for picture in response.source_images:
        found[picture.id] = []
    for detection in response.detections:
        found[detection.source_image_id].append(detection)
    return dict(found)


def _images_of_job(job: Job, found: dict[str, list[DetectionResponse]]) -> dict[int, SourceImage]:
    # Plain keys alone: "007" is found under no image's own text.
    keys = [int(key) for key in found if key.isascii() and key.isdecimal() and len(key) < 19 and str(int(key)) == key]
    rows = JobImage.objects.filter(job=job, source_image_id__in=keys).select_related("source_image__deployment")
    return {row.source_image_id: row.source_image for row in rows}
