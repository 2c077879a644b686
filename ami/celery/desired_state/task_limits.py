"""Keeps the limits that the tasks had when the worker started; a command may have changed them."""

from typing import Any

NAMES = ("soft_time_limit", "time_limit", "rate_limit")


class TaskLimits:
    """The limits of every task of an application, as they were when this was made."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._limits = {name: self._of(task) for name, task in app.tasks.items()}

    def restore(self, consumer: Any) -> list[str]:
        """Give every task its limits back; return the names of those that had others."""
        changed = [
            name for name, task in self._app.tasks.items() if self._limits.get(name, self._of(task)) != self._of(task)
        ]
        for name in changed:
            for attribute, value in zip(NAMES, self._limits[name], strict=True):
                setattr(self._app.tasks[name], attribute, value)
        if changed and consumer is not None:
            consumer.reset_rate_limits()
        return changed

    @staticmethod
    def _of(task: Any) -> tuple[Any, ...]:
        return tuple(getattr(task, name, None) for name in NAMES)
