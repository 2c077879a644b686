"""The programs in examples/ do what they show, as their readers start them."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
from celery import Celery

from tests.support.brokers import FOLDER, RABBITMQ, new_broker
from tests.support.place import ROOT, until

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__")
LONGEST = 40
REDIS = "redis"
SOFT, HARD = 250, 600  # MiB, above the limits of the example.


def _without_django() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}


@contextmanager
def governed_worker(broker: str, folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """Start ``examples.governed_worker``; give its process and its application."""
    here = {"CELERY_BROKER_URL": broker, "CELERY_RESULT_BACKEND": f"file://{folder}"}
    outside = {**_without_django(), **here, "GOVERNOR_STATE_DIR": str(folder / "state")}
    argv = [sys.executable, "-m", "celery", "-A", "examples.governed_worker", "worker", "-l", "info", *options]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=ROOT, env=outside, stdout=log, stderr=log, start_new_session=True)
    try:
        with patch.dict(os.environ, here):  # Celery prefers them to what an application is made with.
            yield process, Celery("caller", set_as_current=False)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        print((folder / "log").read_text()[-6000:])


@contextmanager
def _broker(kind: str, folder: Path) -> Iterator[str]:
    if kind == REDIS:
        yield urlsplit(os.environ["REDIS_URL"])._replace(path="/9").geturl()
    else:
        with new_broker(kind, f"examples-{uuid.uuid4().hex[:6]}", folder) as url:
            yield url


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_short_and_needs_no_django(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= LONGEST
    check = f"import sys, examples.{name}; sys.exit('django.conf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, env=_without_django(), check=False).returncode == 0


@pytest.mark.parametrize("kind", [RABBITMQ, REDIS, FOLDER])
def test_plain_worker_with_the_governor_keeps_to_its_limits(kind: str, tmp_path: Path) -> None:
    with _broker(kind, tmp_path) as broker:
        options = ("-c", "1", "--max-tasks-per-child", "3", "-n", f"{kind}@here")
        with governed_worker(broker, tmp_path, *options) as (process, app):

            def keep(mebibytes: int, **how: Any) -> Any:
                return app.send_task("examples.governed_worker.keep", (mebibytes,), **how)

            def recycled() -> dict[str, int]:
                (stats,) = (app.control.inspect(timeout=30, limit=1).stats() or {}).values()
                return dict(stats["governor"]["recycled"])

            for _ in range(3):
                keep(1, countdown=3600)  # These occupy no slot, of which there is one.
            assert [each.get(60) for each in [keep(1) for _ in range(7)]] == [1, 2, 3, 1, 2, 3, 1]
            assert recycled() == {"max-tasks": 2}
            assert keep(SOFT).get(60) == 2
            until(lambda: recycled() == {"max-tasks": 2, "soft-limit": 1}, what="it was recycled for its size")
            assert keep(1).get(60) == 1
            assert "ERROR" not in (tmp_path / "log").read_text()
            with pytest.raises(MemoryError):
                keep(HARD).get(60)
            assert keep(1).get(60) == 1, "the worker goes on, with another process"
            assert recycled() == {"max-tasks": 2, "soft-limit": 1, "ceiling": 1}
        assert process.returncode == 0


def test_plain_worker_with_another_pool_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with _broker(FOLDER, tmp_path) as broker, governed_worker(broker, tmp_path, "-P", "gevent") as (process, _):
        assert process.wait(60) == 1
    said = (tmp_path / "log").read_text()
    assert "the governor works with the pools prefork, threads and solo, and this worker's is gevent." in said
    assert " ready." not in said
