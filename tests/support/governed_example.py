"""The worker of ``examples/governed_worker.py``, started as its readers start it."""

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

from celery import Celery

from tests.support.brokers import new_broker
from tests.support.place import ROOT

REDIS = "redis"
KEEP = "examples.governed_worker.keep"


def without_django() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}


@contextmanager
def governed_worker(
    broker: str, folder: Path, *options: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """Start ``examples.governed_worker``; give its process and its application."""
    here = {"CELERY_BROKER_URL": broker, "CELERY_RESULT_BACKEND": f"file://{folder}"}
    outside = {**without_django(), **here, "GOVERNOR_STATE_DIR": str(folder / "state"), **environment}
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
def example_broker(kind: str, folder: Path) -> Iterator[str]:
    if kind == REDIS:
        yield urlsplit(os.environ["REDIS_URL"])._replace(path="/9").geturl()
    else:
        with new_broker(kind, f"examples-{uuid.uuid4().hex[:6]}", folder) as url:
            yield url
