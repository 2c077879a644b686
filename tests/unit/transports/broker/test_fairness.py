"""Queues and consumers of one connection are served in turn."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from kombu import Consumer, Producer, Queue

from tests.support.transports.messages import declare

BUSY, QUIET = Queue("busy"), Queue("quiet")


def publish(connection: Any, queue: Queue, count: int) -> None:
    producer = Producer(connection)
    for number in range(count):
        producer.publish(number, routing_key=queue.name, serializer="json")


def drain(connection: Any, until: Callable[[], bool], most: int) -> None:
    for _ in range(most):
        if until():
            return
        connection.drain_events(timeout=60)
    assert until()


@pytest.mark.parametrize("prefetch", [1, 4, 0])
@pytest.mark.parametrize("same_channel", [True, False])
def test_a_queue_beside_one_that_is_never_empty_is_served(connect, prefetch, same_channel):
    connection = connect()
    declare(connection, BUSY, QUIET)
    publish(connection, BUSY, 10)
    got: list[str] = []

    def take(queue: Queue) -> Any:
        def taken(_: Any, message: Any) -> None:
            got.append(queue.name)
            if queue is BUSY:
                publish(connection, BUSY, 1)
            message.ack()

        return taken

    with connection.channel() as first, connection.channel() as other:
        second = first if same_channel else other
        for channel in (first, second):
            channel.basic_qos(0, prefetch, False)
        with (
            Consumer(first, [BUSY], callbacks=[take(BUSY)], auto_declare=False),
            Consumer(second, [QUIET], callbacks=[take(QUIET)], auto_declare=False),
        ):
            drain(connection, lambda: len(got) >= 5, 5)
            publish(connection, QUIET, 3)
            drain(connection, lambda: got.count("quiet") == 3, 80)


@pytest.mark.parametrize("same_channel", [True, False])
@pytest.mark.parametrize("no_ack", [True, False])
def test_consumers_of_one_queue_in_one_connection_share_it(connect, same_channel, no_ack):
    connection = connect()
    declare(connection, BUSY)
    publish(connection, BUSY, 10)
    got: Counter[int] = Counter()

    def take(number: int) -> Any:
        def taken(_: Any, message: Any) -> None:
            got[number] += 1
            if not no_ack:
                message.ack()

        return taken

    with connection.channel() as first, connection.channel() as other:
        second = first if same_channel else other
        with (
            Consumer(first, [BUSY], callbacks=[take(1)], auto_declare=False, no_ack=no_ack),
            Consumer(second, [BUSY], callbacks=[take(2)], auto_declare=False, no_ack=no_ack),
        ):
            drain(connection, lambda: got.total() == 10, 10)
    assert got == {1: 5, 2: 5}


def test_queues_share_the_prefetch_of_a_channel(connect):
    connection = connect()
    queues = [Queue(f"q{number}") for number in range(3)]
    declare(connection, *queues)
    for queue in queues:
        publish(connection, queue, 10)
    got: Counter[str] = Counter()

    def take(_: Any, message: Any) -> None:
        got[message.delivery_info["routing_key"]] += 1

    with connection.channel() as channel, Consumer(channel, queues, callbacks=[take], prefetch_count=6):
        drain(connection, lambda: got.total() == 6, 6)
    assert got == {"q0": 2, "q1": 2, "q2": 2}
