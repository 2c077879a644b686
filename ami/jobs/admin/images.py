"""The admin of a job's images and of posted results: to look at, not to change."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from ami.jobs.models import JobImage, StoredResult
from ami.main.admin.large_lists import LargeListAdmin, search_number
from ami.main.admin.maintenance import ReadOnlyAdmin


class UndeletableAdmin(ReadOnlyAdmin):
    """Read-only rows; deleting their job deletes them."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


@admin.register(JobImage)
class JobImageAdmin(UndeletableAdmin, LargeListAdmin):
    """The state of each image of each job; the states are a filter of one job's images."""

    list_display = ("pk", "job_id", "source_image_id", "state", "attempts", "lease_expires_at", "settled_at", "error")
    search_fields = ("job__id", "source_image__id")
    search_help_text = "number of a job; or the word capture and its number: capture 12"

    def get_list_filter(self, request: HttpRequest) -> tuple[str, ...]:
        # Over all jobs, a rare state would be looked for in every row.
        return ("state",) if request.GET.get("q") else ()

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Read the images of a job in the order of an index that begins with the job: its rows may be anywhere."""
        if not request.GET.get("q", "").strip().isdecimal():
            return ("-pk",)
        return ("position",) if "state__exact" in request.GET else ("source_image",)

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002
        queryset: QuerySet[Any],
        search_term: str,
    ) -> tuple[QuerySet[Any], bool]:
        """Find the images of a job, or a capture in all jobs, by number."""
        if not search_term:
            return queryset, False
        number = search_term.strip().lower().removeprefix("capture")
        column = "job_id" if number == search_term.strip().lower() else "source_image_id"
        return search_number(queryset, number.strip(), column), False


@admin.register(StoredResult)
class StoredResultAdmin(UndeletableAdmin, LargeListAdmin):
    """Results that workers posted, and whether they were handled."""

    list_display = ("key", "job_id", "size_bytes", "created_at", "handled_at", "error")
    search_fields = ("job__id", "key")
    search_help_text = "number of a job, or how a key begins"

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002
        queryset: QuerySet[Any],
        search_term: str,
    ) -> tuple[QuerySet[Any], bool]:
        """Find the results of a job by its number, and others by how their key begins."""
        if not search_term:
            return queryset, False
        if search_term.isascii() and search_term.isdecimal():
            return search_number(queryset, search_term, "job_id"), False
        return queryset.filter(key__startswith=search_term), False

    def get_queryset(self, request: HttpRequest) -> QuerySet[StoredResult]:
        """Leave the bodies in the database."""
        return super().get_queryset(request).defer("body")
