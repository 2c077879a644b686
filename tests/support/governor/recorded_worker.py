"""A governor on a scripted machine, pool and consumer that record every call."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ami.governor.crash_log import RunLog
from ami.governor.governor import Governor
from ami.governor.reclaim import Child
from ami.governor.sample import Sample
from ami.governor.settings import GovernorSettings
from tests.support.governor.decision_inputs import sample

MIB = 1024
FULL, ROOM = sample(95), sample(40)
SETTINGS = GovernorSettings(memory_min_hold_seconds=0, memory_max_hold_seconds=300)


class Machine:
    """A machine with the sample that a test sets."""

    def __init__(self) -> None:
        self.cgroup: Any = None
        self.now = ROOM

    def read(self) -> Sample:
        return self.now


class PoolAdapter:
    """A pool of four places that records what is done to it."""

    checks_between_tasks, has_children, has_cooldown, default_task_kib = False, True, False, 64 * MIB
    multiplier, places, growth, running, unstarted, baseline_kib, soft_kib, hard_kib = 1, 4, 0, 0, 0, 0, 0, 0

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.done: list[tuple[Any, ...]] = []
        self.later: list[Callable[[], Any]] = []
        self.everyone: list[Child] = []
        self.own = 0

    def call_later(self, _: float, function: Callable[..., Any], *args: Any) -> None:
        self.later.append(lambda: function(*args))

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.everyone]

    def children(self) -> list[Child]:
        return self.everyone

    def running_children(self) -> list[Child]:
        return [child for child in self.everyone if child.task]

    def own_kib(self) -> int:
        return self.own

    def recycle(self, pid: int, why: str) -> None:
        self.done.append(("recycle", pid, why))

    def interrupt(self, pid: int) -> bool:
        self.done.append(("interrupt", pid))
        return True

    def end(self, pid: int, task: str, kib: int) -> bool:
        self.done.append(("end", pid, task, kib))
        return True

    def settled(self) -> None:
        self.done.append(("settled",))

    def measure_baseline(self) -> None:
        """Keep the baseline that the test has set."""

    def counts(self) -> dict[str, int]:
        return {"held": 2}


class Consumer:
    """A consumer that records each adjustment."""

    def __init__(self) -> None:
        self.slots = -1
        self.adjusted: list[int] = []
        self.reasons: list[str] = []
        self.multiplier = 0

    def manage(self, multiplier: int, call_soon: Any, settled: Callable[[Any], None], refuses: Any) -> None:
        self.multiplier, self.settled, self.refuses = multiplier, settled, refuses

    def adjust(self) -> None:
        self.adjusted.append(self.slots)

    adjust_soon = adjust

    def give_up(self, message: Any, error: Exception) -> None:
        self.reasons.append(str(error))
        message.reject(requeue=False)


class World:
    """A governor with its machine, pool, consumer and clock."""

    def __init__(
        self, settings: GovernorSettings = SETTINGS, run_log: RunLog | None = None, attach: bool = True
    ) -> None:
        self.now = 1000.0
        self.machine, self.pool, self.consumer, self.events = Machine(), PoolAdapter(), Consumer(), []
        self.paused, self.pause_error = False, None
        self.governor = Governor(settings, self.pool, run_log, self._is_paused, self.machine, lambda: self.now)
        if attach:
            self.governor.attach(self.consumer, lambda function: function(), self._event)

    def _is_paused(self) -> bool:
        if self.pause_error:
            raise self.pause_error
        return self.paused

    def _event(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields["held"], fields["dry_run"]))

    def look(self, machine: Sample) -> int:
        """Check such a machine; return the number of slots."""
        self.machine.now = machine
        self.governor.check()
        return self.consumer.slots


def message(task_id: str = "a", tag: int = 1, redelivered: bool = False) -> Any:
    made = SimpleNamespace(headers={"id": task_id}, delivery_tag=tag, delivery_info={"redelivered": redelivered})
    made.rejected = []
    made.reject = lambda requeue: made.rejected.append(requeue)
    return made
