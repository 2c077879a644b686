"""Publishers and consumers on a folder, killed while its disk fills up: nothing is lost, every redelivery flagged."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.support.place import ROOT
from tests.support.small_disk import on_small_disk
from tests.support.soak import soak

MESSAGES, KILLS, SECONDS = soak((2_000, 6, 240), (20_000, 60, 2_400))
#: The long form's messages need more: publishers that fill a disk leave no room for consumers that publish again.
DISK_BYTES = soak(128, 1024) * 1024**2


def tortured(folder) -> dict:
    """Run the torture, its broker on a small disk and its diaries on another; return the verdict."""
    disk, diaries = folder / "disk", folder / "diaries"
    disk.mkdir()
    diaries.mkdir()
    program = [sys.executable, "-m", "tests.support.torture", str(disk), str(diaries)]
    options = ["--messages", str(MESSAGES), "--kills", str(KILLS), "--seconds", str(SECONDS)]
    argv = on_small_disk(disk, DISK_BYTES, [*program, *options])
    process = subprocess.Popen(
        argv, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = process.communicate(timeout=SECONDS + 40)
    finally:
        # Its processes are in its group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    return json.loads(output)


@pytest.mark.timeout(SECONDS + 60)
def test_nothing_is_lost_or_unflagged_under_kills_and_a_full_disk(tmp_path):
    found = tortured(tmp_path)

    print({name: len(value) if isinstance(value, list) else value for name, value in found.items()})
    assert found["failure"] == ""
    assert found["lost"] == []
    assert found["unflagged"] == []
    assert found["damaged"] == []
    assert found["unknown"] == []
    # It was tortured indeed.
    assert found["confirmed"] > MESSAGES
    assert len(found["killed"]) == KILLS
    assert {name.partition("-")[0] for name in found["killed"]} == {"publish", "consume"}
    assert found["rejected"] >= 10
    assert found["killed_on_full_disk"] == 1
    assert found["redelivered"] > 0
    assert found["dead_letters"] > 0
