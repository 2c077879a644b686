"""The temporary folder of a run of the tests, in memory: nothing in it is read after the run, and a disk's syncs, of
which a broker's every publish has one, are most of what the tests would wait for.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ami.governor.probes.machine import Machine

#: Where Linux has a file system in memory.
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder is made in it, for this user alone to write to.
PREFIX = "antenna-tests-"
VARIABLE = "TMPDIR"

#: What must be free, in memory and in its file system. A run's services and databases write up to a quarter of it.
FREE_BYTES = 8 * 1024**3


class MemoryFolder:
    """The folder of one run; ``keep`` leaves it there, for whoever looks why a test failed."""

    def __init__(self, path: Path | None) -> None:
        self.path, self._keeps = path, False

    def keep(self) -> None:
        """Leave the folder until the next run."""
        if self.path is not None:
            self._keeps = True
            print(f"What the tests wrote is in {self.path} until the next run.", flush=True)

    def remove(self) -> None:
        if self.path is not None and not self._keeps:
            shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def temporary_files_in_memory(memory: Path = MEMORY) -> Iterator[MemoryFolder]:
    """Let processes started in this block have their temporary files in memory.

    Not where ``TMPDIR`` names a folder, memory is short, or nothing can be executed there.
    """
    if os.environ.get(VARIABLE) or not _is_fit(memory):
        yield MemoryFolder(None)
        return
    _remove_left_behind(memory)
    folder = MemoryFolder(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=memory)))
    assert folder.path is not None
    folder.path.chmod(0o711)  # A server that refuses to run as root runs as another user.
    os.environ[VARIABLE] = str(folder.path)
    try:
        yield folder
    finally:
        del os.environ[VARIABLE]
        folder.remove()


def on_disk(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a process whose temporary files are on the disk: another program is to read them, or
    the test measures memory.
    """
    is_ours = Path(environment.get(VARIABLE, "")).name.startswith(PREFIX)
    return {name: value for name, value in environment.items() if name != VARIABLE or not is_ours}


def _is_fit(memory: Path) -> bool:
    """Whether programs can be executed there, and there is room, also in the container that this may be."""
    sample = Machine().read()
    try:
        facts = os.statvfs(memory)
    except OSError:
        return False
    room = min(facts.f_bavail * facts.f_frsize, (sample.memory_limit_bytes or 0) - (sample.memory_used_bytes or 0))
    return room > FREE_BYTES and os.access(memory, os.W_OK) and not facts.f_flag & os.ST_NOEXEC


def _remove_left_behind(memory: Path) -> None:
    """Remove the folders of this user's runs that have ended."""
    for path in memory.glob(f"{PREFIX}*-*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(FileNotFoundError):  # Another run may have removed it.
            if path.stat().st_uid == os.getuid() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)
