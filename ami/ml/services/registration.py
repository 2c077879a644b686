"""Registers the pipelines that a processing service runs, as rows of the given projects only."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone

from ami.main.models import Project
from ami.ml.models import (
    Algorithm,
    AlgorithmAlias,
    AlgorithmCategoryMap,
    Pipeline,
    PipelineAlias,
    ProcessingService,
    ProjectPipelineConfig,
)
from ami.ml.models.algorithm import CLASSIFICATION_TASK_TYPES, DETECTION_TASK_TYPES
from ami.ml.schemas import AlgorithmCategoryMapResponse, AlgorithmConfigResponse, PipelineConfigResponse
from ami.ml.services.adoption import adopt_shared
from ami.ml.services.aliases import alias_algorithm, alias_pipeline, twin_of

logger = logging.getLogger(__name__)

MAX_ERROR_CHARACTERS = 10_000


class RegistrationRefused(Exception):
    """A pipeline cannot be registered; ``field`` names the wrong part of the request."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass
class Registered:
    """Slugs of new pipelines, keys of new algorithms, and reasons for parts that were not applied."""

    pipelines_created: list[str] = field(default_factory=list)
    algorithms_created: list[str] = field(default_factory=list)
    not_applied: list[str] = field(default_factory=list)


@transaction.atomic
def register_pull_service(name: str, project_id: int, configs: Sequence[PipelineConfigResponse]) -> Registered:
    """Get or create the project's pull service of this name, mark it seen, and register its pipelines.

    Raises:
        RegistrationRefused: the name belongs to a service with an address, or a pipeline is refused; nothing is saved.
    """
    _lock([project_id])
    service, _ = ProcessingService.objects.get_or_create(
        name=name, project_id=project_id, defaults={"endpoint_url": None}
    )
    if not service.pulls:
        raise RegistrationRefused(
            "processing_service_name", f"'{name}' is a service that Antenna calls at its address; use another name."
        )
    service.projects.add(project_id)
    ProcessingService.objects.filter(pk=service.pk).update(last_seen=timezone.now(), last_seen_live=True)
    return register(service, [project_id], configs)


@transaction.atomic
def register(
    service: ProcessingService, project_ids: Sequence[int], configs: Sequence[PipelineConfigResponse]
) -> Registered:
    """Create or update each project's own pipelines and link the service to them. Repeating it changes nothing.

    A name and version that the project has under another slug or key keep their row, which is found by both names.
    Rows of other projects and of the shared catalogue are not changed. A project that used a shared pipeline of the
    same slug uses its own one from now on.

    Raises:
        RegistrationRefused: a classifier without a category map, or one of a known name and version with other classes.
    """
    registered = Registered()
    _lock(project_ids)
    for project_id in sorted(project_ids):
        registration = _Registration(service, project_id, registered)
        for index, config in enumerate(configs):
            registration.pipeline(f"pipelines.{index}", config)
    if registered.not_applied:
        logger.warning("Registration by %s applied in part: %s", service, " ".join(registered.not_applied))
    return registered


def _lock(project_ids: Sequence[int]) -> None:
    """Serialize registrations of one project; ingest, which only references the project, is not blocked."""
    rows = Project.objects.select_for_update(no_key=True).filter(pk__in=project_ids).order_by("pk")
    list(rows.values_list("pk", flat=True))


class _Registration:
    """One service's pipelines, registered in one project."""

    def __init__(self, service: ProcessingService, project_id: int, registered: Registered) -> None:
        self.service = service
        self.project_id = project_id
        self.registered = registered
        self.algorithms: dict[str, tuple[AlgorithmConfigResponse, Algorithm]] = {}
        self.slugs: set[str] = set()

    def pipeline(self, where: str, config: PipelineConfigResponse) -> None:
        if config.slug in self.slugs:
            self._not_applied(f"Pipeline '{config.slug}' is described more than once; the first counts.")
            return
        self.slugs.add(config.slug)
        algorithms = [
            self._algorithm(f"{where}.algorithms.{index}", algorithm)
            for index, algorithm in sorted(enumerate(config.algorithms), key=lambda pair: pair[1].key)
        ]
        mine, twin = twin_of(Pipeline.objects.filter(project_id=self.project_id), "slug", config)
        if twin and not mine:
            pipeline = twin
            alias_pipeline(self.project_id, twin, config.slug, [self.service])
            self._add_algorithms(twin, config.slug, algorithms)
        else:
            pipeline = self._own_pipeline(config, algorithms, twin)
        self.service.pipelines.add(pipeline)
        use, _ = ProjectPipelineConfig.objects.get_or_create(pipeline=pipeline, project_id=self.project_id)
        if not use.enabled:
            self._not_applied(f"Pipeline '{pipeline.slug}' is disabled in this project and stays so.")

    def _own_pipeline(
        self, config: PipelineConfigResponse, algorithms: list[Algorithm], twin: Pipeline | None
    ) -> Pipeline:
        """Create or update the pipeline of this slug; it keeps its name if ``twin`` has the new one."""
        values = {
            "description": config.description or "",
            "stages": [stage.model_dump(mode="json") for stage in config.stages],
        }
        if twin:
            self._keeps_its_name(f"Pipeline '{config.slug}'", twin.slug, config)
        else:
            values |= {"name": config.name, "version": config.version}
        pipeline, created = Pipeline.objects.update_or_create(
            slug=config.slug, project_id=self.project_id, defaults=values
        )
        pipeline.algorithms.set(algorithms)
        PipelineAlias.services.through.objects.filter(
            pipelinealias__pipeline=pipeline, processingservice=self.service
        ).delete()
        if created:
            PipelineAlias.objects.filter(project=self.project_id, slug=config.slug).delete()
            self.registered.pipelines_created.append(pipeline.slug)
            adopt_shared(pipeline)
        return pipeline

    def _add_algorithms(self, pipeline: Pipeline, slug: str, algorithms: list[Algorithm]) -> None:
        """Add what a service runs under another slug; the pipeline keeps its one detector."""
        known = list(pipeline.algorithms.all())
        new = [each for each in algorithms if each not in known]
        if any(each.detects for each in known) and any(each.detects for each in new):
            self._not_applied(f"Pipeline '{slug}' is known as '{pipeline.slug}', which has another detector.")
            new = [each for each in new if not each.detects]
        pipeline.algorithms.add(*new)

    def _algorithm(self, where: str, config: AlgorithmConfigResponse) -> Algorithm:
        if config.task_type in CLASSIFICATION_TASK_TYPES and config.category_map is None:
            raise RegistrationRefused(f"{where}.category_map", f"Classifier '{config.key}' has no category map.")
        if described := self.algorithms.get(config.key):
            if described[0] != config:
                self._not_applied(f"Algorithm '{config.key}' is described in several ways; the first counts.")
            return described[1]
        mine, twin = twin_of(Algorithm.objects.filter(project_id=self.project_id), "key", config)
        if twin and not mine:
            algorithm = twin
            _refuse_another(where, twin, config)
            alias_algorithm(self.project_id, twin, config.key)
        else:
            algorithm = self._own_algorithm(config, twin)
        self.algorithms[config.key] = config, algorithm
        return algorithm

    def _own_algorithm(self, config: AlgorithmConfigResponse, twin: Algorithm | None) -> Algorithm:
        """Create or update the algorithm of this key; it keeps its name if ``twin`` has the new one."""
        values: dict[str, Any] = {
            "version_name": config.version_name or "",
            "description": config.description or "",
            "task_type": config.task_type or "",
            "uri": config.uri or "",
            "category_map": _category_map(config.category_map, self.project_id),
        }
        if twin:
            self._keeps_its_name(f"Algorithm '{config.key}'", twin.key, config)
        else:
            values |= {"name": config.name, "version": config.version}
        algorithm, created = Algorithm.objects.update_or_create(
            key=config.key, project_id=self.project_id, defaults=values
        )
        if created:
            AlgorithmAlias.objects.filter(project=self.project_id, key=config.key).delete()
            self.registered.algorithms_created.append(algorithm.key)
        return algorithm

    def _keeps_its_name(self, what: str, other: str, config: PipelineConfigResponse | AlgorithmConfigResponse) -> None:
        self._not_applied(f"{what} keeps its name: '{other}' is '{config.name}' version {config.version}.")

    def _not_applied(self, reason: str) -> None:
        if reason not in self.registered.not_applied:
            self.registered.not_applied.append(reason)


def _refuse_another(where: str, known: Algorithm, config: AlgorithmConfigResponse) -> None:
    """Refuse another kind, or other classes, under a known name and version.

    With other classes, stored scores would be read by the wrong labels.
    """
    if config.task_type and (config.task_type in DETECTION_TASK_TYPES) != known.detects:
        raise RegistrationRefused(
            f"{where}.task_type",
            f"'{config.name}' version {config.version} is registered as '{known.key}', for {known.task_type}; "
            "give yours another name or version.",
        )
    # Some services describe a detector without classes by an empty map, others by none.
    labels = list(known.category_map.labels) if known.category_map else []
    if config.category_map is not None and list(config.category_map.labels) != labels:
        raise RegistrationRefused(
            f"{where}.category_map",
            f"'{config.name}' version {config.version} is registered as '{known.key}' with other classes; "
            "give yours another version.",
        )


def _category_map(config: AlgorithmCategoryMapResponse | None, project_id: int) -> AlgorithmCategoryMap | None:
    """Return the project's equal map, or create it; a map is never changed, because stored scores refer to it."""
    if config is None:
        return None
    wanted: dict[str, Any] = {
        "labels": list(config.labels),
        "data": config.data,
        "version": config.version or "",
        "description": config.description or "",
        "uri": config.uri or "",
    }
    labels_hash = AlgorithmCategoryMap.hash_labels(config.labels)
    for known in AlgorithmCategoryMap.objects.filter(project_id=project_id, labels_hash=labels_hash).order_by("pk"):
        if all(getattr(known, name) == value for name, value in wanted.items()):
            return known
    return AlgorithmCategoryMap.objects.create(project_id=project_id, **wanted)
