"""One producer or one worker of the crash test: each writes what it did to a file of its own before it goes on."""

import os
import uuid
from pathlib import Path
from typing import Any

from kombu import Connection, Consumer, Exchange, Producer, Queue

from ami.transports import register

EXCHANGE = Exchange("crash", type="topic", durable=True)
QUEUE = Queue("crash", EXCHANGE, routing_key="crash", durable=True)

#: Short enough for a test: the messages of a killed worker are requeued after it, or sooner by its lock.
LEASE_SECONDS = 3.0


def connect(url: str) -> Connection:
    """Return a connection with the test's lease."""
    register()
    return Connection(url, transport_options={"visibility_timeout": LEASE_SECONDS})


def unconfirmed(diary: Path) -> list[str]:
    """Return the ids that a killed producer tried and that were not confirmed, in order."""
    if not diary.exists():
        return []
    tried: dict[str, None] = {}
    for line in diary.read_text().splitlines():
        kind, _, name = line.partition(" ")
        if kind == "tried":
            tried[name] = None
        else:
            tried.pop(name, None)
    return list(tried)


def produce(url: str, diary: Path, stop: Path) -> None:
    """Publish until ``stop`` exists. What the one before tried may be stored or not, and is not published again."""
    out = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with connect(url) as connection:
        producer = Producer(connection, exchange=EXCHANGE, routing_key="crash")
        QUEUE(connection.default_channel).declare()
        while not stop.exists():
            name = uuid.uuid4().hex
            os.write(out, f"tried {name}\n".encode())
            producer.publish({"name": name, "load": "x" * 600}, serializer="json")
            os.write(out, f"confirmed {name}\n".encode())


def work(url: str, diary: Path) -> None:
    """Handle messages for ever: write each down, then acknowledge it."""
    out = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(body: Any, message: Any) -> None:
        flagged = "again" if message.delivery_info["redelivered"] else "first"
        os.write(out, f"{flagged} {body['name']}\n".encode())
        message.ack()

    with connect(url) as connection:
        QUEUE(connection.default_channel).declare()
        with Consumer(connection.channel(), [QUEUE], callbacks=[handle], prefetch_count=4):
            while True:
                connection.drain_events()


def run(role: str, url: str, diary: Path, stop: Path, log: Path) -> None:
    """Be one of them in this process, which is forked for it; what it prints goes to ``log``."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if role == "produce":
        produce(url, diary, stop)
    else:
        work(url, diary)
