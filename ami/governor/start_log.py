"""When a worker was started again although nobody had asked its predecessor to end, in a file that survives both."""

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ami.governor.crash_log import Entry

DAY_SECONDS = 86_400.0

ASKED, WITHOUT_NOTICE = "asked", "without notice"

#: How many restarts are kept, the newest: 3 within an hour are enough for a finding.
KEPT = 20

#: How many tasks of a restart are kept.
TASKS = 3


@dataclass(frozen=True)
class Restart:
    """One start after an unexpected end. ``at`` is the start's wall-clock time.

    ``how``: ``without notice`` (killed, or refused at its start), or ``exit code N`` of a worker that ended by itself.
    ``tasks`` are the names of those that ran when it was killed, the largest first.
    """

    at: float
    how: str
    tasks: tuple[str, ...]


class StartLog:
    """One per worker, in ``starts.json`` in its state folder; the folder's lock (`RunLog`) keeps other workers out.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, folder: Path, running: Iterable[Entry], now: float | None = None) -> None:
        self._path = folder / "starts.json"
        self.started_at = time.time() if now is None else now
        self._ended = ""
        before = _read(self._path)
        self.restarts = [each for each in _restarts(before) if each.at > self.started_at - DAY_SECONDS]
        if how := _unexpected_end(before):
            largest = sorted(running, key=lambda entry: -entry.kib) if how == WITHOUT_NOTICE else ()
            tasks = tuple(dict.fromkeys(entry.task for entry in largest))[:TASKS]
            self.restarts.append(Restart(self.started_at, how, tasks))
        self._write()

    def mark_ended(self, how: str) -> None:
        """Note how this worker ends; `ASKED` is an end that was asked for."""
        if self._ended != ASKED:
            self._ended = how
            with suppress(OSError):
                self._write()

    def mark_exit(self, exit_code: int | None) -> None:
        """Note that this worker ends by itself."""
        self.mark_ended(f"exit code {exit_code}" if exit_code else ASKED)

    def info(self, now: float | None = None) -> dict[str, Any]:
        """Return the restarts of the last day, oldest first, in seconds ago: the clocks of two hosts differ."""
        now = time.time() if now is None else now
        recent = [each for each in self.restarts if each.at > now - DAY_SECONDS]
        return {
            "seconds_ago": round(now - self.started_at, 1),
            "restarts": [
                {"seconds_ago": round(now - each.at, 1), "how": each.how, "tasks": list(each.tasks)} for each in recent
            ],
        }

    def _write(self) -> None:
        restarts = [asdict(each) for each in self.restarts[-KEPT:]]
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"started_at": self.started_at, "ended": self._ended, "restarts": restarts}))
        new.replace(self._path)


def _unexpected_end(before: dict[str, Any]) -> str:
    """Return how the worker before this one ended; empty where it was asked to, or where there was none."""
    ended = before.get("ended") if "started_at" in before else ASKED
    return "" if ended == ASKED else str(ended or WITHOUT_NOTICE)


def _read(path: Path) -> dict[str, Any]:
    """Return what the worker before wrote; a torn or foreign file counts as empty."""
    try:
        read = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _restarts(read: dict[str, Any]) -> list[Restart]:
    try:
        return [Restart(float(one["at"]), str(one["how"]), tuple(one["tasks"])) for one in read.get("restarts", ())]
    except (ValueError, TypeError, KeyError):
        return []
