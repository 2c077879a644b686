"""Celery's countdowns on a folder wait in the broker, not in a worker."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.broker_storage import open_broker_storage
from ami.transports.objectstore.broker.cascade import Cascade
from ami.transports.objectstore.broker.wheel import Delayed
from tests.acceptance.test_objectstore_celery import Site, new_site, task
from tests.support.place import until
from tests.support.soak import soak

#: Loaded, each of them would take 300 bytes or more of the worker's memory.
WAITING = soak(20_000, 100_000)
AT_ONCE = 1_000
GROWTH_KIB = 3 * 1024


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with new_site(tmp_path_factory.mktemp("delays")) as made:
        made.worker("prefork")
        yield made


def waiting(site: Site) -> list[Delayed]:
    """Return all that waits in the broker."""
    found: list[Delayed] = []
    wheel = open_broker_storage(Address.parse(site.broker.removeprefix("objectstore+"))).wheel
    for slot in wheel.slots():
        cascade = Cascade(found.extend)
        wheel.store(slot).stream(cascade)
        cascade.flush()
    return found


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def test_a_countdown_starts_when_it_is_due_and_no_worker_holds_it(site):
    before = time.time()
    result = task(site, "add").apply_async((1, 2), countdown=4)
    assert [one.due >= before + 4 for one in waiting(site)] == [True]
    assert site.app.control.inspect(timeout=60, limit=1).scheduled() == {"one@here": []}
    assert result.get(timeout=60) == 3
    assert time.time() >= before + 4
    until(lambda: not waiting(site))


def test_a_retry_with_a_countdown_waits_in_the_broker(site):
    result = task(site, "third_time").delay()
    until(lambda: waiting(site), what="the first retry")
    assert result.get(timeout=60) == 2


def test_a_revoked_task_is_dropped_when_it_is_due(site):
    result = task(site, "add").apply_async((1, 1), countdown=2)
    site.app.control.revoke(result.id)
    until(lambda: result.state == "REVOKED")


def test_delayed_tasks_cost_a_worker_no_memory_and_leave_it_free_to_end(site):
    (worker,) = site.running
    assert task(site, "add").apply_async((1, 1), countdown=1).get(timeout=60) == 2
    before = resident_kib(worker.pid)
    task(site, "add").apply_async((1, 1), countdown=86_400)
    one = max(waiting(site), key=lambda one: one.due)
    wheel = open_broker_storage(Address.parse(site.broker.removeprefix("objectstore+"))).wheel
    for first in range(0, WAITING, AT_ONCE):
        wheel.put(_copies(one, range(first, first + AT_ONCE)))
    assert task(site, "add").apply_async((2, 2), countdown=1).get(timeout=60) == 4
    assert resident_kib(worker.pid) - before < GROWTH_KIB
    assert site.depth() == 0
    worker.terminate()
    assert worker.wait(30) == 0
    assert sum(one.due > time.time() + 3_600 for one in waiting(site)) == WAITING + 1


def _copies(one: Delayed, numbers: Any) -> list[Delayed]:
    return [one._replace(id=f"{one.id}-{number}", due=one.due + number % 7_200) for number in numbers]
