"""Replaces shared rows that a project uses by its own ones: a pipeline's settings, and the results saved so far."""

from collections.abc import Iterable, Mapping

from django.db.models import Exists, OuterRef
from django.utils import timezone

from ami.main.models import Classification, Detection, Project
from ami.ml.models import Pipeline, ProjectPipelineConfig


def adopt_shared(own: Pipeline) -> None:
    """Move the project's use of the shared pipeline of this slug, if any, to its new own row.

    This moves the enabled flag, the configuration, the project's default and its services. Jobs keep their pipeline.
    ``default_config`` is copied only if staff enabled the shared row for the project; otherwise it must not see it.
    """
    uses = ProjectPipelineConfig.objects.select_related("pipeline")
    use = uses.filter(project=own.project_id, pipeline__slug=own.slug, pipeline__project=None).first()
    if use is None:
        return
    shared = use.pipeline
    if use.enabled:
        own.default_config = shared.default_config
        own.save(update_fields=["default_config", "updated_at"])
    ProjectPipelineConfig.objects.filter(pk=use.pk).update(pipeline=own)
    Project.objects.filter(pk=own.project_id, default_processing_pipeline=shared).update(
        default_processing_pipeline=own
    )
    own.processing_services.add(*shared.processing_services.filter(projects=own.project_id))


def reassign_results(image_ids: Iterable[int], twins: Mapping[int, int]) -> None:
    """Reassign the results of images from shared algorithms to the project's own ones.

    Call it before saving, in the same transaction. ``twins`` maps a shared algorithm to the project's own of the same
    key. Processing a capture again then replaces its results instead of adding a second box and occurrence.
    """
    images = list(image_ids)
    now = timezone.now()
    for shared, own in sorted(twins.items()):
        detections = Detection.objects.filter(source_image__in=images)
        same_box = {"source_image": OuterRef("source_image"), "bbox_key": OuterRef("bbox_key")}
        boxes = Detection.objects.filter(detection_algorithm=own, **same_box)
        old = detections.filter(~Exists(boxes), detection_algorithm=shared)
        old.order_by().update(detection_algorithm=own, updated_at=now)
        classified = Classification.objects.filter(detection__source_image__in=images, algorithm=shared)
        done = Classification.objects.filter(algorithm=own, detection=OuterRef("detection"))
        classified.filter(~Exists(done)).order_by().update(algorithm=own, updated_at=now)
