"""Finds the task that crashes its worker: suspects run one at a time, and a second crash makes a task poison."""

from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from ami.governor.crash_log import RunLog
from ami.governor.errors import PoisonTask
from ami.governor.suspects import Suspects

logger = get_logger(__name__)


class PoisonTaskDetector:
    """One per worker. Without a run log no task is suspected; ``acts`` False (dry-run) only logs the crash."""

    def __init__(self, run_log: RunLog | None, acts: bool) -> None:
        self._acts = acts
        self._suspects = Suspects(run_log.folder) if run_log else None
        #: The ids of the suspects that this worker has received, by delivery tag.
        self._received: dict[Any, str] = {}
        if run_log is None or self._suspects is None:
            return
        running = run_log.tasks_running_at_crash()
        if acts:  # A dry run starts several tasks at once, so that no single one can be identified.
            self._suspects.record_crash(running)
        for entry in running:
            logger.critical(
                "Previous worker was killed without warning while running %s[%s] (%s MiB at the last check)",
                entry.task,
                entry.id,
                entry.kib // 1024,
                extra={"task": entry.task, "task_id": entry.id},
            )

    @property
    def open(self) -> frozenset[str]:
        """The ids of the suspected tasks."""
        return self._suspects.open if self._suspects else frozenset()

    def reconnected(self) -> None:
        """Forget what the lost connection had delivered."""
        self._received.clear()

    def reject_poison(self, message: Any, reject: Callable[[Any, Exception], Any]) -> bool:
        """Pass a poison task to ``reject`` and return True; return False for any other message."""
        if not self._suspects:
            return False
        task_id = (message.headers or {}).get("id", "")
        if not (self._acts and self._suspects.is_poison(task_id)):
            if self.open:
                self._received[message.delivery_tag] = task_id
            return False
        reason = self._suspects.poison_reason(task_id)
        logger.critical(reason, extra={"task_id": task_id})
        reject(message, PoisonTask(reason))
        self._suspects.clear(task_id)  # A replayed dead letter starts with a clean record.
        return True

    def task_ended(self, delivery_tag: Any) -> bool:
        """Clear a suspect that ended without a crash; return whether the task was one."""
        if not self._received or self._suspects is None:
            return False
        task_id = self._received.pop(delivery_tag, "")
        if task_id not in self.open:
            return False
        self._suspects.clear(task_id)
        return True

    def expire(self) -> None:
        """Drop the suspects that were not redelivered here: another worker has received them and survived."""
        if self._suspects and not self.open & set(self._received.values()):
            self._suspects.expire()
