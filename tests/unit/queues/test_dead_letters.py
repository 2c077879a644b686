"""What a buried message says about itself."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings

from ami.queues import dead_letters
from ami.queues.dead_letters import DeadLetter

QUEUE = "antenna-ingest.dlq"


def letter(headers: Any) -> DeadLetter:
    return dead_letters.letter(QUEUE, SimpleNamespace(headers=headers))


def test_letter_shows_task_reason_retries_and_arguments():
    headers = {
        "id": "7",
        "task": "ami.jobs.tasks.run_job",
        "retries": 2,
        "kwargsrepr": "{'job_id': 5}",
        "argsrepr": "()",
        "x-death": [{"reason": "delivery_limit", "count": 1}, {"reason": "rejected"}],
    }
    found = letter(headers)
    assert (found.queue, found.task_id, found.task) == (QUEUE, "7", "ami.jobs.tasks.run_job")
    assert (found.reason, found.retries) == ("delivery_limit", 2)
    assert "'job_id': 5" in found.arguments


def test_message_that_never_died_was_unrouted():
    assert letter({"task": "x", "retries": None}).reason == "unrouted"


def test_foreign_message_without_headers_is_listed():
    for headers in (None, {}):
        assert letter(headers) == DeadLetter(QUEUE, "?", "?", "unrouted", 0, "", "no binding matched its routing key")


def test_long_arguments_are_cut():
    assert len(letter({"kwargsrepr": "x" * 5000}).arguments) <= 210


def test_every_queue_buries_in_one_of_its_own_and_unrouted_is_kept_too():
    topology = settings.ANTENNA_TOPOLOGY
    assert dead_letters.burial_queues(topology) == (
        *(f"{queue}.dlq" for queue in topology.queues),
        "antenna.unrouted",
    )


def test_letter_says_that_a_task_failed_and_that_a_worker_died():
    failed = letter({"x-death": [{"reason": "rejected"}]})
    died = letter({"x-death": [{"reason": "delivery_limit"}]})
    assert failed.detail == "the task failed, its retries used up"
    assert died.detail == "its worker died or returned it at every delivery; the task did not fail"


def test_letter_that_a_worker_buried_gives_that_workers_reason():
    found = letter({"antenna_reason": "MalformedMessage: header 'id' is 5", "x-death": [{"reason": "rejected"}]})
    assert (found.reason, found.detail) == ("malformed", "MalformedMessage: header 'id' is 5")


@pytest.mark.parametrize(
    "headers",
    [
        {"x-death": "x"},
        {"x-death": ["x"]},
        {"x-death": [{"reason": ["x"]}]},
        {"retries": "x", "id": {"a": 1}, "task": None, "argsrepr": [1]},
        {"id": "a\r\nforged\x1b[2J"},
    ],
)
def test_letter_with_any_headers_is_listed_in_one_line(headers: dict[str, Any]):
    found = letter(headers)
    assert found.retries == 0
    assert all(text.isprintable() for text in (found.task_id, found.task, found.reason, found.arguments))
