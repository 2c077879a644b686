"""Polls that are answered in the web server's loop: the same bytes as before, for a session that was checked."""

import io
import threading
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from ami.console import refresher
from ami.console import repeated_polls as polls
from ami.console.refresher import FRESH_SECONDS, Refresher
from ami.console.repeated_polls import RepeatedPolls
from ami.console.watchers import Watchers, etag_of
from ami.telemetry.snapshots import shared
from tests.support.place import until

SESSION, ADDRESS = "of-a-user", "/admin/queues/?live=overview"
ALLOWED = frozenset({"queues.pause_queue"})
HEADERS = [("Content-Type", "text/html; charset=utf-8"), ("Content-Security-Policy", "default-src 'none'")]
OLD, NEW = etag_of(ALLOWED, "7"), etag_of(ALLOWED, "8")


def request(etag: str = "", *more: str, first: str = f"GET {ADDRESS} HTTP/1.1") -> bytes:
    lines = [first, "Host: here", f"Cookie: sessionid={SESSION}", *more, *([f"If-None-Match: {etag}"] if etag else [])]
    return "".join(f"{line}\r\n" for line in [*lines, "Accept: */*", ""]).encode()


@pytest.fixture
def watchers() -> Watchers:
    made = Watchers()
    made.trust(SESSION, ALLOWED)
    made.keep(ADDRESS, NEW, b"<p>new</p>")
    return made


@pytest.fixture
def seen(watchers: Watchers) -> Iterator[RepeatedPolls]:
    """A process in whose memory are the figures of version 8, and a poll for those of version 7."""
    shared._memo = shared._Memo(time.monotonic(), time.monotonic(), SimpleNamespace(version=8))  # type: ignore[arg-type]
    made = RepeatedPolls(watchers)
    made.learn(request(OLD), OLD, SESSION, ADDRESS, HEADERS)
    yield made
    shared.forget()


def parsed(answer: bytes | None) -> HTTPResponse:
    assert answer is not None
    made = HTTPResponse(SimpleNamespace(makefile=lambda *_: io.BytesIO(answer)))  # type: ignore[arg-type]
    made.begin()
    return made


def test_unchanged_figures_are_304_whatever_etag_was_learned(seen: RepeatedPolls):
    answer = parsed(seen.answer(request(NEW)))
    assert (answer.status, answer.read(), answer.headers["ETag"]) == (304, b"", NEW)
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'"
    assert answer.headers["Connection"] == "keep-alive"
    assert answer.headers["Content-Type"] is None


@pytest.mark.parametrize("etag", [OLD, ""])
def test_new_figures_are_the_part_that_all_share(seen: RepeatedPolls, etag: str):
    answer = parsed(seen.answer(request(etag)))
    assert (answer.status, answer.read(), answer.headers["ETag"]) == (200, b"<p>new</p>", NEW)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    "other",
    [
        request(NEW).replace(SESSION.encode(), b"of-another-user"),
        request(NEW).replace(b"here", b"elsewhere"),
        request(NEW, "X-Forwarded-Proto: https"),
        request(NEW, first="GET /admin/queues/?live=other HTTP/1.1"),
        request(NEW, first=f"GET {ADDRESS} HTTP/1.0"),
        request(NEW, first=f"POST {ADDRESS} HTTP/1.1"),
        request(NEW) + b"GET / HTTP/1.1\r\n",
        request(NEW) + request(NEW),
        request(NEW)[:-2],
        request(NEW).replace(b"If-None-Match", b"if-none-match"),
        request(NEW, f"If-None-Match: {OLD}"),
        b"",
    ],
)
def test_other_bytes_go_the_usual_way(seen: RepeatedPolls, other: bytes):
    assert seen.answer(other) is None


@pytest.mark.parametrize(
    ("given", "etag"),
    [
        (request(NEW).replace(b"If-None-Match", b"if-none-match"), NEW),  # Parsed as an ETag, and not found as one.
        (request(NEW, "Connection: close"), NEW),
        (request(NEW, first=f"GET {ADDRESS} HTTP/1.0"), NEW),
        (request(NEW) + request(NEW), NEW),
        (request(NEW, "X: " + "x" * polls.MOST_BYTES), NEW),
    ],
)
def test_request_that_may_mean_something_else_is_not_learned(watchers: Watchers, given: bytes, etag: str):
    made = RepeatedPolls(watchers)
    made.learn(given, etag, SESSION, ADDRESS, HEADERS)
    assert not made._known


def test_session_that_is_not_known_any_more_goes_the_usual_way(seen: RepeatedPolls, watchers: Watchers):
    assert seen.answer(request(NEW))
    watchers.distrust(SESSION)
    assert seen.answer(request(NEW)) is None


def test_figures_that_were_read_a_while_ago_are_asked_for(seen: RepeatedPolls):
    memo: Any = shared._memo
    shared._memo = memo._replace(read_at=memo.read_at - shared.KNOWN_SECONDS)
    assert seen.answer(request(NEW)) is None
    shared._memo = memo._replace(taken_at=memo.taken_at - FRESH_SECONDS - polls.TAKING_SECONDS)
    assert seen.answer(request(NEW)) is None
    shared.forget()
    assert seen.answer(request(NEW)) is None


def test_part_that_is_not_at_hand_is_rendered_elsewhere(seen: RepeatedPolls, watchers: Watchers):
    watchers.clear()
    watchers.trust(SESSION, ALLOWED)
    assert seen.answer(request(OLD)) is None
    assert seen.answer(request(NEW)), "who has it needs none"


def test_so_many_are_remembered(watchers: Watchers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(polls, "MOST_REQUESTS", 3)
    made = RepeatedPolls(watchers)
    for number in range(9):
        made.learn(request(OLD, f"X: {number}"), OLD, SESSION, ADDRESS, HEADERS)
    assert len(made._known) == 3
    made.clear()
    assert not made._known


@pytest.mark.django_db
def test_one_thread_reads_on_while_polls_come(monkeypatch: pytest.MonkeyPatch):
    looked, threads = [], set()

    def look(max_age_seconds: float) -> None:
        looked.append(max_age_seconds)
        threads.add(threading.get_ident())

    monkeypatch.setattr(shared, "current", look)
    monkeypatch.setattr(refresher, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(refresher, "PATIENCE_SECONDS", 0.2)
    made = Refresher()
    for _ in range(5):
        made.want()
    until(lambda: len(looked) > 3, 10)
    assert (set(looked), len(threads)) == ({FRESH_SECONDS}, 1)
    until(lambda: not made._is_running, 10, "it ends when nobody polls")
    begun = len(looked)
    made.want()
    until(lambda: len(looked) > begun, 10, "it begins again")
    until(lambda: not made._is_running, 10)


@pytest.mark.django_db
def test_refresher_ends_while_the_database_is_away_and_begins_again(monkeypatch: pytest.MonkeyPatch):
    tries = []

    def away(_: float) -> None:
        tries.append(1)
        raise OperationalError("away")

    monkeypatch.setattr(shared, "current", away)
    made = Refresher()
    for number in (1, 2):
        made.want()
        until(lambda: len(tries) == number and not made._is_running, 10)  # noqa: B023
