"""The admin of projects, sites and devices."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from ami.main import tasks
from ami.main.models import Device, Project, Site
from ami.queues.admin_site.user_messages import report_published, selected_rows
from ami.queues.publish import publish_each_for_user


@admin.register(Project)
class ProjectAdmin(admin.ModelAdmin):
    """Projects; `ami.exports` adds the export action."""

    list_display = ("name", "owner", "stations", "active", "draft", "session_time_gap_seconds", "created_at")
    list_filter = ("active", "draft")
    list_select_related = ("owner",)
    search_fields = ("name",)
    autocomplete_fields = ("owner", "members", "default_filters_include_taxa", "default_filters_exclude_taxa")
    raw_id_fields = ("default_processing_pipeline",)
    actions = ("refresh_counts",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).annotate(stations_count=Count("deployments"))

    @admin.display(description="stations", ordering="stations_count")
    def stations(self, project: Any) -> int:
        return int(project.stations_count)

    @admin.action(description="Refresh counts of selected projects", permissions=["change"])
    def refresh_counts(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        projects = selected_rows(request, queryset)
        many = publish_each_for_user(
            tasks.refresh_project_calculated_fields, [{"project_id": project.pk} for project in projects]
        )
        for project, published in zip(projects, many, strict=True):
            report_published(request, f"Refreshing counts of {project}", published)

    def has_export_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("exports.add_dataexport")


@admin.register(Site)
class SiteAdmin(admin.ModelAdmin):
    """Research sites."""

    list_display = ("name", "project", "created_at")
    list_select_related = ("project",)
    search_fields = ("name",)
    autocomplete_fields = ("project",)


@admin.register(Device)
class DeviceAdmin(admin.ModelAdmin):
    """Devices."""

    list_display = ("name", "project", "created_at")
    list_select_related = ("project",)
    search_fields = ("name",)
    autocomplete_fields = ("project",)
