"""What web's processes share about those who watch the console, in a real Redis, and without it."""

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from django.core.cache import cache

from ami.console import watchers as watching
from ami.console.watchers import Watchers, etag_of
from config.settings.databases import caches

REDIS = "django.core.cache.backends.redis.RedisCache"
ALLOWED = frozenset({"queues.pause_queue"})
ADDRESS, ETAG, PART = "/admin/queues/?live=overview", etag_of(ALLOWED, "7"), b"<p>what is shown</p>"


@pytest.fixture
def processes(settings: Any) -> tuple[Watchers, Watchers]:
    """What two processes of web remember."""
    settings.CACHES = {"default": {**caches(os.environ["REDIS_URL"])["default"], "KEY_PREFIX": os.urandom(8).hex()}}
    return Watchers(), Watchers()


def test_session_checked_by_one_process_is_trusted_by_all(processes: tuple[Watchers, Watchers]):
    one, other = processes
    assert other.trusted("of-a-user") is None
    one.trust("of-a-user", ALLOWED)
    found, mine = other.trusted("of-a-user"), one.trusted("of-a-user")
    assert found is not None
    assert mine is not None
    assert found.allowed == mine.allowed == ALLOWED
    assert other.trusted("of-another-user") is None
    assert other.trusted("") is None


def test_sessions_trust_ends_for_all(processes: tuple[Watchers, Watchers], monkeypatch: Any):
    one, other = processes
    one.trust("of-a-user", ALLOWED)
    assert other.trusted("of-a-user") is not None
    at = watching.time.time()
    clock = SimpleNamespace(time=lambda: at + watching.REMEMBERED_SECONDS + 1)
    monkeypatch.setattr(watching, "time", clock)
    assert other.trusted("of-a-user") is not None, "the cache knows"
    one.distrust("of-a-user")
    assert one.trusted("of-a-user") is None
    clock.time = lambda: at + 2 * watching.REMEMBERED_SECONDS + 2
    assert other.trusted("of-a-user") is None, "after a sign-out elsewhere"


def test_session_is_checked_anew_after_a_minute(processes: tuple[Watchers, Watchers], monkeypatch: Any):
    one, other = processes
    one.trust("of-a-user", ALLOWED)
    at = watching.time.time()
    monkeypatch.setattr(watching, "time", SimpleNamespace(time=lambda: at + watching.TRUSTED_SECONDS - 1))
    assert other.trusted("of-a-user") is not None
    monkeypatch.setattr(watching, "time", SimpleNamespace(time=lambda: at + watching.TRUSTED_SECONDS + 1))
    assert other.trusted("of-a-user") is None
    assert one.trusted("of-a-user") is None


def test_part_rendered_by_one_process_is_sent_by_all(processes: tuple[Watchers, Watchers]):
    one, other = processes
    one.keep(ADDRESS, ETAG, PART)
    assert other.kept(ADDRESS, ETAG) == PART
    assert other.kept(ADDRESS, etag_of(ALLOWED, "8")) is None
    assert other.kept(ADDRESS, etag_of(frozenset(), "7")) is None, "rendered for others' permissions"


def test_values_lie_in_redis_as_json(processes: tuple[Watchers, Watchers], settings: Any):
    one, _ = processes
    one.trust("of-a-user", ALLOWED)
    one.keep(ADDRESS, ETAG, PART)
    assert cache.add("a-line", 1, 60)
    assert cache.incr("a-line") == cache.get("a-line") == 2
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        values = [client.get(key) for key in client.scan_iter(f"{settings.CACHES['default']['KEY_PREFIX']}:*")]
    assert len(values) == 3
    found = [json.loads(value or b"") for value in values]
    assert 2 in found
    assert PART.decode() in found


def test_processes_without_redis_watch_by_themselves(processes: tuple[Watchers, Watchers], settings: Any):
    settings.CACHES = {"default": {"BACKEND": REDIS, "LOCATION": "redis://127.0.0.1:1/0"}}
    one, other = processes
    one.trust("of-a-user", ALLOWED)
    one.keep(ADDRESS, ETAG, PART)
    assert one.trusted("of-a-user") is not None
    assert one.kept(ADDRESS, ETAG) == PART
    assert other.trusted("of-a-user") is None
    assert other.kept(ADDRESS, ETAG) is None
