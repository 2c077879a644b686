"""Holding and releasing again and again while the broker restarts: nothing is lost, and at the end it consumes."""

import os
import time

import pytest
from django.db import connection

from provision import services
from provision.kind import NothingFound
from provision.service import Service
from tests.support.cgroups import Ballast, Group
from tests.support.governor.memory_pressure import HELD, QUICK, RELEASED, T, fill, said
from tests.support.place import Place, Process, new_place, until
from tests.support.soak import soak
from tests.support.worker_tasks.governor import TABLE, effects

CYCLES, RESTARTS, BACKLOG = soak((3, 1, 1000), (100, 5, 50_000))
LIMIT_MIB = 4096
CONNECTED = "Connected to amqp"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch):
    """A RabbitMQ of this test's own, to be restarted."""
    try:
        with services.running(["rabbitmq"], private=True) as found:
            monkeypatch.setenv("CELERY_BROKER_URL", found["rabbitmq"].url)
            monkeypatch.setenv("RABBITMQ_MANAGEMENT_URL", found["rabbitmq"].management_url or "")
            yield found["rabbitmq"]
    except NothingFound as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def place(broker: Service, transactional_db):
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute("DELETE FROM governor_effect")
    with new_place("governor soak") as made:
        made.use_test_database()
        made.environment.update(QUICK)
        made.queues("declare")
        yield made


@pytest.mark.timeout(soak(300, 3600))
def test_a_hundred_holds_and_five_restarts_of_the_broker_lose_nothing(
    place: Place, broker: Service, group: Group
) -> None:
    with place.app.producer_pool.acquire(block=True) as producer:
        for number in range(BACKLOG):
            place.send(f"{T}.work", f"message {number}", queue="antenna", producer=producer)
    worker, ballast = place.worker("antenna", inside=group.enter), group.ballast()
    restart_at = {CYCLES * (number + 1) // (RESTARTS + 1) for number in range(RESTARTS)}
    for cycle in range(1, CYCLES + 1):
        _cycle(worker, group, ballast, cycle, broker if cycle in restart_at else None)
    place.reconnect()
    until(lambda: len(effects()) == BACKLOG, soak(120, 1800), "every message has left its effect")
    runs, stats = effects(), place.stats()
    second = sum(count - 1 for count in runs.values())
    print(
        f"{BACKLOG} messages, {stats['holds']} holds, {RESTARTS} restarts of the broker: {len(runs)} effects, "
        f"{stats['redelivered']} messages flagged as redelivered, {second} of them found their effect there; "
        f"held {stats['held_seconds']} s"
    )
    assert set(runs) == {f"message {number}" for number in range(BACKLOG)}
    assert second <= stats["redelivered"]
    assert stats["holds"] >= CYCLES
    assert stats["state"] == "consuming"
    assert place.depth("antenna.dlq") == 0
    after = place.send(f"{T}.work", "after", queue="antenna")
    until(lambda: place.ran("work", id=after, state="SUCCESS"), 20, "it consumes")


def _cycle(worker: Process, group: Group, ballast: Ballast, cycle: int, broker: Service | None) -> None:
    fill(group, ballast, 95)
    until(lambda: said(worker, HELD) == cycle, 20, "it holds")
    if broker is not None:
        connected = said(worker, CONNECTED)
        broker.stop()
        broker.restart()
        until(lambda: said(worker, CONNECTED) > connected, 60, "it has reconnected")
        reconnected = time.time()
        until(lambda: time.time() > reconnected + 1, 5)
        assert "received" not in worker.text.rpartition(CONNECTED)[2], "what was held stays held after a reconnect"
    ballast.hold(0)
    until(lambda: said(worker, RELEASED) == cycle, 20, "it takes work again")
    last = worker.text.rpartition(RELEASED)[0]
    until(lambda: "received" in worker.text[len(last) :] or not effects_missing(), 20, "messages arrive again")


def effects_missing() -> int:
    return BACKLOG - len(effects())


def test_another_worker_takes_over_while_one_is_held(place: Place, group: Group) -> None:
    place.environment["ANTENNA_FALLBACK_CONCURRENCY"] = "1"
    for _ in range(500):
        place.send(f"{T}.quick", 0.2, queue="antenna")
    held = place.worker("antenna", "--hostname", "first@%h", inside=group.enter)
    place.worker("antenna", "--hostname", "second@%h", MEMORY_GOVERNOR="off")
    until(lambda: {"first", "second"} <= {r["worker"].split("@")[0] for r in place.ran("quick")}, 20, "both run")
    began = time.time()
    until(lambda: time.time() > began + 8, 10)
    middle = time.time()
    ballast = group.ballast()
    fill(group, ballast, 95)
    until(lambda: said(held, HELD) == 1, 10, "one holds")
    holding = time.time()
    until(lambda: time.time() > holding + 8, 10)
    beside, alone = (
        sum(1 for r in place.ran("quick") if r["worker"].startswith("second") and start <= r["started_at"] < start + 7)
        for start in (middle - 8, holding)
    )
    print(f"the other worker ran {beside / 7:.1f} tasks/s beside it, {alone / 7:.1f} while it was held")
    assert alone > 0.8 * beside
    assert not [r for r in place.ran("quick") if r["worker"].startswith("first") and r["started_at"] > holding + 0.25]
