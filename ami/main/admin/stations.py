"""The admin of stations, their sessions and storage sources."""

from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from ami.celery.shown_time import shown_time
from ami.main import tasks
from ami.main.models import Deployment, Event, S3StorageSource
from ami.main.services import capture_times, time_formats
from ami.main.services.sources import SourceError
from ami.main.services.times import doubt_of
from ami.queues.admin_site.user_messages import report_published, selected_rows
from ami.queues.publish import publish_each_for_user

COUNTS = ("captures_count", "detections_count", "occurrences_count", "calculated_fields_updated_at")


def _publish(request: HttpRequest, what: str, task: Any, rows: list[Any], name: str = "deployment_id") -> None:
    """Publish a task for each row, whose key is its argument ``name``, and show each."""
    many = [{name: row.pk, "project_id": row.project_id} for row in rows]
    for row, published in zip(rows, publish_each_for_user(task, many), strict=True):
        report_published(request, what.format(row), published)


def _shown(time: datetime | str) -> str:
    if isinstance(time, str):
        return time
    if time.tzinfo:
        return shown_time(time)
    return f"{time.isoformat(sep=' ', timespec='seconds')}, the station's time"


@admin.register(Deployment)
class DeploymentAdmin(admin.ModelAdmin):
    """Stations."""

    list_display = (
        "name",
        "project",
        "time_zone",
        "events_count",
        *COUNTS,
        "data_source_last_checked",
        "unlikely_times",
    )
    list_filter = ("project",)
    list_select_related = ("project",)
    search_fields = ("name",)
    autocomplete_fields = ("project", "research_site", "device", "data_source")
    readonly_fields = (
        "names_and_times",
        "unlikely_times",
        "events_count",
        "taxa_count",
        *COUNTS,
        "first_capture_timestamp",
        "last_capture_timestamp",
        "data_source_total_files",
        "data_source_total_size",
        "data_source_last_checked",
    )
    actions = ("refresh_counts", "regroup", "sync", "update_public_urls")

    @admin.display(description="five names and what they become")
    def names_and_times(self, station: Deployment | None) -> str:
        """Show the time that each of five file names has, with the pattern and the format of the form."""
        if station is None or station.data_source is None:
            return "-"
        if time_formats.problem_of(station.data_source_time_format):
            return "The time format cannot be used."
        try:
            times = capture_times.in_names(station)
        except SourceError as error:
            return str(error)
        except Exception as error:  # A bucket's library raises many kinds, with addresses in their texts.
            return f"The storage source does not answer: {type(error).__name__}."
        lines = format_html_join(
            "", "<li><code>{}</code> → {}</li>", ((path, _shown(time)) for path, time in times.items())
        )
        return format_html("<ul>{}</ul>", lines) if lines else "There is no picture among the first files."

    @admin.display(description="unlikely times")
    def unlikely_times(self, station: Deployment | None) -> str:
        """Warn of captures from before 2010 or in the future."""
        ends = (station.first_capture_timestamp, station.last_capture_timestamp) if station else ()
        now = timezone.now()
        doubts = [f"{doubt} ({shown_time(end)})" for end in ends if end and (doubt := doubt_of(end, now))]
        return f"⚠ Captures {' and '.join(doubts)}: check the camera's clock and the time zone." if doubts else "-"

    @admin.action(description="Refresh counts of selected stations", permissions=["change"])
    def refresh_counts(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        stations = selected_rows(request, queryset)
        _publish(request, "Refreshing counts of {}", tasks.refresh_deployment_calculated_fields, stations)

    @admin.action(description="Group captures of selected stations into sessions", permissions=["change"])
    def regroup(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        stations = selected_rows(request, queryset)
        _publish(request, "Grouping {} into sessions", tasks.regroup_events, stations)

    @admin.action(description="Sync captures of selected stations", permissions=["change"])
    def sync(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        stations = self._with_source(request, queryset)
        _publish(request, "Syncing {}", tasks.sync_source_images, stations)

    @admin.action(description="Take public URLs of captures from the storage source", permissions=["change"])
    def update_public_urls(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Publish a task per station that copies its source's public base URL to all its captures."""
        stations = self._with_source(request, queryset.select_related("data_source"))
        many = [
            {"deployment_id": each.pk, "base_url": each.data_source.public_base_url, "project_id": each.project_id}
            for each in stations
        ]
        for station, published in zip(stations, publish_each_for_user(tasks.update_public_urls, many), strict=True):
            report_published(request, f"Setting public URLs of {station}", published)

    def _with_source(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """Return the selected stations that have a storage source; warn of the others."""
        stations = selected_rows(request, queryset)
        for station in stations:
            if station.data_source_id is None:
                self.message_user(request, f"{station} has no storage source; choose one.", messages.WARNING)
        return [station for station in stations if station.data_source_id is not None]


@admin.register(Event)
class EventAdmin(admin.ModelAdmin):
    """Sessions."""

    list_display = ("group_by", "deployment", "project", "start", "end", *COUNTS)
    list_filter = ("project",)
    list_select_related = ("deployment", "project")
    date_hierarchy = "group_by"
    raw_id_fields = ("deployment", "project")
    readonly_fields = COUNTS
    actions = ("refresh_counts",)

    @admin.action(description="Refresh counts of selected sessions", permissions=["change"])
    def refresh_counts(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        events = selected_rows(request, queryset)
        _publish(request, "Refreshing counts of {}", tasks.refresh_event_calculated_fields, events, "event_id")


@admin.register(S3StorageSource)
class S3StorageSourceAdmin(admin.ModelAdmin):
    """Storage sources; their keys are write-only."""

    fields = (
        "name",
        "project",
        "bucket",
        "prefix",
        "region",
        "endpoint_url",
        "access_key",
        "secret_key",
        "public_base_url",
    )
    list_display = ("name", "project", "bucket", "prefix", "endpoint_url", "total_files", "last_checked")
    list_select_related = ("project",)
    search_fields = ("name", "bucket")
    autocomplete_fields = ("project",)
