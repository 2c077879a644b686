"""Replaces shared rows that a project uses by its own ones: a pipeline's settings, and the results saved so far."""

from collections.abc import Iterable, Mapping

from django.db.models import Case, Exists, OuterRef, Q, When
from django.utils import timezone

from ami.main.models import Classification, Detection, Project
from ami.ml.models import Pipeline, ProcessingService, ProjectPipelineConfig
from ami.ml.services.aliases import alias_algorithm, alias_pipeline


def adopt_shared(own: Pipeline) -> None:
    """Move the project's use of the shared pipeline of this slug, or of this name and version, to its new own row.

    This moves the enabled flag, the configuration, the project's default and its services. Jobs keep their pipeline.
    ``default_config`` is copied only if staff enabled the shared row for the project; otherwise it must not see it.
    Names of the shared rows that the own ones do not have become their aliases.
    """
    same = Q(pipeline__slug=own.slug) | Q(pipeline__name=own.name, pipeline__version=own.version)
    uses = ProjectPipelineConfig.objects.select_related("pipeline")
    found = uses.filter(same, project=own.project_id, pipeline__project=None)
    use = found.order_by(Case(When(pipeline__slug=own.slug, then=0), default=1)).first()
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
    services = list(shared.processing_services.filter(projects=own.project_id))
    own.processing_services.add(*services)
    _keep_names(own, shared, services)


def _keep_names(own: Pipeline, shared: Pipeline, services: Iterable[ProcessingService]) -> None:
    """Make the names of the shared pipeline and its algorithms aliases of the project's own ones."""
    if shared.slug != own.slug and own.project_id:
        alias_pipeline(own.project_id, own, shared.slug, services)
    theirs = {(each.name, each.version): each for each in shared.algorithms.all()}
    for algorithm in own.algorithms.filter(project=own.project_id):
        known = theirs.get((algorithm.name, algorithm.version))
        if known and known.key != algorithm.key and own.project_id:
            alias_algorithm(own.project_id, algorithm, known.key)


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
