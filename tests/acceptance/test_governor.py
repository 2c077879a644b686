"""The governor holds a real worker in a real memory cgroup: exactly, across reconnects, and not for ever."""

import time

import pytest

from tests.support.cgroups import Ballast, Group
from tests.support.governor.memory_pressure import HELD, RELEASED, T, fill, lateness, said
from tests.support.place import Place, Process, until
from tests.support.soak import soak

LIMIT_MIB = 2048
#: The other pools hold on other brokers in test_governor_pools.
POOLS = soak(["prefork"], ["prefork", "threads", "solo"])
#: A hold after a hold is also in test_governor_soak.
CYCLES, MESSAGES = soak((1, 200), (2, 400))


@pytest.mark.parametrize("pool", POOLS)
def test_no_task_starts_while_held(governed: Place, group: Group, pool: str) -> None:
    place = governed
    place.environment["WORKER_COOLDOWN_SECONDS"] = "0.1"
    place.environment["WORKER_STAGGER_SECONDS"] = "0.2"
    if pool == "prefork":
        place.environment["WORKER_SINGLE_JOB_MODE"] = "1"
    ballast = group.ballast()
    with place.app.producer_pool.acquire(block=True) as producer:
        for _ in range(MESSAGES):
            place.send(f"{T}.quick", 0.02, queue="antenna", producer=producer)
    worker = place.worker("antenna", **group.environment, ANTENNA_FALLBACK_POOL=pool)
    until(lambda: len(place.ran("quick")) > 10, what="tasks run")
    for cycle in range(1, CYCLES + 1):
        _hold_and_release(place, group, ballast, worker, cycle)


def _hold_and_release(place: Place, group: Group, ballast: Ballast, worker: Process, cycle: int) -> None:
    with lateness() as late:
        fill(group, ballast, 95)
        crossed = time.time()
        until(lambda: said(worker, HELD) == cycle, what="it holds")
    held_at = _logged_at(worker, HELD)
    ran, waiting = len(place.ran("quick")), place.depth("antenna")
    assert waiting > 20
    until(lambda: time.time() > held_at + 2)
    after = worker.text.rpartition(HELD)[2]
    assert "received" not in after, after
    # Tasks delivered before have started; a busy machine may read their clock a moment later.
    begun = [record["started_at"] for record in place.ran("quick")]
    assert max(begun) <= held_at + 0.25 + sum(late), after
    reaction = max(begun) - crossed
    print(f"the last task started {reaction:.2f} s after the memory was full (interval 0.2 s)")
    assert reaction < 0.2 + 0.3 + 1 + sum(late), "a second of room for a busy machine, and what it was late"
    assert place.depth("antenna") >= waiting
    stats = place.stats()
    assert (stats["state"], stats["slots"], stats["running"]) == ("held", 0, 0)
    assert stats["percent"]["memory"] > 90
    ballast.hold(0)
    until(lambda: said(worker, RELEASED) == cycle, what="it takes work again")
    until(lambda: len(place.ran("quick")) > ran + 5, what="tasks run again")


def _logged_at(worker: Process, text: str) -> float:
    """When the worker last logged a line with ``text``, in epoch seconds."""
    line = [line for line in worker.text.splitlines() if text in line][-1]
    stamp, millis = line[:23].split(",")
    return time.mktime(time.strptime(stamp, "%Y-%m-%d %H:%M:%S")) + int(millis) / 1000
