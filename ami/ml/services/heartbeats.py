"""Records heartbeats of pull services: at most one write per 30 seconds, also when the cache is down."""

import logging
import threading
import time
from collections.abc import Iterable
from datetime import timedelta

from django.core.cache import cache
from django.db import DatabaseError, transaction
from django.db.models import Q
from django.utils import timezone

from ami.ml.models import ProcessingService

logger = logging.getLogger(__name__)

GATE_SECONDS = 30

_last: dict[str, float] = {}
_guard = threading.Lock()


def record_heartbeat(*, project_ids: Iterable[int] | None = None, slugs: Iterable[str] = ()) -> bool:
    """Record a call by a worker of these pipelines; return whether anything was written.

    Three independent gates limit the writes: the process's memory, the cache (one write per 30 s for all processes),
    and the statement, which skips rows that are recent enough. It never raises: a failed heartbeat must not fail the
    request. ``project_ids`` limits it to services and pipelines of these projects.
    """
    projects, names = sorted(set(project_ids or ())), sorted(set(slugs))
    key = f"heartbeat:{','.join(map(str, projects))}:{','.join(names)}"
    if not _open(key):
        return False
    try:
        with transaction.atomic():
            return bool(_write(projects if project_ids is not None else None, names))
    except DatabaseError as error:
        logger.warning("Heartbeat not written: %r", error)
        return False


def _open(key: str) -> bool:
    now = time.monotonic()
    with _guard:
        if now - _last.get(key, -GATE_SECONDS) < GATE_SECONDS:
            return False
        if len(_last) > 10_000:
            _last.clear()
        _last[key] = now
    try:
        # A cache that ignores its exceptions returns False when it is down, as it does for an existing key (hazard 7).
        return bool(cache.add(key, 1, GATE_SECONDS)) or cache.get(key) is None
    except Exception as error:
        # Whatever the cache client raises, the heartbeat is still due.
        logger.debug("Cache failed to limit heartbeats: %r", error)
        return True


def _write(project_ids: list[int] | None, slugs: list[str]) -> int:
    now = timezone.now()
    due = Q(last_seen=None) | Q(last_seen__lt=now - timedelta(seconds=GATE_SECONDS)) | ~Q(last_seen_live=True)
    services = ProcessingService.objects.filter(Q(endpoint_url=None) | Q(endpoint_url=""))
    named = Q()
    if slugs:
        named = Q(pipelines__slug__in=slugs) | Q(pipelines__aliases__slug__in=slugs)
    if project_ids is not None:
        services = services.filter(projects__in=project_ids)
        if slugs:
            # The same slug in another project is another pipeline.
            named &= Q(pipelines__project__in=project_ids) | Q(pipelines__project=None)
    services = services.filter(named)
    keys = services.order_by().values("pk")
    return ProcessingService.objects.filter(due, pk__in=keys).update(last_seen=now, last_seen_live=True)
