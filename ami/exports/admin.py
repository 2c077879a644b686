"""The admin of exports and scheduled exports."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from ami.exports import tasks
from ami.exports.models import DataExport, ScheduledExport
from ami.exports.services import files, writer
from ami.exports.services.filters import FilterError, validate_filters
from ami.exports.services.formats import choices
from ami.exports.services.requests import request_export
from ami.main.admin.projects import ProjectAdmin
from ami.queues.admin_site.user_messages import report_published, selected_rows
from ami.queues.publish import publish_for_user


class ExportForm(forms.ModelForm):
    """Offers the registered formats and validates the filters."""

    format = forms.ChoiceField(choices=choices)

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().clean() or {}
        filters = fields.get("filters") or {}
        if not isinstance(filters, dict):
            self.add_error("filters", "Must be an object.")
        elif project := fields.get("project"):
            try:
                validate_filters(project, filters)
            except FilterError as error:
                self.add_error("filters", str(error))
        return fields


@admin.register(DataExport)
class DataExportAdmin(admin.ModelAdmin):
    """Exports."""

    form = ExportForm
    list_display = ("id", "project", "format", "filters_display", "record_count", "file_size", "link", "finished_at")
    list_filter = ("format", "project", "scheduled")
    list_select_related = ("project",)
    autocomplete_fields = ("project", "user")
    readonly_fields = ("job", "filters_display", "record_count", "file_size", "link", "finished_at")
    actions = ("run_again",)

    @admin.display(description="file")
    def link(self, export: DataExport) -> str:
        """Return a newly signed link to the file, "-" until there is one."""
        if not export.file_path:
            return "-"
        return format_html('<a href="{}">download</a>', files.signed_path(export))

    @admin.action(description="Run again", permissions=["change"])
    def run_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for export in selected_rows(request, queryset):
            writer.restart(export)
            report_published(
                request,
                f"Running {export} again",
                publish_for_user(tasks.run_export, export_id=export.pk, project_id=export.project_id),
            )


@admin.register(ScheduledExport)
class ScheduledExportAdmin(admin.ModelAdmin):
    """Scheduled exports; a task of beat creates the due ones."""

    form = ExportForm
    list_display = ("name", "project", "format", "every_hours", "enabled", "next_run_at", "last_export")
    list_filter = ("enabled", "format")
    list_select_related = ("project", "last_export")
    autocomplete_fields = ("project", "user")
    readonly_fields = ("last_export",)


@admin.action(description="Export occurrences (CSV)", permissions=["export"])
def export_occurrences_csv(_: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    for project in selected_rows(request, queryset):
        export, published = request_export(project, request.user, "occurrences_simple_csv")
        report_published(request, f"Exporting {project} as export {export.pk}", published)


# `ami.main` must not import `ami.exports`: the action is added to its page here.
ProjectAdmin.actions = (*ProjectAdmin.actions, export_occurrences_csv)
