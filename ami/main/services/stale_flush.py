"""Recounts objects that are marked stale, each once per flush."""

from celery.utils.log import get_task_logger
from django.db.models import Q

from ami.main.models.maintenance import StaleCount
from ami.main.models.stations import Deployment, Event
from ami.main.services import sessions
from ami.main.services.counts import refresh
from ami.queues.slices import Slice

logger = get_task_logger(__name__)

Key = tuple[str, int]

#: Recounting a project marks its events and stations, regrouping moves captures: both come before what they mark.
ORDER = ("project", "sessions", "event", "deployment")


def flush(turn: Slice, project_id: int | None = None) -> bool:
    """Refresh stale objects until the slice is over; return whether all were tried.

    With ``project_id`` only that project's events and deployments. An object whose refresh fails is logged and keeps
    its mark for the next flush; the others continue.
    """
    tried: set[Key] = set()
    while keys := _stale_keys(tried, project_id):
        for key in keys:
            if tried and turn.over():
                return False
            tried.add(key)
            _refresh_logged(*key, turn)
    return True


def refresh_marked(kind: str, pk: int) -> None:
    """Refresh one object and remove the marks read before it; later marks stay for the next flush."""
    marks = StaleCount.objects.filter(kind=kind, object_pk=pk)
    seen = list(marks.order_by("pk").values_list("pk", flat=True)[:10_000])
    refresh(kind, pk)
    StaleCount.objects.filter(pk__in=seen).delete()


def _refresh_logged(kind: str, pk: int, turn: Slice) -> None:
    try:
        if kind == "sessions":
            sessions.regroup(pk, turn)
        else:
            refresh_marked(kind, pk)
    except Exception:
        logger.exception("Recount failed; the mark stays for the next flush", extra={"kind": kind, "object_pk": pk})


def _stale_keys(tried: set[Key], project_id: int | None) -> list[Key]:
    marks = StaleCount.objects.order_by().values_list("kind", "object_pk").distinct()
    if project_id is not None:
        events = Event.objects.filter(project_id=project_id).values("pk")
        stations = Deployment.objects.filter(project_id=project_id).values("pk")
        marks = marks.filter(Q(kind="event", object_pk__in=events) | Q(kind="deployment", object_pk__in=stations))
    return sorted(set(marks) - tried, key=lambda key: (ORDER.index(key[0]), key[1]))
