"""What a worker refuses at its start."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency import get_implementation

from ami.celery.bootsteps import RefuseProcesses
from tests.support import forked_python
from tests.support.place import celery_at


@pytest.mark.processes
def test_prefork_worker_on_a_memory_broker_is_refused_with_the_remedy():
    done = forked_python.run(
        ["-m", "celery", "-A", "config", "worker", "-Q", "antenna", "--concurrency", "1"],
        env={
            **os.environ,
            "CELERY_BROKER_URL": "objectstore+memory://",
            "DJANGO_SETTINGS_MODULE": "config.settings.test",
        },
    )
    (line,) = [line for line in done.stderr.splitlines() if "refused" in line]
    assert done.returncode == 1
    for remedy in ("--pool threads", "--pool solo", "objectstore+file:///path/to/a/folder"):
        assert remedy in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("pool", "url"),
    [("threads", "objectstore+memory://"), ("solo", "objectstore+memory://"), ("prefork", "objectstore+file:///tmp/x"),
     ("prefork", "amqp://"), ("prefork", "memory://")],
)  # fmt: skip
def test_every_other_pool_and_broker_may_start(app: Any, pool: str, url: str):
    with celery_at(url):
        RefuseProcesses(SimpleNamespace(app=app, pool_cls=get_implementation(pool)))
