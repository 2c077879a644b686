"""Cancels a task wherever it is: a wish that workers check when it is delivered, and a signal where it runs."""

from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from ami.admission import stopped
from ami.queues import wishes
from ami.queues.models import DesiredState, Worker
from ami.queues.refusals import Refused
from ami.queues.targets import Kind, Target
from ami.queues.wishes import Operator

#: A longer id is not one that Celery made.
LONGEST_ID = 255
#: So long a message that waits or is scheduled is dropped; then the wish is deleted.
KEPT = timedelta(days=7)
#: Every worker reads them with each beat.
MOST = 10_000


@dataclass(frozen=True)
class Cancelled:
    """Where the task was: the node that runs it, or empty. A task that is waiting or scheduled is dropped unrun."""

    task_id: str
    node: str = ""


def cancel(task_id: str, operator: Operator, *, why: str = "") -> Cancelled:
    """Cancel a task: one that runs gets the signal of its soft time limit now, and is ended 30 s later.

    What waits or is scheduled, on whatever queue, is dropped when a worker receives it; this lasts over restarts, for
    seven days.

    Raises:
        Refused: it is not a task's id, or that of a call that has failed and stops its key.
    """
    if not task_id or len(task_id) > LONGEST_ID or not task_id.isprintable() or " " in task_id:
        raise Refused(f"'{task_id[:60]}' is not a task's id, such as '0f8fad5b-d9cb-469f-a165-70867728950e'.")
    if stopped.has(task_id):
        raise Refused(
            f"{task_id} has failed, and its dead letter stops its key: there is nothing to cancel. "
            f"`manage.py queues release {task_id}` lets the key go on without it."
        )
    cancelled = DesiredState.objects.filter(kind=Kind.TASK)
    cancelled.filter(until__lt=timezone.now()).delete()
    if cancelled.count() >= MOST:
        raise Refused(f"{MOST} tasks are cancelled and not forgotten yet; pause or purge their queue instead.")
    node, until = _node_of(task_id), timezone.now() + KEPT
    target = Target(Kind.TASK, task_id)
    wishes.record(operator, "cancel", target, DesiredState.Aspect.CANCELLED, 1, why=why, until=until)
    return Cancelled(task_id, node)


def _node_of(task_id: str) -> str:
    """Return which worker runs a task, as far as the workers' rows say so."""
    for row in Worker.objects.all():
        if any(each.get("id") == task_id for each in row.running):
            return row.node
    return ""
