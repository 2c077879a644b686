"""Polls that are answered before Django: the same bytes and headers, and never more than Django would send."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import OperationalError, close_old_connections
from django.test import Client
from django.test.client import RequestFactory
from django.urls import reverse

from ami.console.polls import Polls
from ami.telemetry.snapshots import shared
from tests.support import console

pytestmark = pytest.mark.django_db


POLICIES = (
    "content-security-policy",
    "permissions-policy",
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Site:
    """Django behind the polls; it counts what reaches Django."""

    def __init__(self) -> None:
        self.reached = 0
        django = WSGIHandler()

        def counting(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            self.reached += 1
            return django(environ, start_response)

        self.polls = Polls(counting)

    def get(self, client: Client | None, address: str, etag: str = "", **environ: Any) -> Answer:
        path, _, query = address.partition("?")
        session = client.cookies[settings.SESSION_COOKIE_NAME].value if client else ""
        given: dict[str, Any] = RequestFactory().get(path).environ
        given |= {"QUERY_STRING": query, "RAW_URI": address, "HTTP_HOST": "localhost"}
        given["HTTP_COOKIE"] = f"{settings.SESSION_COOKIE_NAME}={session}" if session else ""
        if etag:
            given["HTTP_IF_NONE_MATCH"] = etag
        seen: list[Any] = []
        body = b"".join(self.polls(given | environ, lambda status, headers, *_: seen.append((status, headers))))
        (status, headers) = seen[0]
        return Answer(int(status.split()[0]), {name.lower(): value for name, value in headers}, body)


@pytest.fixture
def site(figures) -> Iterator[Site]:
    for signal in (request_started, request_finished):  # As Django's test client: the test's connection stays open.
        signal.disconnect(close_old_connections)
    yield Site()
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def address() -> str:
    return f"{reverse('console:overview')}?live=overview"


def test_second_poll_is_answered_as_django_has_answered_the_first(site, viewer, address):
    first = site.get(viewer, address)
    assert (first.status, site.reached) == (200, 1)
    again = site.get(viewer, address)
    first.headers.pop("expires", None)  # It was the time of that answer.
    assert (again, site.reached) == (first, 1)
    assert again.headers["content-security-policy"]
    assert again.headers["x-content-type-options"] == "nosniff"


def test_unchanged_poll_is_304_with_the_headers_of_django(site, viewer, address):
    first = site.get(viewer, address)
    by_django = Site().get(viewer, address, first.headers["etag"])
    found = site.get(viewer, address, first.headers["etag"])
    assert (found.status, found.body, site.reached) == (by_django.status, by_django.body, 1) == (304, b"", 1)
    assert found.headers.items() >= {name: by_django.headers[name] for name in POLICIES}.items()
    assert found.headers["etag"] == by_django.headers["etag"]
    assert not found.headers.keys() & {"content-type", "content-length", "expires"}


def test_new_figures_come_from_django_once(site, viewer, address, figures, monkeypatch):
    first = site.get(viewer, address)
    console.show(monkeypatch, replace(figures, version=8, findings=()))
    changed = site.get(viewer, address, first.headers["etag"])
    assert (changed.status, site.reached) == (200, 2)
    assert changed.headers["etag"] != first.headers["etag"]
    assert site.get(viewer, address, first.headers["etag"])[::2] == changed[::2]
    assert site.reached == 2


def test_other_permissions_have_another_answer(site, viewer, address):
    shown = site.get(viewer, address)
    operator = console.client_of("pause_queue")
    other = site.get(operator, address, shown.headers["etag"])
    assert b"/lever/pause/" in other.body
    assert b"/lever/pause/" not in site.get(viewer, address, other.headers["etag"]).body


def test_stranger_and_who_signed_out_reach_django(site, viewer, address):
    first = site.get(viewer, address)
    assert site.get(None, address, first.headers["etag"]).status == 401
    key = viewer.cookies[settings.SESSION_COOKIE_NAME].value
    viewer.logout()
    viewer.cookies[settings.SESSION_COOKIE_NAME] = key
    assert site.get(viewer, address, first.headers["etag"]).status == 401
    assert site.reached == 3


@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_HOST": "elsewhere.example"},
        {"HTTP_X_FORWARDED_PROTO": "https"},
        {"wsgi.url_scheme": "https"},
        {"REQUEST_METHOD": "HEAD"},
        {"REQUEST_METHOD": "POST"},
        {"CONTENT_LENGTH": "5"},
        {"HTTP_TRANSFER_ENCODING": "chunked"},
    ],
    ids=str,
)
def test_poll_that_django_may_answer_otherwise_reaches_it(site, viewer, address, environ, settings):
    settings.ALLOWED_HOSTS = ["localhost"]
    site.get(viewer, address)
    answer = site.get(viewer, address, **environ)
    assert site.reached == 2
    if "HTTP_HOST" in environ:
        assert answer.status == 400


def test_redirect_to_https_is_kept(site, viewer, address, settings):
    settings.SECURE_SSL_REDIRECT = True
    for _ in range(2):
        site.polls = Polls(WSGIHandler())
        assert site.get(viewer, address).status == 301


@pytest.mark.parametrize("path", ["/admin/queues/nowhere/", "/livez", "/admin/"])
def test_what_is_no_part_of_a_page_is_not_learned(site, viewer, path):
    for _ in range(2):
        site.get(viewer, f"{path}?live=overview")
    assert site.reached == 2


def test_server_that_gives_no_raw_address_reaches_django(site, viewer, address):
    for _ in range(2):
        assert site.get(viewer, address, RAW_URI="").status == 200
    assert site.reached == 2


def test_database_that_is_away_is_answered_by_django(site, viewer, address, monkeypatch):
    site.get(viewer, address)

    def fails(*_: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(shared, "current", fails)
    assert site.get(viewer, address).status >= 500
    assert site.reached == 2
