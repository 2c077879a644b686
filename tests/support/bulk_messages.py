"""What a broker holds after publishing, message by message, and a relay that breaks in the middle of it."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from celery import Signature
from kombu import Connection

from tests.support.place import until

RESULT, AUDIT = "ami.jobs.tasks.process_nats_pipeline_result", "ami.jobs.tasks.audit_jobs"

#: Differs from one message to the next, whoever publishes it; a death has its time.
OWN = ("antenna_published_at", "antenna_publish_id", "eta", "expires", "x-death")
#: The headers are compared as headers.
OWN_PROPERTIES = ("delivery_tag", "publish_id", "delivery_info", "application_headers")


def many_kinds(app: Any) -> list[Signature]:
    """Return signatures whose messages differ in every way that a publisher can choose; each has its id."""
    result, audit = app.tasks[RESULT], app.tasks[AUDIT]
    arguments = {"job_id": 7, "result_key": "a" * 3000, "reply_subject": "ü"}
    many = [
        audit.s(),
        result.s(**arguments),
        result.signature(kwargs=arguments, priority=7),
        result.signature(kwargs=arguments, headers={"antenna_origin": "person", "other": [1]}),
        result.signature(kwargs=arguments, expires=300),
        audit.signature(time_limit=20, soft_time_limit=10, shadow="shown"),
        audit.signature(serializer="json", compression="zlib", ignore_result=True, root_id="r", parent_id="p"),
        audit.signature(queue="antenna", delivery_mode=1),
        audit.signature(countdown=1),
        audit.signature(link=audit.si()),
        audit.si() | audit.si(),
    ]
    for number, each in enumerate(many):
        (each.tasks[0] if "tasks" in each.kwargs else each).options["task_id"] = f"id-{number}"
    return many


def drained(url: str, queues: tuple[str, ...], count: int, options: Any = None) -> list[dict[str, Any]]:
    """Take ``count`` messages from the queues, and then what else is there; return them by queue, in order."""
    found: list[dict[str, Any]] = []
    with Connection(url, transport_options=options or {}) as connection:
        channel = connection.channel()
        # A broker without a server sends delayed messages while a consumer lives, of whichever queue.
        watched = channel.queue_declare(auto_delete=True).queue
        channel.basic_consume(watched, no_ack=True, callback=print, consumer_tag="watch")

        def take() -> bool:
            for queue in queues:
                while (raw := channel.basic_get(queue, no_ack=True)) is not None:
                    found.append(_described(queue, channel.message_to_python(raw)))
            return len(found) >= count

        until(take, 60, f"{count} messages")
    return found


def _described(queue: str, message: Any) -> dict[str, Any]:
    headers = {name: bool(value) if name in OWN else value for name, value in message.headers.items()}
    properties = {name: value for name, value in message.properties.items() if name not in OWN_PROPERTIES}
    return {
        "queue": queue,
        "id": headers["id"],
        "headers": headers,
        "properties": properties,
        "body": bytes(message.body if isinstance(message.body, bytes) else message.body.encode()),
        "content": (message.content_type, message.content_encoding),
        "where": (message.delivery_info.get("exchange"), message.delivery_info.get("routing_key")),
    }


def ids(url: str, queue: str, count: int) -> Counter[str]:
    """Take the messages of a queue; return how often each task is there."""
    return Counter(message["id"] for message in drained(url, (queue,), count))


class Relay:
    """A TCP relay that passes so many bytes from the client, and then closes (or freezes) its connections once."""

    def __init__(self, url: str, after_bytes: int, freezes: bool) -> None:
        self._parts = urlsplit(url)
        self._left, self._freezes = after_bytes, freezes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.has_broken = False

    @property
    def url(self) -> str:
        login, at, _ = self._parts.netloc.rpartition("@")
        return urlunsplit(self._parts._replace(netloc=f"{login}{at}127.0.0.1:{self._listener.getsockname()[1]}"))

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                outer = socket.create_connection((self._parts.hostname or "", self._parts.port or 0))
                self._sockets += [inner, outer]
                for one, other, check in ((inner, outer, self._passes), (outer, inner, lambda _: True)):
                    threading.Thread(target=self._pump, args=(one, other, check), daemon=True).start()

    def _passes(self, size: int) -> bool:
        self._left -= size
        if self._left >= 0 or self.has_broken:
            return True
        self.has_broken = True
        return False

    def _pump(self, one: socket.socket, other: socket.socket, passes: Callable[[int], bool]) -> None:
        with suppress(OSError):
            while data := one.recv(16 * 1024):
                if not passes(len(data)):
                    if self._freezes:
                        time.sleep(60)
                    break
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def breaking(url: str, after_bytes: int, *, freezes: bool = False) -> Iterator[Relay]:
    """Run a relay to the server of this URL."""
    relay = Relay(url, after_bytes, freezes)
    relay.start()
    try:
        yield relay
    finally:
        relay.close()
