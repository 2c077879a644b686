"""The admin's lists of queues and workers: who has the permission acts, a viewer only looks."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth.models import Permission
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone
from kombu import Producer

from ami.queues.models import AuditEntry, DesiredState, TaskRun, Worker
from tests.support.brokers import celery_at
from tests.support.product import factories

pytestmark = pytest.mark.django_db
WORKERS, WISHES, RUNS = "/admin/queues/worker/", "/admin/queues/desiredstate/", "/admin/queues/taskrun/"


@pytest.fixture(autouse=True)
def broker():
    with celery_at("objectstore+memory://admin-operations"):
        yield


@pytest.fixture
def worker() -> Worker:
    return Worker.objects.create(
        node="ingest@a", host="a", queues=["antenna-ingest"], pid=1, started_at=timezone.now(), seen_at=Now()
    )


def client(*codenames: str) -> Client:
    user = factories.user(is_staff=True)
    views = [f"view_{model}" for model in ("desiredstate", "worker", "taskrun", "auditentry")]
    found = Permission.objects.filter(content_type__app_label="queues", codename__in=[*codenames, *views])
    user.user_permissions.set(found)
    made = Client()
    made.force_login(user)
    return made


def act(made: Client, address: str, action: str, pk: Any, **more: str) -> Any:
    return made.post(address, {"action": action, "_selected_action": pk, **more})


def test_worker_is_parked_after_the_reason_was_asked(worker: Worker):
    made = client("control_workers")
    page = act(made, WORKERS, "park", worker.pk)
    assert 'name="why"' in page.content.decode()
    assert not DesiredState.objects.exists()
    act(made, WORKERS, "park", worker.pk, confirmed="yes", why="a new disk")
    wish = DesiredState.objects.get()
    assert (wish.kind, wish.name, wish.aspect, wish.value, wish.why) == ("node", "ingest@a", "parked", 1, "a new disk")
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.source, entry.why) == ("park", "admin", "a new disk")


def test_queue_is_paused_and_resumed_in_the_list():
    made = client("pause_queue")
    assert "antenna-ingest" in made.get(WISHES).content.decode()
    row = DesiredState.objects.get(name="antenna-ingest")
    for action, value in (("pause", 1), ("resume", 0)):
        act(made, WISHES, action, row.pk, confirmed="yes")
        row.refresh_from_db()
        assert row.value == value


def test_until_undoes_itself_and_one_that_is_over_changes_nothing(worker: Worker):
    made = client("control_workers")
    page = act(made, WORKERS, "park", worker.pk, confirmed="yes", until="2020-01-31T06:00")
    assert page.status_code == 302
    act(made, WORKERS, "park", worker.pk, confirmed="yes", until="tomorrow")
    assert not DesiredState.objects.exists()
    shown = made.get(WORKERS).content.decode()
    assert "is over" in shown
    assert "is not a time such as" in shown
    act(made, WORKERS, "park", worker.pk, confirmed="yes", until="2999-01-31T06:00")
    assert DesiredState.objects.get().until.year == 2999


def test_worker_is_scaled_and_a_wrong_number_is_refused(worker: Worker):
    made = client("control_workers")
    for count in ("1", "-1", "many", "", "100000"):
        act(made, WORKERS, "scale", worker.pk, confirmed="yes", count=count)
    assert [row.value for row in DesiredState.objects.all()] == [1]


def test_running_task_is_cancelled_with_its_own_permission(worker: Worker):
    now = timezone.now()
    run = TaskRun.objects.create(task_id="an-id", task="t", node=worker.node, started_at=now, seen_at=now)
    act(client("control_workers"), RUNS, "cancel", run.pk, confirmed="yes")
    assert not DesiredState.objects.exists()
    act(client("cancel_task"), RUNS, "cancel", run.pk, confirmed="yes", why="wrong station")
    wish = DesiredState.objects.get()
    assert (wish.kind, wish.name, wish.aspect, wish.why) == ("task", "an-id", "cancelled", "wrong station")


@pytest.fixture
def waiting():
    """Three messages that wait in the ingest queue."""
    with current_app.connection_for_write() as connection, connection.channel() as channel:
        for queue in ("antenna-ingest", "antenna-housekeeping"):
            channel.queue_declare(queue)
            channel.queue_purge(queue)
        for number in range(3):
            headers = {"task": f"task {number % 2}", "id": str(number)}
            Producer(channel).publish([[], {}, {}], routing_key="antenna-ingest", headers=headers, serializer="json")
        yield lambda queue: channel.queue_declare(queue, passive=True).message_count


def queue_row(made: Client) -> int:
    made.get(WISHES)
    return DesiredState.objects.get(name="antenna-ingest").pk


def test_messages_are_shown_moved_and_deleted(waiting: Callable[[str], int]):
    made = client("peek_queue", "move_messages", "purge_queue")
    pk = queue_row(made)
    assert made.post(WISHES, {"action": "peek", "_selected_action": pk}).content.decode().count("<td>task 0</td>") == 2
    asked = act(made, WISHES, "move", pk).content.decode()
    assert "<option>antenna-housekeeping</option>" in asked
    act(made, WISHES, "move", pk, confirmed="yes", to="antenna-housekeeping", task="task 0", limit="")
    assert (waiting("antenna-ingest"), waiting("antenna-housekeeping")) == (1, 2)
    act(made, WISHES, "move", pk, confirmed="yes", to="antenna-housekeping", task="", limit="")
    assert "antenna-housekeeping" in made.get(WISHES).content.decode()
    assert waiting("antenna-ingest") == 1
    assert "1 wait in antenna-ingest now." in act(made, WISHES, "purge", pk).content.decode()
    act(made, WISHES, "purge", pk, confirmed="yes", why="a test", count="3")
    assert waiting("antenna-ingest") == 1
    act(made, WISHES, "purge", pk, confirmed="yes", why="a test", count="1")
    assert waiting("antenna-ingest") == 0
    assert [(row.verb, row.after) for row in AuditEntry.objects.order_by("pk")] == [
        ("move", {"moved": 2, "passed": 1, "calls": 0}),
        ("purge", {"purged": 1}),
    ]


def test_who_may_pause_may_not_delete_move_or_look(waiting: Callable[[str], int]):
    made = client("pause_queue")
    pk = queue_row(made)
    for action in ("peek", "purge", "move"):
        page = act(made, WISHES, action, pk, confirmed="yes", to="antenna-housekeeping", limit="", task="")
        assert "task 0" not in page.content.decode()
    assert (waiting("antenna-ingest"), waiting("antenna-housekeeping")) == (3, 0)


def test_viewer_has_no_actions_and_changes_nothing(worker: Worker):
    viewer = client()
    page = viewer.get(WORKERS).content.decode()
    assert "ingest@a" in page
    assert 'name="action"' not in page
    act(viewer, WORKERS, "park", worker.pk, confirmed="yes")
    assert not DesiredState.objects.exists()
    for address in ("queues/auditentry/", "queues/taskrun/"):
        assert viewer.get(f"/admin/{address}").status_code == 200
    assert viewer.post("/admin/queues/worker/add/").status_code == 403
    assert viewer.post(f"/admin/queues/worker/{worker.pk}/change/", {"host": "b"}).status_code == 403
