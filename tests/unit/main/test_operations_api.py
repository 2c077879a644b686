"""Staff operate queues and workers through the API; without the permission nothing changes."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db.models.functions import Now
from django.utils import timezone
from rest_framework.test import APIClient

from ami.queues.models import AuditEntry, DesiredState, TaskFailure, Worker
from tests.support.brokers import celery_at
from tests.support.product import factories

pytestmark = pytest.mark.django_db
QUEUE = "antenna-ingest"


@pytest.fixture(autouse=True)
def broker():
    with celery_at("objectstore+memory://operations-api"):
        yield


def client(*codenames: str, is_staff: bool = True) -> APIClient:
    user = factories.user(is_staff=is_staff)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="queues", codename__in=codenames))
    made = APIClient()
    made.force_authenticate(user)
    return made


def worker(**fields: Any) -> Worker:
    values = {"service": "celeryworker_ingest", "host": "a", "queues": [QUEUE], "pid": 1, "seen_at": Now()}
    return Worker.objects.create(node="ingest@a", started_at=timezone.now(), **values | fields)


def test_pause_names_who_has_confirmed_and_who_asked():
    worker(closed_queues=[QUEUE])
    answer = client("pause_queue").post(f"/api/v2/queues/{QUEUE}/pause/", {"why": "a full disk"}, format="json")
    assert (answer.status_code, answer.json()["confirmed"]) == (200, ["ingest@a"])
    assert DesiredState.objects.get().value == 1
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.source, entry.why, entry.user_id is not None) == ("pause", "api", "a full disk", True)
    client("pause_queue").post(f"/api/v2/queues/{QUEUE}/resume/", {"wait_seconds": 0}, format="json")
    assert DesiredState.objects.get().value == 0


def test_failures_and_their_causes_are_shown_to_who_may_see_them():
    failed = {"retries": 0, "delivery": 0, "task": "t", "kind": "error", "exception": "ValueError", "cause": "c"}
    for number in range(3):
        TaskFailure.objects.create(task_id=str(number), message="disk full", failed_at=timezone.now(), **failed)
    reader = client("view_taskfailure")
    found = reader.get("/api/v2/failures/", {"search": "DISK", "limit": 2}).json()
    assert [row["task_id"] for row in found] == ["2", "1"]
    (cause,) = reader.get("/api/v2/failures/causes/").json()
    assert (cause["tries"], cause["tasks"], cause["exception"]) == (3, 3, "ValueError")
    assert reader.get("/api/v2/failures/", {"limit": "0"}).status_code == 400
    for other in (client(), client("view_taskfailure", is_staff=False)):
        assert other.get("/api/v2/failures/").status_code == 403


@pytest.mark.parametrize(
    ("address", "body"),
    [
        (f"queues/{QUEUE}/pause/", {}),
        ("workers/ingest@a/park/", {}),
        ("workers/ingest@a/scale/", {"count": 1}),
        ("tasks/8e330601-d959-44cb-9131-71a5720fc5bd/cancel/", {}),
    ],
)
def test_viewer_sees_and_cannot_touch(address: str, body: dict[str, Any]):
    worker()
    viewer = client("view_auditentry")
    for seen in ("queues/", "workers/", "audit/"):
        assert viewer.get(f"/api/v2/{seen}").status_code == 200
        assert client(is_staff=False).get(f"/api/v2/{seen}").status_code == 403
    assert viewer.post(f"/api/v2/{address}", body, format="json").status_code == 403
    assert not DesiredState.objects.exists()
    allowed = client("pause_queue", "control_workers", "cancel_task")
    assert allowed.post(f"/api/v2/{address}", {**body, "wait_seconds": 0}, format="json").status_code == 200
    assert DesiredState.objects.exists()


@pytest.mark.parametrize(
    ("address", "body", "said"),
    [
        ("queues/antena-ingest/pause/", {}, "Did you mean 'antenna-ingest'?"),
        (f"queues/{QUEUE}/pause/", {"until": "2020-01-01T00:00:00Z"}, "is over"),
        (f"queues/{QUEUE}/resume/", {"until": "2099-01-01T00:00:00Z"}, "does not undo itself"),
        ("workers/ingest@b/park/", {}, "Did you mean 'ingest@a'?"),
        ("workers/ingest@a/scale/", {"count": 1000}, "holds"),
        ("tasks/not an id/cancel/", {}, "is not a task's id"),
        (f"queues/{QUEUE}/pause/", {"why": "x" * 501}, "500"),
    ],
)
def test_wrong_input_is_a_400_with_a_sentence(address: str, body: dict[str, Any], said: str):
    worker()
    staff = client("pause_queue", "control_workers", "cancel_task")
    answer = staff.post(f"/api/v2/{address}", {**body, "wait_seconds": 0}, format="json")
    assert answer.status_code == 400
    assert said in answer.content.decode()
    assert not DesiredState.objects.exists()


def test_messages_are_looked_at_moved_and_deleted(app: Any):
    from ami.celery.declaration import declare

    with app.connection_for_write() as connection:
        declare(app.topology, connection)
    ids = [app.send_task("ami.jobs.tasks.audit_jobs", queue=QUEUE).id for _ in range(3)]
    staff, viewer = client("peek_queue", "purge_queue", "move_messages"), client()
    address = f"/api/v2/queues/{QUEUE}/"
    for verb in ("move/", "purge/"):
        assert viewer.post(f"{address}{verb}", {"to": "antenna"}, format="json").status_code == 403
    assert viewer.get(f"{address}peek/").status_code == 403
    assert [each["task_id"] for each in staff.get(f"{address}peek/?limit=2").json()["messages"]] == ids[:2]
    assert staff.get(f"{address}peek/?limit=21").status_code == 400
    assert staff.post(f"{address}move/", {"to": QUEUE}, format="json").status_code == 400
    assert staff.post(f"{address}move/", {"to": "antenna", "limit": 1}, format="json").json() == {
        "moved": 1,
        "passed": 0,
        "calls": 0,
    }
    assert staff.post(f"{address}purge/", {"dry_run": True}, format="json").json() == {"would_purge": 2}
    for wrong in ({}, {"count": 9}):
        refused = staff.post(f"{address}purge/", {"why": "a test", **wrong}, format="json")
        assert (refused.status_code, "2 wait" in refused.content.decode()) == (400, True)
    assert staff.post(f"{address}purge/", {"why": "a test", "count": 2}, format="json").json() == {"purged": 2}
    assert list(AuditEntry.objects.order_by("pk").values_list("verb", "source")) == [("move", "api"), ("purge", "api")]


@pytest.mark.parametrize("address", ["queues/", f"queues/{QUEUE}/pause/", "workers/ingest@a/scale/", "audit/"])
def test_options_are_answered(address: str):
    staff = client("pause_queue", "control_workers")
    assert staff.options(f"/api/v2/{address}").status_code == 200
