"""Whether a worker takes work: from the last gate and one situation to the next gate, without clock, file or log."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ami.governor.metrics import Figure, figures, reason, shown
from ami.governor.sample import Reading
from ami.governor.settings import GovernorSettings

#: Causes that memory given back by this worker's processes can end; GPU memory is not theirs to measure.
MEMORY_CAUSES = frozenset({"memory", "swap", "pressure"})
#: Below this an exit buys nothing: what a fresh parent touches in its first minutes is about as much.
WORTH_AN_EXIT_KIB = 64 * 1024
SHORTEST_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Trigger:
    """A figure that crossed its throttle threshold during the present hold; monotonic seconds.

    It stays until the whole hold ends: back at its resume threshold it is no longer ``over``, and above it again it is.
    """

    cause: str
    since: float
    known_at: float
    over: bool = True


@dataclass(frozen=True)
class Gate:
    """Whether the worker takes tasks, why not, and what the next decision needs; times are monotonic seconds.

    ``causes`` are ``memory``, ``swap``, ``gpu``, ``pressure``, ``paused``, ``grace``, and ``settling``: every figure is
    back, the minimum hold is not over. ``reasons`` say the same in an operator's words, with numbers.
    """

    held: bool = False
    since: float = 0.0
    reasons: tuple[str, ...] = ()
    causes: frozenset[str] = frozenset()
    #: Held, but one task is let through: nothing ran for MEMORY_MAX_HOLD_SECONDS and others hold the memory.
    admit_one: bool = False
    #: When a task that was let through was last seen to run during this hold.
    admitted_at: float | None = None
    looked_at: float = 0.0
    triggers: tuple[Trigger, ...] = ()
    #: The minimum hold of this hold, or of the last one: it doubles while the gate flaps.
    hold_for_seconds: float = 0.0
    released_at: float | None = None
    #: When a task was last seen to run, or the triggers began.
    idle_since: float = 0.0
    started: int = 0

    @property
    def throttled_since(self) -> float | None:
        """When the oldest figure that holds now crossed its threshold; None while only people or nothing holds."""
        return min((trigger.since for trigger in self.triggers), default=None)


@dataclass(frozen=True)
class Situation:
    """What a decision is made from; times are monotonic seconds, memory is PSS in KiB.

    ``own_kib`` is the parent and its children, ``baseline_kib`` what a parent and idle fresh children need anyway (0:
    not measured, so nobody exits). ``can_recycle`` says that an idle child worth recycling exists. ``started`` counts
    all tasks of this worker: it shows the task that came and went between two looks.
    """

    reading: Reading
    now: float
    started_at: float
    paused: bool = False
    running: int = 0
    own_kib: int = 0
    baseline_kib: int = 0
    can_recycle: bool = False
    started: int = 0


def decide(settings: GovernorSettings, gate: Gate, situation: Situation) -> Gate:
    """Return the gate after one look.

    A figure holds from its throttle threshold until it is back at its resume threshold, and never for less than the
    minimum hold, which doubles while the gate flaps. An unknown figure changes nothing, until it was unknown for
    MEMORY_MAX_HOLD_SECONDS. The operator's pause holds and releases at once. While nothing runs for
    MEMORY_MAX_HOLD_SECONDS under a figure that this worker cannot bring down, one task at a time is let through.
    """
    now = situation.now
    throttled = _throttled(settings, gate, situation)
    waits = _waits(settings, situation)
    over = frozenset(trigger.cause for trigger in throttled.triggers if trigger.over)
    settling = frozenset({"settling"} if throttled.triggers and not over else ())
    held = bool(waits or throttled.triggers)
    after = replace(
        throttled,
        held=held,
        since=now if held != gate.held else gate.since,
        reasons=(*waits.values(), *_measured_reasons(settings, throttled, situation)),
        causes=over | settling | frozenset(waits),
        looked_at=now,
    )
    stuck = not waits and _idle_seconds(after, now) >= settings.memory_max_hold_seconds
    return replace(after, admit_one=stuck and not own_memory_is_the_reason(settings, after, situation))


def own_memory_is_the_reason(settings: GovernorSettings, gate: Gate, situation: Situation) -> bool:
    """Return whether this worker holds for memory that ending its own processes would give back.

    What a restart gives back is ``own_kib - baseline_kib``, and nothing else: so a worker whose fresh processes are too
    big for the container never restarts in a loop. It is the reason if it is more than 64 MiB and RAM would be at its
    resume threshold without it, or if it is half of the limit by itself (which also decides when swap or pressure
    hold while RAM is below its threshold: there RAM cannot tell whose fault it is). Unknown figures are no reason.
    """
    reading, excess_kib = situation.reading, situation.own_kib - situation.baseline_kib
    if not gate.causes & MEMORY_CAUSES or situation.baseline_kib <= 0 or excess_kib <= WORTH_AN_EXIT_KIB:
        return False
    memory = reading.memory_percent
    if memory is None or not reading.memory_limit_bytes:
        return False
    excess = 100 * excess_kib * 1024 / reading.memory_limit_bytes
    return excess >= 50 or memory > settings.memory_resume_threshold >= memory - excess


def must_exit(settings: GovernorSettings, gate: Gate, situation: Situation) -> str | None:
    """Return why the worker has to end for its supervisor to start it anew, or None; ``gate`` is this look's.

    Only with nothing running, nothing left to recycle, no pause, and own memory as the reason, for the minimum hold
    and two looks (what ended a moment ago is still being given back). A child that cannot be recycled in
    MEMORY_MAX_HOLD_SECONDS stops nobody.
    """
    if situation.running > 0 or situation.paused or not own_memory_is_the_reason(settings, gate, situation):
        return None
    idle = _idle_seconds(gate, situation.now)
    patience = max(settings.memory_min_hold_seconds, 2 * settings.memory_check_interval)
    if idle < min(patience, settings.memory_max_hold_seconds):
        return None
    if situation.can_recycle and idle < settings.memory_max_hold_seconds:
        return None
    mine, needed = situation.own_kib // 1024, situation.baseline_kib // 1024
    return (
        f"Nothing runs and nothing is left to recycle, and this worker's own processes hold {mine} MiB where fresh "
        f"ones need {needed} MiB: {'; '.join(gate.reasons)}. It ends, so that its supervisor starts it anew."
    )


def next_look_seconds(
    settings: GovernorSettings, previous: Reading | None, current: Reading, elapsed_seconds: float
) -> float:
    """Return how long to wait for the next look: sooner if RAM, growing as it does, would cross its threshold first."""
    normal = settings.memory_check_interval
    before, now = previous.memory_percent if previous else None, current.memory_percent
    if before is None or now is None or elapsed_seconds <= 0:
        return normal
    growth, left = now - before, settings.memory_throttle_threshold - now
    if growth <= 0 or left <= 0 or left * elapsed_seconds >= normal * growth:
        return normal
    return max(SHORTEST_LOOK_SECONDS, left * elapsed_seconds / growth)


def announce(before: Gate, after: Gate, reading: Reading) -> str | None:
    """Return the log line of a change, in the manner of the document the governor grew out of, or None."""
    lines = _announced_waits(before, after)
    was, now = _cause_names(before.triggers), _cause_names(after.triggers)
    why = "; ".join(after.reasons)
    if now and not was:
        lines.append(f"🚨 MEMORY THROTTLE ACTIVE: {why}")
    elif was and not now:
        held_for = after.looked_at - min(trigger.since for trigger in before.triggers)
        now_at = ", ".join(shown(cause, reading) for cause in ("memory", *sorted(was - {"memory"})))
        lines.append(f"✅ MEMORY THROTTLE RELEASED: {now_at} after {held_for:.0f} s")
    elif was != now:
        lines.append(f"🚨 MEMORY THROTTLE CHANGED: {why}")
    if after.admit_one and not before.admit_one:
        idle = after.looked_at - after.idle_since
        lines.append(f"🚪 MEMORY THROTTLE: nothing ran for {idle:.0f} s, so one task is let through: {why}")
    return " | ".join(lines) or None


def _throttled(settings: GovernorSettings, gate: Gate, situation: Situation) -> Gate:
    """Return the gate with its triggers, its minimum hold and its idle clock brought up to this look."""
    now, was = situation.now, {trigger.cause: trigger for trigger in gate.triggers}
    pairs = [(figure, was.get(figure.cause)) for figure in figures(settings, situation.reading)]
    found = [_trigger(settings, figure, before, now) for figure, before in pairs]
    triggers = tuple(trigger for trigger in found if trigger)
    hold_for = gate.hold_for_seconds if gate.triggers else _hold_for_seconds(settings, gate, now)
    if triggers and _all_back(triggers, now) and now - min(trigger.since for trigger in triggers) >= hold_for:
        triggers = ()
    ran = situation.running > 0 or situation.started != gate.started
    return replace(
        gate,
        triggers=triggers,
        hold_for_seconds=hold_for if triggers else gate.hold_for_seconds,
        released_at=now if gate.triggers and not triggers else gate.released_at,
        idle_since=now if ran or not gate.triggers else gate.idle_since,
        admitted_at=(now if ran and gate.admit_one else gate.admitted_at) if triggers else None,
        started=situation.started,
    )


def _all_back(triggers: Sequence[Trigger], now: float) -> bool:
    """Return whether every figure that triggered is known at this look and back at its resume threshold."""
    return all(trigger.known_at == now and not trigger.over for trigger in triggers)


def _trigger(settings: GovernorSettings, figure: Figure, before: Trigger | None, now: float) -> Trigger | None:
    if before is None:
        return Trigger(figure.cause, since=now, known_at=now) if figure.crossed else None
    if figure.percent is None:
        return None if now - before.known_at >= settings.memory_max_hold_seconds else before
    return replace(before, known_at=now, over=figure.over)


def _hold_for_seconds(settings: GovernorSettings, gate: Gate, now: float) -> float:
    """Return the minimum of a hold that begins now: twice the last one's if that was released a moment ago."""
    minimum = settings.memory_min_hold_seconds
    if gate.released_at is None or now - gate.released_at > 2 * minimum:
        return minimum
    return min(2 * gate.hold_for_seconds, settings.memory_max_hold_seconds)


def _waits(settings: GovernorSettings, situation: Situation) -> dict[str, str]:
    """Return what holds whatever the figures say, cause to reason."""
    waits = {"paused": "paused by the operator"} if situation.paused else {}
    left = situation.started_at + settings.master_grace_period_seconds - situation.now
    if left > 0:
        grace = settings.master_grace_period_seconds
        waits["grace"] = f"just started: takes its first task in {math.ceil(left)} s (grace period {grace:g} s)"
    return waits


def _measured_reasons(settings: GovernorSettings, gate: Gate, situation: Situation) -> list[str]:
    triggered, since = _cause_names(gate.triggers), gate.throttled_since
    watched = figures(settings, situation.reading)
    reasons = [reason(figure, situation.reading) for figure in watched if figure.cause in triggered]
    if since is not None and _all_back(gate.triggers, situation.now):
        left = math.ceil(max(0.0, since + gate.hold_for_seconds - situation.now))
        reasons.append(f"back, but held for at least {gate.hold_for_seconds:g} s ({left} s left)")
    return reasons


def _idle_seconds(gate: Gate, now: float) -> float:
    """Return for how long figures have held while nothing ran."""
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
    return [line for line, said in lines.items() if said]


def _cause_names(triggers: Sequence[Trigger]) -> frozenset[str]:
    return frozenset(trigger.cause for trigger in triggers)
