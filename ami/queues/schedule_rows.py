"""Beat's schedule as an operator sees it: each entry's last tick, its next one, and whether it is late."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from ami.celery.origin import BEAT
from ami.celery.tick_claims import NONE
from ami.queues import failures
from ami.queues.due import due_at, whole_second
from ami.queues.models import TaskFailure, TickClaim
from ami.queues.schedule import MARK
from ami.queues.waiting_ticks import withheld

#: As the finding ``late-tick``.
LATE_SECONDS = 60.0


@dataclass(frozen=True)
class ScheduleRow:
    """One entry. ``state`` is on time, late, withheld, disabled or over (it has no next tick); ``why`` says more.

    ``misfire`` is what becomes of late ticks, as in `ami.celery.tick_claims`. ``last_state`` is what became of the last
    tick: never, sent, claimed and not sent, waits or runs, failed or ended. ``missed`` counts the whole intervals by
    which it is late; of a crontab 1.
    """

    pk: int
    name: str
    task: str
    queue: str
    every: str
    misfire: str
    is_enabled: bool
    is_declared: bool
    state: str
    why: str
    last_tick_at: datetime | None
    last_state: str
    last_task_id: str
    next_due_at: datetime | None
    late_seconds: float
    missed: int
    runs: int


def rows() -> list[ScheduleRow]:
    """Return every entry, late ones first, then by name; five statements, however many there are."""
    now = timezone.now()
    entries = list(PeriodicTask.objects.select_related("interval", "crontab", "solar", "clocked").order_by("name"))
    claims = {claim.pk: claim for claim in TickClaim.objects.select_related("entry")}
    failed = failures.latest(claim.task_id for claim in claims.values() if claim.task_id)
    held = withheld(claims.values())
    order = {"late": 0, "withheld": 1, "on time": 2, "over": 3, "disabled": 4}
    found = [_row(entry, claims.get(entry.pk), failed, held.get(entry.pk, ""), now) for entry in entries]
    return sorted(found, key=lambda row: order[row.state])


def _row(
    entry: PeriodicTask, claim: TickClaim | None, failed: dict[str, TaskFailure], why_held: str, now: datetime
) -> ScheduleRow:
    due = due_at(entry, claim, now) if entry.enabled else None
    late_seconds = max(0.0, (now - due).total_seconds()) if due else 0.0
    state, why = _state(entry, due, late_seconds, why_held)
    last_tick_at = (claim.claimed_at if claim else None) or entry.last_run_at
    return ScheduleRow(
        pk=entry.pk,
        name=entry.name,
        task=entry.task,
        queue=settings.ANTENNA_TOPOLOGY.place(entry.task, BEAT).queue,
        every=str(entry.scheduler or "no schedule"),
        misfire=claim.misfire if claim else NONE,
        is_enabled=entry.enabled,
        is_declared=entry.description == MARK,
        state=state,
        why=why,
        last_tick_at=last_tick_at,
        last_state=_last_state(claim, last_tick_at, failed),
        last_task_id=claim.task_id if claim else "",
        next_due_at=whole_second(due),
        late_seconds=late_seconds,
        missed=_missed(entry, late_seconds) if state == "late" else 0,
        runs=max(entry.total_run_count, claim.runs if claim else 0),
    )


def _state(entry: PeriodicTask, due: datetime | None, late_seconds: float, why_held: str) -> tuple[str, str]:
    if not entry.enabled:
        return "disabled", "no tick is sent until it is enabled"
    if due is None:
        return "over", "it ran once, has expired, or has no schedule that beat can read"
    if why_held and late_seconds:
        return "withheld", why_held
    if late_seconds > LATE_SECONDS:
        return "late", "look whether a beat runs, and at its log"
    return "on time", ""


def _last_state(claim: TickClaim | None, last_tick_at: datetime | None, failed: dict[str, TaskFailure]) -> str:
    if claim is None or claim.claimed_at is None:
        return "sent" if last_tick_at else "never"
    if not claim.is_sent:
        return "claimed and not sent"
    failure = failed.get(claim.task_id)
    if failure and failure.kind != "retry":
        return f"failed: {failure.exception}"
    return "ended" if claim.ended_at else "waits or runs"


def _missed(entry: PeriodicTask, late_seconds: float) -> int:
    if entry.interval:
        return int(late_seconds // entry.interval.schedule.run_every.total_seconds())
    return 1
