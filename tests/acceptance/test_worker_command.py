"""The commonest command, `celery -A config worker -Q QUEUE`, and one worker per queue under one parent."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ami.topology.table import FALLBACK, HOUSEKEEPING
from ami.topology.topology import load
from tests.support.place import FOLDER, Place, Process, new_place, until
from tests.support.soak import soak

T = "tests.support.worker_tasks.basic"


@pytest.fixture(scope="module")
def plain() -> Iterator[Place]:
    """A place where each test starts plain workers of its own names, and none stops one."""
    with new_place("plain workers", FOLDER) as made:
        made.environment |= {"ANTENNA_HOUSEKEEPING_CONCURRENCY": "2", "ANTENNA_HOUSEKEEPING_PREFETCH_MULTIPLIER": "3"}
        made.queues("declare")
        yield made


def _start(place: Place, *lines: str) -> None:
    workers = [place.celery("worker", "-l", "INFO", *line.split()) for line in lines]
    for worker in workers:
        until(lambda worker=worker: _is_ready(worker), 120, "the worker is ready")


def _is_ready(worker: Process) -> bool:
    assert worker.popen.poll() is None, worker.text
    return " ready." in worker.text


def test_celery_worker_of_a_queue_has_the_limits_of_its_row(plain: Place):
    row = load(plain.environment).workload(HOUSEKEEPING)
    _start(plain, f"-n limited@here -Q {HOUSEKEEPING}")
    inspect = plain.app.control.inspect(["limited@here"], timeout=10, limit=1)
    (stats,) = inspect.stats().values()
    pool = stats["pool"]
    assert stats["topology"]["queues"] == [HOUSEKEEPING]
    assert (pool["max-concurrency"], stats["prefetch_count"]) == (2, 6)
    assert pool["timeouts"] == [row.soft_time_limit_seconds, row.hard_time_limit_seconds]
    assert pool["max-tasks-per-child"] == row.max_tasks_per_child
    assert stats["limits"]["max_memory_per_child"] == row.max_memory_per_child_kib
    # The governor counts them when its first check ends, after the worker is ready.
    until(lambda: [each["governor"]["places"] for each in inspect.stats().values()] == [2], what="two places")


def test_live_check_names_a_worker_of_several_queues_and_one_without_limits(plain: Place, db: None):
    several, unlimited = f"-n several@%h -Q {HOUSEKEEPING},{FALLBACK}", f"-n unlimited@%h -Q {FALLBACK}"
    _start(plain, several, f"{unlimited} --time-limit 0 --max-memory-per-child 0")
    rows = plain.queues("check", "--live", check=False).json
    found = {row["name"]: row["sentence"] for row in rows if row["name"] in ("several-queues", "no-limits")}
    assert found["several-queues"].startswith("several@")
    assert found["no-limits"].startswith("unlimited@")
    assert " runs without a hard time limit, a memory limit: " in found["no-limits"]


def test_one_command_runs_a_worker_for_each_queue_and_leaves_none(place: Place):
    place.queues("declare")
    topology = load(place.environment)
    queues = soak((HOUSEKEEPING, FALLBACK), topology.queues)
    only = soak(("--only", ",".join(queues)), ())
    keys = {topology.workload(queue).key.lower() for queue in queues}
    parent = place.start([sys.executable, "-m", "ami.topology", "all", "--concurrency", "1", *only])
    sent = {place.send(f"{T}.succeed", queue=queue) for queue in queues}
    until(lambda: {record["id"] for record in place.ran("succeed")} == sent, 120, "a task of each queue ran")
    assert {record["consumed_from"] for record in place.ran("succeed")} == set(queues)
    assert {record["worker"].split("@")[0] for record in place.ran("succeed")} == keys
    children = {record["pid"] for record in place.ran("succeed")}
    parent.popen.terminate()
    assert parent.popen.wait(60) == 0, parent.text
    for key in keys:
        assert f"\n{key:12} | worker: Warm shutdown" in parent.text
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
