"""Holding and releasing again and again while the broker restarts: nothing is lost, and at the end it consumes."""

import os
import time
from itertools import pairwise
from statistics import median

import pytest
from django.db import connection

from provision import services
from provision.kind import NothingFound
from provision.service import Service
from tests.support.cgroups import Ballast, Group
from tests.support.governor.memory_pressure import HELD, QUICK, RELEASED, T, fill, lateness, said
from tests.support.place import Place, Process, new_place, until
from tests.support.soak import soak
from tests.support.worker_tasks.governor import TABLE, effects

CYCLES, RESTARTS, BACKLOG = soak((2, 1, 100), (100, 5, 50_000))
#: Sent while the worker is held, before each restart: they are on the broker when it stops.
WAITING = 10
LIMIT_MIB = 2048
#: What two workers run side by side, long enough that a busy machine hardly changes the time from one to the next.
TASK_SECONDS, TASKS, SENT = soak((0.4, 6, 150), (0.4, 12, 500))
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
def restarted(broker: Service, transactional_db):
    """A place on that RabbitMQ."""
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute("DELETE FROM governor_effect")
    with new_place("governor soak") as made:
        made.use_test_database()
        made.environment.update(QUICK)
        made.queues("declare")
        yield made


@pytest.mark.timeout(soak(300, 3600))
def test_holds_and_broker_restarts_lose_no_message(restarted: Place, broker: Service, group: Group) -> None:
    place, expected = restarted, BACKLOG + RESTARTS * WAITING
    _send(place, 0, BACKLOG)
    worker, ballast = place.worker("antenna", **group.environment), group.ballast()
    restart_at = {CYCLES * (number + 1) // (RESTARTS + 1) for number in range(RESTARTS)}
    sent = BACKLOG
    for cycle in range(1, CYCLES + 1):
        _hold(worker, group, ballast, cycle)
        if cycle in restart_at:
            _send(place, sent, WAITING)
            sent += WAITING
            _restart(place, worker, broker)
        _release(worker, ballast, cycle, sent)
    until(lambda: len(effects()) == expected, soak(120, 1800), "every message has left its effect")
    runs, stats = effects(), place.stats()
    second = sum(count - 1 for count in runs.values())
    print(
        f"{expected} messages, {stats['holds']} holds, {RESTARTS} restarts of the broker: {len(runs)} effects, "
        f"{stats['redelivered']} messages flagged as redelivered, {second} of them found their effect there; "
        f"held {stats['held_seconds']} s"
    )
    assert set(runs) == {f"message {number}" for number in range(expected)}
    assert second <= stats["redelivered"]
    assert stats["holds"] >= CYCLES
    assert stats["state"] == "consuming"
    assert place.depth("antenna.dlq") == 0
    after = place.send(f"{T}.work", "after", queue="antenna")
    until(lambda: place.ran("work", id=after, state="SUCCESS"), what="it consumes")


def _send(place: Place, first: int, number: int) -> None:
    with place.app.producer_pool.acquire(block=True) as producer:
        for name in range(first, first + number):
            place.send(f"{T}.work", f"message {name}", queue="antenna", producer=producer)


def _hold(worker: Process, group: Group, ballast: Ballast, cycle: int) -> None:
    fill(group, ballast, 95)
    until(lambda: said(worker, HELD) == cycle, what="it holds")


def _restart(place: Place, worker: Process, broker: Service) -> None:
    assert place.depth("antenna") >= WAITING
    connected = said(worker, CONNECTED)
    broker.stop()
    broker.restart()
    place.reconnect()
    until(lambda: said(worker, CONNECTED) > connected, 120, "it has reconnected")
    reconnected = time.time()
    until(lambda: time.time() > reconnected + 1)
    assert "received" not in worker.text.rpartition(CONNECTED)[2], "what was held stays held after a reconnect"
    assert place.depth("antenna") >= WAITING


def _release(worker: Process, ballast: Ballast, cycle: int, sent: int) -> None:
    ballast.hold(0)
    until(lambda: said(worker, RELEASED) == cycle, what="it takes work again")
    last = worker.text.rpartition(RELEASED)[0]
    until(lambda: "received" in worker.text[len(last) :] or len(effects()) == sent, what="messages arrive again")


def test_another_worker_takes_over_while_one_is_held(governed: Place, group: Group) -> None:
    place, ballast = governed, group.ballast()
    place.environment["ANTENNA_FALLBACK_CONCURRENCY"] = "1"
    with place.app.producer_pool.acquire(block=True) as producer:
        for _ in range(SENT):
            place.send(f"{T}.quick", TASK_SECONDS, queue="antenna", producer=producer)
    held = place.worker("antenna", "--hostname", "first@%h", **group.environment)
    place.worker("antenna", "--hostname", "second@%h", MEMORY_GOVERNOR="off")
    until(lambda: _started(place, "first") and len(_started(place, "second")) > TASKS, what="both run")
    beside = _seconds_between(_started(place, "second")[-TASKS - 1 :])
    with lateness() as late:
        fill(group, ballast, 95)
        until(lambda: said(held, HELD) == 1, what="one holds")
        holding = time.time()
    until(lambda: len([at for at in _started(place, "second") if at > holding]) > TASKS, what="the other goes on")
    alone = _seconds_between([at for at in _started(place, "second") if at > holding][: TASKS + 1])
    print(f"the other worker ran {1 / beside:.1f} tasks/s beside it, {1 / alone:.1f} while it was held")
    assert 1 / alone > 0.8 / beside
    assert max(_started(place, "first")) <= holding + 0.25 + sum(late)


def _started(place: Place, worker: str) -> list[float]:
    """When the worker started each of its tasks, in order."""
    return [record["started_at"] for record in place.ran("quick") if record["worker"].startswith(worker)]


def _seconds_between(moments: list[float]) -> float:
    """The usual time from one to the next: one late start, on a machine that does something else, changes nothing."""
    return median(after - before for before, after in pairwise(moments))
