"""What a buried message says about itself."""

from types import SimpleNamespace
from typing import Any

from django.conf import settings

from ami.queues import dead_letters
from ami.queues.dead_letters import DeadLetter

QUEUE = "antenna-ingest.dlq"


def letter(headers: Any) -> DeadLetter:
    return dead_letters._letter(QUEUE, SimpleNamespace(headers=headers))


def test_letter_tells_task_reason_retries_and_arguments():
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


def test_foreign_message_without_headers_is_told_all_the_same():
    for headers in (None, {}):
        assert letter(headers) == DeadLetter(QUEUE, "?", "?", "unrouted", 0, "")


def test_long_arguments_are_cut():
    assert len(letter({"kwargsrepr": "x" * 5000}).arguments) <= 210


def test_every_queue_buries_in_one_of_its_own_and_unrouted_is_kept_too():
    topology = settings.ANTENNA_TOPOLOGY
    assert dead_letters.burial_queues(topology) == (
        *(f"{queue}.dlq" for queue in topology.queues),
        "antenna.unrouted",
    )
