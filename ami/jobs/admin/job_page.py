"""The page of one job: its stages as bars, its pace, why images failed, and the buttons run, retry and cancel."""

import hashlib
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, path, reverse
from django.utils.cache import get_conditional_response
from django.utils.http import quote_etag

from ami.jobs.errors import NotAllowed, UnknownKind
from ami.jobs.models import Job, JobLog
from ami.jobs.models.states import FINAL, ImageState, JobStatus
from ami.jobs.services import operations
from ami.jobs.services.pace import pace
from ami.jobs.services.progress import progress
from ami.jobs.services.recent_captures import recent_captures
from ami.main.admin.pictures import thumbnail_link
from ami.queues import audit_log
from ami.queues.admin_site.user_messages import report_published
from ami.queues.redaction import redact_text

#: What a button does, in the words of its message.
RUN, RETRY, CANCEL = "run", "retry", "cancel"
STARTS: dict[str, tuple[Callable[[Job], Any], str]] = {
    RUN: (operations.run, "Running"),
    RETRY: (operations.retry, "Retrying"),
}
WHAT_HAPPENS = {
    RUN: "The job starts; a finished one starts over, and every image is processed again.",
    RETRY: "Only images that failed or were not finished are processed.",
    CANCEL: "The job ends at the worker's next step. What is saved stays.",
}

LOG_LINES = 200
#: The colour that a status has beside its word.
TONES = {
    JobStatus.STARTED: "is-active",
    JobStatus.SUCCESS: "is-good",
    JobStatus.FAILURE: "is-bad",
    JobStatus.REVOKED: "is-bad",
    JobStatus.RETRY: "is-warn",
    JobStatus.CANCELING: "is-warn",
}
#: The figures of a job's stages that stand on top.
TILES = (
    ("total_images", "images"),
    ("processed", "processed"),
    ("remaining", "remaining"),
    ("failed", "failed"),
    ("detections", "detections"),
)


class JobPage:
    """A mixin of the job's model admin: the addresses of its live figures and of its buttons."""

    change_form_template = "jobs/job_page.html"

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view  # type: ignore[attr-defined]
        return [
            path("<int:pk>/figures/", wrap(self.figures), name="jobs_job_figures"),
            path("<int:pk>/<slug:verb>-now/", wrap(self.press), name="jobs_job_press"),
            *super().get_urls(),  # type: ignore[misc]
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the figures and buttons above Django's form."""
        job = self.get_object(request, object_id)  # type: ignore[attr-defined]
        added = self._added(request, job) if job else {}
        answer: HttpResponse = super().change_view(request, object_id, form_url, {**added, **(extra_context or {})})  # type: ignore[misc]
        return answer

    def figures(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the figures alone, 304 while they are the same: the page asks every few seconds."""
        job = self._job(request, pk)
        if not self.has_view_or_change_permission(request, job):  # type: ignore[attr-defined]
            raise PermissionDenied
        text = render_to_string("jobs/job_figures.html", {"figures": figures(job)})
        etag = quote_etag(hashlib.sha256(text.encode()).hexdigest()[:32])
        answer = HttpResponse(text, headers={"ETag": etag, "Cache-Control": "private, no-cache"})
        return get_conditional_response(request, etag=etag, response=answer) or answer

    def press(self, request: HttpRequest, pk: int, verb: str) -> HttpResponse:
        """Ask for the reason, and with it run, retry or cancel the job."""
        job = self._job(request, pk)
        if verb not in WHAT_HAPPENS:
            raise Http404
        if not self.has_change_permission(request, job):  # type: ignore[attr-defined]
            raise PermissionDenied
        page = reverse("admin:jobs_job_change", args=[pk])
        if request.method != "POST":
            context = {
                **self.admin_site.each_context(request),  # type: ignore[attr-defined]
                "title": f"{verb.capitalize()} job {pk}?",
                "job": job,
                "verb": verb,
                "what_happens": WHAT_HAPPENS[verb],
                "page": page,
                "opts": Job._meta,
            }
            return TemplateResponse(request, "jobs/job_press.html", context)
        why = str(request.POST.get("why", ""))[:500]
        outcome = self.end(request, job) if verb == CANCEL else self.start(request, job, *STARTS[verb])
        audit_log.record(f"{verb} job", who=request.user, rows=[job], outcome=outcome, why=why, source="admin")
        return HttpResponseRedirect(page)

    def start(self, request: HttpRequest, job: Job, operation: Callable[[Job], Any], what: str) -> str:
        """Run or retry a job and tell the user; return the outcome for the audit log."""
        try:
            published = operation(job)
        except (NotAllowed, UnknownKind) as error:
            messages.warning(request, f"Job {job.pk} was not started: {error}")
            return f"refused: {error}"
        report_published(request, f"{what} job {job.pk}", published)
        return f"task {published.task_id} sent to {published.queue}"

    def end(self, request: HttpRequest, job: Job) -> str:
        """Cancel a job and tell the user; return the outcome for the audit log."""
        done = operations.cancel(job)
        text = f"Job {job.pk} is {job.status}{'' if done else ' already'}."
        messages.add_message(request, messages.SUCCESS if done else messages.WARNING, text)
        return text

    def _added(self, request: HttpRequest, job: Job) -> dict[str, Any]:
        verbs = self._verbs(request, job)
        return {"figures": figures(job), "verbs": verbs, "captures": captures(request, job), "log": log(job)}

    def _job(self, request: HttpRequest, pk: int) -> Job:
        job: Job | None = self.get_object(request, str(pk))  # type: ignore[attr-defined]
        if job is None:
            raise Http404
        return job

    def _verbs(self, request: HttpRequest, job: Job) -> list[tuple[str, str]]:
        if not self.has_change_permission(request, job):  # type: ignore[attr-defined]
            return []
        return [(verb, reverse("admin:jobs_job_press", args=[job.pk, verb])) for verb in verbs(job)]


def verbs(job: Job) -> list[str]:
    """Return what can be done with a job now."""
    if job.status in FINAL:
        return [RUN, RETRY]
    return [] if job.status == JobStatus.CANCELING else [RUN, CANCEL]


def captures(request: HttpRequest, job: Job) -> list[dict[str, Any]]:
    """Return the captures that were processed last, each with its page, its thumbnail and its boxes."""
    if not request.user.has_perm("main.view_sourceimage"):
        return []
    return [
        {
            "capture": capture,
            "page": reverse("admin:main_sourceimage_change", args=[capture.pk]),
            "thumbnail": thumbnail_link(capture),
            "boxes": boxes,
        }
        for capture, boxes in recent_captures(job)
    ]


def log(job: Job) -> list[tuple[Any, str, str]]:
    """Return time, level and text of the newest `LOG_LINES` lines of the log, without secrets."""
    lines = JobLog.objects.filter(job=job)[:LOG_LINES]
    return [(line.created_at, line.level, redact_text(line.message)) for line in lines]


def share(shown: dict[str, Any]) -> tuple[str, str]:
    """Return how much of a job is done, 0 to 1 and in percent."""
    done = shown["summary"]["progress"]
    return f"{done:.4f}", f"{done:.0%}"


def figures(job: Job) -> dict[str, Any]:
    """Return what the page shows of a job: at most four statements."""
    shown = progress(job)
    speed = pace(job, shown["stages"])
    done, percent = share(shown)
    return {
        "job": job,
        "is_over": job.status in FINAL,
        "tone": TONES.get(JobStatus(job.status), ""),
        "tiles": _tiles(shown["stages"]),
        "done": done,
        "percent": percent,
        "stages": [_stage(stage) for stage in shown["stages"]],
        "rate": None if speed.images_per_second is None else f"{speed.images_per_second:.1f}",
        "left": None if speed.left_seconds is None else duration(speed.left_seconds),
        "errors": [redact_text(line) for line in shown["errors"]],
        "failed_images": _failed_images(job),
        "task": _task(job.task_id),
        "address": reverse("admin:jobs_job_figures", args=[job.pk]),
    }


def _tiles(stages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the figures that matter most, each with its name."""
    numbers = {param["key"]: param["value"] for stage in stages for param in stage["params"]}
    return [(name, f"{numbers[key]:,}".replace(",", "\u2009")) for key, name in TILES if key in numbers]


def duration(seconds: float) -> str:
    """Return a time that people read: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _stage(stage: dict[str, Any]) -> dict[str, Any]:
    numbers = ", ".join(f"{param['value']:,} {param['name'].lower()}" for param in stage["params"])
    return {
        "name": stage["name"],
        "status": JobStatus(stage["status"]).label,
        "share": f"{stage['progress']:.4f}",
        "percent": f"{stage['progress']:.0%}",
        "numbers": numbers,
    }


def _failed_images(job: Job) -> str:
    query = urlencode({"q": job.pk, "state__exact": ImageState.FAILED})
    return f"{reverse('admin:jobs_jobimage_changelist')}?{query}"


def _task(task_id: str) -> str:
    """Return the address of the task's page; empty where there is none."""
    try:
        return reverse("console:task", args=[task_id]) if task_id else ""
    except NoReverseMatch:
        return ""
