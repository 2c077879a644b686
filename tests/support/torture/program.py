"""A publisher or a consumer of the torture. Either connects again when its storage fails, as a worker does."""

import os
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kombu import Connection, Consumer, Producer
from kombu.exceptions import OperationalError

from ami.transports import register
from tests.support.torture.diary import Diary, new_token, read
from tests.support.torture.plan import CONSUMED, WORK, Kind, Planned, planned, queues

#: Short enough for a test: messages of a killed consumer are requeued after it, or sooner by its lock.
LEASE_SECONDS = 5.0

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.2


def connect(url: str) -> Connection:
    """Return a connection with the lease of the torture."""
    register()
    return Connection(url, transport_options={"visibility_timeout": LEASE_SECONDS})


def run(role: str, name: str, url: str, folder: Path, seed: int, messages: int) -> None:
    """Be a process of the torture; what it prints goes to ``<name>.log``, what it did to ``<name>``."""
    output = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    diary = Diary(folder / name)
    if role == "publish":
        publish_all(url, diary, seed, name, messages, sum(line[0] == "done" for line in read(folder / name)))
    else:
        consume(url, diary)


def publish_all(url: str, diary: Diary, seed: int, name: str, messages: int, first: int) -> None:
    """Publish what is planned from ``first`` on, each message until it was confirmed."""
    number, pause = first, _Pause()
    while number < messages:
        with connect(url) as connection:
            try:
                _declare(connection)
                producer = Producer(connection)
                while number < messages:
                    publish(producer, planned(seed, name, number), diary)
                    diary.write("done")
                    number += 1
                    pause.reset()
            except (*connection.connection_errors, OperationalError) as error:
                pause.after(error)


def publish(producer: Producer, message: Planned, diary: Diary) -> None:
    """Publish once, and note that it was confirmed, or rejected."""
    token = new_token()
    headers = {"token": token, "kind": str(message.kind), "checksum": message.checksum}
    diary.write("tried", token)
    try:
        producer.publish(
            message.body,
            exchange=WORK,
            routing_key=message.queue,
            headers=headers,
            content_type="application/data",
            content_encoding="binary",
            expiration=message.expires,
        )
    except Exception:
        diary.write("rejected", token)
        raise
    diary.write("confirmed", token, message.kind)


def consume(url: str, diary: Diary) -> None:
    """Consume both queues for ever."""
    pause = _Pause()
    while True:
        with connect(url) as connection:
            try:
                _declare(connection)
                _drain(connection, diary, pause.reset)
            except (*connection.connection_errors, OperationalError) as error:
                pause.after(error)


def _drain(connection: Connection, diary: Diary, went_well: Callable[[], None]) -> None:
    producer = Producer(connection)

    def handle(_body: Any, message: Any) -> None:
        kind = note(message, message.delivery_info["routing_key"], diary)
        if kind is Kind.REPUBLISHED:
            queue = CONSUMED[len(message.body) % len(CONSUMED)]
            publish(producer, Planned(Kind.PLAIN, queue, message.body[:1000]), diary)
        if kind is Kind.REJECTED:
            message.reject()
        else:
            message.ack()
        went_well()

    consumed = [queue for queue in queues() if queue.name in CONSUMED]
    with Consumer(connection.channel(), consumed, on_message=None, callbacks=[handle], prefetch_count=8):
        while True:
            connection.drain_events()


def note(message: Any, queue: str, diary: Diary) -> Kind:
    """Note a delivery, and whether its bytes are those that were published."""
    headers = message.headers
    flag = "again" if message.delivery_info["redelivered"] else "first"
    diary.write("delivered", headers["token"], queue, flag)
    if zlib.crc32(message.body) != headers["checksum"]:
        diary.write("damaged", headers["token"])
    return Kind(headers["kind"])


def _declare(connection: Connection) -> None:
    for queue in queues():
        queue(connection.default_channel).declare()


class _Pause:
    """Waits longer with each failure that follows another."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._seconds = FIRST_PAUSE_SECONDS

    def after(self, error: BaseException) -> None:
        print(f"{time.time():.3f} {error!r}", flush=True)
        time.sleep(self._seconds * random.uniform(0.5, 1))
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE_SECONDS)
