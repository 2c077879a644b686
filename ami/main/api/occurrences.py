"""Detections, occurrences and taxa in the API, read-only."""

from typing import Any

from django.db.models import Prefetch, QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, viewsets
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request

from ami.main.api.file_fields import CaptureUrlField, CropUrlField
from ami.main.api.files import FileLinks, file_action, file_response, picture
from ami.main.api.lists import PROJECT, ProjectScoped, UsedInProjects, parameters, share, whole_number, words
from ami.main.models import Classification, Detection, Identification, Occurrence, SourceImage, Taxon
from ami.main.services.keyset import Order
from ami.main.services.stored_files import CROP

#: Replaced classifications that a single detection shows.
MOST_HISTORY = 100


class TaxonSerializer(serializers.ModelSerializer[Taxon]):
    """A taxon and the path to its root."""

    class Meta:
        model = Taxon
        fields = ("id", "name", "display_name", "rank", "parent", "parents_json", "active")


class NestedTaxonSerializer(serializers.ModelSerializer[Taxon]):
    """A taxon inside another object."""

    class Meta:
        model = Taxon
        fields = ("id", "name", "rank")


class NestedCaptureSerializer(serializers.ModelSerializer[SourceImage]):
    """A capture inside another object."""

    url = CaptureUrlField()

    class Meta:
        model = SourceImage
        fields = ("id", "url", "timestamp", "width", "height")


class ClassificationSerializer(serializers.ModelSerializer[Classification]):
    """A classification, without its scores for every class."""

    algorithm = serializers.CharField(source="algorithm.key", read_only=True)
    taxon = NestedTaxonSerializer(read_only=True)

    class Meta:
        model = Classification
        fields = ("id", "algorithm", "taxon", "score", "terminal")


class ReplacedClassificationSerializer(ClassificationSerializer):
    """A classification that a newer job has replaced; `job` is its job, null before jobs were recorded."""

    job = serializers.IntegerField(source="job_id", read_only=True)

    class Meta(ClassificationSerializer.Meta):
        fields = (*ClassificationSerializer.Meta.fields, "job", "created_at")  # type: ignore[assignment]


class DetectionSerializer(serializers.ModelSerializer[Detection]):
    """A detection with its crop and classifications."""

    algorithm = serializers.CharField(source="detection_algorithm.key", read_only=True)
    source_image = NestedCaptureSerializer(read_only=True)
    url = CropUrlField()
    classifications = ClassificationSerializer(many=True, read_only=True)

    class Meta:
        model = Detection
        fields = ("id", "source_image", "algorithm", "bbox", "url", "timestamp", "classifications")


class DetectionHistorySerializer(DetectionSerializer):
    """A single detection: also with the classifications that newer jobs have replaced, the newest first."""

    history = serializers.SerializerMethodField()

    class Meta(DetectionSerializer.Meta):
        fields = (*DetectionSerializer.Meta.fields, "history")  # type: ignore[assignment]

    @extend_schema_field(ReplacedClassificationSerializer(many=True))
    def get_history(self, detection: Detection) -> Any:
        """Return at most `MOST_HISTORY` rows."""
        rows = Classification.objects.filter(detection=detection, is_current=False).select_related("algorithm", "taxon")
        rows = rows.defer(*Classification.LONG_LISTS).order_by("-pk")[:MOST_HISTORY]
        return ReplacedClassificationSerializer(rows, many=True).data


class IdentificationSerializer(serializers.ModelSerializer[Identification]):
    """An identification, with the user's name and never their e-mail address."""

    user = serializers.CharField(source="user.name", read_only=True, default=None)
    taxon = NestedTaxonSerializer(read_only=True)

    class Meta:
        model = Identification
        fields = ("id", "user", "taxon", "withdrawn", "comment", "created_at")


def classifications() -> "QuerySet[Classification]":
    """Return the current classifications to nest, without the long lists of scores."""
    rows = Classification.objects.current().select_related("algorithm", "taxon").defer(*Classification.LONG_LISTS)
    return rows.order_by("-terminal", "-score", "pk")


class OccurrenceSerializer(serializers.ModelSerializer[Occurrence]):
    """An occurrence with its detection, predictions and identifications."""

    determination = NestedTaxonSerializer(read_only=True)
    detection = DetectionSerializer(read_only=True)
    identifications = IdentificationSerializer(many=True, read_only=True)

    class Meta:
        model = Occurrence
        fields = (
            "id",
            "project",
            "deployment",
            "event",
            "determination",
            "determination_score",
            "detection",
            "identifications",
            "created_at",
            "updated_at",
        )

    @classmethod
    def prepare(cls, occurrences: "QuerySet[Occurrence]") -> "QuerySet[Occurrence]":
        """Prefetch everything that the serializer reads, in a fixed number of queries."""
        return occurrences.select_related(
            "determination", "detection__source_image", "detection__detection_algorithm"
        ).prefetch_related(
            Prefetch("detection__classifications", classifications()),
            Prefetch("identifications", Identification.objects.select_related("user", "taxon")),
        )


OCCURRENCE_FILTERS = {
    "project": ("project_id", whole_number),
    "deployment": ("deployment_id", whole_number),
    "event": ("event_id", whole_number),
    "taxon": ("determination_id", whole_number),
    "score_min": ("determination_score__gte", share),
    "source_image": ("detection__source_image_id", whole_number),
}


@extend_schema_view(list=extend_schema(parameters=parameters(OCCURRENCE_FILTERS)))
class OccurrenceViewSet(ProjectScoped, viewsets.ReadOnlyModelViewSet[Occurrence]):
    """The occurrences of the caller's projects."""

    queryset = OccurrenceSerializer.prepare(Occurrence.objects.select_related("project"))
    serializer_class = OccurrenceSerializer
    filters = OCCURRENCE_FILTERS
    large = True


DETECTION_FILTERS = {
    "project": ("project_id", whole_number),
    "deployment": ("source_image__deployment_id", whole_number),
    "event": ("source_image__event_id", whole_number),
    "source_image": ("source_image_id", whole_number),
}


@extend_schema_view(list=extend_schema(parameters=parameters(DETECTION_FILTERS)))
class DetectionViewSet(FileLinks, ProjectScoped, viewsets.ReadOnlyModelViewSet[Detection]):
    """The detections of the caller's projects, without null markers."""

    queryset = (
        Detection.objects.real()
        .select_related("source_image__project", "detection_algorithm")
        .prefetch_related(Prefetch("classifications", classifications()))
    )
    serializer_class = DetectionSerializer
    filters = DETECTION_FILTERS
    large = True

    def get_serializer_class(self) -> type[DetectionSerializer]:
        """Return the serializer; a single detection comes with its history."""
        return DetectionHistorySerializer if self.action == "retrieve" else DetectionSerializer

    def get_queryset(self) -> QuerySet[Detection]:
        """Return the visible detections; the keys of a station's or a session's come from their occurrences.

        Each detection has one occurrence, which knows its station and session, and an index that has all of it.
        """
        detections: QuerySet[Detection] = super().get_queryset()
        asked = self.request.query_params
        places = {f"{name}_id": asked[name] for name in ("deployment", "event") if name in asked}
        if self.action == "list" and places and "source_image" not in asked:
            found = Occurrence.objects.filter(**places)
            self.branches = [found if self.project_ids is None else found.filter(project__in=self.project_ids)]
            self.order = Order(column=None, key="detection_id")
        return detections

    @file_action("image/jpeg")
    def crop(self, request: Request, pk: str | None = None) -> HttpResponseBase:  # noqa: ARG002
        """Return the detection's crop; needs membership or a signed link."""
        detection: Detection = self.get_object()
        return file_response(request, picture(CROP, detection.path, f"detection-{detection.pk}"))


TAXON_FILTERS = {"name": ("name__icontains", words), "rank": ("rank", words), "parent": ("parent_id", whole_number)}


@extend_schema_view(list=extend_schema(parameters=[*parameters(TAXON_FILTERS), PROJECT]))
class TaxonViewSet(UsedInProjects, ProjectScoped, viewsets.ReadOnlyModelViewSet[Taxon]):
    """The shared checklist, and the taxa used in the caller's projects."""

    queryset = Taxon.objects.all()
    serializer_class = TaxonSerializer
    permission_classes = (IsAuthenticated,)
    project_lookup = None
    filters = TAXON_FILTERS
    reads = {"list": ("project",)}
