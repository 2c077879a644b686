"""What a worker's row says about its process."""

import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from celery.worker import state

from ami.celery import task_progress
from ami.celery.worker_records import RunningTask
from ami.governor.probes import identity, process

#: A task that runs for less is not listed.
LISTED_SECONDS = 2.0


def process_facts(controller: Any, version: str) -> dict[str, Any]:
    """Return the fields of a `WorkerReport` that stay the same while the worker runs."""
    own = tuple(getattr(controller, "own_queues", ()))
    topology = getattr(controller.app, "topology", None)
    services = [row.service for row in topology.workloads if row.queue in own] if topology else []
    return {
        "node": str(controller.hostname),
        "service": services[0] if len(services) == 1 else "",
        "host": socket.gethostname(),
        "queues": own,
        "pool": controller.pool_cls.__module__.rpartition(".")[2] if isinstance(controller.pool_cls, type) else "",
        "version": version,
        "boot_id": identity.boot_id(),
        "pid_namespace": identity.pid_namespace(),
        "pid": os.getpid(),
        "pid_started": identity.start_ticks(os.getpid()),
        "started_at": time.time(),
    }


def running_tasks() -> tuple[RunningTask, ...]:
    """Return the tasks that have run for `LISTED_SECONDS`."""
    before = time.time() - LISTED_SECONDS
    found = [each for each in snapshot(state.active_requests) if each.time_start and each.time_start <= before]
    reports = task_progress.read([request.worker_pid for request in found if request.worker_pid])
    return tuple(_running(request, reports) for request in found)


def snapshot(requests: Iterable[Any]) -> tuple[Any, ...]:
    """Copy one of Celery's sets of requests, which the loop's thread may change meanwhile."""
    while True:
        try:
            return tuple(requests)
        except RuntimeError:  # Its size changed during the iteration.
            continue


def _running(request: Any, reports: dict[int, Any]) -> RunningTask:
    pid = int(request.worker_pid or 0)
    report = reports.get(pid)
    kib = 0
    with suppress(OSError, ValueError):
        kib = process.rss_kib(pid) if pid else 0
    return RunningTask(
        id=request.id,
        name=request.name,
        pid=pid,
        started_at=request.time_start,
        kib=kib,
        is_redelivered=bool((request.delivery_info or {}).get("redelivered")),
        progress=report.text if report and report.task_id == request.id else "",
        beaten_at=report.at if report and report.task_id == request.id else None,
        stall_seconds=int(getattr(request.task, "stall_seconds", 0) or 0),
    )
