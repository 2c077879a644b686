"""What to do about a worker's children so that memory comes back: a list of steps, taken by others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ami.governor.policy import MEMORY_CAUSES, Gate
from ami.governor.settings import GovernorSettings

#: What a child must have grown by before a fresh one in its place gives anything back.
WORTH_KIB = 16 * 1024


@dataclass(frozen=True)
class Child:
    """One child process; memory is PSS in KiB, ``fresh_kib`` what it had right after it started.

    ``task`` is the name of what it runs, None while idle. ``leaving``: it is already being recycled, or will be after
    its task. ``interrupted``: its task was already told to stop. ``used``: it has run a task since it started.
    """

    pid: int
    pss_kib: int
    fresh_kib: int
    task: str | None
    ran_seconds: float = 0.0
    leaving: bool = False
    interrupted: bool = False
    used: bool = False

    @property
    def grown_kib(self) -> int:
        """What recycling it would give back."""
        return self.pss_kib - self.fresh_kib


@dataclass(frozen=True)
class Step:
    """One thing to do to one child. ``rung``: recycle-idle, recycle-after, interrupt-busy or end."""

    rung: str
    pid: int
    reason: str


def steps(settings: GovernorSettings, gate: Gate, children: Sequence[Child], worth_kib: int = WORTH_KIB) -> list[Step]:
    """Return what gives memory back now, fattest child first; empty unless RAM, swap, pressure or the GPU hold.

    Idle children that grew by more than ``worth_kib`` are recycled, all of them: no slot is needed while held. Busy
    ones are marked once, to be recycled after their task. If MEMORY_INTERRUPT_BUSY allows it and no grown idle child
    is left, not even one on its way out, the fattest busy one is interrupted: one at a time, after the minimum hold.
    How much of the GPU a child keeps nobody tells, so while that holds every idle child that was used is recycled.
    """
    if "gpu" in gate.causes and not gate.causes & MEMORY_CAUSES:
        used = [child for child in _fattest_first(children) if child.used and child.task is None and not child.leaving]
        return [_recycle(child, "it may keep memory of the GPU") for child in used]
    if not gate.causes & MEMORY_CAUSES:
        return []
    grown = _fattest_first(child for child in children if child.grown_kib > worth_kib)
    taken = [_recycle(child, f"it grew by {child.grown_kib // 1024} MiB") for child in grown if not child.leaving]
    if settings.memory_interrupt_busy and _held_seconds(gate) >= settings.memory_min_hold_seconds:
        taken += _interrupt(grown)
    return taken


def over_limit(children: Sequence[Child], soft_kib: int, hard_kib: int) -> list[Step]:
    """Return what to do about children above their own limits (0: none), held or not, fattest first.

    Above the soft limit a child is recycled: at once if idle, else after its task. A busy one above the hard limit is
    ended, which fails its task. A child that is hardly bigger than it was born is left alone: a fresh one would be as
    big, recycling it would never end, and no task would ever pass.
    """
    taken = []
    for child in _fattest_first(children):
        if child.task is not None and 0 < hard_kib < child.pss_kib and child.grown_kib > WORTH_KIB:
            taken.append(Step("end", child.pid, f"{_doing(child)} has {child.pss_kib} KiB; the limit is {hard_kib}"))
        elif 0 < soft_kib < child.pss_kib and child.grown_kib > 0 and not child.leaving:
            taken.append(_recycle(child, f"it has {child.pss_kib} KiB; the limit is {soft_kib}"))
    return taken


def _recycle(child: Child, why: str) -> Step:
    rung = "recycle-idle" if child.task is None else "recycle-after"
    return Step(rung, child.pid, f"{_doing(child)}: {why}")


def _interrupt(grown: Sequence[Child]) -> list[Step]:
    """Return the one interruption that is due; ``grown`` are the children worth it, fattest first."""
    idle_left = any(child.task is None for child in grown)
    busy = [child for child in grown if child.task is not None]
    if idle_left or not busy or any(child.interrupted for child in busy):
        return []
    fattest = busy[0]
    why = f"grew by {fattest.grown_kib // 1024} MiB in {fattest.ran_seconds:.0f} s and no idle child is left to recycle"
    return [Step("interrupt-busy", fattest.pid, f"{_doing(fattest)} {why}")]


def _held_seconds(gate: Gate) -> float:
    """Return for how long RAM, swap or pressure have held at the gate's last look."""
    since = [trigger.since for trigger in gate.triggers if trigger.cause in gate.causes & MEMORY_CAUSES]
    return gate.looked_at - min(since) if since else 0.0


def _fattest_first(children: Iterable[Child]) -> list[Child]:
    return sorted(children, key=lambda child: child.pss_kib, reverse=True)


def _doing(child: Child) -> str:
    return "idle child" if child.task is None else f"child that runs {child.task}"
