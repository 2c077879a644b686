"""The images of a job: what became of each, and why it failed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState
from ami.main.api.parameters import PAGES
from ami.main.services import keyset
from ami.main.services.keyset import Order

IMAGE_READS = ("project", "state", *sorted(PAGES))
STATE = OpenApiParameter("state", OpenApiTypes.STR, enum=ImageState.values, description="only images in this state")


class JobImageSerializer(serializers.ModelSerializer[JobImage]):
    """One image of a job; ``source_image`` is the capture, ``error`` why it failed."""

    class Meta:
        model = JobImage
        fields = ("id", "source_image", "state", "attempts", "error", "settled_at")
        read_only_fields = fields


@dataclass(frozen=True)
class _List:
    """What the pages need to know: scans in the order of the index (job, state, position), and their order."""

    branches: Sequence[QuerySet[JobImage]]
    order: Order | None


class ImageActions:
    """The list of a job's images; not for workers' tokens."""

    @extend_schema(parameters=[STATE], responses=JobImageSerializer(many=True))
    @action(detail=True, methods=["get"])
    def images(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Return a page of the job's images in the order of publishing, with the error of each that failed."""
        job: Job = self.get_object()  # type: ignore[attr-defined]
        rows = JobImage.objects.filter(job=job).order_by("position", "pk")
        scans = [rows.filter(state=state) for state in _states(request)]
        rows = rows.filter(state__in=_states(request))
        # SQLite orders no parts of a union.
        mergeable = len(scans) == 1 or connections[rows.db].vendor == "postgresql"
        pages: Any = self.paginator  # type: ignore[attr-defined]
        listed = _List(scans if mergeable else [rows], keyset.order_of(rows))
        page = pages.paginate_queryset(rows, request, view=listed)
        answer: Response = pages.get_paginated_response(JobImageSerializer(page, many=True).data)
        return answer


def _states(request: Request) -> list[str]:
    state = request.query_params.get("state")
    if state is None:
        return list(ImageState.values)
    if state not in ImageState.values:
        raise ValidationError({"state": [f"'{state[:50]}': choose one of {', '.join(ImageState.values)}."]})
    return [state]
