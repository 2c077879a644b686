"""A real web server answers a watcher's polls in its loop, while every one of its threads waits for somebody else."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPResponse

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission
from django.test import Client

from tests.support.browser import site
from tests.support.console_pages import client
from tests.support.place import FOLDER, Place, new_place
from tests.support.web_server import Web

pytestmark = [pytest.mark.django_db(transaction=True)]

ADDRESS = "/admin/queues/?live=overview"
#: Of the web process; a thread waits for the headers of a silent client for ten seconds.
THREADS, SOON_SECONDS, TRIES = 4, 2.0, 8


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place("polls", FOLDER) as made:
        made.use_test_database()
        made.queues("declare")
        yield made


class Watcher:
    """A browser's connection: it sends the same bytes each time, apart from the ETag."""

    def __init__(self, web: Web, user: Client | None) -> None:
        name = settings.SESSION_COOKIE_NAME
        self._headers = {"Cookie": f"{name}={user.cookies[name].value}"} if user else {}
        self._connection = HTTPConnection("127.0.0.1", web.port, timeout=30)
        self.close = self._connection.close

    def poll(self, etag: str = "") -> tuple[HTTPResponse, bytes]:
        self._connection.request("GET", ADDRESS, headers=self._headers | ({"If-None-Match": etag} if etag else {}))
        answer = self._connection.getresponse()
        return answer, answer.read()


def staff() -> Client:
    return client(*Permission.objects.values_list("codename", flat=True))


def silent_clients(web: Web, stack: ExitStack) -> None:
    for _ in range(THREADS):
        taken = stack.enter_context(socket.create_connection(("127.0.0.1", web.port)))
        taken.sendall(b"GET /livez HTTP/1.1\r\n")
    time.sleep(0.1)


def answered_beside_busy_threads(web: Web, watcher: Watcher, etag: str) -> HTTPResponse | None:
    """Poll twice, the second time while no thread is free; None where what is known was too old by then."""
    watcher.poll(etag)
    with ExitStack() as stack:
        silent_clients(web, stack)
        began = time.monotonic()
        answer, _ = watcher.poll(etag)
        return answer if time.monotonic() - began < SOON_SECONDS else None


def test_polls_need_no_thread_and_their_answers_are_the_same(place: Place):
    web = site.web_at(place)
    with closing(Watcher(web, staff())) as watcher:
        polled_beside_busy_threads(web, watcher)


def polled_beside_busy_threads(web: Web, watcher: Watcher) -> None:
    first, body = watcher.poll()
    etag = first.headers["ETag"]
    assert (first.status, bool(body)) == (200, True)
    usual, _ = watcher.poll(etag)
    found = next(filter(None, (answered_beside_busy_threads(web, watcher, etag) for _ in range(TRIES))), None)
    assert found is not None, "no poll was answered while the threads waited"
    assert found.status in (304, 200)
    if found.status == usual.status == 304:
        assert {*found.headers} == {*usual.headers}
    again, body = watcher.poll()
    assert (again.status, len(body)) == (200, int(again.headers["Content-Length"]))


def test_stranger_with_a_watchers_etag_gets_nothing(place: Place):
    web = site.web_at(place)
    with closing(Watcher(web, staff())) as watcher:
        etag = watcher.poll()[0].headers["ETag"]
        watcher.poll(etag)
    with closing(Watcher(web, None)) as stranger:
        assert [stranger.poll(etag)[0].status for _ in range(3)] == [401, 401, 401]
