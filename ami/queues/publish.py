"""How a person asks for a task, from the admin or the API."""

from dataclasses import dataclass
from typing import Any

from celery.utils import uuid
from django.conf import settings
from django.db import transaction

from ami.celery import origin
from ami.queues.reserved_slot import LONG_HEADER
from ami.topology.router import ORIGIN_HEADER


@dataclass(frozen=True)
class Asked:
    """What a person is told: the task's id, the queue it went to, and where to watch it (None without Flower)."""

    task_id: str
    queue: str
    flower_url: str | None


def ask(task: Any, *args: Any, asker: str = origin.PERSON, is_long: bool = False, **kwargs: Any) -> Asked:
    """Publish ``task`` with its arguments after commit, on behalf of ``asker``.

    Work that is known to be long waits for one of the worker's slots for long work (:mod:`ami.queues.reserved_slot`).

    Raises:
        kombu.exceptions.OperationalError: the broker did not take the message (on leaving the transaction).
    """
    task_id = uuid()
    headers = {ORIGIN_HEADER: asker, **({LONG_HEADER: True} if is_long else {})}
    positional = {"args": args} if args else {}
    transaction.on_commit(lambda: task.apply_async(kwargs=kwargs, task_id=task_id, headers=headers, **positional))
    queue = settings.ANTENNA_TOPOLOGY.place(task.name, asker).queue
    flower = f"{settings.FLOWER_URL.rstrip('/')}/task/{task_id}" if settings.FLOWER_URL else None
    return Asked(task_id, queue, flower)
