"""No message ends a worker, and none vanishes: what is wrong before a task starts is in the dead letters, with why."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ami.celery.amqp_properties import UNREADABLE
from ami.celery.message_copy import REASON_HEADER
from ami.queues import dead_letters
from tests.support import hostile_bodies as bodies
from tests.support.hostile_messages import BURIED, EXECUTED, Hostile, cases, headers, id_of, publish
from tests.support.place import BROKERS, Place, management, until

on_every_broker = pytest.mark.parametrize("place", BROKERS, indirect=True)

T = "tests.support.worker_tasks.basic"
FALLBACK = "antenna"
LETTERS = f"{FALLBACK}.dlq"

#: A good task waits for the few messages before it; the bound is for a machine under load.
PROMPT_SECONDS = 30.0
#: What a worker that lives does within seconds.
SECONDS = 120


def send_mixed(place: Place) -> tuple[tuple[Hostile, ...], set[str]]:
    """Publish every hostile message, a good task after each tenth; return both."""
    good = set()
    with place.app.connection_for_write() as connection:
        hostile = cases(connection)
        for number, case in enumerate(hostile):
            publish(connection, FALLBACK, case)
            if number % 10 == 0:
                good.add(place.send(f"{T}.succeed"))
    return hostile, good


def send_control_garbage(place: Place) -> None:
    """Publish to the workers' remote control what no command is."""
    exchange = place.app.control.mailbox.exchange.name
    json = {"content_type": "application/json", "content_encoding": "utf-8"}
    bodies = (b"[]", b'"x"', b"null", b"5", b"", b"garbage", b"[" * 50_000, b'{"method": []}', b'{"method": "no.such"}')
    with place.app.connection_for_write() as connection, connection.channel() as channel:
        messages = [channel.prepare_message(body, headers={}, **json) for body in bodies]
        messages.append(channel.prepare_message(b"\x80\x05.", content_type="application/x-python-serialize"))
        messages.append(channel.prepare_message(b"{}", headers={"compression": "gzip"}, **json))
        messages += [
            channel.prepare_message(b'{"method": "ping"}', headers={"clock": clock}, **json)
            for clock in (2**63 - 1, "x", [1])
        ]
        for message in messages:
            channel.basic_publish(message, exchange=exchange, routing_key="")


def reasons(place: Place) -> Iterator[tuple[str, str | None]]:
    """Yield the correlation id and the reason of each dead letter; both are lost where no property can be read."""
    with place.app.connection_for_read() as connection, connection.clone() as own:
        channel = own.channel()
        while (raw := channel.basic_get(LETTERS, no_ack=False)) is not None:
            message = channel.message_to_python(raw)
            unreadable = message.properties.get(UNREADABLE)
            yield message.properties.get("correlation_id", ""), unreadable or message.headers.get(REASON_HEADER)


def letters(place: Place) -> int:
    with place.app.connection_for_read() as connection:
        return dead_letters.counts(place.app.topology, connection)[LETTERS]


def ran(place: Place) -> dict[str, dict[str, Any]]:
    return {record["id"]: record for record in place.ran("succeed")}


@on_every_broker
def test_hostile_messages_are_buried_with_a_reason_and_every_other_task_runs(place: Place):
    EXECUTED.unlink(missing_ok=True)
    worker = place.worker(FALLBACK, ANTENNA_FALLBACK_CONCURRENCY="2")
    hostile, good = send_mixed(place)
    must_die = [case for case in hostile if case.outcome == BURIED]
    assert len(must_die) >= 80
    until(lambda: good <= ran(place).keys(), SECONDS, "every good task ran")
    until(lambda: letters(place) >= len(must_die), SECONDS, "the hostile messages are buried")

    assert worker.popen.poll() is None, "the worker that was started is the one that runs"
    assert "Unrecoverable" not in worker.text
    assert "Connection to broker lost" not in worker.text
    assert all(ran(place)[task]["state"] == "SUCCESS" for task in good)
    assert max(ran(place)[task]["waited_seconds"] for task in good) < PROMPT_SECONDS
    assert not EXECUTED.exists(), "no body was executed"

    listed = {row["task_id"]: row for row in place.queues("dead-letters", LETTERS, "--limit", "500").json}
    letter = listed[id_of("retries of text")]
    assert (letter["reason"], letter["detail"]) == (
        "malformed",
        "MalformedMessage: header 'retries' is 'x', not a whole number from 0 to 1000000",
    )
    buried, before = letters(place), ran(place)
    assert not {id_of(case.name) for case in must_die} & before.keys(), "what was buried did not run"
    assert place.queues("dead-letters", LETTERS, "--replay", "--limit", "5").json == {"replayed": 5}
    # Replaying sets the retries to 0, which mends a message whose fault they were.
    settled = lambda: letters(place) + len(ran(place)) >= buried + len(before)  # noqa: E731
    until(settled, SECONDS, "what is replayed as it was is buried again")

    send_control_garbage(place)
    until(lambda: place.app.control.inspect(timeout=2).ping(), SECONDS, "remote control answers")
    assert worker.popen.poll() is None

    worker.stop()
    assert place.depth(FALLBACK) == 0, "nothing was left unacknowledged"
    found = dict(reasons(place))
    unreadable = [case for case in must_die if case.needs_amqp and id_of(case.name) not in found]
    mended = ran(place).keys() - before.keys()
    known = [case for case in must_die if case not in unreadable and id_of(case.name) not in mended]
    assert all(found[id_of(case.name)] for case in known)
    lost = [case.name for case in hostile if id_of(case.name) not in {*found, *ran(place)} and case not in unreadable]
    assert lost == [name for name in lost if name.startswith("correlation id")]
    assert letters(place) + len(set(ran(place)) - good) >= len(hostile)


def test_message_due_much_later_waits_on_the_broker(place: Place):
    worker = place.worker(FALLBACK)
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with place.app.connection_for_write() as connection:
        for number in range(3):
            name = f"due in an hour {number}"
            publish(connection, FALLBACK, Hostile(name, bodies.PROPER, headers(name, eta=later)))
    task = place.send(f"{T}.succeed")
    until(lambda: task in ran(place), SECONDS, "the only slot is free")
    until(lambda: worker.text.count("postponed by the broker") == 3, SECONDS)
    worker.stop()
    assert (place.depth(FALLBACK), letters(place), list(ran(place))) == (0, 0, [task])
    waiting = management("GET", f"queues/{place.vhost}").json()
    delayed = [queue["name"] for queue in waiting if queue["name"].startswith("celery_delayed_")]
    held = place.app.connection_for_read()
    with held, held.channel() as channel:
        counts = [channel.queue_declare(name, passive=True).message_count for name in delayed]
    assert sum(counts) == 3
