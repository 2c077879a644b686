"""A Celery application with one task, which records its start time."""

import json
import os
import struct
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from celery import Celery, signals
from kombu import Exchange, Queue

from ami import transports

#: The environment variable with a worker's settings, in JSON.
VARIABLE = "ANTENNA_BENCHMARK_WORKER"
TASK = "benchmark.begin"
RECORD = struct.Struct("d")


@dataclass(frozen=True)
class Settings:
    """The settings of a worker and its publisher; ``folder`` is for the worker's records.

    ``is_late``: acknowledge after the task, one message per child; otherwise before it, four per child.
    """

    url: str
    queue: str
    folder: str
    is_late: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)

    def dump(self) -> str:
        """Return the settings as JSON, for the worker's environment."""
        return json.dumps(asdict(self))

    @property
    def begun(self) -> Path:
        """The file to which each task appends its start time."""
        return Path(self.folder) / "begun"

    @property
    def ready(self) -> Path:
        """The file that exists once the worker consumes."""
        return Path(self.folder) / "ready"


def make(settings: Settings) -> Celery:
    """Return the application: no results, no events; with ``is_late`` the settings of the deployment."""
    transports.register()
    app = Celery("benchmark", set_as_current=False, fixups=[])  # Not Django, whatever the environment names.
    exchange = Exchange(settings.queue, type="topic" if settings.is_late else "direct")
    app.conf.update(
        # Not broker_url: CELERY_BROKER_URL in the environment would override it.
        broker_read_url=settings.url,
        broker_write_url=settings.url,
        broker_transport_options=settings.options,
        broker_connection_retry_on_startup=True,
        task_queues=[Queue(settings.queue, exchange, settings.queue, queue_arguments=settings.arguments)],
        task_default_queue=settings.queue,
        task_default_exchange=settings.queue,
        task_default_exchange_type=exchange.type,
        task_default_routing_key=settings.queue,
        task_acks_late=settings.is_late,
        worker_prefetch_multiplier=1 if settings.is_late else 4,
        task_ignore_result=True,
        worker_hijack_root_logger=False,
    )

    @app.task(name=TASK, shared=False)
    def begin() -> None:
        os.write(_file(settings), RECORD.pack(time.monotonic()))

    @signals.worker_ready.connect(weak=False)
    def _ready(**_: Any) -> None:
        settings.ready.touch()

    return app


_files: dict[str, int] = {}


def _file(settings: Settings) -> int:
    fd = _files.get(settings.folder)
    if fd is None:
        # Several processes append whole records; the monotonic clock is the machine's.
        fd = _files[settings.folder] = os.open(settings.begun, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return fd
