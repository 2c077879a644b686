"""Two checkouts of one user, on local settings: each worker keeps its own record of what ran when it was killed."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support import forked_python
from tests.support.checkout import copy_checkout
from tests.support.place import until

pytestmark = pytest.mark.processes

START_SECONDS = 60
LOST = "Crash attribution disabled"


@contextmanager
def worker(checkout: Path, shared: Path) -> Iterator[Path]:
    """Run the fallback queue's worker, and return its log once it is ready; both share ``/tmp`` and the user."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(shared),
        "TMPDIR": str(shared),
        "DJANGO_SETTINGS_MODULE": "config.settings.local",
        "ANTENNA_FALLBACK_CONCURRENCY": "1",
    }
    log = checkout / "worker.log"
    with log.open("wb") as output:
        # Not by its start command, which would import everything again in a new interpreter.
        argv = ["-m", "celery", "-A", "config", "worker", "-Q", "antenna", "-n", "fallback@%h", "--loglevel", "INFO"]
        process = forked_python.start(argv, cwd=checkout, env=environment, stdout=output, stderr=output)
    try:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return " ready." in log.read_text()

        until(ready, START_SECONDS, "the worker is ready")
        yield log
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def test_workers_of_two_checkouts_keep_their_crash_records(tmp_path: Path):
    checkouts = [copy_checkout(tmp_path / name) for name in ("one", "other")]
    (shared := tmp_path / "tmp").mkdir()
    with ExitStack() as stack:
        logs = [stack.enter_context(worker(checkout, shared)) for checkout in checkouts]
        assert [LOST in log.read_text() for log in logs] == [False, False]
        for checkout in checkouts:
            (node,) = (checkout / ".antenna/governor").iterdir()
            assert node.name.startswith("fallback@")
            assert (node / "lock").exists()
    assert not list(shared.glob("antenna-governor-*"))
