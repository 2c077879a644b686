"""The programs in examples/ do what they show, as their readers start them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import FOLDER, RABBITMQ
from tests.support.governed_example import KEEP, REDIS, example_broker, governed_worker, without_django
from tests.support.place import ROOT, until
from tests.support.soak import soak

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__")
LONGEST = 40
SOFT, HARD = 250, 600  # MiB, above the limits of the example.


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_short_and_needs_no_django(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= LONGEST
    check = f"import sys, examples.{name}; sys.exit('django.conf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, env=without_django(), check=False).returncode == 0


@pytest.mark.parametrize("kind", soak([RABBITMQ], [RABBITMQ, REDIS, FOLDER]))
def test_plain_worker_with_the_governor_keeps_to_its_limits(kind: str, tmp_path: Path) -> None:
    with example_broker(kind, tmp_path) as broker:
        name = f"{kind}@here"  # Redis is that of other tests, too, and of their workers.
        options = ("-c", "1", "--max-tasks-per-child", "3", "-n", name)
        with governed_worker(broker, tmp_path, *options) as (process, app):

            def keep(mebibytes: int, **how: Any) -> Any:
                return app.send_task(KEEP, (mebibytes,), **how)

            def recycled() -> dict[str, int]:
                (stats,) = (app.control.inspect([name], timeout=30, limit=1).stats() or {}).values()
                return dict(stats["governor"]["recycled"])

            for _ in range(3):
                keep(1, countdown=3600)  # These occupy no slot, of which there is one.
            assert [each.get(120) for each in [keep(1) for _ in range(7)]] == [1, 2, 3, 1, 2, 3, 1]
            assert recycled() == {"max-tasks": 2}
            assert keep(SOFT).get(120) == 2
            until(lambda: recycled() == {"max-tasks": 2, "soft-limit": 1}, what="it was recycled for its size")
            assert keep(1).get(120) == 1
            assert "ERROR" not in (tmp_path / "log").read_text()
            with pytest.raises(MemoryError):
                keep(HARD).get(120)
            assert keep(1).get(120) == 1, "the worker goes on, with another process"
            assert recycled() == {"max-tasks": 2, "soft-limit": 1, "ceiling": 1}
        assert process.returncode == 0


@pytest.mark.parametrize("kind", soak([REDIS], [RABBITMQ, REDIS, FOLDER]))
def test_plain_worker_with_autoscaling_grows_with_its_queue(kind: str, tmp_path: Path) -> None:
    options = ("--autoscale", "3,1", "-n", f"{kind}@scaled")
    with example_broker(kind, tmp_path) as broker, governed_worker(broker, tmp_path, *options) as (_, app):

        def has_grown() -> bool:
            for _ in range(30):
                app.send_task(KEEP, (20,))
            name = f"{kind}@scaled"
            stats = app.control.inspect([name], timeout=10, limit=1).stats() or {}
            return name in stats and stats[name]["autoscaler"]["current"] == 3

        until(has_grown, 120, "the worker has three processes")


def test_plain_worker_with_another_pool_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with example_broker(FOLDER, tmp_path) as broker, governed_worker(broker, tmp_path, "-P", "gevent") as (process, _):
        assert process.wait(60) == 1
    said = (tmp_path / "log").read_text()
    assert "the governor works with the pools prefork, threads and solo, and this worker's is gevent." in said
    assert " ready." not in said
