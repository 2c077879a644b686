"""Registers the pipelines that a processing service runs, as rows of the given projects only."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from ami.main.models import Project
from ami.ml.models import Algorithm, AlgorithmCategoryMap, Pipeline, ProcessingService, ProjectPipelineConfig
from ami.ml.models.algorithm import CLASSIFICATION_TASK_TYPES
from ami.ml.schemas import AlgorithmCategoryMapResponse, AlgorithmConfigResponse, PipelineConfigResponse
from ami.ml.services.adoption import adopt_shared

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

    Rows of other projects and of the shared catalogue are not changed. A project that used a shared pipeline of the
    same slug uses its own one from now on.

    Raises:
        RegistrationRefused: a classifier without a category map, or a name and version that another key has.
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
        self.algorithms: dict[str, AlgorithmConfigResponse] = {}
        self.slugs: set[str] = set()

    def pipeline(self, where: str, config: PipelineConfigResponse) -> None:
        if config.slug in self.slugs:
            self._not_applied(f"Pipeline '{config.slug}' is described more than once; the first counts.")
            return
        self.slugs.add(config.slug)
        own = Pipeline.objects.filter(project_id=self.project_id)
        _refuse_rival(own, where, "slug", config)
        algorithms = [
            self._algorithm(f"{where}.algorithms.{index}", algorithm)
            for index, algorithm in sorted(enumerate(config.algorithms), key=lambda pair: pair[1].key)
        ]
        pipeline, created = own.update_or_create(
            slug=config.slug,
            project_id=self.project_id,
            defaults={
                "name": config.name,
                "version": config.version,
                "description": config.description or "",
                "stages": [stage.model_dump(mode="json") for stage in config.stages],
            },
        )
        pipeline.algorithms.set(algorithms)
        if created:
            self.registered.pipelines_created.append(pipeline.slug)
            adopt_shared(pipeline)
        self.service.pipelines.add(pipeline)
        use, _ = ProjectPipelineConfig.objects.get_or_create(pipeline=pipeline, project_id=self.project_id)
        if not use.enabled:
            self._not_applied(f"Pipeline '{pipeline.slug}' is disabled in this project and stays so.")

    def _algorithm(self, where: str, config: AlgorithmConfigResponse) -> Algorithm:
        if config.task_type in CLASSIFICATION_TASK_TYPES and config.category_map is None:
            raise RegistrationRefused(f"{where}.category_map", f"Classifier '{config.key}' has no category map.")
        own = Algorithm.objects.filter(project_id=self.project_id)
        if (described := self.algorithms.setdefault(config.key, config)) is not config:
            if described != config:
                self._not_applied(f"Algorithm '{config.key}' is described in several ways; the first counts.")
            return own.get(key=config.key)
        _refuse_rival(own, where, "key", config)
        algorithm, created = own.update_or_create(
            key=config.key,
            project_id=self.project_id,
            defaults={
                "name": config.name,
                "version": config.version,
                "version_name": config.version_name or "",
                "description": config.description or "",
                "task_type": config.task_type or "",
                "uri": config.uri or "",
                "category_map": _category_map(config.category_map, self.project_id),
            },
        )
        if created:
            self.registered.algorithms_created.append(algorithm.key)
        return algorithm

    def _not_applied(self, reason: str) -> None:
        if reason not in self.registered.not_applied:
            self.registered.not_applied.append(reason)


def _refuse_rival(
    own: QuerySet[Any], where: str, identity: str, config: PipelineConfigResponse | AlgorithmConfigResponse
) -> None:
    """Refuse a name and version that another slug or key of the same project has."""
    same = own.filter(name=config.name, version=config.version)
    if rival := same.exclude(**{identity: getattr(config, identity)}).first():
        known = getattr(rival, identity)
        raise RegistrationRefused(
            f"{where}.{identity}", f"'{config.name}' version {config.version} is registered as '{known}'."
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
