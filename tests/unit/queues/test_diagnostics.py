"""What `check --live` says of a queue without a consumer."""

from collections.abc import Callable
from typing import Any

import pytest

from ami.queues import diagnostics, governors
from ami.queues.queue import QueueState
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


def answer(topology: Topology, *queues: str) -> dict[str, Any]:
    return {"topology": {"fingerprint": topology.fingerprint, "routing": topology.routing, "queues": [*queues]}}


def test_service_that_does_not_run_is_to_be_started(sentence: Sentence, settings: Any):
    # What another service reads, and a name that only begins alike, say nothing about this one.
    others = {name: answer(settings.ANTENNA_TOPOLOGY) for name in ("ingest@a", "interactive-2@a")}
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
    idle, other = answer(settings.ANTENNA_TOPOLOGY), answer(settings.ANTENNA_TOPOLOGY, "antenna")
    idle["topology"]["own_queues"], other["topology"]["own_queues"] = [QUEUE], ["antenna"]
    said = sentence({"celery@vm": idle, "interactive@a": other})
    assert "celery@vm runs without its consumer; " in said
    assert said.endswith(" -d celery@vm'.")
