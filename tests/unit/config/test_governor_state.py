"""Two checkouts of one user, on local settings: each worker keeps its own record of what ran when it was killed."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.support import forked_python
from tests.support.checkout import copy_checkout
from tests.support.place import until

pytestmark = pytest.mark.processes

START_SECONDS = 60
LOST = "Crash attribution disabled"


@contextmanager
def worker(checkout: Path, shared: Path) -> Iterator[forked_python.Forked]:
    """Run the fallback queue's worker; both share ``/tmp`` and the user."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(shared),
        "TMPDIR": str(shared),
        "DJANGO_SETTINGS_MODULE": "config.settings.local",
        "ANTENNA_FALLBACK_CONCURRENCY": "1",
    }
    log = log_of(checkout)
    with log.open("wb") as output:
        # Not by its start command, which would import everything again in a new interpreter.
        argv = ["-m", "celery", "-A", "config", "worker", "-Q", "antenna", "-n", "fallback@%h", "--loglevel", "INFO"]
        process = forked_python.start(argv, cwd=checkout, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def log_of(checkout: Path) -> Path:
    return checkout / "worker.log"


def is_ready(process: forked_python.Forked, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    return " ready." in log.read_text()


def test_workers_of_two_checkouts_keep_their_crash_records(tmp_path: Path):
    checkouts = [copy_checkout(tmp_path / name) for name in ("one", "other")]
    (shared := tmp_path / "tmp").mkdir()
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(checkout, shared)) for checkout in checkouts]
        for process, checkout in zip(workers, checkouts, strict=True):
            until(partial(is_ready, process, log_of(checkout)), START_SECONDS, "the worker is ready")
        assert [LOST in log_of(checkout).read_text() for checkout in checkouts] == [False, False]
        for checkout in checkouts:
            (node,) = (checkout / ".antenna/governor").iterdir()
            assert node.name.startswith("fallback@")
            assert (node / "lock").exists()
    assert not list(shared.glob("antenna-governor-*"))
