"""How many KiB each task name was measured to add to its process; kept in a file between two workers."""

import contextlib
import json
import logging
import math
import os
import tempfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path

logger = logging.getLogger(__name__)

SAMPLES = 64
NAMES = 500
FORMAT = "antenna-task-sizes-1"
#: More than 500 names of 64 samples need: a larger file was not written here.
LARGEST_FILE_BYTES = 4 * 1024**2


class TaskSizes:
    """How many KiB each task name adds to its process, by its last 64 runs; the 500 names seen last are kept.

    ``path`` is the file that keeps them between two workers; None keeps them in memory. Neither loading nor saving
    raises: a full disk must not stop a worker. For one thread.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._samples: dict[str, deque[int]] = {}

    def learn(self, task: str, added_kib: int) -> None:
        """Note that one run of ``task`` added so much; a run after which memory fell added nothing."""
        # Moved to the end, so that the first key is the one seen longest ago.
        samples = self._samples.pop(task, None) or deque(maxlen=SAMPLES)
        samples.append(max(0, added_kib))
        self._samples[task] = samples
        if len(self._samples) > NAMES:
            del self._samples[next(iter(self._samples))]

    def p95_kib(self, task: str) -> int | None:
        """Return what 95 of 100 runs stayed at or below (nearest rank), or None for a task never seen."""
        samples = sorted(self._samples.get(task, ()))
        return samples[math.ceil(0.95 * len(samples)) - 1] if samples else None

    def largest_kib(self, tasks: Iterable[str] | None = None) -> tuple[str, int] | None:
        """Return the known task, of ``tasks`` or of all, that adds most, and how much; None if none is known."""
        known = ((task, self.p95_kib(task)) for task in (self._samples if tasks is None else tasks))
        return max(((task, size) for task, size in known if size is not None), key=lambda pair: pair[1], default=None)

    def load(self) -> None:
        """Read what an earlier process saved; a torn or foreign file is logged and ignored."""
        if self.path is None:
            return
        try:
            if self.path.stat().st_size > LARGEST_FILE_BYTES:
                raise ValueError(f"it is larger than {LARGEST_FILE_BYTES} bytes")
            self._samples = _parsed(self.path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("Task sizes ignored, learning them again: %s: %s", self.path, error)

    def save(self) -> None:
        """Write the sizes atomically: into a new file that replaces the old one."""
        if self.path is None:
            return
        content = {"format": FORMAT, "added_kib": {task: list(sizes) for task, sizes in self._samples.items()}}
        beside = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False) as file:
                beside = file.name
                json.dump(content, file)
            os.replace(beside, self.path)
        except OSError as error:
            logger.warning("Task sizes not saved: %s: %s", self.path, error)
            if beside:
                with contextlib.suppress(OSError):
                    os.unlink(beside)


def _parsed(raw: bytes) -> dict[str, deque[int]]:
    """Return the samples in a file's content.

    Raises:
        ValueError: it is not JSON, or not what ``save`` writes.
    """
    content = json.loads(raw)
    learned = content.get("added_kib") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(learned, dict):
        raise ValueError(f"it is not of the format {FORMAT}")
    for task, samples in learned.items():
        if not isinstance(samples, list) or not samples or any(type(size) is not int or size < 0 for size in samples):
            raise ValueError(f"the sizes of {task} are not numbers of KiB")
    return {task: deque(samples, maxlen=SAMPLES) for task, samples in list(learned.items())[-NAMES:]}
