"""The admin of jobs: stages, log, and the actions run, retry and cancel."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ami.jobs.errors import NotAllowed, UnknownKind
from ami.jobs.models import Job, JobImage, JobLog, StoredResult
from ami.jobs.services import operations
from ami.jobs.services.job_kinds import registered_keys
from ami.jobs.services.progress import progress
from ami.jobs.tasks import reprocess_captures as reprocess_captures_task
from ami.main.admin.captures import SourceImageAdmin
from ami.main.admin.large_lists import LargeListAdmin, search_number
from ami.queues.admin_site.operation_actions import UNTIL, disable, enable, operation_action
from ami.queues.admin_site.user_messages import report_published, selected_rows
from ami.queues.publish import publish_for_user
from ami.queues.redaction import redact_text

LOG_LINES = 200


class JobForm(forms.ModelForm):
    """Offers the registered job types; an existing job keeps its own type even if it is no longer registered."""

    job_type_key = forms.ChoiceField(label="type")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if field := self.fields.get("job_type_key"):
            own = [self.instance.job_type_key] if self.instance.pk else [""]
            field.choices = [(key, key or "---------") for key in dict.fromkeys([*own, *registered_keys()])]
            if not self.instance.pk:
                self.initial["job_type_key"] = ""


def _disabled_name(job: Job) -> str:
    return f"job:{job.pk}"


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """Jobs; the status is read-only and changes through the actions."""

    form = JobForm
    list_display = (
        *("pk", "name", "job_type_key", "status", "failed", "dispatch_mode", "project", "created_at", "finished_at"),
    )
    list_filter = ("status", "job_type_key", "dispatch_mode")
    list_per_page = 50
    list_select_related = ("project",)
    search_fields = ("name", "task_id")
    raw_id_fields = ("project", "deployment", "pipeline", "source_image_collection", "source_image_single")
    readonly_fields = (
        "status",
        "stages",
        "errors",
        "task_id",
        "lease_owner",
        "lease_expires_at",
        "heartbeat_at",
        "started_at",
        "finished_at",
        "log",
    )
    actions = (
        "run",
        "retry",
        "cancel",
        operation_action("disable", disable, _disabled_name, "disable_task", (UNTIL,)),
        operation_action("enable", enable, _disabled_name, "disable_task"),
    )

    def has_disable_task_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.disable_task")

    @admin.display(description="stages")
    def stages(self, job: Job) -> SafeString:
        """Render each stage with its progress and numbers."""
        rows = (
            (s["name"], s["status"], f"{s['progress']:.0%}", ", ".join(f"{p['key']} {p['value']}" for p in s["params"]))
            for s in progress(job)["stages"]
        )
        return format_html_join("", "<div><b>{}</b> {} {} {}</div>", rows)

    @admin.display(description="failed")
    def failed(self, job: Job) -> str:
        """Return the number of failed images of a job whose counts are stored; no query for each row."""
        return str(job.image_counts.get("failed") or "") if job.image_counts else ""

    @admin.display(description="errors")
    def errors(self, job: Job) -> SafeString:
        """Render why the job or images of it failed."""
        return format_html_join("", "<div>{}</div>", ((redact_text(line),) for line in progress(job)["errors"]))

    @admin.display(description="log")
    def log(self, job: Job) -> SafeString:
        """Render the newest LOG_LINES lines of the log, without secrets."""
        lines = JobLog.objects.filter(job=job)[:LOG_LINES]
        shown = ((f"{line.created_at:%Y-%m-%d %H:%M:%S}", line.level, redact_text(line.message)) for line in lines)
        return format_html("<div>{}</div>", format_html_join("", "<div>{} {} {}</div>", shown))

    @admin.action(description="Run selected jobs", permissions=["change"])
    def run(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Run each job; finished jobs start over."""
        self._do(request, queryset, operations.run, "Running")

    @admin.action(description="Retry selected jobs", permissions=["change"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._do(request, queryset, operations.retry, "Retrying")

    @admin.action(description="Cancel selected jobs", permissions=["change"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Cancel each job that is not finished."""
        for job in selected_rows(request, queryset):
            done = operations.cancel(job)
            text = f"Job {job.pk} is {job.status}." if done else f"Job {job.pk} is {job.status} already."
            self.message_user(request, text, messages.SUCCESS if done else messages.WARNING)

    def _do(self, request: HttpRequest, queryset: QuerySet[Any], operation: Any, what: str) -> None:
        for job in selected_rows(request, queryset):
            try:
                report_published(request, f"{what} job {job.pk}", operation(job))
            except (NotAllowed, UnknownKind) as error:
                self.message_user(request, f"Job {job.pk} was not started: {error}", messages.WARNING)


class ReadOnlyAdmin(admin.ModelAdmin):
    """Read-only rows; deleting their job deletes them."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


@admin.register(JobImage)
class JobImageAdmin(ReadOnlyAdmin, LargeListAdmin):
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
class StoredResultAdmin(ReadOnlyAdmin, LargeListAdmin):
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


@admin.action(description="Reprocess selected captures", permissions=["change"])
def reprocess_captures(_: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    """Start one job per project for the selected captures, with each project's default pipeline."""
    ids = selected_rows(request, queryset.order_by("pk").values_list("pk", flat=True))
    if ids:
        report_published(
            request,
            f"Reprocessing {len(ids)} captures",
            publish_for_user(reprocess_captures_task, source_image_ids=ids),
        )


# `ami.main` must not import `ami.jobs`, so the action is added to its admin here.
SourceImageAdmin.actions = (reprocess_captures, *SourceImageAdmin.actions)
