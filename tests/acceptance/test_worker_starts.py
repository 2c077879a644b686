"""Workers that start on a folder with waiting tasks run the first one as soon as they are ready."""

import time
from pathlib import Path
from statistics import median

import pytest

from tests.acceptance.test_objectstore_celery import Site, new_site
from tests.support.place import until
from tests.support.soak import soak

#: How many times each pool starts, and the tasks that wait for it.
STARTS = {"solo": soak(3, 200), "prefork": soak(0, 25), "threads": soak(0, 25), "gevent": soak(0, 25)}
WAITING = 3


def _lateness(site: Site) -> list[float]:
    """Return, of each task, the seconds from the worker's being ready, or the publish if later, to the start."""
    [[_, ready]] = site.diary("ready")
    return [float(started) - max(float(published), float(ready)) for _, published, started in site.diary("stamp")]


def _start(folder: Path, pool: str) -> list[float]:
    folder.mkdir()
    with new_site(folder) as site:
        for _ in range(WAITING):
            site.app.send_task("tests.support.plain_app.stamp", (time.time(),))
        site.worker(pool)
        until(lambda: site.diary("ready"))
        site.app.send_task("tests.support.plain_app.stamp", (time.time(),))
        until(lambda: len(site.diary("stamp")) == WAITING + 1, 60, "every task ran")
        return _lateness(site)


@pytest.mark.processes
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pool", [pool for pool, starts in STARTS.items() if starts])
def test_first_tasks_of_a_started_worker_are_not_late(tmp_path, pool):
    late = [max(_start(tmp_path / str(number), pool)) for number in range(STARTS[pool])]
    print(f"{pool}: {len(late)} starts, median {median(late):.3f} s, slowest {max(late):.3f} s")
    assert max(late) <= max(1.0, 10 * median(late))
