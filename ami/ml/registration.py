"""Registering what a processing service says that it runs: pipelines, algorithms, category maps."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from django.db import transaction
from django.utils import timezone

from ami.ml.models import Algorithm, AlgorithmCategoryMap, Pipeline, ProcessingService, ProjectPipelineConfig
from ami.ml.models.algorithm import CLASSIFICATION_TASK_TYPES
from ami.ml.schemas import AlgorithmCategoryMapResponse, AlgorithmConfigResponse, PipelineConfigResponse


class RegistrationRefused(Exception):
    """A pipeline cannot be registered; ``field`` says which part of the request is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass
class Registered:
    """What a registration made: slugs of new pipelines, keys of new algorithms; ``mine`` is what it may change."""

    mine: frozenset[int] = frozenset()
    pipelines_created: list[str] = field(default_factory=list)
    algorithms_created: list[str] = field(default_factory=list)


@transaction.atomic
def register_pull_service(
    name: str, project_id: int, configs: Sequence[PipelineConfigResponse], own_projects: Collection[int]
) -> Registered:
    """Get or create a service that pulls its work, by name, mark it seen, and register its pipelines.

    ``own_projects`` are the projects that the caller may change.

    Raises:
        RegistrationRefused: the name is an endpoint service's or of projects that are none of the caller's, or a
            pipeline is refused; nothing is kept then.
    """
    service, _ = ProcessingService.objects.get_or_create(name=name, defaults={"endpoint_url": None})
    linked = set(service.projects.values_list("pk", flat=True))
    if linked and linked.isdisjoint({project_id, *own_projects}):
        raise RegistrationRefused("processing_service_name", f"'{name}' is taken; use another name.")
    if not service.pulls:
        raise RegistrationRefused(
            "processing_service_name", f"'{name}' is a service that Antenna calls at its address; use another name."
        )
    ProcessingService.objects.filter(pk=service.pk).update(last_seen=timezone.now(), last_seen_live=True)
    return register(service, [project_id], configs, own_projects)


@transaction.atomic
def register(
    service: ProcessingService,
    project_ids: Sequence[int],
    configs: Sequence[PipelineConfigResponse],
    own_projects: Collection[int] = (),
) -> Registered:
    """Create or update the pipelines and let the service run them in the projects. Repeating it changes nothing.

    A pipeline or an algorithm that projects beside ``project_ids`` and ``own_projects`` use, too, is linked as it is:
    nobody changes what others rely on by registering its name.

    Raises:
        RegistrationRefused: a classifier without a category map, or a name and version that another key has.
    """
    registered = Registered(mine=frozenset({*project_ids, *own_projects}))
    service.projects.add(*project_ids)
    # In one order for all, so that two services that register the same pipelines wait instead of dead-locking.
    for index, config in sorted(enumerate(configs), key=lambda pair: pair[1].slug):
        pipeline = _pipeline(f"pipelines.{index}", config, registered)
        service.pipelines.add(pipeline)
        for project_id in project_ids:
            ProjectPipelineConfig.objects.get_or_create(pipeline=pipeline, project_id=project_id)
    return registered


def _pipeline(where: str, config: PipelineConfigResponse, registered: Registered) -> Pipeline:
    shared = Pipeline.objects.filter(slug=config.slug).first()
    if shared and shared.project_configs.exclude(project_id__in=registered.mine).exists():
        return shared
    rival = Pipeline.objects.filter(name=config.name, version=config.version).exclude(slug=config.slug).first()
    if rival:
        raise RegistrationRefused(
            f"{where}.slug", f"'{config.name}' version {config.version} is registered as '{rival.slug}'."
        )
    algorithms = [
        _algorithm(f"{where}.algorithms.{index}", algorithm, registered)
        for index, algorithm in sorted(enumerate(config.algorithms), key=lambda pair: pair[1].key)
    ]
    pipeline, created = Pipeline.objects.update_or_create(
        slug=config.slug,
        defaults={
            "name": config.name,
            "version": config.version,
            "description": config.description or "",
            "stages": [stage.model_dump(mode="json") for stage in config.stages],
        },
    )
    pipeline.algorithms.set(algorithms)
    if created:
        registered.pipelines_created.append(pipeline.slug)
    return pipeline


def _algorithm(where: str, config: AlgorithmConfigResponse, registered: Registered) -> Algorithm:
    if config.task_type in CLASSIFICATION_TASK_TYPES and config.category_map is None:
        raise RegistrationRefused(f"{where}.category_map", f"Classifier '{config.key}' has no category map.")
    shared = Algorithm.objects.filter(key=config.key).first()
    users = ProjectPipelineConfig.objects.filter(pipeline__algorithms=shared)
    if shared and users.exclude(project_id__in=registered.mine).exists():
        return shared
    rival = Algorithm.objects.filter(name=config.name, version=config.version).exclude(key=config.key).first()
    if rival:
        raise RegistrationRefused(
            f"{where}.key", f"'{config.name}' version {config.version} is registered as '{rival.key}'."
        )
    algorithm, created = Algorithm.objects.update_or_create(
        key=config.key,
        defaults={
            "name": config.name,
            "version": config.version,
            "version_name": config.version_name or "",
            "description": config.description or "",
            "task_type": config.task_type or "",
            "uri": config.uri or "",
            "category_map": _category_map(config.category_map),
        },
    )
    if created:
        registered.algorithms_created.append(algorithm.key)
    return algorithm


def _category_map(config: AlgorithmCategoryMapResponse | None) -> AlgorithmCategoryMap | None:
    """Return the map with these labels and this version, new or known."""
    if config is None:
        return None
    labels_hash = AlgorithmCategoryMap.hash_labels(config.labels)
    known = AlgorithmCategoryMap.objects.filter(labels_hash=labels_hash, version=config.version or "").first()
    return known or AlgorithmCategoryMap.objects.create(
        data=config.data,
        labels=list(config.labels),
        version=config.version or "",
        description=config.description or "",
        uri=config.uri or "",
    )
