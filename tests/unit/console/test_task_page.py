"""The console's page of one task: where it is, its letters, tries and job, and its lever."""

import shlex
from typing import Any
from urllib.parse import quote

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from ami.queues.models import DesiredState, TaskRun, Worker
from tests.support.console_pages import client, few_statements, many_letters, text

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def test_task_without_a_trace_says_where_to_look():
    page = text(client().get("/admin/queues/task/abc-1/"))
    assert "no trace" in page
    assert "?ask=workers" in page


def test_task_with_a_letter_links_to_it():
    many_letters(1)
    made = client()
    with few_statements(20):
        page = text(made.get("/admin/queues/task/task-0/"))
    assert "dead letter in antenna-ingest.dlq" in page
    assert "/admin/queues/letters/" in page
    data = made.get("/admin/queues/task/task-0/?format=json").json()["task"]
    assert (data[0]["state"], data[0]["task"]) == ("failed", "ami.some.task_0")


def run_of(task_id: str, node: str, task: str = "ami.jobs.tasks.run_job") -> None:
    TaskRun.objects.create(task_id=task_id, task=task, node=node, started_at=timezone.now(), seen_at=Now())


@pytest.mark.parametrize("odd", ["unknown", "a/b", "a'b; rm -rf ~", "ä ö<b>", "x" * 255, "--yes"])
def test_unknown_task_has_no_cancel_and_its_command_is_quoted(odd: str):
    page = text(client("cancel_task").get(f"/admin/queues/task/{quote(odd, safe='/')}/"))
    assert "lever-cancel" not in page
    assert f"queues cancel -- {escape(shlex.quote(odd))}</code>" in page


def test_page_names_the_queue_that_a_task_ran_on():
    Worker.objects.create(node="w1@here", host="a", queues=["antenna-interactive"], pid=1, **now())
    run_of("by-worker", "w1@here")
    run_of("by-name", "interactive@gone")
    run_of("unknown", "odd@gone")
    Worker.objects.create(node="interactive@two", host="a", queues=["antenna", "antenna-interactive"], pid=2, **now())
    run_of("either", "interactive@two")
    names = ("by-worker", "by-name", "unknown", "either")
    shown = {name: text(client().get(f"/admin/queues/task/{name}/")) for name in names}
    for name in ("by-worker", "by-name"):
        assert "antenna-interactive</a>, where it ran" in shown[name]
    for name in ("unknown", "either"):
        assert "by its name; where it ran is not on record" in shown[name]


def now() -> dict[str, Any]:
    return {"started_at": timezone.now(), "seen_at": Now()}


def test_task_is_cancelled_with_its_reason():
    made = client("cancel_task")
    run_of("abc-1", "w1@here")
    assert 'id="lever-cancel-abc-1"' in text(made.get("/admin/queues/task/abc-1/"))
    made.post("/admin/queues/lever/cancel/abc-1/", {"why": "wrong job"})
    assert DesiredState.objects.get(name="abc-1").why == "wrong job"
    TaskRun.objects.all().delete()
    assert "cancelled" in text(made.get("/admin/queues/task/abc-1/"))


def test_viewer_has_no_lever_and_a_post_is_403():
    assert "lever-cancel" not in text(client().get("/admin/queues/task/abc-1/"))
    assert client().post("/admin/queues/lever/cancel/abc-1/", {"why": "mine"}).status_code == 403


def test_poll_of_a_visitor_leads_the_page_to_the_sign_in():
    answer = Client().get("/admin/queues/schedule/?live=table")
    assert (answer.status_code, answer["HX-Redirect"]) == (401, "/admin/login/?next=%2Fadmin%2Fqueues%2Fschedule%2F")


def test_visitor_is_sent_to_the_sign_in():
    answer = Client().get("/admin/queues/task/abc-1/")
    assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/admin/login/")
