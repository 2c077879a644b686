"""Which actions on a worker's children give memory back; pure, applied by the memory reclaimer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ami.governor.policy import MEMORY_CAUSES, Gate
from ami.governor.settings import GovernorSettings

#: A child that has grown by less is not worth recycling.
MIN_GROWTH_KIB = 16 * 1024


@dataclass(frozen=True)
class Child:
    """One child process; memory is PSS in KiB, ``fresh_kib`` what it had right after it started.

    ``task`` is the name of its running task, None while idle. ``draining``: it is being recycled, or will be after its
    task. ``interrupted``: its task was interrupted before. ``used``: it has run a task since it started.
    """

    pid: int
    pss_kib: int
    fresh_kib: int
    task: str | None
    ran_seconds: float = 0.0
    draining: bool = False
    interrupted: bool = False
    used: bool = False

    @property
    def grown_kib(self) -> int:
        """What recycling the child gives back."""
        return self.pss_kib - self.fresh_kib


@dataclass(frozen=True)
class ReclaimAction:
    """One action on one child. ``kind``: recycle-idle, recycle-after, interrupt-busy or end."""

    kind: str
    pid: int
    reason: str


def is_worth(child: Child) -> bool:
    """Return whether recycling the child gives memory back, or is under way."""
    return child.draining or child.grown_kib > MIN_GROWTH_KIB


def reclaim_actions(
    settings: GovernorSettings, gate: Gate, children: Sequence[Child], min_growth_kib: int = MIN_GROWTH_KIB
) -> list[ReclaimAction]:
    """Return what gives memory back now, largest child first; empty unless RAM, swap, pressure or the GPU hold.

    All idle children that grew by more than ``min_growth_kib`` are recycled: no slot is needed while held. Busy ones
    are marked once and recycled after their task. If MEMORY_INTERRUPT_BUSY allows it and no grown idle or draining
    child is left, the largest busy one is interrupted: one at a time, after the minimum hold. The GPU memory of one
    child is unknown: while the GPU holds, every idle child that was used is recycled.
    """
    if "gpu" in gate.causes and not gate.causes & MEMORY_CAUSES:
        used = [child for child in _largest_first(children) if child.used and child.task is None and not child.draining]
        return [_recycle(child, "it may keep memory of the GPU") for child in used]
    if not gate.causes & MEMORY_CAUSES:
        return []
    grown = _largest_first(child for child in children if child.grown_kib > min_growth_kib)
    actions = [_recycle(child, f"it grew by {child.grown_kib // 1024} MiB") for child in grown if not child.draining]
    if settings.memory_interrupt_busy and _held_seconds(gate) >= settings.memory_min_hold_seconds:
        actions += _interrupt(grown)
    return actions


def over_limit(children: Sequence[Child], soft_kib: int, hard_kib: int) -> list[ReclaimAction]:
    """Return the actions on children above their own limits (0: no limit), held or not, largest first.

    A child above the soft limit is recycled: at once if idle, else after its task. A busy one above the hard limit is
    ended, and its task fails. A child that has hardly grown is left alone: a fresh one would be as large, and recycling
    would never end.
    """
    actions = []
    for child in _largest_first(children):
        if child.task is not None and 0 < hard_kib < child.pss_kib and child.grown_kib > MIN_GROWTH_KIB:
            reason = f"{_described(child)} has {child.pss_kib} KiB; the limit is {hard_kib}"
            actions.append(ReclaimAction("end", child.pid, reason))
        elif 0 < soft_kib < child.pss_kib and child.grown_kib > 0 and not child.draining:
            actions.append(_recycle(child, f"it has {child.pss_kib} KiB; the limit is {soft_kib}"))
    return actions


def _recycle(child: Child, why: str) -> ReclaimAction:
    kind = "recycle-idle" if child.task is None else "recycle-after"
    return ReclaimAction(kind, child.pid, f"{_described(child)}: {why}")


def _interrupt(grown: Sequence[Child]) -> list[ReclaimAction]:
    """Return the one interruption that is due; ``grown`` are the children worth it, largest first."""
    idle_left = any(child.task is None for child in grown)
    busy = [child for child in grown if child.task is not None]
    if idle_left or not busy or any(child.interrupted for child in busy):
        return []
    largest = busy[0]
    why = f"grew by {largest.grown_kib // 1024} MiB in {largest.ran_seconds:.0f} s and no idle child is left to recycle"
    return [ReclaimAction("interrupt-busy", largest.pid, f"{_described(largest)} {why}")]


def _held_seconds(gate: Gate) -> float:
    """Return for how long RAM, swap or pressure have held at the gate's last check."""
    since = [trigger.since for trigger in gate.triggers if trigger.cause in gate.causes & MEMORY_CAUSES]
    return gate.checked_at - min(since) if since else 0.0


def _largest_first(children: Iterable[Child]) -> list[Child]:
    return sorted(children, key=lambda child: child.pss_kib, reverse=True)


def _described(child: Child) -> str:
    return "idle child" if child.task is None else f"child that runs {child.task}"
