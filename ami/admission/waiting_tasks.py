"""Which tasks have calls that wait as rows, and in which queues."""

from typing import NamedTuple

from django.db.models import Count

from ami.admission.models import Call


class WaitingTask(NamedTuple):
    """How many calls of one task wait, due or not, and in which queues."""

    task: str
    queues: tuple[str, ...]
    calls: int


def waiting_tasks() -> list[WaitingTask]:
    """Return the tasks with waiting calls, by name; one statement. Calls that have stopped their key do not count."""
    waiting = Call.objects.filter(run=None, stopped_at=None).order_by("task", "queue")
    found: dict[str, list[tuple[str, int]]] = {}
    for task, queue, count in waiting.values_list("task", "queue").annotate(count=Count("pk")):
        found.setdefault(task, []).append((queue, count))
    return [
        WaitingTask(task, tuple(queue for queue, _ in counts), sum(count for _, count in counts))
        for task, counts in found.items()
    ]
