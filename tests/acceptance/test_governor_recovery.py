"""How a hold ends: idle children are recycled, the worker exits for a restart, or one task is admitted."""

import os
import time

import pytest

from tests.support.cgroups import Group
from tests.support.governor.memory_pressure import HELD, RELEASED, T, fill, said
from tests.support.place import Place, until
from tests.support.soak import soak

LIMIT_MIB = 1024
#: Room for what four threads take between two looks of a governor that gets little CPU; else the kernel is faster.
EARLY = {"MEMORY_THROTTLE_THRESHOLD": "75", "MEMORY_RESUME_THRESHOLD": "65"}
#: More bursts, each as large as the first, whose size is learned.
MORE = soak(3, 8)


def test_idle_children_that_keep_memory_are_recycled_while_held(governed: Place, group: Group) -> None:
    place = governed
    place.environment["ANTENNA_FALLBACK_MAX_MEMORY_PER_CHILD_KIB"] = str(2048 * 1024)  # No limit helps here.
    worker = place.worker("antenna", **group.environment)
    for _ in range(60):
        place.send(f"{T}.hoard", 20, queue="antenna")
    until(lambda: len(place.ran("hoard", state="SUCCESS")) == 60, 120, "all of them ran, though they keep 1.2 GB")
    stats = place.stats()
    assert stats["holds"] >= 1
    assert sum(stats["recycled"].values()) >= 4
    assert group.kills == 0
    assert worker.popen.poll() is None
    assert said(worker, HELD) >= said(worker, RELEASED) >= 1


def test_a_worker_that_leaks_exits_for_a_restart(governed: Place, group: Group) -> None:
    place = governed
    worker = place.worker("antenna", **group.environment, **EARLY, ANTENNA_FALLBACK_POOL="threads")
    for _ in range(60):
        place.send(f"{T}.hoard", 20, queue="antenna")
    assert until(lambda: worker.popen.poll() is not None, 120, "it ends") is True
    assert worker.popen.returncode == os.EX_TEMPFAIL
    assert "this worker's own processes hold" in worker.text
    left = place.depth("antenna")
    assert left == 60 - len(place.ran("hoard", state="SUCCESS")) > 0


def test_one_task_at_a_time_is_admitted_while_others_use_memory(governed: Place, group: Group) -> None:
    place = governed
    place.environment["MEMORY_MAX_HOLD_SECONDS"] = "1"
    ballast = group.ballast()
    worker = place.worker("antenna", **group.environment)
    fill(group, ballast, 93)
    until(lambda: said(worker, HELD) == 1, what="it holds")
    began = time.time()
    for _ in range(40):
        place.send(f"{T}.quick", 0.05, queue="antenna")
    until(lambda: len(place.ran("quick")) >= 3, what="some are let through")
    assert len(place.ran("quick")) <= (time.time() - began) + 1
    assert said(worker, RELEASED) == 0
    assert place.stats()["admitted"] >= 3
    ballast.hold(0)
    until(lambda: len(place.ran("quick")) == 40, what="and all of them when there is room")


@pytest.mark.parametrize("pool", soak(["prefork"], ["prefork", "threads"]))
def test_a_worker_on_a_full_machine_consumes_nothing(governed: Place, group: Group, pool: str) -> None:
    place = governed
    ballast = group.ballast()
    for _ in range(20):
        place.send(f"{T}.quick", queue="antenna")
    place.environment["ANTENNA_FALLBACK_CONCURRENCY"] = "1"
    ballast.hold(int(LIMIT_MIB * 0.78))  # The worker itself makes it full.
    worker = place.worker(
        "antenna",
        inside=group.enter,
        ANTENNA_FALLBACK_POOL=pool,
        MEMORY_THROTTLE_THRESHOLD="79",
        MEMORY_RESUME_THRESHOLD="70",
    )
    until(lambda: said(worker, HELD) == 1, what="it holds")
    waited = time.time()
    until(lambda: time.time() > waited + 1.5, 5)
    assert "received" not in worker.text
    assert place.depth("antenna") == 20
    ballast.hold(0)
    until(lambda: len(place.ran("quick")) == 20, what="it takes them when there is room")


def test_reservation_admits_as_many_as_fit(governed: Place, group: Group) -> None:
    place = governed
    place.environment |= {
        "ANTENNA_FALLBACK_MAX_MEMORY_PER_CHILD_KIB": str(400 * 1024),
        "MEMORY_RESERVATION": "on",
    }
    worker = place.worker("antenna", inside=group.enter)
    place.send(f"{T}.burst", 300, 1.0, queue="antenna")
    until(lambda: len(place.ran("burst", state="SUCCESS")) == 1, what="one has run")
    until(lambda: "burst" in place.stats()["reservation"], what="its size is learned, at the next check")
    for _ in range(MORE):
        place.send(f"{T}.burst", 300, 1.0, queue="antenna")
    until(lambda: len(place.ran("burst", state="SUCCESS")) == MORE + 1, 120, "all of them ran")
    assert _at_once(place, "burst") == 2
    assert "burst" in place.stats()["reservation"]
    assert said(worker, HELD) == 0
    assert group.kills == 0


def test_dry_run_logs_its_decisions_and_does_nothing(governed: Place, group: Group) -> None:
    place = governed
    ballast = group.ballast()
    worker = place.worker("antenna", **group.environment, MEMORY_GOVERNOR="dry-run")
    fill(group, ballast, 93)
    until(lambda: said(worker, f"[dry-run] 🚨 {HELD}") == 1, what="it says so")
    for _ in range(20):
        place.send(f"{T}.quick", queue="antenna")
    until(lambda: len(place.ran("quick")) == 20, what="and runs them all the same")
    assert (place.stats()["mode"], place.stats()["state"]) == ("dry-run", "held")


def _at_once(place: Place, task: str) -> int:
    """The most runs of a task that overlapped."""
    spans = [(record["started_at"], record["started_at"] + record["ran_seconds"]) for record in place.ran(task)]
    return max(sum(1 for start, end in spans if start <= moment < end) for moment, _ in spans)
