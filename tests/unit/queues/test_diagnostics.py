"""What `check --live` says of a queue without a consumer."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from ami.queues import diagnostics, governors, worker_operations
from ami.queues.models import Worker
from ami.queues.queue import QueueState
from ami.queues.wishes import Operator
from ami.topology.topology import Topology
from tests.support.place import celery_at

QUEUE = "antenna-interactive"
STOPPED = f"{QUEUE} has no consumer and 7 messages; start its worker: 'python -m ami.topology worker {QUEUE}'."

Sentence = Callable[[dict[str, Any]], str]


@pytest.fixture
def sentence(settings: Any, monkeypatch: pytest.MonkeyPatch, app: Any, db: None) -> Sentence:
    """Return what the check says of a queue without consumers, given what the workers answer."""
    topology = settings.ANTENNA_TOPOLOGY
    state = QueueState(QUEUE, topology.workload(QUEUE).service, 7, 0)
    monkeypatch.setattr(diagnostics.queues, "queue_states", lambda *_: [state])

    def sentence(answers: dict[str, Any]) -> str:
        monkeypatch.setattr(governors, "stats", lambda _: answers)
        with celery_at("memory://"):
            found = diagnostics.findings(topology, app, "")
        (sentence,) = [item.sentence for item in found if item.name == "no-consumer"]
        return sentence

    return sentence


def answer(topology: Topology, *queues: str, own: str = QUEUE) -> dict[str, Any]:
    known = {"fingerprint": topology.fingerprint, "routing": topology.routing}
    return {"topology": {**known, "queues": [*queues], "own_queues": [own]}}


def test_service_that_does_not_run_is_to_be_started(sentence: Sentence, settings: Any):
    # What a worker of another service reads says nothing about this one, whatever its name.
    others = {name: answer(settings.ANTENNA_TOPOLOGY, own="antenna") for name in ("ingest@a", "interactive@a")}
    assert sentence(others) == STOPPED


def test_service_without_its_consumer_is_not_to_be_started_again(sentence: Sentence, settings: Any):
    assert sentence({"interactive@a.b": answer(settings.ANTENNA_TOPOLOGY)}) == (
        f"{QUEUE} has no consumer and 7 messages: interactive@a.b runs without its consumer; "
        f"run 'celery -A config control add_consumer {QUEUE} -d interactive@a.b'."
    )


def test_every_worker_without_its_consumer_is_named(sentence: Sentence, settings: Any):
    both = {f"interactive@{host}": answer(settings.ANTENNA_TOPOLOGY) for host in "ba"}
    said = sentence(both)
    assert "interactive@a, interactive@b run without their consumers; " in said
    assert said.endswith(" -d interactive@a,interactive@b'.")


def test_worker_of_another_version_is_not_told_to_consume(sentence: Sentence):
    assert sentence({"interactive@a": {}}) == STOPPED


def test_worker_under_any_name_that_was_started_for_the_queue_is_named(sentence: Sentence, settings: Any):
    idle, other = answer(settings.ANTENNA_TOPOLOGY), answer(settings.ANTENNA_TOPOLOGY, "antenna", own="antenna")
    said = sentence({"celery@vm": idle, "interactive@a": other})
    assert "celery@vm runs without its consumer; " in said
    assert said.endswith(" -d celery@vm'.")


def worker_row(node: str, *queues: str, **fields: Any) -> None:
    now = timezone.now()
    values = {"host": node, "pid": 1, "is_connected": True, "started_at": now, "seen_at": now}
    Worker.objects.create(node=node, queues=list(queues), **{**values, **fields})


@pytest.mark.django_db
def test_parking_the_last_worker_of_a_queue_is_an_error(settings: Any):
    def parked() -> dict[str, tuple[str, bool]]:
        found = diagnostics.reported.findings(settings.ANTENNA_TOPOLOGY, diagnostics.reported.workers())
        return {each.target: (each.level, QUEUE in each.sentence) for each in found if each.name == "parked"}

    worker_row("a", QUEUE, is_parked=True)
    worker_row("b", QUEUE)
    assert parked() == {"a": ("warning", False)}
    Worker.objects.filter(node="b").update(verdict="dead")  # It takes nothing either.
    assert parked() == {"a": ("error", True)}
    Worker.objects.filter(node="b").update(verdict="", is_parked=True)
    assert parked() == {"a": ("error", True), "b": ("error", True)}
    worker_row("c", QUEUE, "antenna")
    assert parked() == {"a": ("warning", False), "b": ("warning", False)}


@pytest.mark.django_db
def test_operation_says_which_queue_it_leaves_without_a_worker(settings: Any):
    worker_row("a", QUEUE)
    worker_row("b", QUEUE, "antenna")
    operator = Operator("ada")
    assert worker_operations.last_of(settings.ANTENNA_TOPOLOGY, "a") == ()
    assert worker_operations.last_of(settings.ANTENNA_TOPOLOGY, "b") == ("antenna",)
    found = worker_operations.park(settings.ANTENNA_TOPOLOGY, "b", operator, seconds=0)
    assert found.warning == "No other worker takes tasks of antenna: they wait until one does."
    Worker.objects.filter(node="b").update(is_parked=True)
    assert worker_operations.stop(settings.ANTENNA_TOPOLOGY, "a", operator, seconds=0).left == (QUEUE,)


def test_what_hurts_users_comes_first():
    names = ("policies", "promise-broken", "paused", "management", "fingerprint", "no-consumer", "broker-unreachable")
    levels = dict.fromkeys(names, "warning") | {"management": "unseen", "paused": "starting"}
    levels |= dict.fromkeys(names[-3:], "error")
    found = diagnostics.gravest_first(diagnostics.Finding(levels[name], name, "") for name in names)
    assert [each.name for each in found] == [
        "broker-unreachable",
        "no-consumer",
        "fingerprint",
        "promise-broken",
        "policies",
        "paused",
        "management",
    ]
