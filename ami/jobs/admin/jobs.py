"""The admin of jobs: their list and form, and the actions run, retry and cancel; the page of one is ``job_page``."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ami.jobs.admin import job_page
from ami.jobs.admin.job_page import JobPage
from ami.jobs.models import Job
from ami.jobs.services import operations
from ami.jobs.services.job_kinds import registered_keys
from ami.jobs.services.progress import progress_of
from ami.jobs.tasks import reprocess_captures as reprocess_captures_task
from ami.main.admin.captures import SourceImageAdmin
from ami.queues.admin_site.operation_actions import UNTIL, disable, enable, operation_action
from ami.queues.admin_site.user_messages import report_published, selected_rows
from ami.queues.publish import publish_for_user


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


class JobList(ChangeList):
    """A page of jobs with the progress of each, read in one statement."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        shown = progress_of(self.result_list)
        for job in self.result_list:
            job.shown = shown[job.pk]


def _disabled_name(job: Job) -> str:
    return f"job:{job.pk}"


@admin.register(Job)
class JobAdmin(JobPage, admin.ModelAdmin):
    """Jobs; the status is read-only and changes through the actions."""

    form = JobForm
    list_display = (
        *(
            "pk",
            "name",
            "job_type_key",
            "status",
            "share",
            "failed",
            "dispatch_mode",
            "project",
            "created_at",
            "finished_at",
        ),
    )
    list_filter = ("status", "job_type_key", "dispatch_mode")
    list_per_page = 50
    list_select_related = ("project",)
    search_fields = ("name", "task_id")
    raw_id_fields = ("project", "deployment", "pipeline", "source_image_collection", "source_image_single")
    readonly_fields = (
        "status",
        "task_id",
        "holder",
        "until",
        "heartbeat_at",
        "started_at",
        "finished_at",
    )
    #: What a job was asked to do, and below what the workers wrote.
    fieldsets = (
        (
            "Settings",
            {
                "fields": (
                    ("name", "job_type_key"),
                    ("project", "deployment"),
                    ("pipeline", "dispatch_mode"),
                    ("source_image_collection", "source_image_single"),
                    ("limit", "delay", "shuffle"),
                    "scheduled_at",
                    "params",
                )
            },
        ),
        (
            "Run",
            {
                "classes": ("collapse",),
                "fields": (
                    "status",
                    "task_id",
                    ("started_at", "finished_at", "heartbeat_at"),
                    ("holder", "until"),
                    "result",
                ),
            },
        ),
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

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:  # noqa: ARG002
        return JobList

    @admin.display(description="progress")
    def share(self, job: Any) -> SafeString:
        """Render how much of the job is done, as `JobList` has read it."""
        return format_html(
            '<progress max="1" value="{0}" aria-label="{1}">{1}</progress> {1}', *job_page.share(job.shown)
        )

    @admin.display(description="failed")
    def failed(self, job: Job) -> str:
        """Return the number of failed images of a job whose counts are stored; no query for each row."""
        return str(job.image_counts.get("failed") or "") if job.image_counts else ""

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
            self.end(request, job)

    def _do(self, request: HttpRequest, queryset: QuerySet[Any], operation: Any, what: str) -> None:
        for job in selected_rows(request, queryset):
            self.start(request, job, operation, what)


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
