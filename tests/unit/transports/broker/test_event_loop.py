"""A connection in the event loop of a Celery worker."""

import pytest
from kombu import Connection, Consumer
from kombu.asynchronous import Hub

from tests.support.transports.messages import QUEUE, declare, send


@pytest.mark.parametrize("prefetch", [1, 2])
def test_the_loop_never_waits_while_a_message_does(folder_url, monkeypatch, prefetch):
    """A solo pool runs the task within its delivery, and schedules its acknowledgement in the loop."""
    hub, got, waits = Hub(), [], []
    with Connection(folder_url) as connection, Connection(folder_url) as publisher:
        channel = declare(connection, QUEUE)
        connection.transport.register_with_event_loop(connection, hub)
        poll = hub.poller.poll

        def recorded_poll(timeout):
            events = poll(timeout)
            if got and len(got) < 20 and not events:
                waits.append(len(got))
            return events

        monkeypatch.setattr(hub.poller, "poll", recorded_poll)

        def take(_, message):
            got.append(message)
            hub.call_soon(message.ack)

        for number in range(20):
            send(publisher, number)
        with Consumer(channel, [QUEUE], callbacks=[take], prefetch_count=prefetch, auto_declare=False):
            loop = hub.create_loop()
            while len(got) < 20:
                next(loop)
    hub.close()
    assert not waits
