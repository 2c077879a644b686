"""The commonest command, `celery -A config worker -Q QUEUE`, and one worker per queue under one parent."""

import sys
from pathlib import Path

from ami.topology.table import FALLBACK, HOUSEKEEPING
from ami.topology.topology import load
from tests.support.place import Place, Process, until
from tests.support.soak import soak

T = "tests.support.worker_tasks.basic"


def _start(place: Place, *argv: str) -> Process:
    worker = place.celery("worker", "-l", "INFO", *argv)
    until(lambda: " ready." in worker.text or worker.popen.poll() is not None, what="the worker is ready")
    assert worker.popen.poll() is None, worker.text
    return worker


def test_celery_worker_of_a_queue_has_the_limits_of_its_row(place: Place):
    place.queues("declare")
    place.environment |= {"ANTENNA_HOUSEKEEPING_CONCURRENCY": "2", "ANTENNA_HOUSEKEEPING_PREFETCH_MULTIPLIER": "3"}
    row = load(place.environment).workload(HOUSEKEEPING)
    _start(place, "-Q", HOUSEKEEPING)
    inspect = place.app.control.inspect(timeout=10, limit=1)
    (stats,) = inspect.stats().values()
    pool = stats["pool"]
    assert stats["topology"]["queues"] == [HOUSEKEEPING]
    assert (pool["max-concurrency"], stats["prefetch_count"]) == (2, 6)
    assert pool["timeouts"] == [row.soft_time_limit_seconds, row.hard_time_limit_seconds]
    assert pool["max-tasks-per-child"] == row.max_tasks_per_child
    assert stats["limits"]["max_memory_per_child"] == row.max_memory_per_child_kib
    # The governor counts them when its first check ends, after the worker is ready.
    until(lambda: [each["governor"]["places"] for each in inspect.stats().values()] == [2], what="two places")


def test_live_check_names_a_worker_of_several_queues_and_one_without_limits(place: Place, db: None):
    place.queues("declare")
    _start(place, "-n", "several@%h", "-Q", f"{HOUSEKEEPING},{FALLBACK}")
    _start(place, "-n", "unlimited@%h", "-Q", FALLBACK, "--time-limit", "0", "--max-memory-per-child", "0")
    rows = place.queues("check", "--live", check=False).json
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
