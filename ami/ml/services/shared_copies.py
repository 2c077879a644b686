"""Copies a project's pipeline into the shared catalogue; only staff may do this."""

from django.db import IntegrityError, transaction
from django.db.models import Q

from ami.ml.models import Algorithm, AlgorithmCategoryMap, Pipeline


class CannotBeShared(Exception):
    """A slug, key, or name and version is already taken in the shared catalogue; the message says which."""


def add_to_catalogue(pipeline: Pipeline) -> Pipeline:
    """Copy a project's pipeline with its algorithms into the shared catalogue and return the copy.

    The project keeps its own row. No project uses the copy until staff enable it for one in the admin.

    Raises:
        CannotBeShared: the pipeline is already shared; or its slug, its name and version, or the key of a different
            algorithm is taken.
    """
    try:
        with transaction.atomic():
            return _copied(pipeline)
    except IntegrityError as error:  # A concurrent copy took the same name after the check.
        raise CannotBeShared(
            f"'{pipeline.slug}' or one of its algorithms was added to the shared catalogue at the same time."
        ) from error


def _copied(pipeline: Pipeline) -> Pipeline:
    taken = Pipeline.objects.filter(Q(slug=pipeline.slug) | Q(name=pipeline.name, version=pipeline.version))
    if pipeline.project_id is None or taken.filter(project=None).exists():
        raise CannotBeShared(f"The shared catalogue already has '{pipeline.slug}' ({pipeline}).")
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
