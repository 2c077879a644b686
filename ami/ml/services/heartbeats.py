"""Heartbeats of services that pull their work: written at most every 30 s, also when the cache is down."""

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


def heard_from(*, project_ids: Iterable[int] | None = None, slugs: Iterable[str] = ()) -> bool:
    """Note that workers of these pipelines called; return whether anything was written.

    Three gates, each of which works without the one before it: the cache (one write per 30 s for all processes), the
    process's own memory, and the statement itself, which leaves rows alone that are younger. It never raises: a
    heartbeat is not worth a request. With ``project_ids`` only services and pipelines of these projects are meant.
    """
    projects, names = sorted(set(project_ids or ())), sorted(set(slugs))
    key = f"heartbeat:{','.join(map(str, projects))}:{','.join(names)}"
    if not _open(key):
        return False
    try:
        with transaction.atomic():
            return bool(_write(projects if project_ids is not None else None, names))
    except DatabaseError as error:
        logger.warning("Could not write a heartbeat: %r", error)
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
        # A cache that ignores its exceptions answers False when it is down, just as for a key it has (hazard 7).
        return bool(cache.add(key, 1, GATE_SECONDS)) or cache.get(key) is None
    except Exception as error:
        # Whatever the cache's client raises, the heartbeat is due all the same.
        logger.debug("The cache did not gate a heartbeat: %r", error)
        return True


def _write(project_ids: list[int] | None, slugs: list[str]) -> int:
    now = timezone.now()
    due = Q(last_seen=None) | Q(last_seen__lt=now - timedelta(seconds=GATE_SECONDS)) | ~Q(last_seen_live=True)
    services = ProcessingService.objects.filter(Q(endpoint_url=None) | Q(endpoint_url=""))
    named = Q(pipelines__slug__in=slugs) if slugs else Q()
    if project_ids is not None:
        services = services.filter(projects__in=project_ids)
        if slugs:
            # The same slug of another project is another pipeline.
            named &= Q(pipelines__project__in=project_ids) | Q(pipelines__project=None)
    services = services.filter(named)
    keys = services.order_by().values("pk")
    return ProcessingService.objects.filter(due, pk__in=keys).update(last_seen=now, last_seen_live=True)
