"""The oldest calls that wait for a queue as rows, shown as its messages are."""

from celery import current_app
from kombu.utils import json

from ami.admission.models import Call
from ami.celery import sensitive
from ami.celery.shown_time import shown_time
from ami.queues.dead_letters import DeadLetter, cell
from ami.queues.tasks import load_tasks

#: In the place of a message's reason.
ROW = "row"


def oldest(queue: str, limit: int) -> list[DeadLetter]:
    """Return the first calls of a queue, without the values of sensitive arguments; a look costs them nothing."""
    load_tasks()  # They say which of their arguments are sensitive.
    return [_shown(call) for call in Call.objects.filter(queue=queue, run=None).order_by("pk")[:limit]]


def _shown(call: Call) -> DeadLetter:
    args, kwargs = json.loads(call.arguments)
    args, kwargs = sensitive.masked(current_app, call.task, args, kwargs) or (args, kwargs)
    due = f"a row, due at {shown_time(call.not_before)}" if call.not_before else "a row"
    arguments = cell(f"{tuple(args)!r} {kwargs!r}")
    return DeadLetter(call.queue, call.task_id, call.task, ROW, call.retries, arguments, due)
