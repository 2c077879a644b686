"""The pulse of a worker: while its loop turns, and no longer; what a container's health check looks at."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.place import FOLDER, ROOT, Place, until
from tests.support.soak import soak

FRESH = ROOT / "compose/start/fresh"


def is_fresh(file: Path, seconds: float) -> bool:
    return subprocess.run([FRESH, file, str(seconds)], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("place", [FOLDER], indirect=True)
@pytest.mark.parametrize("pool", soak(["prefork"], ["prefork", "gevent"]))
def test_consuming_worker_has_a_pulse_and_frozen_one_has_none(place: Place, tmp_path: Path, pool: str):
    """Incident 17: a process that stood still for days was "Up"."""
    file = tmp_path / "pulse"
    assert not is_fresh(file, 60)
    worker = place.worker("antenna", ANTENNA_PULSE_FILE=str(file), ANTENNA_FALLBACK_POOL=pool)
    until(lambda: is_fresh(file, 8), 120, "the first beat")
    beaten = file.stat().st_mtime_ns
    until(lambda: file.stat().st_mtime_ns > beaten, 120, "the next beat")
    assert file.read_text() == "consumes\n"
    os.kill(worker.popen.pid, signal.SIGSTOP)
    try:
        until(lambda: not is_fresh(file, 8), 120, "the file grows old")
    finally:
        os.kill(worker.popen.pid, signal.SIGCONT)
    until(lambda: is_fresh(file, 8), 120, "the loop turns again")
