"""Celery's results in Django's database, with chords that stay right when a part is delivered twice."""

import time
from typing import Any

import django
from celery import maybe_signature
from django.apps import apps
from django.db import router, transaction

if not apps.loading and not apps.ready:
    # `celery call` and `celery result` look for the backend before anything has loaded the models.
    django.setup()

from django_celery_results.backends.database import DatabaseBackend, trigger_callback  # noqa: E402
from django_celery_results.models import ChordCounter  # noqa: E402

#: Longer than sending a body takes. A process that has not finished by then has died.
SENDING_SECONDS = 10.0
LOOK_SECONDS = 0.1


class Backend(DatabaseBackend):
    """django-celery-results' backend, but for when a chord's body is sent.

    The original counts deliveries: a part that comes twice, as at-least-once delivery allows, ends the count before
    the last part is done, and the body is never sent. Here the count only says when to look; the parts' stored
    results decide. A part's result is stored even where results are ignored: its chord reads it.
    """

    def as_uri(self, include_password: bool = False) -> str:  # noqa: ARG002 - Celery's name
        """Return the name in a worker's banner."""
        return "the database"

    def on_chord_part_return(self, request: Any, state: str, result: Any, **_: Any) -> None:
        """Count one finished part of a chord; after the last one send the body, at least once."""
        if not request.id or not request.group:
            return
        if getattr(request, "ignore_result", False):
            self.store_result(request.id, result, state, request=request)
        counter, is_last = self._counted(request)
        if counter is None or not (is_last or (_came_before(request) and _is_abandoned(counter))):
            return
        trigger_callback(self.app, maybe_signature(request.chord, app=self.app), counter.group_result(app=self.app))
        counter.delete()

    def _counted(self, request: Any) -> tuple[ChordCounter | None, bool]:
        """Count a part. Return the counter once no part is missing, and whether it was this one that was missing.

        One part at a time: the row is locked, and SQLite lets one writer in. A counter at 0 is one whose body is being
        sent; after that the counter is deleted.
        """
        with transaction.atomic(using=router.db_for_write(ChordCounter)):
            counter = ChordCounter.objects.select_for_update().filter(group_id=request.group).first()
            if counter is None or counter.count == 0:
                return counter, False
            is_last = counter.count == 1 and counter.group_result(app=self.app).ready()
            counter.count = 0 if is_last else max(1, counter.count - 1)
            counter.save(update_fields=["count"])
        return (counter, True) if is_last else (None, False)


def _came_before(request: Any) -> bool:
    delivery = getattr(request, "delivery_info", None) or {}
    return bool(delivery.get("redelivered") or getattr(request, "retries", 0))


def _is_abandoned(counter: ChordCounter) -> bool:
    """Whether the process that began to send the body has died: it did not delete the counter in time."""
    deadline = time.monotonic() + SENDING_SECONDS
    while ChordCounter.objects.filter(pk=counter.pk).exists():
        if time.monotonic() > deadline:
            return True
        time.sleep(LOOK_SECONDS)
    return False
