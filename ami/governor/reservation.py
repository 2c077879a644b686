"""How many more tasks fit: what each task name was seen to add to memory, and what those that run may still add."""

import contextlib
import json
import logging
import math
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ami.governor.sample import Reading
from ami.governor.settings import GovernorSettings

logger = logging.getLogger(__name__)

SAMPLES = 64
NAMES = 500
FORMAT = "antenna-task-sizes-1"
#: More than 500 names of 64 samples need: what is bigger was not written here.
LARGEST_FILE_BYTES = 4 * 1024**2


class Sizes:
    """How many KiB each task name adds to its process, by its last 64 runs; the 500 names seen last are kept.

    ``path`` is the file it outlives its process in; None keeps it in memory only. Neither loading nor saving raises:
    what was learned is a convenience, and a full disk must not stop a worker. For one thread.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._samples: dict[str, deque[int]] = {}

    def learn(self, task: str, added_kib: int) -> None:
        """Note that one run of ``task`` added so much; a run after which memory fell added nothing."""
        # Taken out and put back at the end, so that the first key is always the one seen longest ago.
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
        """Read what an earlier process saved; no file is no news; a torn or foreign one is logged and ignored."""
        if self.path is None:
            return
        try:
            if self.path.stat().st_size > LARGEST_FILE_BYTES:
                raise ValueError(f"it is larger than {LARGEST_FILE_BYTES} bytes")
            self._samples = _parsed(self.path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("Task sizes in %s are ignored and learned anew: %s", self.path, error)

    def save(self) -> None:
        """Write what was learned, whole or not at all: into a file beside the old one, renamed over it."""
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
            logger.warning("Task sizes cannot be saved to %s: %s", self.path, error)
            if beside:
                with contextlib.suppress(OSError):
                    os.unlink(beside)


@dataclass(frozen=True)
class Promise:
    """A task that runs, and what it has added to its process so far."""

    task: str
    added_kib: int


@dataclass(frozen=True)
class Admission:
    """How many more tasks may start, and the numbers it follows from; ``largest`` is None if nothing was learned."""

    slots: int
    largest: str | None
    largest_kib: int
    promised_kib: int
    sentence: str


def promised_kib(sizes: Sizes, running: Sequence[Promise], default_kib: int = 0) -> int:
    """Return what the running tasks may still add; one never seen before counts as ``default_kib``."""
    known = ((sizes.p95_kib(promise.task), promise.added_kib) for promise in running)
    return sum(max(0, (default_kib if size is None else size) - added) for size, added in known)


def admissible(
    settings: GovernorSettings,
    reading: Reading,
    sizes: Sizes,
    running: Sequence[Promise],
    free_slots: int,
    default_kib: int,
) -> Admission:
    """Return how many more tasks fit below the throttle threshold, 0 to ``free_slots``.

    Which task comes next is unknown until it was delivered, so each is taken to be the largest that was learned, or
    ``default_kib`` before anything was. Nothing runs: one is let in, fit or not. Memory unknown: all.
    """
    free_slots, promised = max(0, free_slots), promised_kib(sizes, running, default_kib)
    largest, largest_kib = sizes.largest_kib() or (None, default_kib)
    if reading.memory_used_bytes is None or not reading.memory_limit_bytes:
        return Admission(free_slots, largest, largest_kib, promised, f"memory unknown: all {free_slots} free slots")
    ceiling = settings.memory_throttle_threshold * reading.memory_limit_bytes / 100
    room_kib = math.floor((ceiling - reading.memory_used_bytes) / 1024) - promised
    fit = room_kib // max(1, largest_kib)
    slots = min(free_slots, max(fit, 0 if running else 1))
    sentence = (
        f"{slots} of {free_slots} free slots: {room_kib // 1024} MiB are left below "
        f"{settings.memory_throttle_threshold:g}% after {promised // 1024} MiB promised to {len(running)} running, "
        f"and {largest or 'a task not seen before'} may add {largest_kib // 1024} MiB"
    )
    return Admission(slots, largest, largest_kib, promised, sentence)


def _parsed(raw: bytes) -> dict[str, deque[int]]:
    """Return the samples in a file's content.

    Raises:
        ValueError: it is no JSON, or not what ``save`` writes.
    """
    content = json.loads(raw)
    learned = content.get("added_kib") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(learned, dict):
        raise ValueError(f"it is not of the format {FORMAT}")
    for task, samples in learned.items():
        if not isinstance(samples, list) or not samples or any(type(size) is not int or size < 0 for size in samples):
            raise ValueError(f"the sizes of {task} are not numbers of KiB")
    return {task: deque(samples, maxlen=SAMPLES) for task, samples in list(learned.items())[-NAMES:]}
