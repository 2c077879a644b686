"""Serializer fields limited to the user's projects."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from ami.main.models import Project
from ami.main.permissions import visible_projects


class OwnProjectField(serializers.PrimaryKeyRelatedField[Project]):
    """The key of a project that the user may see; any other gives the error of an unknown key."""

    def __init__(self, **kwargs: Any) -> None:
        if not kwargs.get("read_only"):
            kwargs.setdefault("queryset", Project.objects.all())
        super().__init__(**kwargs)

    def get_queryset(self) -> "QuerySet[Project]":
        return visible_projects(self.context["request"])


def belongs_to(project: Project | None, field: str, row: Any) -> None:
    """Refuse a related row of another project; a row without a project is shared.

    Raises:
        serializers.ValidationError: naming the field.
    """
    if row is None or project is None:
        return
    if row.project_id not in (None, project.pk):
        # The message for a key that does not exist, so that other projects' keys are not revealed.
        raise serializers.ValidationError({field: [f'Invalid pk "{row.pk}" - object does not exist.']})
