"""The admin of detections, classifications, occurrences and identifications."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from ami.main.admin.large_lists import LargeListAdmin
from ami.main.admin.pictures import CropPictures, crop_picture
from ami.main.models import Classification, Detection, Identification, Occurrence
from ami.main.services import bulk_deletion


@admin.register(Detection)
class DetectionAdmin(CropPictures, LargeListAdmin):
    """Detections; the box of a null marker is shown as `null`."""

    list_display = ("id", "source_image", "detection_algorithm", "bbox_key", "crop", "created_at")
    list_filter = ("detection_algorithm",)
    list_select_related = ("source_image", "detection_algorithm")
    raw_id_fields = ("source_image", "detection_algorithm")
    # Only the crop task sets the path: editing it would show another file and orphan this one.
    readonly_fields = ("bbox_key", "path", "crop")
    wide = ("similarity_vector",)

    class Media:
        css = {"all": ("main/pictures.css",)}

    @admin.display(description="crop")
    def crop(self, detection: Detection) -> str:
        return crop_picture(detection)


@admin.register(Classification)
class ClassificationAdmin(LargeListAdmin):
    """Classifications, the newest first; those that a newer job has replaced are marked, and found by a filter."""

    ordering = ("-pk",)
    wide = (*Classification.LONG_LISTS, "detection__similarity_vector")

    list_display = ("id", "detection", "algorithm", "taxon", "score", "terminal", "is_current", "created_at")
    list_filter = ("algorithm", "terminal", "is_current")
    list_select_related = ("detection", "algorithm", "taxon")
    raw_id_fields = ("detection", "algorithm", "category_map", "taxon", "applied_to")
    readonly_fields = ("job_id", "is_current", "scores", "logits")


@admin.register(Occurrence)
class OccurrenceAdmin(LargeListAdmin):
    """Occurrences."""

    list_display = ("id", "crop", "determination", "determination_score", "deployment", "event", "project")
    list_filter = ("project",)
    list_select_related = ("determination", "deployment", "event", "project", "detection")
    wide = ("detection__similarity_vector",)
    raw_id_fields = ("detection", "project", "deployment", "event", "determination")

    class Media:
        css = {"all": ("main/pictures.css",)}

    @admin.display(description="crop")
    def crop(self, occurrence: Occurrence) -> str:
        return crop_picture(occurrence.detection, str(occurrence.determination or "crop"))

    def delete_model(self, request: HttpRequest, obj: Any) -> None:  # noqa: ARG002
        bulk_deletion.delete(Occurrence, [obj.pk])

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:  # noqa: ARG002
        bulk_deletion.delete(Occurrence, list(queryset.values_list("pk", flat=True)))


@admin.register(Identification)
class IdentificationAdmin(admin.ModelAdmin):
    """Identifications by users."""

    list_display = ("id", "occurrence", "user", "taxon", "withdrawn", "created_at")
    list_filter = ("withdrawn",)
    list_select_related = ("occurrence", "user", "taxon")
    raw_id_fields = ("occurrence", "user", "taxon", "agreed_with_identification", "agreed_with_prediction")
