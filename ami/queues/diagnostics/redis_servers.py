"""Findings about each Redis of the deployment: its memory, what it does when it is full, and what it writes to disk."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.retry import Retry

from ami.queues.connection_reasons import ANSWER_SECONDS, reason
from ami.queues.diagnostics.finding import Finding

#: What a deployment keeps in Redis.
CACHE, RESULTS, MESSAGES = "cache", "results", "messages"

SCHEMES = ("redis", "rediss")
CACHE_BACKEND = "redis.RedisCache"

#: Percent of ``maxmemory``. Results and cache of a healthy deployment expire, so that memory rises and falls far below
#: it; from 95 % on, the next burst is refused or evicts.
WARNING_PERCENT, ERROR_PERCENT = 80, 95

NO_EVICTION = "noeviction"


@dataclass(frozen=True)
class RedisServer:
    """One server of the settings. ``url`` has the password, ``where`` host and port; ``keeps`` what is kept there."""

    url: str
    where: str
    keeps: frozenset[str]


@dataclass(frozen=True)
class State:
    """What a server says of itself. Sizes in bytes, 0 for no limit; counts are since its start or CONFIG RESETSTAT.

    ``saves`` are the snapshot rules of ``CONFIG GET save``; empty where there are none, or where it is not allowed.
    Source: https://redis.io/docs/latest/commands/info/.
    """

    used_bytes: int
    limit_bytes: int
    policy: str
    evicted: int
    refused: int
    has_append_file: bool
    saves: str
    last_save_failed: bool

    @property
    def evicts(self) -> bool:
        return self.policy != NO_EVICTION


def configured(caches: Mapping[str, Mapping[str, Any]], results: str, broker: str) -> list[RedisServer]:
    """Return the servers that CACHES, the result backend and the broker name, each once for all its databases."""
    cache_urls = [url for cache in caches.values() if cache["BACKEND"].endswith(CACHE_BACKEND) for url in _urls(cache)]
    uses = [(CACHE, url) for url in cache_urls] + [(RESULTS, results)] + [(MESSAGES, url) for url in broker.split(";")]
    servers: dict[str, RedisServer] = {}
    for what, url in uses:
        if url.partition("://")[0] in SCHEMES:
            where = _where(url)
            known = servers.get(where, RedisServer(_for_client(url), where, frozenset()))
            servers[where] = RedisServer(known.url, where, known.keeps | {what})
    return list(servers.values())


def _urls(cache: Mapping[str, Any]) -> list[str]:
    location = cache.get("LOCATION", "")
    return location.replace(";", ",").split(",") if isinstance(location, str) else list(location)


def _for_client(url: str) -> str:
    """Return the URL as redis-py reads it: Celery also takes ``CERT_REQUIRED`` for ``required``."""
    return re.sub(r"(?<=ssl_cert_reqs=)CERT_(\w+)", lambda found: found[1].lower(), url)


def _where(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or 6379}"


def looked_at(servers: Iterable[RedisServer]) -> Iterator[Finding]:
    """Ask each server, each for a few seconds at most; yield what is wrong with it."""
    for server in servers:
        yield from (replace(finding, target=server.where) for finding in _looked_at(server))


def _looked_at(server: RedisServer) -> Iterator[Finding]:
    try:
        state = _state(server.url)
    except NoPermissionError:
        sentence = f"{_of(server)} was not checked: its user may not run INFO; allow it with ACL SETUSER ... +info."
        yield Finding("unseen", "redis", sentence)
    except KeyError as error:
        sentence = f"{_of(server)} does not report {error}: it is not Redis, or one of another kind."
        yield Finding("unseen", "redis", sentence)
    except (RedisError, OSError, ValueError) as error:
        sentence = f"{_of(server)} cannot be asked: {reason(error)}; start it or correct its URL."
        yield Finding("error", "redis", sentence)
    else:
        yield from _memory(server, state)
        yield from _policy(server, state)
        yield from _lost(server, state)
        yield from _disk(server, state)


def _state(url: str) -> State:
    """Ask the server. Raises what redis-py raises."""
    seconds = {"socket_connect_timeout": ANSWER_SECONDS, "socket_timeout": ANSWER_SECONDS}
    with Redis.from_url(url, retry=Retry(NoBackoff(), 0), decode_responses=True, **seconds) as client:
        # One command per section: Redis before 7 takes one.
        sections = ("memory", "stats", "persistence", "errorstats")
        info: dict[str, Any] = {name: value for part in sections for name, value in client.info(part).items()}
        try:
            saves = client.config_get("save").get("save", "")
        except ResponseError:  # A managed Redis knows no CONFIG, or does not allow it.
            saves = ""
    return State(
        used_bytes=int(info["used_memory"]),
        limit_bytes=int(info["maxmemory"]),
        policy=str(info["maxmemory_policy"]),
        evicted=int(info.get("evicted_keys", 0)),
        refused=int(info.get("errorstat_OOM", {}).get("count", 0)),
        has_append_file=bool(info.get("aof_enabled")),
        saves=saves,
        last_save_failed=info.get("rdb_last_bgsave_status", "ok") != "ok",
    )


def _memory(server: RedisServer, state: State) -> Iterator[Finding]:
    if not state.limit_bytes:
        yield Finding(
            "warning",
            "redis-unbounded",
            f"{_of(server)} has no maxmemory: it takes memory until the kernel kills it or another process. "
            "Set maxmemory (compose: REDIS_MAXMEMORY).",
        )
        return
    if state.evicts and server.keeps == {CACHE}:
        return  # A full cache that evicts is one that works.
    percent = 100 * state.used_bytes / state.limit_bytes
    if percent >= WARNING_PERCENT:
        then = "evicts results before they are read" if state.evicts else "refuses every write"
        # One that evicts is expected to be full at times; what it evicted is a finding of its own.
        level = "error" if percent >= ERROR_PERCENT and not state.evicts else "warning"
        yield Finding(
            level,
            "redis-memory",
            f"{_of(server)} uses {percent:.0f}% of its {_mib(state.limit_bytes)} MiB; when it is full it {then}. Find "
            "what grows with 'redis-cli --bigkeys', or raise maxmemory (compose: REDIS_MAXMEMORY).",
        )


def _policy(server: RedisServer, state: State) -> Iterator[Finding]:
    if MESSAGES in server.keeps and state.evicts:
        yield Finding(
            "error",
            "redis-policy",
            f"{_of(server)} has the policy {state.policy}: when it is full it deletes messages. Set "
            "maxmemory-policy to noeviction, and keep the cache on another server.",
        )
    elif MESSAGES not in server.keeps and state.limit_bytes and not state.evicts:
        yield Finding(
            "warning",
            "redis-policy",
            f"{_of(server)} has the policy noeviction: when it is full it refuses every write. Set maxmemory-policy to "
            "allkeys-lru, as compose does.",
        )


def _lost(server: RedisServer, state: State) -> Iterator[Finding]:
    """What the server has already refused or deleted for want of memory."""
    reset = "'redis-cli CONFIG RESETSTAT' clears the count."
    if state.refused:
        sentence = f"{_of(server)} refused {state.refused} writes for want of memory. Raise maxmemory; {reset}"
        yield Finding("warning", "redis-lost", sentence)
    if state.evicted and server.keeps != {CACHE}:
        yield Finding(
            "warning",
            "redis-lost",
            f"{_of(server)} evicted {state.evicted} keys for want of memory, and task results may be among them. Raise "
            f"maxmemory; {reset}",
        )


def _disk(server: RedisServer, state: State) -> Iterator[Finding]:
    """What is written to disk although it may be lost: snapshots once filled the disk (incident 12)."""
    writes = [
        name for name, does in (("snapshots", state.saves), ("an append-only file", state.has_append_file)) if does
    ]
    if not writes or MESSAGES in server.keeps:
        return
    failed = (
        " The last snapshot failed, and Redis may refuse writes until one succeeds." if state.last_save_failed else ""
    )
    yield Finding(
        "error" if failed else "warning",
        "redis-disk",
        f"{_of(server)} writes {' and '.join(writes)} to disk, and keeps nothing that must survive.{failed} Start it "
        "with --save '' --appendonly no.",
    )


def _of(server: RedisServer) -> str:
    return f"Redis at {server.where} ({', '.join(sorted(server.keeps))})"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 1024**2:.0f}"
