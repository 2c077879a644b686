"""Broker, database and other services are stopped and started under load: calls begin again by themselves."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from provision import services
from provision.service import Service
from tests.support import restart_load
from tests.support.admission import QUEUE, TASKS, admission_place, effects, is_there
from tests.support.place import ROOT, Place, until
from tests.support.soak import soak

ROUNDS, IN_PRIVATE = soak(1, 10), soak(("rabbitmq",), ("rabbitmq", "postgres", "redis", "nats"))
#: A call begins so long after the broker is back at the latest.
BEGIN_SECONDS = 30
#: So many calls are made while a service is away.
MEANWHILE = soak(30, 60)
USERS = "tests.support.worker_tasks.pool_users"

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(soak(400, 7200))]
Running = Mapping[str, Service]


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Services of this test's own, which it may stop."""
    with services.running(IN_PRIVATE, private=True) as found:
        for name, value in services.environment(found).items():
            if value is not None and name != "DATABASE_URL":
                monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def place(running: Running) -> Iterator[Place]:
    with admission_place(ANTENNA_EXTRA_TASKS=f"{TASKS},{USERS}") as made:
        if "postgres" in running:
            made.environment["DATABASE_URL"] = running["postgres"].url
            migrate = [sys.executable, "manage.py", "migrate", "-v0"]
            subprocess.run(migrate, cwd=ROOT, env=made.environment, check=True)
        yield made


@contextmanager
def application_stopped(broker: Service) -> Iterator[None]:
    """Stop what RabbitMQ's node runs, as operators do, and start it again."""
    _control(broker, "stop_app")
    yield
    _control(broker, "start_app")
    _control(broker, "await_startup")


def _control(broker: Service, command: str) -> None:
    assert broker.process is not None
    launch = broker.process.launch
    program = Path(launch.argv[0]).with_name("rabbitmqctl")
    subprocess.run([program, command], env={**os.environ, **launch.env}, check=True, capture_output=True)


@contextmanager
def stopped(service: Service) -> Iterator[None]:
    """Stop a service in order; PostgreSQL fast."""
    service.stop()
    yield
    service.restart()


@contextmanager
def killed(service: Service) -> Iterator[None]:
    service.kill()
    yield
    service.restart()


@contextmanager
def stopped_immediately(database: Service) -> Iterator[None]:
    """Let PostgreSQL abort, so that it recovers at its start."""
    os.kill(database.pid or 0, signal.SIGQUIT)
    until(lambda: database.process is not None and not database.process.is_running, 30)
    yield
    database.restart()


BROKER_FAULTS = (application_stopped, killed, stopped)
OTHERS = (("postgres", stopped), ("postgres", stopped_immediately), ("redis", killed), ("nats", killed))


def test_calls_begin_again_after_restarts_and_none_is_lost_or_doubled(running: Running, place: Place):
    place.worker(QUEUE)
    load = place.start([sys.executable, "-m", "tests.support.restart_load"])
    folder, gaps = Path(place.environment["ANTENNA_TEST_FOLDER"]), []
    until(lambda: len(effects(place, what="end")) >= 20, 60, "calls run")
    for number in range(ROUNDS):
        fault, (other, other_fault) = BROKER_FAULTS[number % 3], OTHERS[number % 4]
        before = len(restart_load.called(folder)[1])
        with fault(running["rabbitmq"]):
            until(
                lambda before=before: len(restart_load.called(folder)[1]) >= before + MEANWHILE, 120, "calls are made"
            )
        gaps.append(_seconds_until_a_new_call_begins(place, folder))
        if other in running:
            asked = len(restart_load.called(folder)[0])
            with other_fault(running[other]):
                until(lambda most=asked + 10: len(restart_load.called(folder)[0]) >= most, 120, "calls are tried")
            _seconds_until_a_new_call_begins(place, folder)
    print("seconds from the broker's return to the begin of a new call:", gaps)
    assert load.stop() == 0
    asked, made = restart_load.called(folder)
    until(lambda: set(made) <= set(_ended(place)), 120, lambda: str(set(made) - set(_ended(place))))
    assert {number: times for number, times in _ended_in_order(place).items() if times > 1} == {}
    assert set(_ended(place)) <= set(asked)


def _ended(place: Place) -> Counter[int]:
    """Return how often the call of each number ended; number 0 is of those that may be lost with the broker."""
    return Counter(line["number"] for line in effects(place, what="end") if line["number"])


def _ended_in_order(place: Place) -> Counter[int]:
    """Return the same without what was the last thing that a process wrote before it was ended.

    A worker that loses its connection ends its processes: one may have written its effect, and not the end of its run.
    Such a call runs again, as any that is delivered at least once.
    """
    lines = effects(place)
    last = {line["pid"]: line for line in lines}
    cut = [id(line) for pid, line in last.items() if not is_there(pid)]
    return Counter(line["number"] for line in lines if line["what"] == "end" and line["number"] and id(line) not in cut)


def _seconds_until_a_new_call_begins(place: Place, folder: Path) -> float:
    """Wait for a call that was made after now; return how long it took."""
    back = time.monotonic()

    def begun() -> bool:
        new = {number for number, at in restart_load.called(folder)[0].items() if at > back}
        return any(line["number"] in new for line in effects(place, what="begin"))

    until(begun, BEGIN_SECONDS, "a call begins after the return")
    return round(time.monotonic() - back, 1)
