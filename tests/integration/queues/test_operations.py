"""The operations on queues, workers and tasks: what they record, refuse and show, through the command."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from ami.queues import messages
from ami.queues.models import AuditEntry, DesiredState, Worker
from tests.support.place import BROKERS, Place, new_place

QUEUE, OTHER = "antenna-ingest", "antenna"
T = "tests.support.worker_tasks.basic"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=BROKERS)
def place(request: pytest.FixtureRequest):
    with new_place("operations", request.param) as made:
        made.queues("declare")
        yield made


def worker(node: str = "ingest@a", **fields: Any) -> Worker:
    values = {
        "service": "celeryworker_ingest",
        "host": node.partition("@")[2],
        "queues": [QUEUE],
        "pid": 1,
        "started_at": timezone.now(),
        "seen_at": Now(),
        "is_connected": True,
        "concurrency": 2,
    }
    return Worker.objects.create(node=node, **values | fields)


def test_pause_names_who_has_not_confirmed_and_is_recorded(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ami.queues.confirmations.WAIT_SECONDS", 0.3)
    worker("ingest@a", closed_queues=[QUEUE])
    worker("ingest@b")
    worker("ingest@c", seen_at=timezone.now() - timedelta(minutes=1))
    done = place.queues("pause", QUEUE, "--why", "a full disk", check=False)
    assert done.json == {"confirmed": ["ingest@a"], "missing": ["ingest@b"], "stale": ["ingest@c"], "left": []}
    assert done.code == 1
    entry = AuditEntry.objects.get(verb="pause")
    assert (entry.target, entry.why, entry.source, entry.before) == (f"queue {QUEUE}", "a full disk", "command", None)
    assert entry.after == {"paused": 1, "until": None}
    assert "a full disk" in next(row for row in place.queues("list").json if row["queue"] == QUEUE)["paused"]

    assert place.queues("resume", QUEUE, "--no-wait").code == 0
    assert AuditEntry.objects.get(verb="resume").before["paused"] == 1
    assert [row["verb"] for row in place.queues("audit").json][:2] == ["resume", "pause"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["pause", "antena-ingest"], "Did you mean 'antenna-ingest'?"),
        (["drain", "nothing"], "No workload consumes 'nothing'"),
        (["pause", QUEUE, "--until", "2020-01-01T00:00"], "is over"),
        (["pause", QUEUE, "--why", "x" * 501], "at most 500"),
        (["park", "ingest@b"], "Did you mean 'ingest@a'?"),
        (["scale", "ingest@a", "1000"], "holds"),
        (["scale", "ingest@a", "-1"], "not a number of processes"),
        (["move", QUEUE, "--to", QUEUE, "--yes"], "another queue"),
        (["move", QUEUE, "--to", "antena", "--yes"], "Did you mean"),
        (["purge", "antena", "--yes"], "Did you mean"),
        (["cancel", "not an id"], "is not a task's id"),
    ],
)
def test_wrong_input_is_one_sentence_and_changes_nothing(place: Place, argv: list[str], said: str):
    worker()
    done = place.queues(*argv, check=False)
    assert done.code == 2
    assert said in done.error
    assert not DesiredState.objects.exists()
    assert not AuditEntry.objects.exclude(verb="queues declare").exists()


def test_latest_wish_of_two_operators_holds_and_both_are_recorded(place: Place):
    worker()
    for value, target in ((2, "ingest@a"), (1, "ingest@a")):
        place.queues("scale", target, str(value), "--no-wait")
    assert DesiredState.objects.get(aspect="concurrency").value == 1
    assert [entry.after["concurrency"] for entry in AuditEntry.objects.filter(verb="scale").order_by("pk")] == [2, 1]


def test_messages_of_one_task_are_moved_and_the_others_put_back_in_order(place: Place):
    ids = {name: [place.send(f"{T}.{name}", queue=QUEUE) for _ in range(5)] for name in ("succeed", "fail")}
    assert place.queues("move", QUEUE, "--to", OTHER, "--dry-run").json == {"would_look_at": 10}
    moved = place.queues("move", QUEUE, "--to", OTHER, "--task", f"{T}.fail", "--limit", "3", "--yes").json
    assert moved == {"moved": 3, "passed": 5, "calls": 0}
    with place.app.connection_for_read() as connection:
        from django.conf import settings

        there = messages.peek(settings.ANTENNA_TOPOLOGY, connection, OTHER).messages
        left = messages.peek(settings.ANTENNA_TOPOLOGY, connection, QUEUE)
    assert [letter.task_id for letter in there] == ids["fail"][:3]
    assert [letter.task_id for letter in left.messages] == [*ids["fail"][3:], *ids["succeed"]]
    assert bool(left.cost) == place.is_rabbitmq
    assert place.queues("purge", QUEUE, "--yes").json == {"purged": 7}
    assert place.depth(QUEUE) == 0


def test_look_is_refused_near_the_delivery_limit(place: Place):
    place.send(f"{T}.succeed", queue=QUEUE)
    codes = [place.queues("peek", QUEUE, check=False).code for _ in range(14)]
    assert codes == ([0] * 10 + [2] * 4 if place.is_rabbitmq else [0] * 14)
    assert place.depth(QUEUE) == 1


def test_drain_ends_with_what_is_left(place: Place):
    place.send(f"{T}.succeed", queue=QUEUE)
    done = place.queues("drain", QUEUE, "--timeout", "0.2", check=False)
    assert (done.code, done.json["waiting"]) == (1, 1)
    place.queues("purge", QUEUE, "--yes")
    assert place.queues("drain", QUEUE, "--timeout", "5").json == {"queue": QUEUE, "waiting": 0, "running": 0}
