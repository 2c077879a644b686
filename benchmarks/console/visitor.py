"""A browser that is signed in: one connection, which it opens again as browsers do when the server has closed it."""

import threading
import time
from http.client import HTTPConnection, RemoteDisconnected
from typing import NamedTuple

from django.conf import settings
from django.test import Client

TIMEOUT_SECONDS = 60.0


class Answer(NamedTuple):
    """``ms`` is from before the request is sent until the last byte of the body is here."""

    status: int
    ms: float
    etag: str
    size: int


class Visitor:
    """The session of ``client``, used by one thread."""

    def __init__(self, client: Client, port: int) -> None:
        self._headers = {
            "Cookie": f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
        }
        self._connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)

    def get(self, address: str, etag: str = "") -> Answer:
        """Ask for an address."""
        headers = self._headers | ({"If-None-Match": etag} if etag else {})
        began = time.perf_counter()
        try:
            return self._answer(address, headers, began)
        except (RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self._connection.close()
            return self._answer(address, headers, began)

    def _answer(self, address: str, headers: dict[str, str], began: float) -> Answer:
        self._connection.request("GET", address, headers=headers)
        response = self._connection.getresponse()
        size = len(response.read())
        return Answer(response.status, 1000 * (time.perf_counter() - began), response.getheader("ETag", ""), size)

    def close(self) -> None:
        self._connection.close()


class Watcher(threading.Thread):
    """Polls a part of a page every two seconds with its last ETag, as the page's script does."""

    def __init__(self, visitor: Visitor, address: str, start_after: float) -> None:
        super().__init__(name="watcher", daemon=True)
        self._visitor, self._address, self._start_after = visitor, address, start_after
        self._ended = threading.Event()
        self.answers: list[Answer] = []

    def run(self) -> None:
        etag, due = "", time.monotonic() + self._start_after
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            answer = self._visitor.get(self._address, etag)
            self.answers.append(answer)
            etag, due = answer.etag or etag, due + POLL_SECONDS

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._visitor.close()


#: As while a job runs (`ami.console.page`).
POLL_SECONDS = 2.0
