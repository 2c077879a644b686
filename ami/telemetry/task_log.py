"""One JSON line per finished task, in a file per process, when ``ANTENNA_JOURNAL_DIR`` is set."""

import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ami.celery import origin
from ami.celery.app import PUBLISHED_HEADER
from ami.environment.declaration import of
from ami.telemetry.variables import TelemetryVariables

#: The folder to write to; without it nothing is written.
FOLDER_VARIABLE = of(TelemetryVariables, "antenna_journal_dir").name

_started: dict[str, float] = {}


def started(task_id: str = "", **_: Any) -> None:
    """Remember when a task began."""
    if os.environ.get(FOLDER_VARIABLE):
        _started[task_id] = time.time()


def finished(sender: Any = None, task_id: str = "", state: str | None = None, **_: Any) -> None:
    """Append one record: task, queue, worker, origin, state, redelivered, seconds waited and run, peak KiB."""
    folder = os.environ.get(FOLDER_VARIABLE)
    began = _started.pop(task_id, None)
    if not folder or began is None:
        return
    request = sender.request
    due = (request.headers or {}).get(PUBLISHED_HEADER)
    publisher = origin.of_request(request)
    record = {
        "task": sender.name,
        "id": task_id,
        "queue": sender.app.topology.place(sender.name, publisher).queue,
        "consumed_from": ((request.delivery_info or {}).get("routing_key") or "").rsplit(".", 1)[-1],
        "origin": publisher,
        "worker": request.hostname,
        "pid": os.getpid(),
        "state": state,
        "retries": request.retries,
        "redelivered": bool((request.delivery_info or {}).get("redelivered")),
        "started_at": began,
        "waited_seconds": None if due is None else max(0.0, began - float(due)),
        "ran_seconds": time.time() - began,
        "peak_memory_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    path = Path(folder) / f"{os.getpid()}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every complete record of a journal folder; an unfinished line is skipped."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
