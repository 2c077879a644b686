"""Failures of tasks: written once, without secrets, grouped by cause, listed, and named beside dead letters."""

import io
import json
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from ami.celery.failures.record import Failure
from ami.queues import failures
from ami.queues.dead_letters import DeadLetter
from ami.queues.models import TaskFailure
from tests.support.product import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

TRACEBACK = """Traceback (most recent call last):
  File "/app/.venv/lib/python3.11/site-packages/celery/app/trace.py", line 1, in trace_task
    R = fun()
  File "/app/ami/ml/tasks.py", line 12, in save
    raise ValueError("x")
ValueError: x"""
FAILED = Failure(
    task_id="an-id",
    retries=0,
    delivery=0,
    task="ami.ml.tasks.save",
    kind="error",
    exception="ValueError",
    message="No capture 12 of job 8e330601-d959-44cb-9131-71a5720fc5bd",
    place="ami/ml/tasks.py:12 in save",
    traceback=TRACEBACK,
    node="ingest@a",
    host="a",
    pid=7,
    failed_at=time.time(),
    seconds=1.25,
    peak_kib=2048,
)


def shown(*argv: str) -> tuple[str, int]:
    out, code = io.StringIO(), 0
    try:
        call_command("queues", "failures", *argv, stdout=out)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return out.getvalue(), code


def test_failure_is_written_once_and_each_try_is_one(django_assert_num_queries: Any):
    with django_assert_num_queries(1):
        failures.record([FAILED, replace(FAILED, retries=1)])
    failures.record([FAILED, replace(FAILED, delivery=1)])
    assert TaskFailure.objects.count() == 3
    failures.record([replace(FAILED, failed_at=FAILED.failed_at + 60)])
    assert TaskFailure.objects.count() == 4, "sent again from the dead letters, it begins with its first try"


def test_secrets_and_what_a_database_does_not_take_are_replaced():
    bad = "amqp://antenna:hunter2@rabbitmq// said \0 and \ud800"
    failures.record([replace(FAILED, message=bad, traceback=f"{TRACEBACK} password=hunter2", task="t" * 300)])
    row = TaskFailure.objects.get()
    assert "hunter2" not in row.message + row.traceback + row.cause_text
    assert row.message == "amqp://antenna:********@rabbitmq// said ? and ?"
    assert len(row.task) == 255


@pytest.mark.parametrize("number", [2**31, 2**40, 2**80, -1, float("inf")])
@pytest.mark.parametrize("text", ["x" * 300, "nul \0", "half \ud800"])
def test_any_record_is_written_whatever_its_message_says(number: Any, text: str):
    texts = dict.fromkeys(("task_id", "task", "kind", "exception", "message", "place", "traceback", "node"), text)
    failures.record([replace(FAILED, **texts, retries=number, delivery=number)])
    row = TaskFailure.objects.get()
    assert row.retries == row.delivery == (0 if number < 0 else 2**31 - 1)
    assert failures.latest([row.task_id])


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("No capture 12 of job 8e330601-d959-44cb-9131-71a5720fc5bd", "No capture <n> of job <id>"),
        ("<object at 0x7f3a2b> took 1.25 s,\n 1,000 rows", "<object at <id>> took <n> s, <n> rows"),
        ("commit 0d153b3bcafe failed", "commit <id> failed"),
        ("defaced decade", "defaced decade"),
    ],
)
def test_numbers_and_ids_of_a_message_do_not_make_another_cause(message: str, text: str):
    assert failures.normalised(message) == text


def test_causes_are_grouped_and_a_line_that_moved_is_the_same_place():
    several = [
        replace(
            FAILED, task_id=f"id {number}", message=f"No capture {number}", place=f"ami/ml/tasks.py:{number} in save"
        )
        for number in range(3)
    ]
    other = [
        replace(FAILED, task_id="x", exception="KeyError"),
        replace(FAILED, task="another"),
        replace(FAILED, task_id="y", place="x:1 in y"),
    ]
    failures.record([*several, replace(several[0], retries=1, message="No capture 9"), *other])
    first, *others = failures.causes(failures.found())
    assert (first.tries, first.tasks, first.message) == (4, 3, "No capture <n>")
    assert [each.tries for each in others] == [1, 1, 1]
    assert [row.task_id for row in failures.found(cause=first.cause)].count("id 0") == 2


def test_search_and_filters():
    failures.record([FAILED, replace(FAILED, task_id="b", task="other", message="disk full", place="")])
    old = replace(FAILED, task_id="old", failed_at=FAILED.failed_at - 7200)
    failures.record([old])
    assert {row.task_id for row in failures.found(search="DISK")} == {"b"}
    assert {row.task_id for row in failures.found(task="other")} == {"b"}
    assert {row.task_id for row in failures.found(since=timezone.now() - timedelta(hours=1))} == {"an-id", "b"}


def test_old_failures_are_deleted_and_no_more_than_the_most_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(failures, "MOST_KEPT", 3)
    ancient = replace(FAILED, task_id="ancient", failed_at=FAILED.failed_at - 31 * 86400)
    failures.record([ancient, *(replace(FAILED, task_id=str(number)) for number in range(5))])
    failures.forget_old()
    assert sorted(TaskFailure.objects.values_list("task_id", flat=True)) == ["2", "3", "4"]


def test_dead_letter_names_its_last_failure_and_one_without_keeps_the_brokers_reason(django_assert_num_queries: Any):
    failures.record([FAILED, replace(FAILED, retries=1, failed_at=FAILED.failed_at + 1, message="at last")])
    letters = [DeadLetter("q.dlq", name, "ami.ml.tasks.save", "rejected", 1, "", "broker's") for name in ("an-id", "b")]
    with django_assert_num_queries(1):
        known, unknown = failures.explained(letters)
    assert known.detail == "ValueError: at last at ami/ml/tasks.py:12 in save (try 2 on ingest@a, after 1.2 s)"
    assert unknown == letters[1]


def test_command_lists_groups_and_shows_all_tries_of_a_task():
    failures.record([FAILED, replace(FAILED, retries=1, failed_at=FAILED.failed_at + 1)])
    assert "ami.ml.tasks.save" in shown()[0]
    data = json.loads(shown("--causes", "--json")[0])
    assert (data[0]["tries"], data[0]["tasks"], data[0]["exception"]) == (2, 1, "ValueError")
    text, code = shown("an-id")
    assert (code, text.count("in save"), "Try 2:" in text) == (0, 2, True)
    tries = json.loads(shown("an-id", "--json")[0])
    assert [(each["retries"], each["seconds"]) for each in tries] == [(0, 1.25), (1, 1.25)]
    text, code = shown("unknown")
    assert (code, "No failure of 'unknown' is on record" in text) == (1, True)


def test_admin_shows_the_traceback_with_the_projects_lines_set_off_and_failures_of_the_same_cause():
    failures.record([FAILED, replace(FAILED, task_id="b", message="No capture <script> 3 of job 5")])
    client = Client()
    client.force_login(factories.user(is_staff=True, is_superuser=True))
    row = TaskFailure.objects.get(task_id="an-id")
    page = client.get(f"/admin/queues/taskfailure/{row.pk}/change/").content.decode()
    assert "<strong>    raise ValueError(&quot;x&quot;)</strong>" in page
    assert "<strong>    R = fun()" not in page
    assert f"?q={row.cause}" in page
    listed = client.get("/admin/queues/taskfailure/", {"q": row.cause}).content.decode()
    assert "an-id" not in listed or "<script> 3" not in listed
    assert client.post(f"/admin/queues/taskfailure/{row.pk}/change/", {"message": "x"}).status_code == 403
