"""What `queues check --live` says of a real Redis: full, unbounded, with the wrong policy, and away."""

import re
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import OutOfMemoryError

from ami.queues.diagnostics import redis_servers
from provision import services
from tests.support.place import FOLDER, Place

MIB = 1024**2
PASSWORD = "s3cret-of-redis"  # noqa: S105

#: As compose starts it (compose/redis/with-password).
AS_COMPOSE = {"maxmemory": 64 * MIB, "maxmemory-policy": "allkeys-lru", "save": "", "appendonly": "no"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A Redis of this module's own: host and port."""
    with services.running(["redis"], private=True) as found:
        yield found["redis"].url.partition("://")[2].partition("/")[0]


@pytest.fixture
def server(address: str) -> Iterator[Redis]:
    """It, empty, with a password and as compose starts it."""
    with Redis.from_url(f"redis://{address}") as client:
        client.config_set("requirepass", PASSWORD)
        client.auth(PASSWORD)
        client.flushall()
        for name, value in AS_COMPOSE.items():
            client.config_set(name, value)
        client.config_resetstat()
        yield client
        client.config_set("requirepass", "")


@pytest.fixture
def url(address: str) -> str:
    return f"redis://:{PASSWORD}@{address}"


def configured(url: str, broker: str = "memory://") -> list[redis_servers.RedisServer]:
    """The deployment's: one server for cache and results, in two databases."""
    backend = "django.core.cache.backends.redis.RedisCache"
    return redis_servers.configured({"default": {"BACKEND": backend, "LOCATION": f"{url}/0"}}, f"{url}/1", broker)


def found(url: str, **options: Any) -> dict[str, tuple[str, str]]:
    return {item.name: (item.level, item.sentence) for item in redis_servers.looked_at(configured(url, **options))}


def fill(server: Redis, percent: int) -> None:
    """Store large values until so much of the limit is used."""
    limit = int(server.config_get("maxmemory")["maxmemory"])
    number = 0
    while (used := int(server.info("memory")["used_memory"])) < limit * percent / 100:
        number += 1
        left = int(limit * percent / 100) - used
        server.set(f"key-{number}", b"x" * min(left + 1024, 256 * 1024))


def test_redis_as_compose_starts_it_is_fine_and_asked_once(server: Redis, url: str):
    assert found(url) == {}
    (one,) = configured(url)
    assert one.keeps == {"cache", "results"}
    assert PASSWORD not in one.where


@pytest.mark.parametrize(
    ("policy", "percent", "level"),
    [
        ("allkeys-lru", 70, None),
        ("allkeys-lru", 97, "warning"),
        ("noeviction", 85, "warning"),
        ("noeviction", 97, "error"),
    ],
)
def test_incident_3_memory_is_compared_with_its_limit(
    server: Redis, url: str, policy: str, percent: int, level: str | None
):
    server.config_set("maxmemory-policy", policy)
    fill(server, percent)
    rows = found(url)
    assert rows.get("redis-memory", (None,))[0] == level
    if level:
        assert int(re.search(r"uses (\d+)% of its 64 MiB", rows["redis-memory"][1])[1]) - percent in (0, 1)
    assert PASSWORD not in str(rows)


def test_full_cache_that_evicts_is_fine_and_evicted_results_are_not(server: Redis, url: str):
    for number in range(300):
        server.set(f"key-{number}", b"x" * 256 * 1024)
    cache = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": [url]}}
    assert list(redis_servers.looked_at(redis_servers.configured(cache, "disabled", ""))) == []
    level, sentence = found(url)["redis-lost"]
    assert level == "warning"
    assert f"evicted {server.info('stats')['evicted_keys']} keys" in sentence


def test_incident_3_refused_writes_and_their_policy_are_found(server: Redis, url: str):
    server.config_set("maxmemory-policy", "noeviction")
    fill(server, 97)
    for _ in range(3):
        with pytest.raises(OutOfMemoryError):
            server.set("one-more", b"x" * 4 * MIB)  # What it reads counts as memory.
    rows = found(url)
    assert rows["redis-memory"][0] == "error"
    assert "refuses every write" in rows["redis-memory"][1]
    assert "refused 3 writes" in rows["redis-lost"][1]
    assert "allkeys-lru" in rows["redis-policy"][1]


def test_redis_without_a_limit_is_found(server: Redis, url: str):
    server.config_set("maxmemory", 0)
    assert found(url)["redis-unbounded"][0] == "warning"


def test_redis_that_evicts_and_holds_messages_is_an_error(server: Redis, url: str):
    level, sentence = found(url, broker=f"{url}/2")["redis-policy"]
    assert level == "error"
    assert "deletes messages" in sentence


@pytest.mark.parametrize(
    ("option", "value", "what"), [("save", "3600 1", "snapshots"), ("appendonly", "yes", "append")]
)
def test_redis_that_writes_to_disk_is_found(server: Redis, url: str, option: str, value: str, what: str):
    server.config_set(option, value)
    level, sentence = found(url)["redis-disk"]
    assert (level, what in sentence) == ("warning", True)


def test_user_that_may_not_look_is_unseen_and_one_without_config_is_not(server: Redis, address: str):
    server.acl_setuser("looker", enabled=True, passwords=["+word"], commands=["+ping"])
    url = f"redis://looker:word@{address}"
    level, sentence = found(url)["redis"]
    assert (level, "+info" in sentence) == ("unseen", True)
    server.acl_setuser("looker", enabled=True, commands=["+info"])
    assert found(url) == {}


@pytest.mark.parametrize("answers", [False, True], ids=["refused", "silent"])
def test_unreachable_redis_is_one_sentence_in_time(answers: bool):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if answers:
            other.listen()  # The kernel accepts, and nobody answers.
        before = time.monotonic()
        level, sentence = found(f"redis://:{PASSWORD}@127.0.0.1:{other.getsockname()[1]}")["redis"]
    assert time.monotonic() - before < 6
    assert level == "error"
    assert ("no answer within 3 s" if answers else "connection refused") in sentence
    assert PASSWORD not in sentence


@pytest.mark.parametrize(
    "cache",
    [
        {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "antenna_cache"},
    ],
)
def test_deployment_without_redis_has_no_such_finding(cache: dict[str, Any]):
    assert redis_servers.configured({"default": cache}, "config.result_backend:Backend", "amqp://rabbitmq") == []


def test_celerys_spelling_of_a_certificates_check_is_read():
    (server,) = redis_servers.configured({}, "rediss://redis.invalid/1?ssl_cert_reqs=CERT_REQUIRED", "")
    with Redis.from_url(server.url) as client:
        assert client.connection_pool.make_connection().cert_reqs == ssl.CERT_REQUIRED


@pytest.mark.parametrize("place", [FOLDER], indirect=True)
def test_live_check_shows_a_full_redis(server: Redis, url: str, place: Place, db: None, settings: Any):
    place.queues("declare")
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": f"{url}/0"}}
    server.config_set("maxmemory-policy", "noeviction")
    fill(server, 85)
    done = place.queues("check", "--live", check=False)
    (sentence,) = [row["sentence"] for row in done.json if row["name"] == "redis-memory"]
    assert sentence.startswith("Redis at 127.0.0.1:")
    assert PASSWORD not in str(done.json)
