"""A task that lies in a child's pipe when the worker stops: it runs, so its end is waited for."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery.concurrency.asynpool import AsynPool
from kombu.asynchronous import Hub, get_event_loop, set_event_loop

from ami.celery.pool import PreforkPool

pytestmark = pytest.mark.processes

SECONDS = 20


@contextmanager
def sent(kind: type[AsynPool], ended: list[Any]) -> Iterator[tuple[AsynPool, Any]]:
    """Give a pool whose one child was sent a task, and nothing of what it says of it has been read."""
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    pool = kind(processes=1, threads=False)
    try:
        pool.register_with_event_loop(hub)
        turn(hub, lambda: pool._all_inqueues)
        (child,) = pool._pool
        hub.remove_reader(child.outqR_fd)
        job = pool.apply_async(os.getpid, callback=ended.append)
        turn(hub, lambda: job._write_to and not pool._active_writers)
        yield pool, job
    finally:
        pool.terminate()
        pool.join()
        hub.close()
        set_event_loop(before)


def turn(hub: Hub, until: Callable[[], Any]) -> None:
    loop, deadline = hub.create_loop(), time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline
        next(loop)


def test_task_that_a_child_was_sent_ends_before_the_pool_is_closed():
    ended: list[int] = []
    with sent(PreforkPool, ended) as (pool, job):
        (child,) = pool._pool
        pool.flush()
        assert not job._accepted, "until the child says so"
        pool.close()
        pool.join()
        assert ended == [child.pid]
        assert child.exitcode == 0


def test_task_that_no_child_was_sent_is_left_to_the_broker():
    with sent(PreforkPool, []) as (pool, job):
        waiting = pool.apply_async(os.getpid)
        pool.flush()
        assert list(pool._cache.values()) == [job]
        assert waiting not in pool.outbound_buffer


def test_celery_alone_forgets_both():
    """When this fails, Celery has mended it, and the pool of this project can go."""
    with sent(AsynPool, []) as (pool, _):
        (child,) = pool._pool
        pool.flush()
        assert not pool._cache
        os.kill(child.pid, signal.SIGKILL)  # It would wait 30 s for its dropped result to be counted.
