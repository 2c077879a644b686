"""A disk of a test's own that can be full: a small tmpfs, which only the processes of one command see."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.containers.engine import REQUIRED

MOUNT = 'mount -t tmpfs -o size="$1",mode=700 small "$2" && shift 2 && exec "$@"'


def on_small_disk(folder: Path, size: int, argv: Sequence[str]) -> list[str]:
    """Return ``argv`` as a command that finds a disk of ``size`` bytes at ``folder``; it is gone when the command ends.

    Skips the test where nothing may be mounted. Where an engine is required it must be possible.
    """
    command = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", MOUNT, "sh", str(size), str(folder)]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        if REQUIRED in os.environ:
            raise
        pytest.skip(f"NO DISK OF ITS OWN HERE (needs root, unshare, mount): {getattr(error, 'stderr', error)}")
    return [*command, *argv]


class Ballast:
    """A file that takes what is left of a disk."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"

    def fill(self) -> None:
        """Take what is free now; others may free more."""
        with self._path.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
