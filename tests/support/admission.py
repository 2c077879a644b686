"""What the tests of admission share: a place whose workers know the tasks with policies, and their effects."""

import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from ami.admission.models import Call
from ami.celery.staged_calls import DELIVERY, RUN_HEADER
from tests.support.place import RABBITMQ, Place, Process, new_place, until
from tests.support.worker_tasks.admitted import LINES

TASKS = "tests.support.worker_tasks.admitted"
QUEUE = "antenna"
NAMES = ("first@%h", "second@%h")
#: What a task declares of its calls.
POLICIES = ("unique", "permits", "rate", "fair_by", "group_by", "in_order_by", "outbox")


@contextmanager
def admission_place(broker: str = RABBITMQ, **environment: str) -> Iterator[Place]:
    """Make a place with the test database and the tasks with policies, its topology declared."""
    import_module(TASKS)
    with new_place("admission", broker) as made:
        made.environment |= {"ANTENNA_EXTRA_TASKS": TASKS, "ANTENNA_FALLBACK_CONCURRENCY": "4", **environment}
        made.use_test_database()
        made.queues("declare")
        yield made


def task(name: str) -> Any:
    """Return a task of `tests.support.worker_tasks.admitted` by its function's name."""
    return getattr(import_module(TASKS), name)


def effects(place: Place, **fields: Any) -> list[dict[str, Any]]:
    """Return what the tasks have written so far, in order; those lines alone whose fields have the given values."""
    path = Path(place.environment["ANTENNA_TEST_FOLDER"], LINES)
    lines = path.read_text().splitlines() if path.exists() else []
    found = sorted((json.loads(line) for line in lines), key=lambda each: each["at"])
    return [each for each in found if all(each.get(name) == value for name, value in fields.items())]


def forget_effects(place: Place) -> None:
    """Let the next example find its own lines alone."""
    Path(place.environment["ANTENNA_TEST_FOLDER"], LINES).unlink(missing_ok=True)


def most_at_once(lines: list[dict[str, Any]], field: str, dead: dict[int, float]) -> int:
    """Return how many runs of one value of ``field`` there were at a time, at most.

    A run that wrote no end ended with its process: ``dead`` has when that was killed, on the monotonic clock.
    """
    most, running = 0, defaultdict[Any, dict[tuple[str, int, float], float]](dict)
    for line in lines:
        active = running[line[field]]
        for run in [run for run in active if dead.get(run[1], float("inf")) <= line["at"]]:
            del active[run]
        if line["what"] == "begin":
            active[line["id"], line["pid"], line["at"]] = line["at"]
            most = max(most, len(active))
        else:
            mine = [run for run in active if run[:2] == (line["id"], line["pid"])]
            for run in mine[-1:]:
                del active[run]
    return most


class Killer:
    """Kills processes of a place with a fixed seed, and remembers when each of them died."""

    def __init__(self, place: Place, names: Sequence[str] = NAMES) -> None:
        self.place, self.random, self.dead, self.names = place, Random(20), dict[int, float](), names
        self.workers = [self.start(name) for name in names]

    def start(self, name: str) -> Process:
        return self.place.worker(QUEUE, "--hostname", name)

    def running(self) -> list[int]:
        """Return the processes that have begun a run and not ended it."""
        open_: dict[int, int] = {}
        for line in effects(self.place):
            open_[line["pid"]] = open_.get(line["pid"], 0) + (1 if line["what"] == "begin" else -1)
        return sorted(pid for pid, count in open_.items() if count > 0 and pid not in self.dead and is_there(pid))

    def kill_child(self) -> None:
        pid = self.random.choice(until(self.running, 30, "a run to kill"))
        self.dead[pid] = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill_worker(self, index: int) -> None:
        """Kill a worker with all its children, and start it again."""
        killed = group_of(self.workers[index].popen.pid)
        at = time.monotonic()
        self.workers[index].kill()
        until(lambda: not any(is_there(pid) for pid in killed), 30, "its processes have ended")
        self.dead |= {pid: at for pid in killed if pid not in self.dead}
        self.workers[index] = self.start(self.names[index])


def group_of(leader: int) -> list[int]:
    """Return the processes of a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if int(path.read_text().rpartition(")")[2].split()[2]) == leader:
                found.append(int(path.parent.name))
    return found


def is_there(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def many_calls(called: Any, count: int, **fields: Any) -> None:
    """Append calls of a task, each with a lane, fair key, permit key and rate key of its own (``k0``, ``k1``...)."""
    call = called.delay(key="k", number=0)
    [pattern] = Call.objects.filter(task_id=call.id).values()
    Call.objects.filter(task_id=call.id).delete()
    kept = {name: value for name, value in pattern.items() if name not in ("id", "task_id")}
    named = [name for name in ("lane", "fair_key", "permit_key", "rate_key") if kept[name]]
    rows = (
        Call(task_id=f"k{number}", **kept | {name: kept[name].replace("k", f"k{number}") for name in named} | fields)
        for number in range(count)
    )
    Call.objects.bulk_create(rows, batch_size=500)


@contextmanager
def message(task: Any, run: str = "", **values: Any) -> Iterator[Any]:
    """A worker's process that has received a message of a run, or a plain one."""
    headers = {RUN_HEADER: run, DELIVERY: "delivery"} if run else {}
    task.push_request(
        id=values.pop("id", "id"),
        headers=dict(headers),
        delivery_info={},
        called_directly=False,
        is_eager=False,
        retries=0,
        **headers,
        **values,
    )
    try:
        yield task.request
    finally:
        task.pop_request()
