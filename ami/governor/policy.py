"""Decides whether a worker consumes: from the last gate and one input to the next gate, without clock, file or log."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ami.governor.metrics import Metric, format_metric, metrics, reason
from ami.governor.sample import Sample
from ami.governor.settings import GovernorSettings

#: Causes that memory released by this worker's processes can end; their GPU memory cannot be measured.
MEMORY_CAUSES = frozenset({"memory", "swap", "pressure"})
#: An exit for less is useless: a fresh parent touches about as much in its first minutes.
MIN_EXIT_KIB = 64 * 1024
SHORTEST_CHECK_SECONDS = 0.2


@dataclass(frozen=True)
class Trigger:
    """A metric that crossed its throttle threshold during the present hold; monotonic seconds.

    It stays until the whole hold ends; ``over`` is whether the metric is above its resume threshold.
    """

    cause: str
    since: float
    known_at: float
    over: bool = True


@dataclass(frozen=True)
class Gate:
    """Whether the worker takes tasks, why not, and what the next decision needs; times are monotonic seconds.

    ``causes`` are ``memory``, ``swap``, ``gpu``, ``pressure``, ``cpu``, ``paused``, ``grace``, and ``settling``: every
    metric is back, but the minimum hold is not over. ``reasons`` are sentences for an operator, with numbers.
    """

    held: bool = False
    since: float = 0.0
    reasons: tuple[str, ...] = ()
    causes: frozenset[str] = frozenset()
    #: Held, but one task is let through: nothing ran for MEMORY_MAX_HOLD_SECONDS and others hold the memory.
    admit_one: bool = False
    #: When a task that was let through last ran during this hold.
    admitted_at: float | None = None
    checked_at: float = 0.0
    triggers: tuple[Trigger, ...] = ()
    #: The minimum hold of this hold, or of the last one: it doubles while the gate flaps.
    hold_for_seconds: float = 0.0
    released_at: float | None = None
    #: When a task last ran, or the triggers began.
    idle_since: float = 0.0
    started: int = 0

    @property
    def throttled_since(self) -> float | None:
        """When the oldest metric that holds now crossed its threshold; None while no metric holds."""
        return min((trigger.since for trigger in self.triggers), default=None)


@dataclass(frozen=True)
class DecisionInput:
    """The input of one decision; times are monotonic seconds, memory is PSS in KiB.

    ``own_kib`` is the parent and its children, ``baseline_kib`` what a parent and idle fresh children need (0: not
    measured, so the worker never exits). ``can_recycle``: an idle child is worth recycling. ``started`` counts all
    tasks of this worker: it shows a task that started and ended between two checks.
    """

    sample: Sample
    now: float
    started_at: float
    paused: bool = False
    running: int = 0
    own_kib: int = 0
    baseline_kib: int = 0
    can_recycle: bool = False
    started: int = 0


def decide(settings: GovernorSettings, gate: Gate, inputs: DecisionInput) -> Gate:
    """Return the gate after one check.

    A metric holds from its throttle threshold until it is back at its resume threshold, and never for less than the
    minimum hold, which doubles while the gate flaps. An unknown metric changes nothing, until it was unknown for
    MEMORY_MAX_HOLD_SECONDS. The operator's pause holds and releases at once. While nothing runs for
    MEMORY_MAX_HOLD_SECONDS under a metric that this worker cannot bring down, one task at a time is let through.
    """
    now = inputs.now
    throttled = _throttled(settings, gate, inputs)
    waits = _waits(settings, inputs)
    over = frozenset(trigger.cause for trigger in throttled.triggers if trigger.over)
    settling = frozenset({"settling"} if throttled.triggers and not over else ())
    held = bool(waits or throttled.triggers)
    after = replace(
        throttled,
        held=held,
        since=now if held != gate.held else gate.since,
        reasons=(*waits.values(), *_measured_reasons(settings, throttled, inputs)),
        causes=over | settling | frozenset(waits),
        checked_at=now,
    )
    stuck = not waits and _idle_seconds(after, now) >= settings.memory_max_hold_seconds
    return replace(after, admit_one=stuck and not own_memory_is_the_reason(settings, after, inputs))


def own_memory_is_the_reason(settings: GovernorSettings, gate: Gate, inputs: DecisionInput) -> bool:
    """Return whether this worker holds for memory that the end of its own processes would release.

    A restart releases only ``own_kib - baseline_kib``: a worker whose fresh processes are too large for the container
    never restarts in a loop. That memory is the reason if it exceeds 64 MiB and RAM would be at its resume threshold
    without it, or if it alone is half of the limit (which also decides when swap or pressure hold while RAM is below
    its threshold, and does not show the cause). Unknown metrics are not a reason.
    """
    sample, excess_kib = inputs.sample, inputs.own_kib - inputs.baseline_kib
    if not gate.causes & MEMORY_CAUSES or inputs.baseline_kib <= 0 or excess_kib <= MIN_EXIT_KIB:
        return False
    memory = sample.memory_percent
    if memory is None or not sample.memory_limit_bytes:
        return False
    excess = 100 * excess_kib * 1024 / sample.memory_limit_bytes
    return excess >= 50 or memory > settings.memory_resume_threshold >= memory - excess


def must_exit(settings: GovernorSettings, gate: Gate, inputs: DecisionInput) -> str | None:
    """Return why the worker must exit for a restart, or None; ``gate`` is the one of this check.

    Only with nothing running, nothing left to recycle, no pause, and own memory as the reason, for the minimum hold
    and two checks (memory of a process that just ended is still being freed). A child that cannot be recycled within
    MEMORY_MAX_HOLD_SECONDS does not prevent the exit.
    """
    if inputs.running > 0 or inputs.paused or not own_memory_is_the_reason(settings, gate, inputs):
        return None
    idle = _idle_seconds(gate, inputs.now)
    patience = max(settings.memory_min_hold_seconds, 2 * settings.memory_check_interval)
    if idle < min(patience, settings.memory_max_hold_seconds):
        return None
    if inputs.can_recycle and idle < settings.memory_max_hold_seconds:
        return None
    mine, needed = inputs.own_kib // 1024, inputs.baseline_kib // 1024
    return (
        f"Nothing runs and nothing is left to recycle, and this worker's own processes hold {mine} MiB where fresh "
        f"ones need {needed} MiB: {'; '.join(gate.reasons)}. It exits for its supervisor to restart it."
    )


def next_check_seconds(
    settings: GovernorSettings, previous: Sample | None, current: Sample, elapsed_seconds: float
) -> float:
    """Return the seconds until the next check: sooner if RAM would cross its threshold before."""
    normal = settings.memory_check_interval
    before, now = previous.memory_percent if previous else None, current.memory_percent
    if before is None or now is None or elapsed_seconds <= 0:
        return normal
    growth, left = now - before, settings.memory_throttle_threshold - now
    if growth <= 0 or left <= 0 or left * elapsed_seconds >= normal * growth:
        return normal
    return max(SHORTEST_CHECK_SECONDS, left * elapsed_seconds / growth)


def seconds_to_release(settings: GovernorSettings, gate: Gate, inputs: DecisionInput) -> float | None:
    """Return the seconds until the grace period or the minimum hold ends; None where time alone releases nothing."""
    left = [settings.master_grace_period_seconds - (inputs.now - inputs.started_at)]
    if gate.throttled_since is not None and _all_back(gate.triggers, inputs.now):
        left.append(gate.throttled_since + gate.hold_for_seconds - inputs.now)
    return min((seconds for seconds in left if seconds > 0), default=None)


def announce(before: Gate, after: Gate, sample: Sample) -> str | None:
    """Return the log line of a change, in the style of the governor's specification, or None."""
    lines = _announced_waits(before, after)
    was, now = _cause_names(before.triggers), _cause_names(after.triggers)
    why, kind = "; ".join(after.reasons), "CPU" if was | now == {"cpu"} else "MEMORY"
    if now and not was:
        lines.append(f"🚨 {kind} THROTTLE ACTIVE: {why}")
    elif was and not now:
        held_for = after.checked_at - min(trigger.since for trigger in before.triggers)
        shown = ("cpu",) if kind == "CPU" else ("memory", *sorted(was - {"memory"}))
        now_at = ", ".join(format_metric(cause, sample) for cause in shown)
        lines.append(f"✅ {kind} THROTTLE RELEASED: {now_at} after {held_for:.0f} s")
    elif was != now:
        lines.append(f"🚨 MEMORY THROTTLE CHANGED: {why}")
    if after.admit_one and not before.admit_one:
        idle = after.checked_at - after.idle_since
        lines.append(f"🚪 {kind} THROTTLE: nothing ran for {idle:.0f} s, so one task is let through: {why}")
    return " | ".join(lines) or None


def _throttled(settings: GovernorSettings, gate: Gate, inputs: DecisionInput) -> Gate:
    """Return the gate with triggers, minimum hold and idle clock updated by this check."""
    now, was = inputs.now, {trigger.cause: trigger for trigger in gate.triggers}
    pairs = [(metric, was.get(metric.cause)) for metric in metrics(settings, inputs.sample)]
    found = [_trigger(settings, metric, before, now) for metric, before in pairs]
    triggers = tuple(trigger for trigger in found if trigger)
    hold_for = gate.hold_for_seconds if gate.triggers else _hold_for_seconds(settings, gate, now)
    if triggers and _all_back(triggers, now) and now - min(trigger.since for trigger in triggers) >= hold_for:
        triggers = ()
    ran = inputs.running > 0 or inputs.started != gate.started
    return replace(
        gate,
        triggers=triggers,
        hold_for_seconds=hold_for if triggers else gate.hold_for_seconds,
        released_at=now if gate.triggers and not triggers else gate.released_at,
        idle_since=now if ran or not gate.triggers else gate.idle_since,
        admitted_at=(now if ran and gate.admit_one else gate.admitted_at) if triggers else None,
        started=inputs.started,
    )


def _all_back(triggers: Sequence[Trigger], now: float) -> bool:
    """Return whether every metric that triggered is known at this check and back at its resume threshold."""
    return all(trigger.known_at == now and not trigger.over for trigger in triggers)


def _trigger(settings: GovernorSettings, metric: Metric, before: Trigger | None, now: float) -> Trigger | None:
    if before is None:
        return Trigger(metric.cause, since=now, known_at=now) if metric.crossed else None
    if metric.percent is None:
        return None if now - before.known_at >= settings.memory_max_hold_seconds else before
    return replace(before, known_at=now, over=metric.over)


def _hold_for_seconds(settings: GovernorSettings, gate: Gate, now: float) -> float:
    """Return the minimum of a hold that begins now: twice the last one's if that was just released."""
    minimum = settings.memory_min_hold_seconds
    if gate.released_at is None or now - gate.released_at > 2 * minimum:
        return minimum
    return min(2 * gate.hold_for_seconds, settings.memory_max_hold_seconds)


def _waits(settings: GovernorSettings, inputs: DecisionInput) -> dict[str, str]:
    """Return what holds independently of the metrics, cause to reason."""
    waits = {"paused": "paused by the operator"} if inputs.paused else {}
    left = inputs.started_at + settings.master_grace_period_seconds - inputs.now
    if left > 0:
        grace = settings.master_grace_period_seconds
        waits["grace"] = f"just started: takes its first task in {math.ceil(left)} s (grace period {grace:g} s)"
    return waits


def _measured_reasons(settings: GovernorSettings, gate: Gate, inputs: DecisionInput) -> list[str]:
    triggered, since = _cause_names(gate.triggers), gate.throttled_since
    watched = metrics(settings, inputs.sample)
    reasons = [reason(metric, inputs.sample) for metric in watched if metric.cause in triggered]
    if since is not None and _all_back(gate.triggers, inputs.now):
        left = math.ceil(max(0.0, since + gate.hold_for_seconds - inputs.now))
        reasons.append(f"back, but held for at least {gate.hold_for_seconds:g} s ({left} s left)")
    return reasons


def _idle_seconds(gate: Gate, now: float) -> float:
    """Return for how long metrics have held while nothing ran."""
    return now - gate.idle_since if gate.triggers else 0.0


def _announced_waits(before: Gate, after: Gate) -> list[str]:
    why, begun, ended = "; ".join(after.reasons), after.causes - before.causes, before.causes - after.causes
    still = f"; still held: {why}" if after.held else ""
    lines = {
        "⏸️ PAUSED by the operator": "paused" in begun,
        f"▶️ PAUSE ENDED by the operator{still}": "paused" in ended,
        f"⏳ GRACE PERIOD: {why}": "grace" in begun,
        f"▶️ GRACE PERIOD OVER{still}": "grace" in ended,
    }
    return [line for line, applies in lines.items() if applies]


def _cause_names(triggers: Sequence[Trigger]) -> frozenset[str]:
    return frozenset(trigger.cause for trigger in triggers)
