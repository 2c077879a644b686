"""The schedule in the admin, and the messages after a click."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.messages import get_messages
from django.contrib.messages.storage.base import BaseStorage
from django.test import Client, RequestFactory
from django.urls import reverse
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.main.models import User
from ami.queues.admin import PeriodicTaskAdmin
from ami.queues.admin_site.user_messages import report_published
from ami.queues.publish import PublishedTask
from ami.topology.router import ORIGIN_HEADER

TASK = "ami.jobs.tasks.audit_jobs"
RECOUNT = "ami.main.tasks.refresh_event_calculated_fields"


class Kept(BaseStorage):
    """Messages kept in the request alone."""

    def _get(self, *_: Any, **__: Any) -> tuple[list[Any], bool]:
        return [], True

    def _store(self, messages: list[Any], *_: Any, **__: Any) -> list[Any]:
        return []


def shown(what: str, published: PublishedTask) -> str:
    request = RequestFactory().get("/")
    request._messages = Kept(request)
    report_published(request, what, published)
    (message,) = list(get_messages(request))
    assert message.level_tag == "success"
    return str(message)


def test_message_names_id_queue_and_link():
    text = shown("audit", PublishedTask("7f", "antenna-interactive", "http://flower.example/task/7f"))
    assert text.startswith("audit: task 7f sent to antenna-interactive.")
    assert '<a href="http://flower.example/task/7f">Watch it in Flower</a>' in text


def test_without_flower_there_is_no_link():
    text = shown("audit", PublishedTask("7f", "antenna-interactive", None))
    assert "Flower" not in text
    assert text.count("<a ") == 1
    assert '<a href="/admin/queues/task/7f/">Its page</a>' in text


def test_what_a_person_typed_is_escaped():
    assert "<script>" not in shown("<script>alert(1)</script>", PublishedTask("7f", "antenna", None))


def test_schedule_is_registered_with_our_own_action():
    registered = admin.site._registry[PeriodicTask]
    assert isinstance(registered, PeriodicTaskAdmin)
    assert registered.run_tasks.__func__.allowed_permissions == ["change"]


@pytest.fixture
def browser(db: None) -> Client:
    browser = Client()
    browser.force_login(User.objects.create_superuser("root@example.org", "secret-word"))
    return browser


def run_selected(browser: Client, *rows: PeriodicTask) -> list[str]:
    path = reverse("admin:django_celery_beat_periodictask_changelist")
    answer = browser.post(path, {"action": "run_tasks", "_selected_action": [row.pk for row in rows]})
    assert answer.status_code == 302
    return [str(message) for message in get_messages(answer.wsgi_request)]


def entry(task: str, **fields: Any) -> PeriodicTask:
    interval, _ = IntervalSchedule.objects.get_or_create(every=1, period="days")
    return PeriodicTask.objects.create(name=f"daily {task}", task=task, interval=interval, **fields)


@pytest.mark.usefixtures("as_messages")
def test_run_selected_tasks_publishes_for_a_person_with_the_arguments(
    browser: Client, sent: list[dict[str, Any]], django_capture_on_commit_callbacks: Any
):
    with django_capture_on_commit_callbacks(execute=True):
        (text,) = run_selected(browser, entry(RECOUNT, kwargs='{"event_id": 3}'))
    (message,) = sent
    assert (message["name"], message["kwargs"]) == (RECOUNT, {"event_id": 3})
    assert message["headers"][ORIGIN_HEADER] == "person"
    assert f"{RECOUNT}: task {message['task_id']} sent to antenna-interactive." in text


@pytest.mark.usefixtures("as_messages")
def test_positional_arguments_of_an_entry_are_sent_too(
    browser: Client, sent: list[dict[str, Any]], django_capture_on_commit_callbacks: Any
):
    with django_capture_on_commit_callbacks(execute=True):
        run_selected(browser, entry(RECOUNT, args="[5]"))
    assert [list(message["args"] or ()) for message in sent] == [[5]]


def test_entry_of_a_removed_task_is_named_and_the_others_are_sent(
    browser: Client, sent: list[dict[str, Any]], django_capture_on_commit_callbacks: Any
):
    with django_capture_on_commit_callbacks(execute=True):
        texts = run_selected(browser, entry("ami.removed"), entry(TASK))
    assert "ami.removed is not registered; nothing was sent." in texts
    assert [message["name"] for message in sent] == [TASK]
