"""Whatever another user of the pool, the broker or an error left of a connection, the next batch and question work."""

import gc
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import amqp
import pytest
from amqp.exceptions import NotFound
from amqp.transport import TCPTransport
from celery.exceptions import SoftTimeLimitExceeded

from ami.celery import confirming_connection
from ami.celery.bulk_publisher import UnconfirmedTasks, publish_many
from ami.celery.producer import Unconfirmed
from ami.queues import slices
from config import celery_app
from tests.support.brokers import RABBITMQ, celery_at, management, new_broker, set_broker
from tests.support.bulk_messages import AUDIT, breaking, drained
from tests.support.place import until

pytestmark = pytest.mark.timeout(120)
QUEUE = "antenna-housekeeping"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A virtual host, at which this process's application publishes."""
    with new_broker(RABBITMQ, f"broken-{uuid.uuid4().hex[:8]}", tmp_path) as made, celery_at(made):
        yield made


@pytest.fixture
def there(url: str) -> Any:
    celery_app.declare_everything()
    return celery_app


@pytest.fixture
def without_retries(there: Any) -> Iterator[None]:
    there.conf.task_publish_retry = False
    yield
    there.conf.task_publish_retry = True


def publish(app: Any, count: int = 3) -> list[str]:
    return publish_many(app, [app.tasks[AUDIT].s() for _ in range(count)])


def found(url: str, count: int) -> list[str]:
    return [message["id"] for message in drained(url, (QUEUE,), count)]


def closed(connection: Any) -> None:
    connection.default_channel  # noqa: B018 - it connects
    raise ConnectionResetError("as any error in a block that uses the pool")


def collected(connection: Any) -> None:
    connection.default_channel  # noqa: B018
    connection.collect()


def half_dead(connection: Any) -> None:
    connection.default_channel  # noqa: B018
    connection.connection.sock.shutdown(socket.SHUT_RDWR)


def closed_by_the_broker(connection: Any) -> None:
    connection.default_channel  # noqa: B018
    connection.connection.sock.sendall(b"\x63 no frame of AMQP, which RabbitMQ ends with an error")


def without_its_channel(connection: Any) -> None:
    with pytest.raises(NotFound):
        connection.default_channel.queue_declare("missing", passive=True)


def untouched(connection: Any) -> None:
    pass


STATES = (untouched, closed, collected, half_dead, closed_by_the_broker, without_its_channel)


def leave(app: Any, state: Callable[[Any], None]) -> None:
    """Bring the connection that the pool gives next into this state, and return it to the pool."""
    with suppress(OSError), app.connection_or_acquire() as connection:
        state(connection)


@pytest.mark.parametrize("state", STATES, ids=lambda each: each.__name__)
def test_batch_is_published_whatever_was_done_to_the_pool(there: Any, url: str, state: Callable[[Any], None]):
    for is_first in (True, False):
        leave(there, state)
        published = publish(there)
        assert found(url, 3) == published, is_first


@pytest.mark.parametrize("state", STATES, ids=lambda each: each.__name__)
def test_waiting_messages_are_seen_whatever_was_done_to_the_pool(there: Any, state: Callable[[Any], None]):
    there.send_task(AUDIT)
    for _ in range(2):
        leave(there, state)
        answers = [slices.others_wait(there.tasks[AUDIT]) for _ in range(2)]
        assert answers[1] is True, "at most the first question meets a connection that has died"


def test_question_to_a_frozen_broker_ends_and_the_next_is_answered(
    there: Any, url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(slices, "ANSWER_SECONDS", 0.5, raising=False)
    there.send_task(AUDIT)
    with breaking(url, 1500, freezes=True) as relay:
        set_broker(there, {"broker_read_url": relay.url, "broker_write_url": relay.url})
        until(lambda: not slices.others_wait(there.tasks[AUDIT]) and relay.has_broken, 30)
        set_broker(there, {"broker_read_url": url, "broker_write_url": url})
    assert slices.others_wait(there.tasks[AUDIT]) is True


def own_connections() -> list[Any]:
    """Return every open connection to RabbitMQ of this process."""
    every = [each for each in gc.get_objects() if issubclass(type(each), amqp.Connection)]  # A proxy may be dead.
    return [each for each in every if each.connected]


def shut_down(_: str) -> None:
    for each in own_connections():
        with suppress(OSError):  # Another test has ended it.
            each.sock.shutdown(socket.SHUT_RDWR)


def closed_by_an_operator(url: str) -> None:
    path = f"vhosts/{url.rpartition('/')[2]}/connections"
    for each in until(lambda: management("GET", path).json(), 30):
        management("DELETE", f"connections/{each['name']}")


@pytest.mark.usefixtures("without_retries")
@pytest.mark.parametrize("end", [shut_down, closed_by_an_operator], ids=lambda each: each.__name__)
def test_batch_is_published_once_after_every_connection_was_ended(there: Any, url: str, end: Callable[[str], None]):
    first = publish(there)
    end(url)
    second = publish(there)
    assert found(url, 6) == first + second


ERRORS = (SoftTimeLimitExceeded, KeyboardInterrupt, TypeError, MemoryError, TimeoutError, ConnectionResetError)


@pytest.mark.parametrize("error", ERRORS)
def test_error_in_a_batch_leaves_nothing_for_the_next(
    there: Any, url: str, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
):
    write, written = TCPTransport.write, 0

    def failing(self: Any, data: Any) -> None:
        nonlocal written
        written += b"antenna_publish_id" in bytes(data)
        if written == 6:
            written += 1
            raise error
        write(self, data)

    monkeypatch.setattr(TCPTransport, "write", failing)
    publish(there)
    with suppress(error, UnconfirmedTasks):
        publish(there, 5)
    assert written >= 7
    found(url, 3)
    for _ in range(2):
        again = publish(there, 4)
        assert found(url, 4)[-4:] == again


def test_threads_publish_side_by_side_and_each_gets_its_own_confirmations(there: Any, url: str):
    with ThreadPoolExecutor(8) as threads:
        published = list(threads.map(lambda _: publish(there, 20), range(24)))
    ids = [each for many in published for each in many]
    assert sorted(found(url, len(ids))) == sorted(ids)


@pytest.mark.usefixtures("without_retries")
def test_forked_child_leaves_the_connection_of_its_parent(there: Any, url: str):
    first = publish(there)
    if not (pid := os.fork()):
        try:
            gc.collect()
            publish(there, 2)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    last = publish(there)
    ids = found(url, 8)
    assert (ids[:3], ids[5:]) == (first, last)


@pytest.mark.usefixtures("without_retries")
def test_broker_that_does_not_read_is_given_up_in_time(there: Any, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(confirming_connection, "CONFIRM_TIMEOUT_SECONDS", 2.0)
    publish(there, 1)
    task = there.tasks["ami.jobs.tasks.process_nats_pipeline_result"]
    large = {"job_id": 1, "result_key": "k" * 400_000, "reply_subject": "s"}
    with breaking(url, 100_000, freezes=True) as relay:
        set_broker(there, {"broker_write_url": relay.url})
        began = time.monotonic()
        with pytest.raises(UnconfirmedTasks) as raised:
            publish_many(there, [task.s(**large) for _ in range(30)])
        assert time.monotonic() - began < 6
        set_broker(there, {"broker_write_url": url})
    left = raised.value.unconfirmed
    assert publish_many(there, left) == [each.id for each in left]


@pytest.mark.parametrize("how", ["batch", "question", "publish"])
def test_connection_that_is_dropped_waits_for_no_end_of_tls(there: Any, monkeypatch: pytest.MonkeyPatch, how: str):
    """A broker that does not answer sends no end of TLS, for which py-amqp waits as long as its socket does."""
    waits: list[Any] = []
    monkeypatch.setattr(TCPTransport, "_shutdown_transport", lambda self: waits.append(self.sock.gettimeout()))
    publish(there)
    error = TimeoutError("no answer")

    def fail(*_: Any, **__: Any) -> None:
        raise error

    match how:
        case "batch":
            monkeypatch.setattr(amqp.Channel, "_basic_publish", fail)
            monkeypatch.setattr(amqp.Channel, "basic_publish", fail)
            with pytest.raises(UnconfirmedTasks):
                publish(there)
        case "question":
            monkeypatch.setattr(slices, "depth", fail)
            assert slices.others_wait(there.tasks[AUDIT]) is False
        case "publish":
            monkeypatch.setattr(amqp.Channel, "basic_publish_confirm", fail)
            with pytest.raises(Unconfirmed):
                there.send_task(AUDIT)
    assert waits
    assert set(waits) == {0}
