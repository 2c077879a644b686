"""Captures and capture sets in the API."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponseRedirect
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from ami.main.api.budgets import CAPTURE_SET
from ami.main.api.fields import OwnProjectField
from ami.main.api.file_fields import CaptureUrlField
from ami.main.api.files import PICTURES, FileLinks, file_action, file_response, picture
from ami.main.api.lists import Filters, ProjectScoped, moment, parameters, whole_number, words
from ami.main.api.parameters import project_asked
from ami.main.api.published_jobs import PublishedJobSerializer, accepted_response
from ami.main.models import Project, SourceImage, SourceImageCollection
from ami.main.permissions import visible_projects
from ami.main.services import path_search
from ami.main.services.capture_sets import OptionError, validate_options
from ami.main.services.job_port import start_job
from ami.main.services.path_search import path_text
from ami.main.services.stored_files import CAPTURE


class CaptureSerializer(serializers.ModelSerializer[SourceImage]):
    """A capture."""

    url = CaptureUrlField()

    class Meta:
        model = SourceImage
        fields = (
            "id",
            "project",
            "deployment",
            "event",
            "path",
            "url",
            "timestamp",
            "width",
            "height",
            "size",
            "detections_count",
        )


FILTERS = {
    "project": ("project_id", whole_number),
    "deployment": ("deployment_id", whole_number),
    "event": ("event_id", whole_number),
    "collection": ("collections", whole_number),
    "taken_after": ("timestamp__gte", moment),
    "taken_before": ("timestamp__lt", moment),
    "path": ("path__icontains", path_text),
}


@extend_schema_view(list=extend_schema(parameters=parameters(FILTERS)))
class CaptureViewSet(FileLinks, ProjectScoped, viewsets.ReadOnlyModelViewSet[SourceImage]):
    """The captures of the caller's projects."""

    queryset = SourceImage.objects.select_related("project")
    serializer_class = CaptureSerializer
    large = True

    @property
    def filters(self) -> Filters:  # type: ignore[override]
        """The filters, with the lookup of paths that the database has an index for."""
        asked = "path" in self.request.query_params
        return {**FILTERS, "path": (path_search.lookup(), path_text)} if asked else FILTERS

    def get_queryset(self) -> QuerySet[SourceImage]:
        """Return the visible captures; those of a visible capture set in the order of their keys, as its index."""
        captures: QuerySet[SourceImage] = super().get_queryset()
        text = self.request.query_params.get("collection") if self.action == "list" else None
        if text is None:
            return captures
        mine = SourceImageCollection.objects.filter(pk=text, project__in=visible_projects(self.request).order_by())
        if not mine.exists():
            return captures.none()
        if project_asked(self.request) is None:
            # A set has captures of its own project only: the page's keys need no look at each capture's project.
            self.branches = [self.of_every_project.order_by("pk")]
        return captures.order_by("pk")

    @file_action(*sorted(set(PICTURES.values())))
    def image(self, request: Request, pk: str | None = None) -> HttpResponseBase:  # noqa: ARG002
        """Return the capture's picture, or redirect to its public URL; needs membership or a signed link."""
        capture: SourceImage = self.get_object()
        if url := capture.public_url():
            return HttpResponseRedirect(url)
        return file_response(request, picture(CAPTURE, capture.path, f"capture-{capture.pk}"))


class CollectionSerializer(serializers.ModelSerializer[SourceImageCollection]):
    """A capture set: a method, its options in ``kwargs``, and after populating its captures."""

    project = OwnProjectField()

    class Meta:
        model = SourceImageCollection
        fields = ("id", "name", "description", "project", "method", "kwargs", "created_at", "updated_at")
        extra_kwargs = {"description": {"max_length": 10_000}}

    def validate_project(self, project: Project) -> Project:
        if self.instance is not None and self.instance.project_id != project.pk:
            raise serializers.ValidationError("A capture set cannot move to another project.")
        return project

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        method = attrs.get("method") or getattr(self.instance, "method", SourceImageCollection.Method.FULL)
        options = attrs.get("kwargs", getattr(self.instance, "kwargs", {}))
        if not isinstance(options, dict):
            raise serializers.ValidationError({"kwargs": ["Must be an object."]})
        try:
            validate_options(method, options)
        except OptionError as error:
            raise serializers.ValidationError({"kwargs": {error.option: [error.message]}}) from error
        return attrs


COLLECTION_FILTERS = {"project": ("project_id", whole_number), "name": ("name__icontains", words)}


@extend_schema_view(list=extend_schema(parameters=parameters(COLLECTION_FILTERS)))
class CollectionViewSet(ProjectScoped, viewsets.ModelViewSet[SourceImageCollection]):
    """The capture sets of the caller's projects."""

    queryset = SourceImageCollection.objects.select_related("project")
    serializer_class = CollectionSerializer
    filters = COLLECTION_FILTERS
    budget = CAPTURE_SET

    @extend_schema(request=None, responses={202: PublishedJobSerializer})
    @action(detail=True, methods=["post"])
    def populate(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Fill the set with the captures that its method chooses."""
        collection: SourceImageCollection = self.get_object()
        job, published = start_job(
            "populate_captures_collection",
            collection.project,
            name=f"Populate {collection.name}",
            source_image_collection=collection,
        )
        return accepted_response(job, published)
