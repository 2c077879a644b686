"""The admin of captures and capture sets."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from ami.main import tasks
from ami.main.models import SourceImage, SourceImageCollection
from ami.main.services import bulk_deletion, file_urls
from ami.queues.admin_site.messages import report_published, selected_rows
from ami.queues.publish import publish_for_user


@admin.register(SourceImage)
class SourceImageAdmin(admin.ModelAdmin):
    """Captures, with reprocessing and deletion as tasks."""

    list_display = ("path", "deployment", "event", "timestamp", "size", "detections_count", "picture")
    list_filter = ("project",)
    list_select_related = ("deployment", "event")
    search_fields = ("path",)
    date_hierarchy = "timestamp"
    raw_id_fields = ("project", "deployment", "event")
    readonly_fields = ("detections_count", "picture")
    show_full_result_count = False
    actions = ("bulk_delete",)

    @admin.display(description="picture")
    def picture(self, capture: SourceImage) -> str:
        """Return a link to the picture: where its source has it, or one that is signed now."""
        if not capture.pk:
            return "-"
        address = file_urls.address("captures", capture.pk, "image")
        signed = file_urls.signed_path(address, file_urls.for_people())
        return format_html('<a href="{}">open</a>', capture.public_url() or signed)

    def get_actions(self, request: HttpRequest) -> Any:
        """Leave Django's own deletion out: it holds the request, and all rows in memory, until it is done."""
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    @admin.action(description="Delete selected captures in the background", permissions=["delete"])
    def bulk_delete(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Write down the selection and ask for its deletion."""
        pks = selected_rows(request, queryset.order_by("pk").values_list("pk", flat=True))
        if not pks:
            return
        deletion = bulk_deletion.request_deletion("captures", pks, request.user)
        published = publish_for_user(tasks.bulk_delete, deletion_id=deletion.pk)
        report_published(request, f"Deleting {len(pks)} captures", published)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:  # noqa: ARG002
        """Delete one capture and mark the counts that it was part of."""
        bulk_deletion.delete(SourceImage, [obj.pk])


@admin.register(SourceImageCollection)
class SourceImageCollectionAdmin(admin.ModelAdmin):
    """Capture sets, with populating."""

    list_display = ("name", "project", "method", "captures", "updated_at")
    list_filter = ("method", "project")
    list_select_related = ("project",)
    search_fields = ("name",)
    autocomplete_fields = ("project",)
    exclude = ("images",)
    actions = ("populate",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Count the captures of all rows in one query."""
        return super().get_queryset(request).annotate(captures_count=Count("images"))

    @admin.display(description="captures", ordering="captures_count")
    def captures(self, collection: Any) -> int:
        """Return the number of captures."""
        return int(collection.captures_count)

    @admin.action(description="Populate selected capture sets", permissions=["change"])
    def populate(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Ask for each set to be filled."""
        for collection in selected_rows(request, queryset):
            published = publish_for_user(tasks.populate_collection, collection_id=collection.pk)
            report_published(request, f"Populating {collection}", published)
