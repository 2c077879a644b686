"""Serializer fields that know projects."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from ami.main.models import Project
from ami.main.permissions import visible_projects


class OwnProjectField(serializers.PrimaryKeyRelatedField[Project]):
    """The key of a project that the caller may see; any other answers that it does not exist."""

    def __init__(self, **kwargs: Any) -> None:
        if not kwargs.get("read_only"):
            kwargs.setdefault("queryset", Project.objects.all())
        super().__init__(**kwargs)

    def get_queryset(self) -> "QuerySet[Project]":
        """Return the caller's projects."""
        return visible_projects(self.context["request"])


def belongs_to(project: Project | None, field: str, row: Any) -> None:
    """Refuse a related row of another project; a row of no project belongs to all.

    Raises:
        serializers.ValidationError: naming the field.
    """
    if row is None or project is None:
        return
    if row.project_id not in (None, project.pk):
        # The same words as for a key that does not exist: other projects' keys are nobody's business.
        raise serializers.ValidationError({field: [f'Invalid pk "{row.pk}" - object does not exist.']})
