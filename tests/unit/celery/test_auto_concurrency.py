"""``auto`` as a worker's concurrency: its cores, its quota, and what its container's memory holds."""

from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from celery.utils.sysinfo import CpuBudget

from ami.celery import worker_limits
from ami.celery.worker_command import WorkerCommand
from ami.celery.worker_limits import WorkerLimits
from ami.governor import container_capacity
from ami.governor.container_capacity import children_held
from ami.topology.table import INGEST
from ami.topology.topology import load
from ami.topology.workload import PARENT_MEMORY_KIB
from tests.support.governor.proc_trees import MIB, host


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 64 GiB."""
    host(tmp_path, total=64 * 1024 * MIB)
    monkeypatch.setattr(worker_limits, "children_held", partial(children_held, root=tmp_path))


def cores(monkeypatch: pytest.MonkeyPatch, available: int, quota: float | None = None) -> None:
    """Let Celery find so many processors, and a quota of the container."""

    def budget(use_cgroup_quota: bool) -> CpuBudget:
        used = quota if use_cgroup_quota else None
        return CpuBudget(min(available, ceil(used or available)), available, used)

    monkeypatch.setattr(container_capacity, "cpu_budget", budget)


def decided(environ: dict[str, str], **named: Any) -> WorkerLimits:
    """Return the limits of ingest's worker in this environment, whose command line names these options."""
    return worker_limits.decide(WorkerCommand(named), (load(environ).workload(INGEST),))


@pytest.mark.parametrize(
    ("environ", "named"),
    [({}, {"concurrency": "auto"}), ({"ANTENNA_INGEST_CONCURRENCY": " Auto "}, {})],
    ids=["command line", "row"],
)
@pytest.mark.parametrize(
    ("available", "quota", "number", "says"),
    [
        (1, None, 1, "90% of 1 cores; its memory holds"),
        (2, None, 2, "90% of 2 cores"),
        (10, None, 9, "90% of 10 cores"),
        (64, 3.5, 4, "90% of 4 cores (a quota of 3.5)"),
        (64, None, 16, "The concurrency of antenna-ingest is 16: 90% of 64 cores; its memory holds 16."),
    ],
)
def test_auto_is_90_percent_of_the_cores_that_memory_holds(
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    named: dict[str, str],
    available: int,
    quota: float,
    number: int,
    says: str,
):
    cores(monkeypatch, available, quota)
    limits = decided(environ, **named)
    assert limits.info()["concurrency"] == number
    assert says in limits.sizing
    assert limits.warnings == ()


@pytest.mark.parametrize("children", [3, 40])
def test_auto_is_bounded_by_the_containers_own_memory(monkeypatch: pytest.MonkeyPatch, children: int):
    cores(monkeypatch, 64)
    memory_kib = PARENT_MEMORY_KIB + children * load({}).workload(INGEST).child_limit_kib
    environ = {"ANTENNA_INGEST_CONCURRENCY": "auto", "ANTENNA_INGEST_CONTAINER_MEMORY_KIB": str(memory_kib)}
    assert decided(environ).info()["concurrency"] == children


@pytest.mark.parametrize(("pool", "number"), [("threads", 9), ("solo", 1)])
def test_auto_of_other_pools_ignores_quota_and_memory(monkeypatch: pytest.MonkeyPatch, pool: str, number: int):
    cores(monkeypatch, 10, 1.0)
    assert decided({}, pool=pool, concurrency="auto").info()["concurrency"] == number
    assert decided({"ANTENNA_INGEST_CONCURRENCY": "auto"}, pool=pool).info()["concurrency"] == number


def test_a_number_that_is_named_goes_before_auto(monkeypatch: pytest.MonkeyPatch):
    cores(monkeypatch, 10)
    limits = decided({"ANTENNA_INGEST_CONCURRENCY": "auto"}, concurrency=3)
    assert (limits.info()["concurrency"], limits.sizing) == (3, "")
