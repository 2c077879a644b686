"""Stores whether a service that Antenna calls answered; its first failure in a row begins a possible cold start."""

from django.db.models import Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from ami.ml.models import ProcessingService


def answered(pk: int, **values: object) -> None:
    """Record an answer; ``values`` are further columns."""
    services = ProcessingService.objects.filter(pk=pk)
    services.update(last_seen=timezone.now(), last_seen_live=True, failing_since=None, **values)


def failed(pk: int, *, may_start: bool = True, **values: object) -> None:
    """Record that it did not answer; it keeps its ``last_seen``, and the time of its first failure since an answer.

    ``may_start``: whether waiting can help, as it cannot for a forbidden address; then it is offline immediately.
    """
    since = Coalesce("failing_since", Value(timezone.now())) if may_start else None
    ProcessingService.objects.filter(pk=pk).update(last_seen_live=False, failing_since=since, **values)
