"""Separate projects, each with a unique marker in all of its text fields."""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.db import models

from ami.jobs.models import Job, StoredResult
from ami.main.models import Identification, User
from ami.ml.models import Algorithm
from tests.support.product.tenants import Tenant, tenant

APPS = ("main", "ml", "jobs", "exports")
#: Fields without a marker: their text has a meaning, or is echoed from the request.
MEANT = {
    "slug",
    "key",
    "path",
    "email",
    "password",
    "time_zone",
    "endpoint_url",
    "status",
    "state",
    "format",
    "method",
    "version",
    "task_id",
    "holder",
    "reply_subject",
    "file_path",
    "file_url",
    "public_base_url",
    "task_type",
    "rank",
    "dispatch_mode",
    "job_type_key",
    "data_source_regex",
    "data_source_time_format",
    "data_source_subdir",
    "labels_hash",
    "checksum",
    "checksum_algorithm",
    "kind",
    "target",
    "bucket",
    "region",
    "prefix",
}
SECRET = {"secret_key", "access_key"}
#: Algorithms that every scene uses.
SHARED = ("box", "name")
FREE_JSON = {"default_config", "config", "context", "result"}
#: Fields that the system itself updates.
MOVING = {
    "updated_at",
    "last_seen",
    "last_seen_live",
    "last_seen_latency",
    "last_login",
    "calculated_fields_updated_at",
}
PASSWORD = "correct horse battery staple 7"


@dataclass
class Scene:
    """One owner's project; ``marker`` is in each of its free texts, ``rows`` are the keys of its rows by model."""

    name: str
    side: Tenant
    marker: str
    rows: dict[type[models.Model], list[Any]]
    secrets: list[str] = field(default_factory=list)

    @property
    def owner(self) -> User:
        return self.side.world.user

    def key(self, kind: str) -> Any:
        """Return the key of this scene's row of a kind of the API, or None."""
        row = self.side.rows.get(kind)
        return row.pk if row is not None else None

    def key_of(self, model: type[models.Model]) -> Any:
        """Return the key of one of its rows of a model, or None."""
        return next(iter(self.rows.get(model, [])), None)

    def fingerprint(self) -> dict[str, str]:
        """Return a hash over this scene's rows of each model, without fields that the system updates."""
        return {model._meta.label: _hash(model, keys) for model, keys in self.rows.items()}


def new_scene(name: str, **user: Any) -> Scene:
    """Create a project, its owner and a row of each kind, with the marker in all texts."""
    tables = [model for model in apps.get_models() if model._meta.app_label in APPS]
    before = {model: set(model._base_manager.values_list("pk", flat=True)) for model in tables}
    made = tenant(name)
    _more_rows(made)
    made.world.user.set_password(PASSWORD)
    for attribute, value in user.items():
        setattr(made.world.user, attribute, value)
    made.world.user.save()
    rows = {model: sorted(set(model._base_manager.values_list("pk", flat=True)) - before[model]) for model in tables}
    scene = Scene(name, made, f"Zq{secrets.token_hex(6)}", {model: keys for model, keys in rows.items() if keys})
    shared = {(Algorithm, key) for key in Algorithm.objects.filter(key__in=SHARED).values_list("pk", flat=True)}
    for model, keys in scene.rows.items():
        for key in keys:
            if (model, key) not in shared:
                _mark(scene, model, key)
    scene.secrets.append(User.objects.get(pk=made.world.user.pk).password.rsplit("$", 1)[-1])
    return scene


def _more_rows(made: Tenant) -> None:
    """Add further rows: a job of an unknown type, a log line, a stored result, an identification."""
    project = made.world.project
    Job.objects.create(name="unknown", project=project, job_type_key="unknown")
    made.job.log("A line.")
    StoredResult.objects.create(job=made.job, key=f"attack/{secrets.token_hex(8)}", name="x", size_bytes=1)
    occurrence = made.rows["occurrences"]
    found = occurrence.detection.classifications.first()
    if found is not None:
        Identification.objects.create(occurrence=occurrence, user=made.world.user, taxon=found.taxon)
        found.taxon.projects.add(project)
        if hasattr(found.taxon, "shared"):
            type(found.taxon).objects.filter(pk=found.taxon.pk).update(shared=False)


def _mark(scene: Scene, model: type[models.Model], key: Any) -> None:
    values: dict[str, Any] = {}
    for column in model._meta.concrete_fields:
        if column.name in SECRET:
            values[column.name] = f"SECRET{secrets.token_hex(8)}"
            scene.secrets.append(values[column.name])
        elif isinstance(column, models.JSONField) and column.name in FREE_JSON:
            values[column.name] = {"note": scene.marker}
        elif _free(column):
            values[column.name] = f"{scene.marker} {column.name} {key}"[: column.max_length]
    if values:
        model._base_manager.filter(pk=key).update(**values)


def _free(column: Any) -> bool:
    text = isinstance(column, (models.CharField, models.TextField)) and not isinstance(column, models.URLField)
    return text and not column.choices and column.name not in MEANT and (column.max_length or 99) >= 40


def _hash(model: type[models.Model], keys: list[Any]) -> str:
    names = [column.attname for column in model._meta.concrete_fields if column.name not in MOVING]
    rows = list(model._base_manager.filter(pk__in=keys).order_by("pk").values_list(*names))
    return hashlib.sha256(repr(rows).encode()).hexdigest()
