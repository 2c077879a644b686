"""In a container of 1 GiB: no kernel kill, every effect once, and greedy tasks are buried."""

import random
import time

import pytest
from django.db import connection
from rich.console import Console
from rich.table import Table

from tests.support.cgroups import Group
from tests.support.place import Place, until
from tests.support.soak import soak
from tests.support.worker_tasks.governor import TABLE, effects

T = "tests.support.worker_tasks.governor"
LIMIT_MIB, SOFT_MIB, HARD_MIB = 1024, 64, 212
KEEPERS, GREEDY, OTHERS = soak((20, 2, 4), (200, 10, 12))


@pytest.fixture
def container(group: Group) -> Group:
    return group


@pytest.fixture
def loaded(database_place: Place) -> Place:
    """A place whose fallback worker has four children, and whose tasks leave rows."""
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute("DELETE FROM governor_effect")
    database_place.environment |= {
        "ANTENNA_EXTRA_TASKS": T,
        "ANTENNA_FALLBACK_CONCURRENCY": "4",
        "ANTENNA_FALLBACK_MAX_MEMORY_PER_CHILD_KIB": str(SOFT_MIB * 1024),
        "ANTENNA_FALLBACK_HARD_MEMORY_PER_CHILD_KIB": str(HARD_MIB * 1024),
        "MEMORY_CHECK_INTERVAL": "0.5",
        "MEMORY_MIN_HOLD_SECONDS": "1",
    }
    database_place.queues("declare")
    return database_place


def send(place: Place) -> None:
    """Publish greedy tasks among the keepers, in the same order each time."""
    chance = random.Random(7)  # noqa: S311
    calls = [("keep", [f"keeper {number}", chance.randint(30, 150)]) for number in range(KEEPERS)]
    calls += [("want", [2000, 100 if number % 2 else 0]) for number in range(GREEDY)]
    chance.shuffle(calls)
    with place.app.producer_pool.acquire(block=True) as producer:
        for task, arguments in calls:
            place.send(f"{T}.{task}", *arguments, queue="antenna", producer=producer)


def letters(place: Place) -> list[str]:
    """The names of the tasks in the dead letters."""
    return [
        letter["task"].rpartition(".")[2]
        for letter in place.queues("dead-letters", "antenna.dlq", "--limit", "500").json
    ]


@pytest.mark.skipif(not soak(False, True), reason="the reference of the long form")
def test_without_the_governor_the_kernel_kills(loaded: Place, container: Group) -> None:
    send(loaded)
    loaded.worker("antenna", inside=container.enter, MEMORY_GOVERNOR="off")
    until(lambda: container.kills > 0, 120, "the kernel kills")


@pytest.mark.timeout(600)
def test_incident_6_nothing_is_killed_and_greedy_tasks_are_buried(loaded: Place, container: Group) -> None:
    place = loaded
    send(place)
    began = time.time()
    worker = place.worker("antenna", inside=container.enter)
    seen = [0]  # MiB.

    def settled() -> bool:
        seen.append(container.anonymous_mib)
        return len(effects()) == KEEPERS and place.depth("antenna.dlq") >= GREEDY

    until(settled, 500, "every keeper has left its effect and every greedy task is buried")
    took, stats = time.time() - began, place.stats()
    table = Table("figure", "value", title=f"{KEEPERS} keepers and {GREEDY} greedy tasks in 1 GiB, 4 children")
    for name, value in {
        "kernel kills": container.kills,
        "anonymous memory, highest seen, MiB": max(seen),
        "limit, MiB": LIMIT_MIB,
        "effects / expected": f"{len(effects())} / {KEEPERS}",
        "second deliveries that found their effect there": sum(runs - 1 for runs in effects().values()),
        "buried": ", ".join(sorted(letters(place))),
        "seconds": f"{took:.0f}",
        "holds / held seconds": f"{stats['holds']} / {stats['held_seconds']}",
        "recycled": stats["recycled"],
        "ended by the governor": stats["ended"],
        "stopped by the kernel's ceiling": worker.text.count("MemoryLimitExceeded"),
    }.items():
        table.add_row(name, str(value))
    Console().print(table)
    assert container.kills == 0
    assert sum(stats["recycled"].values()) >= KEEPERS // 4
    assert set(effects()) == {f"keeper {number}" for number in range(KEEPERS)}
    assert letters(place) == ["want"] * GREEDY
    assert max(seen) < LIMIT_MIB
    assert worker.popen.poll() is None


def test_task_that_kills_its_worker_twice_is_dead_lettered(loaded: Place, container: Group) -> None:
    place = loaded
    place.send(f"{T}.linger", "poison", 60, queue="antenna")
    for number in range(OTHERS):
        place.send(f"{T}.linger", f"other {number}", 0.5, queue="antenna")
    for death in (1, 2):
        worker = place.worker("antenna", inside=container.enter)
        until(lambda death=death: effects().get("poison began") == death, 60, "the poison runs")
        container.kill()
        worker.popen.wait(60)
    assert "was killed without warning while running" in worker.text
    assert f"{T}.linger" in worker.text.partition("was killed without warning while running")[2]
    last = place.worker("antenna", inside=container.enter)
    until(lambda: place.depth("antenna.dlq") == 1, 60, "the poison is buried")
    (letter,) = place.queues("dead-letters", "antenna.dlq").json
    assert "poison" in letter["arguments"]
    assert "was running each of the 2 times this worker was killed without warning" in last.text
    until(lambda: all(effects().get(f"other {number}") for number in range(OTHERS)), 60, "the others run")
    assert effects()["poison began"] == 2
    assert "poison" not in effects()
    until(lambda: place.stats()["suspects"] == [], 60, "no task is suspected any more")
    until(lambda: place.stats()["slots"] == 4, what="each place is open, when the last child was replaced")
