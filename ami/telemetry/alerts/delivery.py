"""Sends the notices that wait: to each receiver those of one alert in order, again later where it fails."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

from celery.utils.log import get_logger
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from ami.celery.thread_database import database_block
from ami.telemetry.alerts import receivers, store
from ami.telemetry.alerts.policy import State
from ami.telemetry.alerts.store import Memory
from ami.telemetry.models import AlertNotice, AlertReceiver

logger = get_logger(__name__)

#: A receiver that fails is tried again after so long, doubled with each failure in a row, up to the second.
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=15), timedelta(minutes=10)
#: A notice is given up after so long, unless its alert still fires.
GIVEN_UP = timedelta(hours=24)
#: A sender that has died is waited for so long: then another one sends.
CLAIM = timedelta(seconds=60)
#: Of one turn, over all receivers: the next look waits for it.
TURN_SECONDS = 20.0
#: Of a receiver at once.
MOST_READ = 200


def wait_after(failures: int) -> timedelta:
    """Return how long a receiver is left alone after so many failures in a row."""
    doublings: int = min(failures - 1, 10)
    return min(FIRST_WAIT * (1 << doublings), LONGEST_WAIT)


def turn(memory: Memory, names: tuple[str, ...]) -> None:
    """Send what is due, to the receivers ``names`` that are not left alone; note in ``memory`` whether any waits."""
    now, until = memory.now(), time.monotonic() + TURN_SECONDS
    left = [_sends_all(memory, name, until) for name in names if _is_due(memory.receivers.get(name), now)]
    memory.has_unsent = len(left) < len(names) or not all(left)


def _sends_all(memory: Memory, name: str, until: float) -> bool:
    """Send to one receiver what it has not got; return whether nothing is left."""
    with database_block():
        waiting = list(store.unsent().filter(receiver=name).select_related("alert")[:MOST_READ])
        due = [each for each in waiting if not _gives_up(each, memory.now())]
    sent = all(time.monotonic() < until and _send(memory, name, notice) for notice in _in_turn(due))
    return sent and len(waiting) < MOST_READ


def _is_due(receiver: AlertReceiver | None, now: datetime) -> bool:
    return receiver is None or receiver.next_try_at is None or receiver.next_try_at <= now


def _in_turn(waiting: list[AlertNotice]) -> Iterator[AlertNotice]:
    """Yield the notices alert by alert, oldest first; alerts whose notice was tried least come first."""
    groups: dict[int, list[AlertNotice]] = {}
    for notice in waiting:
        groups.setdefault(notice.alert_id, []).append(notice)
    for group in sorted(groups.values(), key=lambda group: (group[0].tries, group[0].pk)):
        yield from group


def _gives_up(notice: AlertNotice, now: datetime) -> bool:
    if notice.alert.state == State.FIRING or now - notice.created_at < GIVEN_UP:
        return False
    AlertNotice.objects.filter(pk=notice.pk).update(given_up_at=Now())
    logger.error("Notice given up after %d tries: %s", notice.tries, notice.body["title"])
    return True


def _send(memory: Memory, name: str, notice: AlertNotice) -> bool:
    """Send one notice, once over all processes; return False where the receiver fails or another process sends it."""
    open_ones = AlertNotice.objects.filter(pk=notice.pk, sent_at=None, given_up_at=None)
    free = open_ones.filter(Q(claimed_until=None) | Q(claimed_until__lt=Now()))
    with database_block():
        if not free.update(claimed_until=Now() + CLAIM, tries=F("tries") + 1):
            return False
    try:
        sent_at = timezone.now().isoformat(timespec="seconds")
        receivers.send(name, {**notice.body, "id": notice.pk, "sent_at": sent_at})
    except receivers.NotSent as error:
        with database_block():
            open_ones.update(claimed_until=None)
            memory.receivers[name] = _failed(memory, name, str(error))
        return False
    with database_block():
        AlertNotice.objects.filter(pk=notice.pk).update(sent_at=Now(), claimed_until=None)
        memory.receivers[name] = _worked(memory, name)
    return True


def _failed(memory: Memory, name: str, why: str) -> AlertReceiver:
    now, before = memory.now(), memory.receivers.get(name) or AlertReceiver(name=name)
    failures = before.failures + 1
    row = AlertReceiver(
        name=name,
        sent_at=before.sent_at,
        failing_since=before.failing_since or now,
        failures=failures,
        next_try_at=now + wait_after(failures),
        error=why[:255],
    )
    logger.warning("Alert not sent by %s, try %d in a row: %s", name, failures, why)
    return _saved(row)


def _worked(memory: Memory, name: str) -> AlertReceiver:
    if (before := memory.receivers.get(name)) and before.failures:
        logger.info("Alerts are sent by %s again after %d tries", name, before.failures)
    return _saved(AlertReceiver(name=name, sent_at=memory.now()))


def _saved(row: AlertReceiver) -> AlertReceiver:
    fields = ("sent_at", "failing_since", "failures", "next_try_at", "error")
    AlertReceiver.objects.bulk_create([row], update_conflicts=True, unique_fields=["name"], update_fields=fields)
    return row
