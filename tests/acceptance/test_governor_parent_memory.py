"""What a governed worker's own process takes does not grow with the number of tasks that it has run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from ami.celery.declaration import depth
from tests.support.brokers import FOLDER, RABBITMQ
from tests.support.governed_example import KEEP, example_broker, governed_worker
from tests.support.place import until
from tests.support.soak import soak

TASKS = soak(2_000, 100_000)
MOST_MIB = 10.0
#: A folder's connection remembers the last 20,000 ids that it acknowledged: it grows until then, and no further.
WARM_UP = {RABBITMQ: 0, FOLDER: soak(0, 25_000)}
#: The reference of the soak is Celery alone.
GOVERNORS = soak(["on"], ["on", "off"])


@pytest.mark.timeout(soak(300, 3600))
@pytest.mark.parametrize("broker", soak([RABBITMQ], [RABBITMQ, FOLDER]))
@pytest.mark.parametrize("governor", GOVERNORS)
def test_parent_stays_level_over_many_tasks(broker: str, governor: str, tmp_path: Path) -> None:
    options = ("-c", "2", "-l", "warning", "--without-mingle", "--without-gossip")
    with (
        example_broker(broker, tmp_path) as url,
        governed_worker(url, tmp_path, *options, MEMORY_GOVERNOR=governor) as (process, app),
    ):
        if WARM_UP[broker]:
            run_tasks(app, WARM_UP[broker], lambda: None)
        sizes = [run_tasks(app, TASKS // 10, lambda: memory_mib(process.pid)) for _ in range(10)]
    print(f"{broker}, governor {governor}: (private, anonymous) MiB after each tenth of {TASKS} tasks: {sizes}")
    growth = [last - first for first, last in zip(sizes[0], sizes[-1], strict=True)]
    assert max(growth) < MOST_MIB, growth


def run_tasks(app: Celery, number: int, measure: Callable[[], Any]) -> Any:
    """Run so many tasks that do nothing, and return what was measured then."""
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(number):
            app.send_task(KEEP, (0,), producer=producer, ignore_result=True)
    with app.connection_for_read() as connection, connection.channel() as channel:
        until(lambda: depth(channel, "celery")[0] == 0, 120 + number / 20, "the queue is empty")
    return measure()


def memory_mib(pid: int) -> tuple[float, float]:
    """Return a process's private memory, which includes what its children no longer share, and all of its own."""
    sizes = dict.fromkeys(("Private", "Anonymous"), 0)
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        for name in sizes:
            if line.startswith(name):
                sizes[name] += int(line.split()[1])
    return sizes["Private"] / 1024, sizes["Anonymous"] / 1024
