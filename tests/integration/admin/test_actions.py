"""Every admin action that publishes a task: the message to the user and the message in the queue."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.messages import get_messages
from django.urls import reverse
from django_celery_beat.models import PeriodicTask

from ami.admission.models import Call
from ami.jobs.models import Job
from ami.main.models import BulkDeletion, Deployment
from ami.queues.admin_site.user_messages import NOTHING_SELECTED
from tests.support.place import Place, new_place
from tests.support.product import admin_rows, factories

INTERACTIVE = "antenna-interactive"
FLOWER = "http://flower.example:5555/task/"


@dataclass(frozen=True)
class Action:
    """An action on a row, and the task that it publishes."""

    make: Callable[[], Any]
    name: str
    task: str


ACTIONS = [
    Action(admin_rows.job, "run", "ami.jobs.tasks.run_job"),
    Action(admin_rows.failed_job, "run", "ami.jobs.tasks.run_job"),
    Action(admin_rows.failed_job, "retry", "ami.jobs.tasks.run_job"),
    Action(admin_rows.service, "check_now", "ami.ml.tasks.check_processing_service"),
    Action(admin_rows.event, "refresh_counts", "ami.main.tasks.refresh_event_calculated_fields"),
    Action(factories.station, "refresh_counts", "ami.main.tasks.refresh_deployment_calculated_fields"),
    Action(factories.project, "refresh_counts", "ami.main.tasks.refresh_project_calculated_fields"),
    Action(lambda: factories.capture(factories.station()), "reprocess_captures", "ami.ml.tasks.reprocess_captures"),
    Action(lambda: factories.capture(factories.station()), "bulk_delete", "ami.main.tasks.bulk_delete"),
    Action(factories.project, "export_occurrences_csv", "ami.jobs.tasks.run_job"),
    Action(admin_rows.export, "run_again", "ami.exports.tasks.run_export"),
    Action(admin_rows.collection, "populate", "ami.main.tasks.populate_collection"),
    Action(factories.station, "regroup", "ami.main.tasks.regroup_events"),
    Action(admin_rows.synced_station, "sync", "ami.main.tasks.sync_source_images"),
    Action(admin_rows.synced_station, "update_public_urls", "ami.main.tasks.update_public_urls"),
    Action(admin_rows.entry, "run_tasks", "ami.ml.tasks.check_processing_services_online"),
]
#: Actions that publish nothing.
SILENT = {"delete_selected", "cancel", "enable_tasks", "disable_tasks", "toggle_tasks", "revoke", "share"}
#: What changes queues and workers, and publishes nothing (`ami.queues.admin_operations`).
SILENT |= {
    "pause",
    "resume",
    "peek",
    "purge",
    "move",
    "replay",
    "discard",
    "park",
    "unpark",
    "stop",
    "scale",
    "restart",
    "disable",
    "enable",
}


def changelist(model: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def act(browser: Any, model: Any, action: str, *pks: int) -> list[str]:
    """Run an action on rows; return the messages to the user."""
    answer = browser.post(changelist(model), {"action": action, "index": 0, "_selected_action": pks})
    assert answer.status_code in (200, 302)  # 200: the list again, to who has no action at all
    shown = [str(message) for message in get_messages(answer.wsgi_request)]
    browser.get(changelist(model))  # shows the messages, so that the next action's stand alone
    return shown


@dataclass(frozen=True)
class Sent:
    """A task that was published: a message, or the row of a task with a policy."""

    id: str
    task: str
    origin: str
    body: str

    @property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs, *_ = json.loads(self.body)
        return args, kwargs


def taken(place: Any, queue: str) -> list[Sent]:
    """Take everything that waits for a queue."""
    found = []
    for row in Call.objects.filter(queue=queue).order_by("pk"):
        found.append(Sent(row.task_id, row.task, json.loads(row.options)["headers"]["antenna_origin"], row.arguments))
        row.delete()
    with place.app.connection_for_read() as connection, connection.channel() as channel:
        while message := channel.basic_get(queue, no_ack=True):
            headers = message.headers
            found.append(Sent(headers["id"], headers["task"], headers["antenna_origin"], message.body))
    return found


def waiting(place: Any) -> dict[str, int]:
    rows = Counter(Call.objects.values_list("queue", flat=True))
    found = {queue: place.depth(queue) + rows[queue] for queue in place.app.topology.queues}
    return {queue: count for queue, count in found.items() if count}


@pytest.fixture(scope="module")
def declared() -> Iterator[Place]:
    """A broker with all queues declared."""
    with new_place("actions") as made:
        made.queues("declare")
        yield made


@pytest.fixture
def place(declared: Place, db: None) -> Place:  # noqa: ARG001
    """The broker of this module, with empty queues."""
    for queue in waiting(declared):
        taken(declared, queue)
    return declared


def test_action_publishes_to_interactive_and_reports_the_task(place, browser):
    for action in ACTIONS:
        row = action.make()
        shown = act(browser, type(row), action.name, row.pk)
        [message] = taken(place, INTERACTIVE)
        assert (message.task, message.origin) == (action.task, "person"), action
        [text] = shown
        assert message.id in text, action
        assert INTERACTIVE in text, action
        assert f'href="{FLOWER}{message.id}"' in text, action
    assert not waiting(place)


def test_reader_neither_sees_the_action_nor_runs_it(place, reader):
    for action in ACTIONS:
        row = action.make()
        page = reader.get(changelist(type(row)))
        assert page.status_code == 200, action
        assert f'<option value="{action.name}"'.encode() not in page.content, action
        act(reader, type(row), action.name, row.pk)
    assert not waiting(place)


def test_action_on_no_or_deleted_rows_says_so_and_publishes_nothing(place, browser):
    for action in ACTIONS:
        row = action.make()
        pk, model = row.pk, type(row)
        assert "must be selected" in " ".join(act(browser, model, action.name)), action
        model.objects.filter(pk=pk).delete()
        assert act(browser, model, action.name, pk) == [NOTHING_SELECTED], action
    assert not waiting(place)


def test_every_publishing_action_is_in_the_table(rf, superuser):
    request = rf.get("/admin/")
    request.user = superuser
    offered = {
        (model.__name__, name) for model, shown in admin.site._registry.items() for name in shown.get_actions(request)
    }
    tested = {(type(action.make()).__name__, action.name) for action in ACTIONS}
    assert {pair for pair in offered if pair[1] not in SILENT} == tested


def test_every_action_declares_its_permission(rf, superuser):
    request = rf.get("/admin/")
    request.user = superuser
    bare = {
        (model.__name__, name)
        for model, shown in admin.site._registry.items()
        for name, (function, *_) in shown.get_actions(request).items()
        if not getattr(function, "allowed_permissions", None)
    }
    assert not bare


def test_cancel_revokes_the_job_and_reports_when_it_is_too_late(place, browser, reader):
    job = admin_rows.job()
    act(reader, Job, "cancel", job.pk)
    job.refresh_from_db()
    assert job.status == "CREATED"
    assert act(browser, Job, "cancel", job.pk) == [f"Job {job.pk} is REVOKED."]
    assert act(browser, Job, "cancel", job.pk) == [f"Job {job.pk} is REVOKED already."]
    assert not waiting(place)


def test_running_job_cannot_be_retried_and_the_user_sees_why(place, browser):
    job = admin_rows.job("STARTED")
    [text] = act(browser, Job, "retry", job.pk)
    assert re.search(r"STARTED; only a finished job", text)
    assert not waiting(place)


def test_action_on_many_rows_publishes_and_reports_each(place, browser):
    stations = [factories.station() for _ in range(5)]
    shown = act(browser, Deployment, "regroup", *[station.pk for station in stations])
    sent = taken(place, INTERACTIVE)
    assert len(sent) == len(shown) == 5
    assert all(any(message.id in text for text in shown) for message in sent)


def test_station_without_a_source_is_reported_and_others_are_synced(place, browser):
    bare, full = factories.station(name="Bare"), admin_rows.synced_station()
    for action in ("sync", "update_public_urls"):
        shown = act(browser, Deployment, action, bare.pk, full.pk)
        assert any(text.startswith("Bare has no storage source") for text in shown)
        assert len(taken(place, INTERACTIVE)) == 1


def test_message_for_a_thousand_captures_carries_one_key(place, browser):
    station = factories.station()
    pks = [capture.pk for capture in factories.captures(station, 300)]
    [text] = act(browser, type(station.captures.first()), "bulk_delete", *pks)
    assert "300 captures" in text
    [message] = taken(place, INTERACTIVE)
    assert len(message.body) < 500
    assert BulkDeletion.objects.get().pks == pks


def test_schedule_entry_runs_with_its_arguments_and_errors_are_named(place, browser):
    task = "ami.ml.tasks.check_processing_service"
    keyed, placed = admin_rows.entry(task, kwargs='{"service_id": 7}'), admin_rows.entry(task, args="[8]")
    wrong = [
        admin_rows.entry(task, kwargs='{"nonsense": 7}'),
        admin_rows.entry(task, kwargs="[]"),
        admin_rows.entry(task, kwargs="{"),
        admin_rows.entry("no.such.task"),
    ]
    shown = act(browser, PeriodicTask, "run_tasks", *[row.pk for row in (keyed, placed, *wrong)])
    assert sorted(sent.arguments for sent in taken(place, INTERACTIVE)) == [([], {"service_id": 7}), ([8], {})]
    assert sum("do not fit" in text for text in shown) == 3
    assert any("no.such.task is not registered" in text for text in shown)


def test_reader_cannot_disable_the_schedule(reader):
    entry = admin_rows.entry()
    for action in ("disable_tasks", "toggle_tasks"):
        act(reader, PeriodicTask, action, entry.pk)
    entry.refresh_from_db()
    assert entry.enabled
