"""Saves pipeline responses for a job: one transaction for all their images, which also settles the images."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from django.db import transaction

from ami.environment.deferred import deferred
from ami.jobs.models import Job
from ami.jobs.services.expected_results import canonical
from ami.jobs.services.image_settlement import images_for_saving, settle_processed
from ami.ml.services.adoption import reassign_results
from ami.ml.services.classification_history import Run
from ami.ml.services.image_results import ImageResult, save_images
from ami.ml.services.name_lookup import NameLookup
from ami.ml.tasks import create_detection_images
from ami.queues.publish import publish_task

if TYPE_CHECKING:
    from ami.ml.services import crops
else:
    crops = deferred("ami.ml.services.crops")

#: Most images and detections of one transaction. A posted batch is below both, unless it has one very large result.
MOST_IMAGES = 200
MOST_DETECTIONS = 5000


@dataclass(frozen=True)
class _Result:
    """What a pipeline found on one image."""

    slug: str
    image_id: int
    detections: list[Any]


def save_results(job: Job, response: Any, *, only: set[int] | None = None) -> set[int]:
    """Save a response and publish the task for its crops; return the keys of the job's images in it.

    Raises:
        PipelineNotConfigured, django.db.OperationalError: as `save_responses`.
    """
    saved = save_responses(job, [response], only=only)
    publish_crops(saved)
    return saved


def save_responses(
    job: Job,
    responses: Sequence[Any],
    *,
    only: set[int] | None = None,
    locked: Iterable[int] = (),
    finish: Callable[[], Any] = lambda: None,
) -> set[int]:
    """Save responses that share no image; return the keys of the job's images in them.

    ``finish`` runs in the last transaction: it and the results are saved together. ``locked`` are further images that
    it settles.

    Images that do not belong to the job are logged and skipped; a response without any image of the job changes
    nothing (hazard 5). Saving is idempotent: a replay adds no row.

    Raises:
        PipelineNotConfigured: the pipeline or an algorithm is not registered.
        django.db.OperationalError: a lost connection or a deadlock; call it again.
    """
    wanted = [(response.pipeline, _by_image(response)) for response in responses]
    parts = _parts(wanted, only)
    saved: set[int] = set()
    for number, part in enumerate(parts, 1):
        with transaction.atomic():
            saved |= _save_part(job, part, locked)
            if number == len(parts):
                finish()
    known = {str(pk) for pk in saved}
    if unknown := sorted({key for _, by_image in wanted for key in by_image} - known):
        job.log(f"Results for {len(unknown)} images that the job does not have.", level="WARNING", ids=unknown[:100])
    return saved


def images_of(response: Any) -> set[int]:
    """Return the images that a response names by canonical keys: "007" does not name image 7."""
    return {pk for key in _by_image(response) if (pk := canonical(key)) is not None}


def publish_crops(images: Iterable[int]) -> None:
    """Publish one task for those images that have a detection without a crop, no matter which result made it."""
    for project_id, without in crops.captures_without_crops(images).items():
        publish_task(create_detection_images, source_image_ids=without, project_id=project_id)


def _parts(wanted: Sequence[tuple[str, Mapping[str, list[Any]]]], only: set[int] | None) -> list[list[_Result]]:
    """Return the results in the order of their images, in lists for one transaction each; at least one list."""
    named = ((slug, canonical(key), found) for slug, by_image in wanted for key, found in by_image.items())
    results = [_Result(slug, pk, found) for slug, pk, found in named if pk is not None]
    parts: list[list[_Result]] = [[]]
    detections = 0
    for result in sorted(results, key=lambda each: each.image_id):
        if only is not None and result.image_id not in only:
            continue
        detections += len(result.detections)
        if parts[-1] and (len(parts[-1]) >= MOST_IMAGES or detections > MOST_DETECTIONS):
            parts.append([])
            detections = len(result.detections)
        parts[-1].append(result)
    return parts


def _save_part(job: Job, part: list[_Result], locked: Iterable[int]) -> set[int]:
    """Save the results of images that the job has; return their keys."""
    images = images_for_saving(job.pk, {*(each.image_id for each in part), *locked})
    by_slug: dict[str, list[ImageResult]] = defaultdict(list)
    for each in part:
        if image := images.get(each.image_id):
            by_slug[each.slug].append(ImageResult(image, each.detections))
    for slug, results in sorted(by_slug.items()):
        detections = chain.from_iterable(each.detections for each in results)
        lookup = NameLookup.of(slug, detections, job.project_id, job.pipeline)
        reassign_results([each.image.pk for each in results], lookup.twins)
        saved = save_images(results, lookup, Run(job.pk, job.started_at))
        settle_processed(job.pk, {pk: (each.detections, each.classifications) for pk, each in saved.items()})
    return {each.image.pk for results in by_slug.values() for each in results}


def _by_image(response: Any) -> dict[str, list[Any]]:
    by_image: dict[str, list[Any]] = {picture.id: [] for picture in response.source_images}
    for detection in response.detections:
        by_image.setdefault(detection.source_image_id, []).append(detection)
    return by_image
