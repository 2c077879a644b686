"""The one module through which the product publishes tasks, each after the commit of the running transaction.

Outside a transaction a message is published at once. Celery's own retries, canvas and beat publish by themselves. Every
message passes through :meth:`ami.celery.app.AntennaCelery.send_task`.

A task is given as itself or by its name, so that what publishes a task need not import what runs it.

Each function raises :class:`kombu.exceptions.OperationalError` when the broker does not take the message; inside a
transaction its commit raises it.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery import Signature, current_app
from celery.utils import uuid
from django.conf import settings
from django.db import transaction

from ami.celery import bulk_publisher, staged_calls, staged_runs
from ami.celery.bulk_publisher import with_id
from ami.celery.origin import PERSON, of_request
from ami.queues.reserved_slot import LONG_HEADER, ROOM_SECONDS
from ami.topology.router import ORIGIN_HEADER


@dataclass(frozen=True)
class PublishedTask:
    """A published task's id, the queue it went to, and where to watch it (None without Flower)."""

    task_id: str
    queue: str
    flower_url: str | None


def publish_task(
    task: Any,
    /,
    *args: Any,
    origin: str | None = None,
    headers: Mapping[str, Any] | None = None,
    countdown: float | None = None,
    **kwargs: Any,
) -> str:
    """Publish ``task`` with its arguments; return its id.

    Without ``origin`` the message gets what :func:`ami.celery.origin.of_publish` says of the running task.
    """
    task = _found(task)
    options = _options(origin, headers, countdown)
    task.apply_async_on_commit(**({"args": args} if args else {}), kwargs=kwargs, **options)
    return str(options["task_id"])


def _options(origin: str | None, headers: Mapping[str, Any] | None, countdown: float | None) -> dict[str, Any]:
    options: dict[str, Any] = {"task_id": uuid()}
    if countdown is not None:
        options["countdown"] = countdown
    if sent := {**(headers or {}), **({ORIGIN_HEADER: origin} if origin else {})}:
        options["headers"] = sent
    return options


def signature(
    task: Any,
    /,
    *args: Any,
    origin: str | None = None,
    headers: Mapping[str, Any] | None = None,
    countdown: float | None = None,
    **kwargs: Any,
) -> Signature:
    """Return what ``publish_task`` would publish, with its id, for `publish_many`."""
    made: Signature = _found(task).signature(args, kwargs, **_options(origin, headers, countdown))
    return made


def publish_many(signatures: Iterable[Signature]) -> list[str]:
    """Publish many tasks with few waits for the broker; return their ids.

    Each message is what the signature's ``apply_async`` would publish; :mod:`ami.celery.bulk_publisher` says how it
    gets there. Outside a transaction the signatures may come from a generator, of which one batch is in memory. Inside
    one all of them are kept until its commit.

    A call of a task with a policy is a row of the running transaction, at once.

    Raises:
        ami.celery.bulk_publisher.UnconfirmedTasks: an OperationalError with the signatures to publish again; inside a
            transaction its commit raises it.
    """
    if not transaction.get_connection().in_atomic_block:
        return bulk_publisher.publish_many(current_app, signatures)
    kept = [with_id(each) for each in signatures]
    rows: list[Signature] = []
    messages: list[Signature] = []
    for each in kept:
        (rows if staged_calls.stages(current_app.tasks.get(each.task)) else messages).append(each)
    if rows:
        bulk_publisher.publish_many(current_app, rows)
    if messages:
        transaction.on_commit(partial(bulk_publisher.publish_many, current_app, messages))
    return [each.id for each in kept]


def publish_each_for_user(task: Any, many: Iterable[Mapping[str, Any]], *, origin: str = PERSON) -> list[PublishedTask]:
    """Publish ``task`` on behalf of a user, once for each mapping of arguments."""
    task = _found(task)
    return [
        _published(task, task_id, origin)
        for task_id in publish_many([signature(task, origin=origin, **kwargs) for kwargs in many])
    ]


def publish_for_user(
    task: Any, /, *args: Any, origin: str = PERSON, is_long: bool = False, **kwargs: Any
) -> PublishedTask:
    """Publish ``task`` on behalf of a user, from the admin or the API.

    Work that is known to be long waits for one of the worker's slots for long work (:mod:`ami.queues.reserved_slot`).
    """
    task = _found(task)
    task_id = publish_task(task, *args, origin=origin, headers={LONG_HEADER: True} if is_long else None, **kwargs)
    return _published(task, task_id, origin)


def _published(task: Any, task_id: str, origin: str) -> PublishedTask:
    queue = settings.ANTENNA_TOPOLOGY.place(task.name, origin).queue
    flower = f"{settings.FLOWER_URL.rstrip('/')}/task/{task_id}" if settings.FLOWER_URL else None
    return PublishedTask(task_id, queue, flower)


def _found(task: Any) -> Any:
    """Return the task of this name. Raises celery.exceptions.NotRegistered where no app has one."""
    return current_app.tasks[task] if isinstance(task, str) else task


def publish_successor(task: Any, /, **kwargs: Any) -> str:
    """Publish the next slice of the running ``task``, with the same origin; return its id.

    The successor of a slice that made room for other work is delayed by ``ROOM_SECONDS``.
    """
    countdown = ROOM_SECONDS if getattr(task.request, "antenna_makes_room", False) else None
    if _goes_on(task, kwargs, countdown, {LONG_HEADER: True}):
        return str(task.request.id)
    origin = of_request(task.request)
    return publish_task(task, origin=origin, headers={LONG_HEADER: True}, countdown=countdown, **kwargs)


def _goes_on(task: Any, kwargs: dict[str, Any], countdown: float | None, headers: Mapping[str, Any]) -> bool:
    """Let the run of a task with a policy go on with these arguments, instead of publishing another call."""
    due = time.time() + countdown if countdown else 0.0
    return staged_runs.go_on(task, staged_calls.Next([], kwargs, 0, due, headers))


def republish(task: Any, /, *, countdown: float, headers: Mapping[str, Any] | None = None, **kwargs: Any) -> str:
    """Publish the running ``task`` again for later, with the same origin; return the new message's id.

    It is not a retry: waiting uses up none of the task's retries. A message without retries left would be buried at
    the first lost child (:mod:`ami.celery.request`).
    """
    kept = {name: value for name, value in (task.request.headers or {}).items() if name == LONG_HEADER}
    if _goes_on(task, kwargs, countdown, headers or {}):
        return str(task.request.id)
    origin = of_request(task.request)
    return publish_task(task, origin=origin, headers={**kept, **(headers or {})}, countdown=countdown, **kwargs)
