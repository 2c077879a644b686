"""The admin of captures and capture sets."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from ami.main import tasks
from ami.main.models import SourceImage, SourceImageCollection
from ami.main.services import bulk_deletion, file_urls
from ami.queues.admin_site.user_messages import report_published, selected_rows
from ami.queues.publish import publish_each_for_user, publish_for_user


@admin.register(SourceImage)
class SourceImageAdmin(admin.ModelAdmin):
    """Captures; bulk deletion runs as a task."""

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
        """Return a link to the picture: its public URL, else a newly signed one."""
        if not capture.pk:
            return "-"
        address = file_urls.address("captures", capture.pk, "image")
        signed = file_urls.signed_path(address, file_urls.for_people())
        return format_html('<a href="{}">open</a>', capture.public_url() or signed)

    def get_actions(self, request: HttpRequest) -> Any:
        # Django's own action deletes within the request and loads all rows into memory.
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    @admin.action(description="Delete selected captures in the background", permissions=["delete"])
    def bulk_delete(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        pks = selected_rows(request, queryset.order_by("pk").values_list("pk", flat=True))
        if not pks:
            return
        deletion = bulk_deletion.request_deletion("captures", pks, request.user)
        published = publish_for_user(tasks.bulk_delete, deletion_id=deletion.pk)
        report_published(request, f"Deleting {len(pks)} captures", published)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:  # noqa: ARG002
        bulk_deletion.delete(SourceImage, [obj.pk])


@admin.register(SourceImageCollection)
class SourceImageCollectionAdmin(admin.ModelAdmin):
    """Capture sets."""

    list_display = ("name", "project", "method", "captures", "updated_at")
    list_filter = ("method", "project")
    list_select_related = ("project",)
    search_fields = ("name",)
    autocomplete_fields = ("project",)
    exclude = ("images",)
    actions = ("populate",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).annotate(captures_count=Count("images"))

    @admin.display(description="captures", ordering="captures_count")
    def captures(self, collection: Any) -> int:
        return int(collection.captures_count)

    @admin.action(description="Populate selected capture sets", permissions=["change"])
    def populate(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        collections = selected_rows(request, queryset)
        many = [{"collection_id": collection.pk} for collection in collections]
        for collection, published in zip(
            collections, publish_each_for_user(tasks.populate_collection, many), strict=True
        ):
            report_published(request, f"Populating {collection}", published)
