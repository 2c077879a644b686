"""The JetStream functions on a real server."""

import asyncio
import multiprocessing
import socket
import threading
import time
from typing import Any

import nats
import pytest
from nats.js.errors import APIError

from ami.jobs.errors import NatsUnavailable
from ami.jobs.services import jetstream
from ami.jobs.services.jetstream import advisories, connection, messages, names


def payloads(*images: int) -> dict[int, dict[str, str]]:
    return {image: {"id": str(image), "image_id": str(image), "image_url": "http://x"} for image in images}


def raw(settings, look):
    """Run ``look(jetstream)`` on a connection of the test's own."""

    async def run():
        client = await nats.connect(settings.NATS_URL)
        try:
            return await look(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(run())


def test_names_and_settings_are_the_platforms(settings, number: int) -> None:
    jetstream.create_stream(number)
    stream = raw(settings, lambda js: js.stream_info(f"job_{number}"))
    consumer = raw(settings, lambda js: js.consumer_info(f"job_{number}", f"job-{number}-consumer"))
    dead = raw(settings, lambda js: js.consumer_info("advisories", f"job-{number}-dlq"))
    assert stream.config.subjects == [f"job.{number}.tasks"]
    assert stream.config.max_age == 24 * 3600
    assert consumer.config.ack_policy == "explicit"
    assert consumer.config.deliver_policy == "all"
    assert consumer.config.ack_wait == settings.NATS_TASK_TTR
    assert consumer.config.max_deliver == settings.NATS_MAX_DELIVER
    assert consumer.config.max_ack_pending == settings.NATS_MAX_ACK_PENDING
    assert dead.config.filter_subject == names.exhausted_subject(number)


def test_publishing_twice_delivers_once(number: int) -> None:
    jetstream.create_stream(number)
    for _ in range(2):
        assert jetstream.publish(number, payloads(*range(1, 201))) == set(range(1, 201))
    deliveries = jetstream.fetch(number, 1000)
    assert sorted(delivery.image_id for delivery in deliveries) == list(range(1, 201))


def test_incident_21_a_batch_of_64_is_one_quick_fetch(number: int, monkeypatch) -> None:
    jetstream.create_stream(number)
    jetstream.publish(number, payloads(*range(64)))
    asked: list[str] = []
    publish = nats.aio.client.Client.publish

    async def counted(client, subject, *args, **options):
        asked.append(subject)
        return await publish(client, subject, *args, **options)

    monkeypatch.setattr(nats.aio.client.Client, "publish", counted)
    assert len(jetstream.fetch(number, 64)) == 64
    assert len(asked) == 1, "one request for the whole batch"


def test_an_empty_queue_and_a_missing_consumer_answer_at_once(number: int) -> None:
    # A fetch that waits beyond the deadline of its call raises NatsUnavailable.
    assert jetstream.fetch(number, 8) == []
    jetstream.create_stream(number)
    assert jetstream.fetch(number, 8, seconds=300) == []


def pending_becomes_none(number: int) -> bool:
    """Whether the server counts no pending message within 10 s: it handles an acknowledgement after it was sent."""
    deadline = time.monotonic() + 10
    while pending := jetstream.consumer_state(number)["num_ack_pending"]:
        if time.monotonic() > deadline:
            break
    return not pending


def test_an_empty_fetch_swallows_no_later_message(number: int) -> None:
    jetstream.create_stream(number)
    for _ in range(5):
        assert jetstream.fetch(number, 8) == []
    jetstream.publish(number, payloads(1))
    assert [(d.image_id, d.deliveries) for d in jetstream.fetch(number, 8)] == [(1, 1)]


def test_acknowledged_messages_are_settled(number: int) -> None:
    jetstream.create_stream(number)
    jetstream.publish(number, payloads(1, 2, 3))
    jetstream.acknowledge([delivery.reply_subject for delivery in jetstream.fetch(number, 3)])
    assert pending_becomes_none(number)


def test_a_delivery_says_whose_image_it_is(number: int) -> None:
    jetstream.create_stream(number)
    jetstream.publish(number, payloads(77))
    [delivery] = jetstream.fetch(number, 1)
    assert jetstream.image_of_reply(number, delivery.reply_subject) == 77
    assert jetstream.image_of_reply(number, "$JS.ACK.nonsense") is None


def test_hazard_10_stream_left_from_another_database_is_recreated(number: int) -> None:
    jetstream.create_stream(number)
    jetstream.publish(number, payloads(1))
    jetstream.recreate_stream(number)
    assert jetstream.fetch(number, 8) == []


def test_incident_30_exhausted_deliveries_are_reported(settings, number: int) -> None:
    settings.NATS_TASK_TTR, settings.NATS_MAX_DELIVER = 1, 1
    jetstream.create_stream(number)
    jetstream.publish(number, payloads(5))
    assert len(jetstream.fetch(number, 1)) == 1
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        # A consumer notices an exhausted delivery at the next fetch.
        assert jetstream.fetch(number, 1) == []
        found = jetstream.exhausted_images([number])[number]
        if found.deliveries:
            break
    assert found.deliveries == {5: 1}
    jetstream.acknowledge(found.replies)
    assert jetstream.exhausted_images([number]) == {number: jetstream.Exhausted()}


def test_all_jobs_are_asked_at_once(number: int, monkeypatch) -> None:
    asked = 0
    together = threading.Event()
    pull = messages.pull

    async def counted(*args: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 20:
            together.set()
        while not together.is_set():
            await asyncio.sleep(0)  # Each waits until all are asked.
        return await pull(*args)

    monkeypatch.setattr(advisories, "pull", counted)
    jobs = range(number, number + 20)  # None but the first has a consumer.
    jetstream.create_stream(number)
    assert jetstream.exhausted_images(jobs) == {job: jetstream.Exhausted() for job in jobs}
    states = jetstream.consumer_states(jobs)
    assert [job for job, state in states.items() if state is not None] == [number]


def test_a_client_cannot_acknowledge_the_message_of_another_job(number: int) -> None:
    jetstream.create_stream(number)
    jetstream.publish(number, payloads(1))
    (delivery,) = jetstream.fetch(number, 1)
    jetstream.acknowledge([delivery.reply_subject], of_job=number + 1)
    assert jetstream.consumer_state(number)["num_ack_pending"] == 1
    jetstream.acknowledge([delivery.reply_subject], of_job=number)
    assert pending_becomes_none(number)


def test_incident_20_unreachable_nats_fails_in_time_then_immediately(settings, monkeypatch) -> None:
    monkeypatch.setattr(connection, "BREAKER_SECONDS", 600)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        settings.NATS_URL = f"nats://user:secret@127.0.0.1:{unused.getsockname()[1]}"
        connection.close()
        started = time.monotonic()
        with pytest.raises(NatsUnavailable) as error:
            jetstream.fetch(1, 1)
        assert time.monotonic() - started < 60
        assert "secret" not in str(error.value)
        # Here nothing is sent, so it takes no time.
        with pytest.raises(NatsUnavailable, match="a moment ago"):
            jetstream.fetch(1, 1)
    connection.close()


def test_incident_20_silent_server_fails_after_the_deadline(settings, monkeypatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        settings.NATS_URL = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        connection.close()
        started = time.monotonic()
        with pytest.raises(NatsUnavailable):
            jetstream.fetch(1, 1)
        assert time.monotonic() - started < 10, "the time to connect, not the one to be answered"
    connection.close()


def _fetch_in_child(number: int, answer) -> None:
    answer.put(len(jetstream.fetch(number, 10)))


def test_a_forked_child_makes_a_connection_of_its_own(number: int) -> None:
    jetstream.create_stream(number)
    jetstream.publish(number, payloads(1, 2))
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    child = context.Process(target=_fetch_in_child, args=(number, answer))
    child.start()
    assert answer.get(timeout=60) == 2
    child.join(timeout=60)
    assert child.exitcode == 0
    assert jetstream.consumer_state(number)["num_ack_pending"] == 2


def test_messages_for_a_stream_that_is_gone_are_refused(number: int) -> None:
    with pytest.raises(NatsUnavailable):
        jetstream.publish(number, payloads(1, 2))
    connection.close()  # Its circuit breaker is open.


def test_messages_that_another_stream_would_take_are_refused(settings, number: int) -> None:
    """Each message names its job's stream."""

    async def other(js) -> None:
        await js.add_stream(name=f"other_{number}", subjects=[names.subject(number)])

    async def state(js) -> int:
        info = await js.stream_info(f"other_{number}")
        await js.delete_stream(f"other_{number}")
        return info.state.messages

    raw(settings, other)
    with pytest.raises((NatsUnavailable, APIError)):
        jetstream.publish(number, payloads(1, 2))
    connection.close()
    assert raw(settings, state) == 0
