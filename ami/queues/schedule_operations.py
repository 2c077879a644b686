"""Switches entries of the schedule on and off, and runs one now on behalf of a user."""

import json

from celery import current_app
from django.db import transaction
from django_celery_beat.models import PeriodicTask, PeriodicTasks

from ami.celery.tick_claims import MISFIRES
from ami.queues.models import TickClaim
from ami.queues.publish import PublishedTask, publish_for_user
from ami.queues.refusals import Refused
from ami.queues.schedule import MARK
from ami.queues.tasks import load_tasks
from ami.queues.wishes import Operator, refuse_wrong


def switch(name: str, operator: Operator, *, is_enabled: bool, why: str = "") -> PeriodicTask:
    """Enable or disable an entry; beat reads it within seconds. What runs goes on.

    Raises:
        Refused: there is no such entry, or ``why`` is too long.
    """
    refuse_wrong(why, None)
    entry = _entry(name)
    # As django-celery-beat's own action: an entry that is disabled forgets its last run.
    values = {"enabled": True} if is_enabled else {"enabled": False, "last_run_at": None}
    with transaction.atomic():
        PeriodicTask.objects.filter(name=name).update(**values)
        PeriodicTasks.update_changed()
        verb = "enable entry" if is_enabled else "disable entry"
        before, after = {"enabled": entry.enabled}, {"enabled": is_enabled}
        operator.record(verb, rows=[entry], before=before, after=after, why=why)
    entry.enabled = is_enabled
    return entry


def set_misfire(name: str, operator: Operator, misfire: str, *, why: str = "") -> str:
    """Say what becomes of an entry's late ticks, one of `MISFIRES`; return what did before.

    Beat reads it within seconds.

    Raises:
        Refused: there is no such entry or policy, the entry is declared in code, or ``why`` is too long.
    """
    refuse_wrong(why, None)
    entry = _entry(name)
    if misfire not in MISFIRES:
        raise Refused(f"'{misfire[:40]}' is no policy; give {', '.join(MISFIRES)}.")
    if entry.description == MARK:
        raise Refused(f'{name} is declared in code: give it misfire="{misfire}" in the schedule.py of its app.')
    with transaction.atomic():
        claim, _ = TickClaim.objects.get_or_create(entry=entry)
        TickClaim.objects.filter(pk=claim.pk).update(misfire=misfire)
        PeriodicTasks.update_changed()
        before, after = {"misfire": claim.misfire}, {"misfire": misfire}
        operator.record("misfire", rows=[entry], before=before, after=after, why=why)
    return str(claim.misfire)


def run_now(name: str, operator: Operator, *, why: str = "") -> PublishedTask:
    """Publish an entry's task on behalf of a user, to the queue for what a person asks; return where it is.

    Raises:
        Refused: there is no such entry, its task is not registered, or its arguments do not fit.
    """
    refuse_wrong(why, None)
    entry = _entry(name)
    published = publish(entry)
    outcome = f"task {published.task_id} sent to {published.queue}"
    operator.record("run entry", rows=[entry], outcome=outcome, why=why)
    return published


def publish(entry: PeriodicTask) -> PublishedTask:
    """Publish an entry's task on behalf of the user of this request.

    Raises:
        Refused: its task is not registered, or its arguments do not fit.
    """
    load_tasks()
    task = current_app.tasks.get(entry.task)
    if task is None:
        raise Refused(f"{entry.task} is not registered; nothing was sent.")
    try:
        return publish_for_user(task, *json.loads(entry.args or "[]"), **json.loads(entry.kwargs or "{}"))
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"{entry.name}: its arguments do not fit {entry.task}: {error}") from error


def _entry(name: str) -> PeriodicTask:
    entry = PeriodicTask.objects.filter(name=name).first()
    if entry is None:
        raise Refused(f"There is no entry '{name[:200]}' any more; reload the schedule.")
    return entry
