"""The tasks that were running when their worker was killed, and how often."""

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ami.governor.crash_log import Entry


class Suspects:
    """Counts crashes per task, in ``suspects.json`` in the worker's state folder."""

    #: A task that was running at this many crashes is poison: it ran alone at the second one.
    CRASHES = 2

    #: How many tasks are kept, the newest.
    KEPT = 200

    def __init__(self, folder: Path) -> None:
        self._path = folder / "suspects.json"
        self._tasks = _load(self._path)

    def __bool__(self) -> bool:
        return bool(self._tasks)

    @property
    def open(self) -> frozenset[str]:
        """The ids of the suspected tasks that are not poison (yet)."""
        return frozenset(task_id for task_id in self._tasks if not self.is_poison(task_id))

    def record_crash(self, entries: Iterable[Entry]) -> None:
        """Count one crash for each task that was running at it."""
        for entry in entries:
            before = self._tasks.pop(entry.id, {})
            crashes = int(before.get("deaths", 0)) + 1
            self._tasks[entry.id] = {"task": entry.task, "deaths": crashes, "kib": entry.kib, "at": time.time()}
        self._save()

    def clear(self, task_id: str) -> None:
        """Drop a task that ended without a crash."""
        if self._tasks.pop(task_id, None) is not None:
            self._save()

    def expire(self) -> None:
        """Drop the suspects that are not poison: another worker has received them and survived."""
        if self.open:
            self._tasks = {task_id: kept for task_id, kept in self._tasks.items() if task_id not in self.open}
            self._save()

    def is_poison(self, task_id: str) -> bool:
        """Return whether the task was running at so many crashes that it must not run again."""
        kept = self._tasks.get(task_id)
        return kept is not None and int(kept["deaths"]) >= self.CRASHES

    def poison_reason(self, task_id: str) -> str:
        """Return a sentence about a poison task, for its dead letter. Raises KeyError for an unknown task."""
        kept = self._tasks[task_id]
        return (
            f"{kept['task']}[{task_id}] was running each of the {kept['deaths']} times this worker was killed without "
            f"warning, last alone and with {int(kept['kib']) // 1024} MiB at the last check; it is buried, not run "
            "again."
        )

    def _save(self) -> None:
        self._tasks = dict(list(self._tasks.items())[-self.KEPT :])
        new = self._path.with_suffix(".new")
        with suppress(OSError):
            new.write_text(json.dumps(self._tasks))
            new.replace(self._path)


def _load(path: Path) -> dict[str, dict[str, float | str]]:
    """Return what an earlier worker wrote; a torn or foreign file counts as empty."""
    try:
        tasks = json.loads(path.read_text())
        return {
            task_id: {"task": one["task"], "deaths": int(one["deaths"]), "kib": int(one["kib"]), "at": one["at"]}
            for task_id, one in tasks.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
