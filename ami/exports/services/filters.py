"""The filters of exports and the occurrences they select."""

from typing import Any

from django.db.models import QuerySet

from ami.exports.models import DataExport
from ami.main.models import Occurrence, Project, SourceImageCollection


class FilterError(ValueError):
    """An invalid filter; ``field`` is its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message


def validate_filters(project: Project, filters: dict[str, Any]) -> str:
    """Return a description of the filters.

    Raises:
        FilterError: an unknown filter, a value of the wrong type, a capture set of another project.
    """
    for field in filters:
        if field != "collection_id":
            raise FilterError(field, "Unknown filter. Known: collection_id.")
    if "collection_id" not in filters:
        return ""
    pk = filters["collection_id"]
    if type(pk) is not int or not 0 < pk < 2**63:
        raise FilterError("collection_id", "Must be the whole number of a capture set.")
    collection = SourceImageCollection.objects.filter(pk=pk, project=project).first()
    if collection is None:
        raise FilterError("collection_id", f"Capture set {pk} does not exist in this project.")
    return f"capture set: {collection.name}"[:255]


def occurrences_of(export: DataExport) -> "QuerySet[Occurrence]":
    """Return the occurrences to export: those with a real detection and a determination, ordered by key."""
    occurrences = Occurrence.objects.filter(
        project_id=export.project_id, detection__bbox__isnull=False, determination__isnull=False
    )
    if collection_id := export.filters.get("collection_id"):
        # A subquery, not a join, which could repeat rows.
        through = SourceImageCollection.images.through.objects.filter(
            sourceimagecollection_id=collection_id, sourceimagecollection__project_id=export.project_id
        )
        occurrences = occurrences.filter(detection__source_image_id__in=through.values("sourceimage_id"))
    return occurrences.order_by("pk")
