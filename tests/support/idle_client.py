"""A process of the deployment that uses each of its connections when it reads a line, and prints what became of it."""

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import django

django.setup()

from django.core.cache import cache  # noqa: E402
from django.db import connection  # noqa: E402

from ami.jobs.services.jetstream import connection as nats_connection  # noqa: E402
from config import celery_app  # noqa: E402

DEADLINE_SECONDS = 5.0


def publish() -> None:
    celery_app.send_task("tests.support.worker_tasks.basic.succeed", queue="antenna")


def query() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def use_cache() -> None:
    cache.set("idle", 1)
    assert cache.get("idle") == 1


def store_result() -> None:
    celery_app.backend.set("idle", "1")


def use_nats() -> None:
    async def ask(_: Any, jetstream: Any) -> None:
        await jetstream.account_info()

    nats_connection.call(ask, DEADLINE_SECONDS)


#: Each in a thread of its own: Django's connections are a thread's.
USES: dict[str, Callable[[], None]] = {
    "broker": publish,
    "database": query,
    "cache": use_cache,
    "results": store_result,
    "nats": use_nats,
}


def outcome(future: Future[None], deadline: float) -> str:
    """Return what became of one use: ``ok``, or the error's class."""
    try:
        future.result(max(0.0, deadline - time.monotonic()))
    except Exception as error:
        return type(error).__name__
    return "ok"


def main() -> None:
    """Answer each line with one line of JSON."""
    threads = {name: ThreadPoolExecutor(1) for name in USES}
    for _ in sys.stdin:
        futures = {name: threads[name].submit(use) for name, use in USES.items()}
        deadline = time.monotonic() + DEADLINE_SECONDS
        print(json.dumps({name: outcome(future, deadline) for name, future in futures.items()}), flush=True)


main()
