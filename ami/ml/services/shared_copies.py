"""Copies of a project's pipeline in the shared catalogue, which only staff make."""

from django.db import IntegrityError, transaction
from django.db.models import Q

from ami.ml.models import Algorithm, AlgorithmCategoryMap, Pipeline


class CannotBeShared(Exception):
    """The shared catalogue has something else under one of the pipeline's names; the message says what."""


def add_to_catalogue(pipeline: Pipeline) -> Pipeline:
    """Copy a project's pipeline with its algorithms into the shared catalogue and return the copy.

    The project keeps its own row. The copy is used by no project until staff enable it for one, in the admin.

    Raises:
        CannotBeShared: it is shared already, or the catalogue has its slug, its name and version, or another
            algorithm under one of its keys.
    """
    try:
        with transaction.atomic():
            return _copied(pipeline)
    except IntegrityError as error:  # Somebody shared it, or something of its name, between the look and the copy.
        raise CannotBeShared(
            f"The shared catalogue got '{pipeline.slug}' or one of its algorithms meanwhile."
        ) from error


def _copied(pipeline: Pipeline) -> Pipeline:
    taken = Pipeline.objects.filter(Q(slug=pipeline.slug) | Q(name=pipeline.name, version=pipeline.version))
    if pipeline.project_id is None or taken.filter(project=None).exists():
        raise CannotBeShared(f"The shared catalogue has '{pipeline.slug}' ({pipeline}) already.")
    algorithms = [_shared_algorithm(each) for each in pipeline.algorithms.select_related("category_map")]
    copied = ("name", "slug", "version", "description", "stages", "default_config")
    shared = Pipeline.objects.create(**{name: getattr(pipeline, name) for name in copied})
    shared.algorithms.set(algorithms)
    return shared


def _shared_algorithm(own: Algorithm) -> Algorithm:
    if own.project_id is None:
        return own
    taken = Algorithm.objects.filter(Q(key=own.key) | Q(name=own.name, version=own.version), project=None)
    if known := taken.select_related("category_map").first():
        if (known.key, known.version, _labels(known)) == (own.key, own.version, _labels(own)):
            return known
        raise CannotBeShared(f"The shared catalogue has another algorithm '{known.key}' ({known}).")
    copied = ("name", "key", "version", "version_name", "description", "task_type", "uri")
    values = {name: getattr(own, name) for name in copied}
    return Algorithm.objects.create(**values, category_map=_shared_map(own.category_map))


def _shared_map(own: AlgorithmCategoryMap | None) -> AlgorithmCategoryMap | None:
    if own is None or own.project_id is None:
        return own
    copied = ("data", "labels", "version", "description", "uri")
    return AlgorithmCategoryMap.objects.create(**{name: getattr(own, name) for name in copied})


def _labels(algorithm: Algorithm) -> str:
    return algorithm.category_map.labels_hash if algorithm.category_map else ""
