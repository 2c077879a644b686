"""Publishes the calls that were picked, confirmed in bulk; what is not confirmed is published again for its run."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from celery import Signature
from django.db.models import Case, F, Value, When
from django.db.models.functions import Now
from kombu.exceptions import OperationalError
from kombu.utils import json

from ami.admission.models import Call, Run
from ami.admission.picks import BATCH, UNCONFIRMED_SECONDS, Outgoing
from ami.celery import bulk_publisher, outages
from ami.celery.app import PUBLISHED_HEADER
from ami.celery.bulk_publisher import UnconfirmedTasks
from ami.celery.staged_calls import RUN_HEADER, STARTS_HEADER, dispatching

#: A confirmed message that has not begun may have been purged or buried: it is published again after this time, then
#: after twice as long, and so on. A second message does nothing.
UNSEEN_SECONDS = 600.0
MOST_DOUBLINGS = 8
UNCONFIRMED = "Calls not confirmed, they are published again"


def signature(app: Any, outgoing: Outgoing) -> Signature:
    """Return what a call is published as."""
    call = outgoing.call
    args, kwargs = json.loads(call.arguments)
    options = json.loads(call.options)
    headers = {**(options.get("headers") or {}), RUN_HEADER: outgoing.run, STARTS_HEADER: call.starts}
    headers[PUBLISHED_HEADER] = (call.not_before or call.created_at).timestamp()
    options |= {"headers": headers, "task_id": call.task_id}
    if call.retries:
        options["retries"] = call.retries
    if call.expires:
        options["expires"] = call.expires.isoformat()
    return Signature(call.task, args, kwargs, options, app=app)


def publish(app: Any, outgoing: Sequence[Outgoing]) -> list[str]:
    """Publish calls; return the runs whose messages the broker has. The others stay unconfirmed."""
    runs = {each.call.task_id: each.run for each in outgoing}
    made = [signature(app, each) for each in outgoing]
    with dispatching():
        try:
            published = bulk_publisher.publish_many(app, made)
            outages.answered(outages.CONFIRMATIONS, is_sure=True)
            return [runs[task_id] for task_id in published]
        except UnconfirmedTasks as error:
            outages.complain(UNCONFIRMED, error)
            return [runs[task_id] for task_id in error.confirmed if task_id in runs]
        except OperationalError as error:
            outages.complain(UNCONFIRMED, error)
            return []
        except Exception as error:
            if len(outgoing) == 1:
                outages.complain("Call not published", error, task=outgoing[0].call.task)
                return []
    # One of them cannot be published: the others are.
    return [run for each in outgoing for run in publish(app, [each])]


def confirmed(runs: Sequence[str]) -> None:
    """Note which messages the broker has; one statement."""
    seconds: Any = Case(
        *(
            When(sends__lte=count, then=Value(timedelta(seconds=UNSEEN_SECONDS * 2 ** (count - 1))))
            for count in range(1, MOST_DOUBLINGS)
        ),
        default=Value(timedelta(seconds=UNSEEN_SECONDS * 2**MOST_DOUBLINGS)),
    )
    Run.objects.filter(pk__in=runs).update(confirmed_at=Now(), send_again_at=Now() + seconds)


def unseen(queue: str) -> list[Outgoing]:
    """Return the calls of a queue whose messages are to be published again, and note that they are."""
    rows = Run.objects.filter(queue=queue, state=Run.State.SENT, send_again_at__lte=Now()).order_by("send_again_at")
    found = dict(rows.values_list("call", "pk")[:BATCH])
    if not found:
        return []
    calls = {call.pk: call for call in Call.objects.filter(pk__in=found)}
    Run.objects.filter(pk__in=found.values(), state=Run.State.SENT).update(
        sends=F("sends") + 1,
        sent_at=Case(When(confirmed_at=None, then=F("sent_at")), default=Now()),
        confirmed_at=None,
        send_again_at=Now() + timedelta(seconds=UNCONFIRMED_SECONDS),
    )
    if gone := [run for call, run in found.items() if call not in calls]:
        Run.objects.filter(pk__in=gone, state=Run.State.SENT).delete()
    return [Outgoing(found[pk], call) for pk, call in calls.items()]
