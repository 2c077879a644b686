"""Groups a station's captures into events, in resumable steps under one lease per station."""

from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, Subquery

from ami.main.models.captures import SourceImage
from ami.main.models.occurrences import Occurrence
from ami.main.models.stations import Deployment, Event
from ami.main.services.stale_marks import mark_stale
from ami.main.services.times import local_date
from ami.queues import named_leases
from ami.queues.models import Lease
from ami.queues.slices import Slice

STEP_CAPTURES = 1000

Capture = tuple[int, datetime, int | None]
State = dict[str, Any]
#: Nothing is grouped yet: the last capture, and the date of its session.
BEGINNING: State = {"after": None, "day": None}


class Outcome(Enum):
    """The result of one slice of regrouping."""

    DONE = "done"
    MORE = "more to do"
    HELD = "held by another worker; ask again"


class LeaseLost(Exception):
    """Another worker has acquired the station's lease; the step is rolled back."""


def regroup(deployment_id: int, turn: Slice, *, begins: bool = True) -> Outcome:
    """Group the captures of one station until the slice is over; the next call continues.

    A call that ``begins`` starts over, so that captures are seen that came behind the place of an earlier one. It has
    not begun where the outcome is ``HELD``, and is repeated; its task's row keeps a request over a crash (incident 46).
    Idempotent.
    """
    lease = f"regroup:{deployment_id}"
    with named_leases.held(lease) as holder:
        if holder is None:
            return Outcome.HELD
        try:
            return _steps(deployment_id, lease, holder, turn, begins=begins)
        except LeaseLost:
            return Outcome.HELD


def _steps(deployment_id: int, lease: str, holder: str, turn: Slice, *, begins: bool) -> Outcome:
    state: State = BEGINNING if begins else Lease.objects.get(name=lease).state or BEGINNING
    while state:
        station = Deployment.objects.select_related("project").filter(pk=deployment_id).first()
        if station is None:
            return Outcome.DONE
        state = _fenced_step(station, state, lease, holder)
        if state and turn.over():
            return Outcome.MORE
    return Outcome.DONE


def _fenced_step(station: Deployment, state: State, lease: str, holder: str) -> State:
    with transaction.atomic():
        if not named_leases.renew(lease, holder, state=state):
            raise LeaseLost(f"Lease lost: another worker groups the sessions of station {station.pk}.")
        state = _step(station, state)
        named_leases.renew(lease, holder, state=state)
    return state


def _step(station: Deployment, state: State) -> State:
    """Assign the next captures to events; return the new state, empty when the run is finished."""
    captures = _captures_after(station, state["after"])
    if not captures:
        _finish(station)
        return {}
    nights, day = _nights(station, captures, state)
    for night, night_captures in nights.items():
        _place(station, night, night_captures)
    last_pk, last_timestamp, _ = captures[-1]
    return {**state, "after": [last_timestamp.isoformat(), last_pk], "day": day.isoformat()}


def _captures_after(station: Deployment, after: list[Any] | None) -> list[Capture]:
    captures = SourceImage.objects.filter(deployment=station, timestamp__isnull=False)
    if after:
        timestamp, pk = datetime.fromisoformat(after[0]), after[1]
        captures = captures.filter(Q(timestamp__gt=timestamp) | Q(timestamp=timestamp, pk__gt=pk))
    return list(captures.order_by("timestamp", "pk").values_list("pk", "timestamp", "event_id")[:STEP_CAPTURES])


def _nights(station: Deployment, captures: list[Capture], state: State) -> tuple[dict[date, list[Capture]], date]:
    """Group captures by the local date on which their session started; sessions of one date are one event."""
    gap = timedelta(seconds=station.project.session_time_gap_seconds)
    previous = datetime.fromisoformat(state["after"][0]) if state["after"] else None
    day = date.fromisoformat(state["day"]) if state["day"] else date.min
    nights: dict[date, list[Capture]] = {}
    for capture in captures:
        timestamp = capture[1]
        if previous is None or timestamp - previous > gap:
            day = local_date(timestamp, station)
        nights.setdefault(day, []).append(capture)
        previous = timestamp
    return nights, day


def _place(station: Deployment, day: date, captures: list[Capture]) -> None:
    event, _ = Event.objects.get_or_create(deployment=station, group_by=day, defaults={"project": station.project})
    moved = [pk for pk, _, event_id in captures if event_id != event.pk]
    if not moved:
        return
    SourceImage.objects.filter(pk__in=moved).update(event=event)
    Occurrence.objects.filter(detection__source_image_id__in=moved).update(event=event)
    mark_stale("event", {event.pk, *(event_id for _, _, event_id in captures)})


def _finish(station: Deployment) -> None:
    untimed = SourceImage.objects.filter(deployment=station, timestamp=None).exclude(event=None)
    mark_stale("event", untimed.values_list("event_id", flat=True).distinct())
    untimed.update(event=None)
    _follow_captures(station)
    has_captures = Exists(SourceImage.objects.filter(event_id=OuterRef("pk")))
    Event.objects.filter(~has_captures, deployment=station).delete()
    mark_stale("deployment", [station.pk])


def _follow_captures(station: Deployment) -> None:
    """Set the event of occurrences from their capture, including those saved while their capture moved."""
    event_of_capture = SourceImage.objects.filter(detections__occurrence=OuterRef("pk")).values("event_id")[:1]
    occurrences = Occurrence.objects.filter(deployment=station).annotate(
        right_event=F("detection__source_image__event_id")
    )
    both_none = Q(event=None, right_event=None)
    strays = occurrences.exclude(both_none).filter(~Q(event_id=F("right_event")) | Q(event=None) | Q(right_event=None))
    Occurrence.objects.filter(pk__in=strays.order_by().values("pk")).update(event_id=Subquery(event_of_capture))
