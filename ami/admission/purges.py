"""Deletes what waits of a queue: the calls that are rows, and those that were sent and have not begun."""

from django.db import transaction
from django.db.models import Max

from ami.admission.calls import delete
from ami.admission.models import Call, Run

#: Rows in one statement.
BATCH = 1000


def purge(queue: str) -> int:
    """Delete the calls that wait for a queue as rows; return how many.

    Those that were sent and have not begun are deleted, too: their messages are purged with the queue, and one that a
    worker has taken already finds no run and does nothing. What is called meanwhile stays.
    """
    waiting = Call.objects.filter(queue=queue, run=None)
    last, count = waiting.aggregate(last=Max("pk"))["last"], 0
    while pks := list(waiting.filter(pk__lte=last or 0).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        with transaction.atomic():
            count += delete(waiting.filter(pk__in=pks))
    for run in list(Run.objects.filter(queue=queue, state=Run.State.SENT).values_list("pk", flat=True)):
        with transaction.atomic():
            if Run.objects.filter(pk=run, state=Run.State.SENT).delete()[0]:
                delete(Call.objects.filter(run=run))
    return count
