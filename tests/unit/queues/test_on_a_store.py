"""Every operation of the `queues` command on a broker over a store: all of AMQP's, and what is RabbitMQ's left out."""

import io
import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from kombu import Queue

from ami.celery.declaration import declare, depth
from ami.queues import dead_letters, governors
from ami.queues.dead_letters import burial_queues
from ami.topology.broker import UNROUTED
from ami.topology.table import FALLBACK
from ami.topology.topology import load
from tests.support.place import celery_at
from tests.support.transports.careless_bucket import MATCH, environment, served

INGEST, AUDIT, RESULT = "antenna-ingest", "ami.jobs.tasks.audit_jobs", "ami.jobs.tasks.process_nats_pipeline_result"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    """A broker in this process's memory, and a RabbitMQ management API that must not be called."""
    monkeypatch.setattr(governors, "INSPECT_SECONDS", 0.1)
    settings.RABBITMQ_MANAGEMENT_URL = "http://unused:unused@127.0.0.1:1"
    with celery_at(f"objectstore+memory://{uuid.uuid4().hex}"):
        yield


@pytest.fixture
def channel(store: None, app: Any) -> Iterator[Any]:
    with app.connection_for_write() as connection:
        yield connection.default_channel


@pytest.fixture
def declared(store: None) -> dict[str, Any]:
    return queues("declare")


def queues(*argv: str, code: int = 0) -> Any:
    out, ended = io.StringIO(), 0
    try:
        call_command("queues", *argv, "--json", stdout=out)
    except SystemExit as stopped:
        ended = int(stopped.code or 0)
    assert ended == code, out.getvalue()
    return json.loads(out.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A terminal as standard input; the fixture types a line."""
    keyboard, line = os.openpty()
    with os.fdopen(line) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield lambda text: os.write(keyboard, f"{text}\n".encode()) and None
    os.close(keyboard)


def bury(channel: Any, queue: str) -> None:
    """Do as a worker whose task has failed for good."""
    channel.basic_reject(channel.basic_get(queue).delivery_tag, requeue=False)


def found(code: int = 1) -> dict[str, str]:
    """What is wrong with the broker: there are no workers, and what tasks there are depends on the other tests."""
    rows = {row["name"]: row["sentence"] for row in queues("check", "--live", code=code)}
    others = ("no-worker", "no-consumer", "redis", "queues.")
    return {name: rows[name] for name in rows if not name.startswith(others)}


def test_declare_makes_everything_but_delays_and_policies(declared: dict[str, Any], channel: Any, settings: Any):
    topology = settings.ANTENNA_TOPOLOGY
    assert set(declared["queues"]) == {*topology.queues, *burial_queues(topology)}
    assert declared["policies"] == "none, only RabbitMQ has policies"
    bindings = set(channel.list_bindings())
    assert {(queue, "antenna", queue) for queue in topology.queues} <= bindings
    assert {(f"{queue}.dlq", "antenna.dlx", queue) for queue in topology.queues} <= bindings
    assert (UNROUTED, UNROUTED, "") in bindings
    assert not [binding for binding in bindings if "delayed" in str(binding)]
    assert queues("declare") == declared


def test_first_publish_declares_what_is_missing(channel: Any, app: Any):
    app.send_task(RESULT)
    assert depth(channel, INGEST) == (1, 0)


@pytest.mark.parametrize("countdown", [None, 1.25])
def test_publisher_binds_nothing_and_keeps_the_fraction_of_a_countdown(
    store: None, app: Any, sent: list[dict[str, Any]], countdown: float | None
):
    app.send_task(RESULT, countdown=countdown)
    assert sent[-1]["declare"] == []
    assert sent[-1].get("countdown") == countdown
    assert "confirm_timeout" not in sent[-1]


def test_rollout_says_what_is_missing_and_who_reads(store: None, channel: Any, settings: Any):
    assert queues("rollout", code=1)["name"] == "undeclared"
    queues("declare")
    stage = queues("rollout", code=1)
    assert stage["name"] == "without workers"
    assert [state["consumers"] for state in stage["queues"]] == [0] * len(settings.ANTENNA_TOPOLOGY.queues)
    for queue in (state["queue"] for state in stage["queues"]):
        channel.basic_consume(queue, callback=print)
    assert queues("rollout")["name"] == "split"
    with pytest.raises(CommandError, match="Workers still consume the split queues; stop .*celeryworker_ingest"):
        queues("rollback", "--yes")


def test_rollback_moves_keys_and_messages_and_a_worker_reclaims_its_key(
    declared: dict[str, Any], channel: Any, app: Any, settings: Any
):
    app.send_task(RESULT)
    app.send_task(RESULT, countdown=60)
    assert queues("rollback", "--yes") == {**dict.fromkeys(split(), 0), INGEST: 1}
    app.send_task(RESULT)
    queues("declare")
    app.send_task(RESULT, countdown=60)
    assert (depth(channel, INGEST)[0], depth(channel, FALLBACK)[0]) == (0, 2)  # Delayed ones are in no queue.
    with app.connection_for_write() as connection:
        declare(settings.ANTENNA_TOPOLOGY, connection, own=[INGEST])
    app.send_task(RESULT)
    assert (depth(channel, INGEST)[0], depth(channel, FALLBACK)[0]) == (1, 2)


def test_dead_letters_are_counted_listed_in_order_and_replayed(declared: dict[str, Any], channel: Any, app: Any):
    sent = [app.send_task(RESULT, kwargs={"number": number}).id for number in range(3)]
    for _ in sent:
        bury(channel, INGEST)
    assert queues("dead-letters")[f"{INGEST}.dlq"] == 3
    for _ in range(2):
        letters = queues("dead-letters", f"{INGEST}.dlq")
        assert [(letter["task_id"], letter["reason"]) for letter in letters] == [(name, "rejected") for name in sent]
    assert queues("dead-letters", f"{INGEST}.dlq", "--replay", "--limit", "1") == {"replayed": 1}
    assert channel.basic_get(INGEST, no_ack=True).headers["id"] == sent[0]
    assert queues("dead-letters", f"{INGEST}.dlq", "--replay") == {"replayed": 2}
    assert queues("dead-letters")[f"{INGEST}.dlq"] == 0


def split() -> list[str]:
    return [queue for queue in load().queues if queue != FALLBACK]


def test_dry_run_of_a_rollback_counts_and_changes_nothing(declared: dict[str, Any], channel: Any, app: Any):
    app.send_task(RESULT)
    for _ in range(2):
        assert queues("rollback", "--dry-run") == {**dict.fromkeys(split(), 0), INGEST: 1}
    app.send_task(RESULT)
    assert (depth(channel, INGEST)[0], depth(channel, FALLBACK)[0]) == (2, 0)


@pytest.mark.parametrize("act", ["--replay", "--discard"])
@pytest.mark.parametrize(("limit", "reached"), [((), 3), (("--limit", "2"), 2), (("--limit", "9"), 3)])
def test_dry_run_of_dead_letters_counts_and_changes_nothing(
    declared: dict[str, Any], channel: Any, app: Any, act: str, limit: tuple[str, ...], reached: int
):
    for _ in range(3):
        app.send_task(RESULT)
        bury(channel, INGEST)
    assert queues("dead-letters", f"{INGEST}.dlq", act, "--dry-run", *limit) == {"would_reach": reached}
    assert queues("dead-letters")[f"{INGEST}.dlq"] == 3


@pytest.mark.parametrize("answer", ["y", "yes", "YES"])
def test_discard_happens_when_the_terminal_answers_yes(
    declared: dict[str, Any], channel: Any, app: Any, terminal: Callable[[str], None], answer: str, capsys: Any
):
    app.send_task(RESULT)
    bury(channel, INGEST)
    terminal(answer)
    assert queues("dead-letters", f"{INGEST}.dlq", "--discard") == {"discarded": 1}
    assert f"{INGEST}.dlq: 1 messages\nqueues dead-letters --discard: go on? [y/N] " in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["n", "", "yes please"])
def test_rollback_changes_nothing_when_the_terminal_answers_no(
    declared: dict[str, Any], channel: Any, app: Any, terminal: Callable[[str], None], answer: str, capsys: Any
):
    app.send_task(RESULT)
    terminal(answer)
    with pytest.raises(CommandError, match="Nothing was changed; answer y to go on"):
        queues("rollback")
    assert (depth(channel, INGEST)[0], depth(channel, FALLBACK)[0]) == (1, 0)
    assert f"{INGEST}: 1 messages\n" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["y", "n"])
def test_rollback_of_consumed_queues_is_refused_before_a_question(
    declared: dict[str, Any], channel: Any, terminal: Callable[[str], None], answer: str, capsys: Any
):
    channel.basic_consume(INGEST, callback=print)
    terminal(answer)
    with pytest.raises(CommandError, match="Workers still consume the split queues; stop .*celeryworker_ingest"):
        queues("rollback")
    assert "go on?" not in capsys.readouterr().err


@pytest.mark.parametrize(("limit", "left"), [((), 0), (("--limit", "2"), 1), (("--limit", "9"), 0)])
def test_dead_letters_are_discarded_the_oldest_first(
    declared: dict[str, Any], channel: Any, app: Any, limit: tuple[str, ...], left: int
):
    sent = [app.send_task(RESULT).id for _ in range(3)]
    for _ in sent:
        bury(channel, INGEST)
    assert queues("dead-letters", f"{INGEST}.dlq", "--discard", "--yes", *limit) == {"discarded": 3 - left}
    assert [letter["task_id"] for letter in queues("dead-letters", f"{INGEST}.dlq")] == sent[3 - left :]
    assert queues("dead-letters", f"{INGEST}.dlq", "--discard", "--yes") == {"discarded": left}


def test_replay_does_not_chase_letters_that_fail_again_while_it_runs(declared: dict[str, Any], channel: Any, app: Any):
    for _ in range(3):
        app.send_task(RESULT)
        bury(channel, INGEST)

    def fail_again(_: int) -> None:
        bury(channel, INGEST)

    with app.connection_for_write() as connection:
        assert dead_letters.replay(load(), connection, f"{INGEST}.dlq", progress=fail_again) == 3
    assert queues("dead-letters")[f"{INGEST}.dlq"] == 3


def test_letter_that_fails_again_after_its_replay_is_buried_again(declared: dict[str, Any], channel: Any, app: Any):
    app.send_task(RESULT)
    for _ in range(3):
        bury(channel, INGEST)
        assert queues("dead-letters", f"{INGEST}.dlq", "--replay") == {"replayed": 1}
    assert depth(channel, INGEST)[0] == 1


def test_live_check_reports_queues_of_the_store(declared: dict[str, Any], channel: Any, app: Any, db: None):
    assert found() == {}
    Queue("antena-ingest", durable=True)(channel).declare()
    channel.basic_publish(channel.prepare_message("x"), "", "antena-ingest")
    app.send_task(AUDIT, exchange="antenna", routing_key="nowhere")
    app.send_task(RESULT)
    bury(channel, INGEST)
    rows = found()
    assert rows.keys() == {"unknown-queue", "unrouted", "dead-letters"}
    unknown = "antena-ingest holds 1 messages and is not a queue of the topology. Did you mean 'antenna-ingest'?"
    assert rows["unknown-queue"] == unknown
    assert rows["unrouted"].startswith("1 messages matched no binding and are kept in antenna.unrouted; look with")
    assert rows["dead-letters"].startswith("1 messages were buried and are kept in antenna-ingest.dlq; look with")


def test_live_check_finds_a_queue_with_other_arguments(store: None, channel: Any, db: None):
    Queue(INGEST, durable=True)(channel).declare()
    assert {"arguments", "missing-queue"} <= found().keys()


def test_live_check_finds_a_bucket_that_ignores_conditions(monkeypatch: pytest.MonkeyPatch, db: None):
    with served(ignores=(MATCH,)) as bucket, celery_at(f"objectstore+s3://{uuid.uuid4().hex}"):
        for name, value in environment(bucket).items():
            monkeypatch.setenv(name, value)
        rows = found(code=1)
        with pytest.raises(CommandError, match="ignores the condition of .*; correct CELERY_BROKER_URL"):
            queues("dead-letters")
    assert "ignores the condition of a compare-and-set (If-Match) write" in rows["storage"]


def test_store_that_cannot_be_opened_is_one_sentence(tmp_path: Path):
    in_the_way = tmp_path / "broker"
    in_the_way.touch()
    with (
        celery_at(f"objectstore+{in_the_way.as_uri()}"),
        pytest.raises(CommandError, match=rf"Broker operation failed \(objectstore.*{in_the_way}.*\): "),
    ):
        queues("dead-letters")
