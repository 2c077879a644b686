"""The configurations of post-processing tasks, with the names and defaults of the origin."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ami.main.models import Occurrence, SourceImageCollection, TaxaList
from ami.ml.models import Algorithm


class ConfigRefused(ValueError):
    """``params`` of a post-processing job are wrong; ``field`` is a dotted path below them."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message


class Scope(BaseModel):
    """The detections of a capture set, or of one occurrence."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    source_image_collection_id: int | None = Field(default=None, gt=0, lt=2**63)
    occurrence_id: int | None = Field(default=None, gt=0, lt=2**63)

    @model_validator(mode="after")
    def _one_scope(self) -> Self:
        if (self.source_image_collection_id is None) == (self.occurrence_id is None):
            raise ValueError("Give either source_image_collection_id or occurrence_id.")
        return self


class SmallSizeFilter(Scope):
    """``size_threshold`` is a share of the picture's area."""

    size_threshold: float = Field(default=0.0008, gt=0, lt=1)


class ClassMasking(Scope):
    """Classes outside the list are masked; ``reweight``: the scores of the others sum to 1 again."""

    taxa_list_id: int = Field(gt=0, lt=2**63)
    algorithm_id: int = Field(gt=0, lt=2**63)
    reweight: bool = True


TASKS: dict[str, type[Scope]] = {"small_size_filter": SmallSizeFilter, "class_masking": ClassMasking}


def config_of(params: Any, project_id: int) -> Scope:
    """Return the configuration in a job's ``params``: ``{"task": ..., "config": {...}}``.

    Raises:
        ConfigRefused: the task is unknown, a value is wrong, or a row is not one of the project's.
    """
    task = params.get("task") if isinstance(params, dict) else None
    if task not in TASKS:
        raise ConfigRefused("task", f"Choose one of {', '.join(TASKS)}.")
    try:
        config = TASKS[task].model_validate(params.get("config") or {})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigRefused(".".join(map(str, ("config", *first["loc"]))), first["msg"]) from None
    _refuse_strange_rows(config, project_id)
    return config


def _refuse_strange_rows(config: Scope, project_id: int) -> None:
    rows: dict[str, Any] = {
        "source_image_collection_id": SourceImageCollection.objects.filter(project=project_id),
        "occurrence_id": Occurrence.objects.filter(project=project_id),
        "taxa_list_id": TaxaList.objects.filter(projects=project_id),
        "algorithm_id": Algorithm.objects.used_in([project_id]).filter(category_map__isnull=False),
    }
    for name, found in rows.items():
        pk = getattr(config, name, None)
        if pk is not None and not found.filter(pk=pk).exists():
            raise ConfigRefused(f"config.{name}", f'Invalid pk "{pk}" - object does not exist.')
