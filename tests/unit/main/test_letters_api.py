"""Staff read and replay dead letters through the API; without the permission nothing is shown and nothing changes."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app
from django.conf import settings
from django.contrib.auth.models import Permission
from rest_framework.test import APIClient

from ami.queues.letters import replays
from ami.queues.models import AuditEntry, Letter
from tests.support.brokers import celery_at
from tests.support.dead_letters import QUEUE, TASK, letter
from tests.support.product import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
LETTERS, REPLAYS, DISABLED = "/api/v2/letters/", "/api/v2/replays/", "/api/v2/disabled/"
SECRET = '[["canary-1234"], {}, {}]'


@pytest.fixture(autouse=True)
def broker(settings: Any) -> Iterator[None]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with celery_at("objectstore+memory://letters-api"):
        current_app.declare_everything()
        yield


def client(*codenames: str) -> APIClient:
    user = factories.user(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="queues", codename__in=codenames))
    made = APIClient()
    made.force_authenticate(user)
    return made


def post(made: APIClient, address: str, **body: Any) -> Any:
    return made.post(address, body, format="json")


def test_letters_are_listed_grouped_and_shown_without_their_message():
    rows = [letter(number, SECRET) for number in range(3)]
    reader = client("view_letter")
    answers = [
        reader.get(LETTERS, {"limit": 2, "queue": QUEUE}),
        reader.get(f"{LETTERS}causes/"),
        reader.get(f"{LETTERS}counts/", {"by": "day"}),
        reader.get(f"{LETTERS}{rows[0].pk}/"),
        reader.get(REPLAYS),
    ]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert [row["task_id"] for row in answers[0].json()] == ["id-2", "id-1"]
    assert [group["letters"] for group in answers[1].json()] == [3]
    assert [count["letters"] for count in answers[2].json()] == [3]
    assert answers[3].json()["trail"][0]["what"] == "died"
    assert "canary" not in "".join(answer.content.decode() for answer in answers)
    for address, code in ((f"{LETTERS}999999/", 404), (f"{REPLAYS}999999/", 404)):
        assert reader.get(address).status_code == code
    for query in ({"queue": "nowhere"}, {"state": "nonsense"}, {"limit": "0"}):
        assert reader.get(LETTERS, query).status_code == 400


def test_message_is_read_with_its_own_permission_and_recorded():
    key = letter(1, SECRET).pk
    assert client("view_letter", "replay_letter").get(f"{LETTERS}{key}/body/").status_code == 403
    answer = client("read_letter_body").get(f"{LETTERS}{key}/body/")
    assert (answer.status_code, answer.content.decode()) == (200, SECRET)
    assert AuditEntry.objects.get().verb == "read letter"


def test_replay_begins_and_is_stopped_and_resumed():
    letter(1)
    letter(2)
    made = client("replay_letter", "view_letter")
    assert post(made, f"{LETTERS}replay/", task=TASK, dry_run=True).json() == {"would_replay": 2}
    assert post(made, f"{LETTERS}replay/").status_code == 400
    for body in ({"all": True, "limit": 10**30}, {"ids": [10**30]}):
        assert post(made, f"{LETTERS}replay/", **body).status_code == 400
    assert post(made, f"{LETTERS}replay/", task="nothing").status_code == 400
    begun = post(made, f"{LETTERS}replay/", task=TASK, rate=10, why="fixed")
    assert (begun.status_code, begun.json()["total"]) == (202, 2)
    address = f"{REPLAYS}{begun.json()['id']}/"
    assert post(made, f"{address}stop/").json()["state"] == "stopped"
    assert post(made, f"{address}stop/").status_code == 400
    assert post(made, f"{address}resume/").json()["state"] == "running"
    with current_app.connection_for_write() as connection:
        replays.work(settings.ANTENNA_TOPOLOGY, connection, begun.json()["id"])
    assert made.get(address).json()["done"] == 2
    assert post(client("view_letter"), f"{LETTERS}replay/", all=True).status_code == 403


def test_letter_is_edited_and_discarded():
    row = letter(1)
    made = client("edit_letter", "discard_letter")
    assert post(made, f"{LETTERS}{row.pk}/edit/", args=[]).status_code == 400
    wrong = post(made, f"{LETTERS}{row.pk}/edit/", kwargs={"nonsense": 1}, why="x")
    assert (wrong.status_code, "does not take" in str(wrong.json())) == (400, True)
    assert post(made, f"{LETTERS}{row.pk}/edit/", args=[], why="a typing error").status_code == 202
    letter(2)
    assert post(made, f"{LETTERS}discard/", ids=[row.pk, row.pk + 1], why="x").json() == {"discarded": 2}
    assert set(Letter.objects.values_list("state", flat=True)) == {"discarded"}
    assert set(AuditEntry.objects.values_list("verb", flat=True)) == {"edit letter", "replay", "discard"}


def test_tasks_are_disabled_and_enabled_and_states_are_read():
    made = client("disable_task", "view_taskrun")
    assert post(made, f"{DISABLED}disable/", name="no such task").status_code == 400
    for name in (TASK, "job:12"):
        assert post(made, f"{DISABLED}disable/", name=name, why="x").status_code == 200
    assert {row["what"] for row in made.get(DISABLED).json()} == {TASK, "job:12"}
    assert post(made, f"{DISABLED}enable/", name=TASK).status_code == 200
    assert post(made, f"{DISABLED}enable/", name=TASK).status_code == 400
    assert post(client(), f"{DISABLED}disable/", name=TASK).status_code == 403
    rows = made.get("/api/v2/states/").json()
    assert all(row["initial"] + row["pending"] == row["computing"] + row["awaiting"] for row in rows)
    assert set(made.get("/api/v2/states/snapshot/").json()["antenna"]) >= {"queued", "running", "workers"}
    letter(1)
    assert made.get("/api/v2/tasks/id-1/state/").json()["state"] == "failed"
    assert made.get("/api/v2/tasks/unknown/state/").json()["state"].startswith("no trace")
    assert made.get("/api/v2/tasks/unknown/state/?search=1").status_code == 403
