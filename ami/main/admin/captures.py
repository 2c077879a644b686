"""The admin of captures and capture sets."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import IntegerField, OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from ami.main import tasks
from ami.main.admin.large_lists import LargeListAdmin
from ami.main.admin.pictures import CapturePictures
from ami.main.models import SourceImage, SourceImageCollection
from ami.main.services import bulk_deletion, path_search
from ami.main.services.bounded_counts import EXACT_UP_TO
from ami.queues.admin_site.user_messages import report_published, selected_rows
from ami.queues.publish import publish_each_for_user, publish_for_user


class RowCount(Subquery):
    """The number of rows of a subquery; limit it, and no more rows are read."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()


@admin.register(SourceImage)
class SourceImageAdmin(CapturePictures, LargeListAdmin):
    """Captures; bulk deletion runs as a task."""

    list_display = ("path", "picture", "deployment", "event", "timestamp", "size", "detections_count")
    list_filter = ("project", "timestamp")
    list_select_related = ("deployment", "event")
    search_fields = ("path",)
    search_help_text = "a part of the path, at least 3 characters"
    raw_id_fields = ("project", "deployment", "event")
    readonly_fields = ("detections_count",)
    actions = ("bulk_delete",)

    class Media:
        css = {"all": ("main/pictures.css",)}

    @admin.display(description="picture")
    def picture(self, capture: SourceImage) -> str:
        return self.small_picture(capture)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find the captures whose path has the text; none for a text that no index answers."""
        if not search_term:
            return queryset, False
        try:
            return queryset.filter(**{path_search.lookup(): path_search.path_text(search_term)}), False
        except ValueError as error:
            self.message_user(request, f"The search text {error}.", messages.WARNING)
            return queryset.none(), False

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
        projects = queryset.order_by().values_list("project_id", flat=True).distinct()[:2]
        project_id = projects[0] if len(projects) == 1 else None
        published = publish_for_user(tasks.bulk_delete, deletion_id=deletion.pk, project_id=project_id)
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
        # A join would read the captures of every set before the first page.
        chosen = SourceImageCollection.images.through.objects.filter(sourceimagecollection=OuterRef("pk"))
        few = chosen.order_by().values("pk")[: EXACT_UP_TO + 1]
        return super().get_queryset(request).annotate(captures_count=RowCount(few))

    @admin.display(description="captures")
    def captures(self, collection: Any) -> str:
        """Return the number of captures, exact up to ``EXACT_UP_TO``."""
        more = collection.captures_count > EXACT_UP_TO
        return f"more than {EXACT_UP_TO}" if more else str(collection.captures_count)

    @admin.action(description="Populate selected capture sets", permissions=["change"])
    def populate(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        collections = selected_rows(request, queryset)
        many = [{"collection_id": each.pk, "project_id": each.project_id} for each in collections]
        for collection, published in zip(
            collections, publish_each_for_user(tasks.populate_collection, many), strict=True
        ):
            report_published(request, f"Populating {collection}", published)
