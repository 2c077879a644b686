"""A container may have what the topology says; a child that keeps too much is replaced, one that grows is ended."""

import json

import pytest

from ami.topology.table import FALLBACK, ROWS
from ami.topology.topology import load, override_name
from tests.support.celery_suite.servers import CHANGED
from tests.support.celery_suite.vendor import CeleryTestSetup
from tests.support.celery_suite.workers import Workers, stats, waiting
from tests.support.containers.effects import Effects, send
from tests.support.place import until

KNOWN_INSIDE = "from ami.governor.probes.cgroup import Cgroup; print(Cgroup().memory()[1])"


@pytest.mark.parametrize("row", [row for row in ROWS if not row.enabled_by], ids=lambda row: row.queue)
def test_a_container_has_the_memory_that_its_topology_says(workers: Workers, row):
    worker = workers[row.queue].container
    (inside,) = [
        each
        for each in json.loads(worker.shell("python -m ami.topology table --json"))["workloads"]
        if each["queue"] == row.queue
    ]
    kib = int(CHANGED.get(override_name(row, "container_memory_kib"), row.memory_limit_kib))
    assert inside["memory_limit_kib"] == kib
    limits = worker.state["HostConfig"]
    assert (limits["Memory"], limits["MemorySwap"]) == (kib * 1024, kib * 1024)
    assert int(worker.shell(f"python -c '{KNOWN_INSIDE}'")) == kib * 1024, "the kernel's, as the governor reads it"


def test_a_child_that_keeps_more_than_its_limit_is_replaced_after_its_task(
    celery_setup: CeleryTestSetup, workers: Workers, effects: Effects, key: str
):
    app, worker = celery_setup.app, workers[FALLBACK]
    before = stats(app, worker)
    for turn, mib in enumerate((20, 300, 0)):
        send(app, "suite.keep", [f"{key}-{turn}"], mib=mib)
        until(lambda turn=turn: effects.ended(f"{key}-{turn}"), 60, "it kept what it took")
    little, much, next_one = [row.pid for row in effects.begun(key)]
    assert little == much, "20 MiB are no reason"
    assert much != next_one
    after = stats(app, worker)
    assert sum(after["governor"]["recycled"].values()) == sum(before["governor"]["recycled"].values()) + 1
    assert after["pid"] == before["pid"]


def test_a_task_that_grows_beyond_the_hard_limit_is_buried_and_its_worker_goes_on(
    celery_setup: CeleryTestSetup, workers: Workers, effects: Effects, key: str
):
    app, worker = celery_setup.app, workers[FALLBACK]
    row, before, restarts = load({}).workload(FALLBACK), stats(app, worker), worker.container.state["RestartCount"]
    with waiting(app, row.dead_letter_queue) as buried:
        earlier = buried()
        send(app, "suite.keep", [f"{key}-grows"], mib=600)
        send(app, "smoke.effect", [f"{key}-waits"])
        until(lambda: effects.ended(f"{key}-waits"), 60, "the next task ran")
        until(lambda: buried() == earlier + 1, 30, "it is a dead letter")
    assert effects.ended(f"{key}-grows") == set()
    assert stats(app, worker)["pid"] == before["pid"]
    assert worker.container.state["RestartCount"] == restarts
