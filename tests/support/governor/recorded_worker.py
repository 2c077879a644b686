"""A governor, and a machine, a pool and a consumer that do what a test says and write down what is done to them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ami.governor.crash_log import Board
from ami.governor.governor import Governor
from ami.governor.reclaim import Child
from ami.governor.sample import Reading
from ami.governor.settings import GovernorSettings
from tests.support.governor.decision_inputs import reading

MIB = 1024
FULL, ROOM = reading(95), reading(40)
SETTINGS = GovernorSettings(memory_min_hold_seconds=0, memory_max_hold_seconds=300)


class Machine:
    """Reads what it is told to."""

    def __init__(self) -> None:
        self.cgroup: Any = None
        self.now = ROOM

    def read(self) -> Reading:
        return self.now


class Crew:
    """A pool of four places that writes down what is done to it."""

    looks_between_tasks, has_children, rests, default_task_kib = False, True, False, 64 * MIB
    multiplier, places, running, unstarted, baseline_kib, soft_kib, hard_kib = 1, 4, 0, 0, 0, 0, 0

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
        """It is as the test says."""

    def counts(self) -> dict[str, int]:
        return {"held": 2}


class Consumer:
    """A consumer that remembers when it was made to adjust, and to how many slots."""

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
    """A governor and all that it looks at."""

    def __init__(self, settings: GovernorSettings = SETTINGS, board: Board | None = None, attach: bool = True) -> None:
        self.machine, self.crew, self.consumer, self.events = Machine(), Crew(), Consumer(), []
        self.paused = False
        self.governor = Governor(settings, self.crew, board, lambda: self.paused, self.machine)
        if attach:
            self.governor.attach(self.consumer, lambda function: function(), self._event)

    def _event(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields["held"], fields["dry_run"]))

    def look(self, machine: Reading) -> int:
        """Look at such a machine; return how many slots there are then."""
        self.machine.now = machine
        self.governor.look()
        return self.consumer.slots


def message(task_id: str = "a", tag: int = 1, redelivered: bool = False) -> Any:
    made = SimpleNamespace(headers={"id": task_id}, delivery_tag=tag, delivery_info={"redelivered": redelivered})
    made.rejected = []
    made.reject = lambda requeue: made.rejected.append(requeue)
    return made
