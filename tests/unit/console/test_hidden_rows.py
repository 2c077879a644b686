"""Staff see jobs and calls only with the permission to view them: pages, parts, CSV, JSON and the API alike."""

from dataclasses import replace

import pytest
from django.conf import settings
from django.urls import reverse
from rest_framework.test import APIClient

from ami.queues.models import DesiredState
from ami.telemetry.snapshots.shape import FindingFigures
from tests.support import console

pytestmark = [pytest.mark.django_db]
NAME = "Night of June"
OF_JOB = FindingFigures("warning", "disabled", "job:5 is disabled by ada; enable it.", "job:5")
OVERVIEW = (
    "",
    "?live=overview",
    "?format=csv",
    "?format=json",
    "?format=json&table=findings",
    "?format=csv&table=tasks",
)
JOBS = ("?format=csv&table=jobs", "?format=json&table=jobs")
CALLS = ("", "?live=calls", *(f"?format=json&table={name}" for name in ("lanes", "holders", "limits", "weights")))


@pytest.fixture(autouse=True)
def with_job(figures, monkeypatch):
    console.show(monkeypatch, replace(figures, findings=(*figures.findings, OF_JOB)))


def test_staff_without_permission_read_no_job_in_any_form(db):
    overview, queue = reverse("console:overview"), settings.ANTENNA_TOPOLOGY.workloads[0].queue
    for permissions, sees in (((), False), (("view_job",), True)):
        # The second time, what was rendered for the other user is at hand.
        client = console.client_of(*permissions)
        for _ in range(2):
            pages = [client.get(overview + query) for query in OVERVIEW]
            pages.append(client.get(reverse("console:queue", args=[queue])))
            assert {page.status_code for page in pages} == {200}
            text = "".join(page.content.decode() for page in pages)
            assert (NAME in text, "job:5" in text, "table=jobs" in text) == (sees, sees, sees)
            tables = [client.get(overview + query) for query in JOBS]
            assert {table.status_code for table in tables} == {200 if sees else 403}
            assert all((NAME in table.content.decode()) == sees for table in tables)


def test_verdict_counts_no_finding_that_is_not_shown(db, figures, monkeypatch):
    console.show(monkeypatch, replace(figures, findings=(OF_JOB,), findings_at=figures.taken_at))
    pages = [console.client_of(*may).get(reverse("console:overview")).content.decode() for may in ((), ("view_job",))]
    assert ["1 warning" in page.lower() for page in pages] == [False, True]


def test_part_rendered_for_one_is_not_sent_to_another(db):
    address = reverse("console:overview")
    seer, other = console.client_of("view_job"), console.client_of()
    for client in (seer, other):
        client.get(address)
    seen = seer.get(address, {"live": "overview"})
    assert NAME in seen.content.decode()
    for headers in ({}, {"If-None-Match": seen["ETag"]}):
        answer = other.get(address, {"live": "overview"}, headers=headers)
        assert (answer.status_code, NAME in answer.content.decode()) == (200, False)


def test_calls_are_shown_to_who_may_view_calls(db):
    address = reverse("console:calls")
    for client, status in ((console.client_of(), 403), (console.client_of("view_call"), 200)):
        client.get(reverse("console:overview"))
        assert {client.get(address + query).status_code for query in CALLS} == {status}


def test_api_shows_tasks_audit_and_disabled_jobs_to_who_may_see_them(db):
    DesiredState.objects.create(kind="job", name="5", aspect="disabled", value=1, by="ada", since="2026-06-01T22:00Z")
    bare, seer = console.client_of(), console.client_of("view_job", "view_auditentry", "view_taskrun")
    for browser, status, jobs in ((bare, 403, 0), (seer, 200, 1)):
        api = APIClient()
        api.cookies = browser.cookies
        assert api.get("/api/v2/audit/").status_code == status
        assert (api.get("/api/v2/tasks/t/state/").status_code == 403) == (status == 403)
        assert len(api.get("/api/v2/disabled/").json()) == jobs
