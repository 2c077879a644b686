"""Fixtures of a worker's plan: a worker that is about to start, and signals without receivers."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.app.utils import Settings
from celery.concurrency.prefork import TaskPool
from celery.signals import (
    task_postrun,
    task_prerun,
    worker_init,
    worker_process_init,
    worker_shutdown,
    worker_shutting_down,
)

from ami.governor.settings import NAMES
from ami.governor.slot_consumer import SlotConsumer
from ami.topology.topology import Topology

SIGNALS = (worker_init, worker_process_init, worker_shutting_down, worker_shutdown, task_prerun, task_postrun)


class Worker(SimpleNamespace):
    """A worker before its pool is made."""

    __hash__ = object.__hash__


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, ...]]:
    """The signals that a worker sends; receivers are disconnected after each test."""
    for signal in SIGNALS:
        monkeypatch.setattr(signal, "receivers", [])
        signal.sender_receivers_cache.clear()
    yield SIGNALS
    for signal in SIGNALS:
        signal.sender_receivers_cache.clear()


@pytest.fixture
def worker_of(signals: Any, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Make a prefork worker on a broker with an event loop, with default settings and a folder of its own."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOVERNOR_STATE_DIR", str(tmp_path))
    topology: Topology = settings.ANTENNA_TOPOLOGY

    def make(*queues: str) -> Worker:
        app = SimpleNamespace(
            topology=topology,
            amqp=SimpleNamespace(Consumer=SlotConsumer, queues=SimpleNamespace(consume_from=dict.fromkeys(queues))),
            conf=Settings({"worker_proc_alive_timeout": 4.0, "worker_max_memory_per_child": 200_000}),
        )
        return Worker(
            app=app,
            hostname="fallback@here",
            pool_cls=TaskPool,
            concurrency=4,
            use_eventloop=True,
            max_memory_per_child=200_000,
        )

    return make


@pytest.fixture
def worker(worker_of: Any) -> Worker:
    """A worker of the fallback queue."""
    return worker_of("antenna")
