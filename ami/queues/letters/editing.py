"""Replays one letter with other arguments; its first message is kept, and who changed it and why is on its trail."""

import inspect
import json
from typing import Any

from celery import current_app
from celery.utils.saferepr import saferepr
from django.db import transaction
from kombu.utils import json as kombu_json

from ami.celery import sensitive
from ami.queues.letters import bodies, rows
from ami.queues.letters.publishing import message_of
from ami.queues.models import Letter, LetterEvent
from ami.queues.refusals import Refused
from ami.queues.tasks import load_tasks
from ami.queues.wishes import Operator, refuse_wrong

MOST_BYTES = bodies.MOST_ROW_BYTES
LONGEST_SHOWN = 200


def arguments(row: Letter) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the named arguments of a letter, secrets included.

    Raises:
        Refused: the message is not JSON, or not a task's, or too large to be edited.
    """
    if row.body_bytes > MOST_BYTES:
        raise Refused(f"Letter {row.pk} has {row.body_bytes} bytes; up to {MOST_BYTES} can be edited.")
    if row.content_type != "application/json":
        raise Refused(f"Letter {row.pk} is {row.content_type or 'of no type'}, not JSON; it cannot be edited.")
    args, kwargs, _ = _parts(message_of(row).body, row.pk)
    return args, kwargs


def written(value: Any) -> str:
    """Return arguments as an operator edits them."""
    return str(kombu_json.dumps(value))


def edit(key: int, args: str | None, kwargs: str | None, operator: Operator, *, why: str) -> Letter:
    """Replace the arguments (JSON; None keeps them) of a dead letter; its next replay sends them.

    Raises:
        Refused: there is no such dead letter, the JSON is wrong, the task does not take these arguments, or no reason
            was given.
    """
    refuse_wrong(why, None)
    if not why.strip():
        raise Refused("Say why the arguments are changed.")
    with transaction.atomic():
        # An update that changes nothing: it locks the row on PostgreSQL, and the database on SQLite.
        if not Letter.objects.filter(pk=key, state=Letter.State.DEAD).update(state=Letter.State.DEAD):
            raise Refused(f"There is no dead letter {key}; one that was replayed or discarded is not edited.")
        row = Letter.objects.get(pk=key)
        before = arguments(row)
        new_args = before[0] if args is None else _json(args, list, "positional arguments", "[1, 2]")
        new_kwargs = before[1] if kwargs is None else _json(kwargs, dict, "named arguments", '{"job_id": 1}')
        _refuse_wrong_arguments(row.task, new_args, new_kwargs)
        _replace(row, new_args, new_kwargs)
        by = operator.name
        rows.record([row.pk], LetterEvent.What.EDITED, by=by, why=why, detail=row.arguments)
        which = f"letter {key} of {row.queue}, {row.task} {row.task_id}"
        after = {"arguments": row.arguments}
        operator.record("edit letter", which=which, after=after, why=why)
    return row


def _replace(row: Letter, args: list[Any], kwargs: dict[str, Any]) -> None:
    body = bytes(row.body)
    embed = _parts(body, row.pk)[2]
    headers = kombu_json.loads(row.headers)
    shown = sensitive.representations(current_app, row.task, args, kwargs) or {
        "argsrepr": saferepr(tuple(args), current_app.amqp.argsrepr_maxsize),
        "kwargsrepr": saferepr(kwargs, current_app.amqp.kwargsrepr_maxsize),
    }
    new = kombu_json.dumps([args, kwargs, embed]).encode()
    if len(new) > MOST_BYTES:
        raise Refused(f"The message would have {len(new)} bytes; up to {MOST_BYTES} can be edited.")
    row.original = row.original if row.original is not None else body
    row.body = new
    row.body_bytes = len(row.body)
    row.content_encoding = "utf-8"
    row.headers = kombu_json.dumps(headers | shown)
    row.arguments = f"{shown['argsrepr']} {shown['kwargsrepr']}"[:LONGEST_SHOWN]
    row.save()


def _parts(body: bytes, key: int) -> tuple[list[Any], dict[str, Any], Any]:
    try:
        args, kwargs, embed = kombu_json.loads(body.decode())
    except (ValueError, TypeError, RecursionError):
        args = kwargs = embed = None
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise Refused(f"The message of letter {key} is not a task's; it cannot be edited.")
    return args, kwargs, embed


def _json(text: str, kind: type[Any], what: str, example: str) -> Any:
    if len(text.encode()) > MOST_BYTES:
        raise Refused(f"The {what} are longer than {MOST_BYTES} bytes.")
    try:
        found = json.loads(text)
    except RecursionError:
        raise Refused(f"The {what} are nested too deeply.") from None
    except ValueError as error:
        raise Refused(f"The {what} are not JSON: {error}. Write them like {example}.") from None
    if not isinstance(found, kind):
        raise Refused(f"The {what} are a JSON {'list' if kind is list else 'object'} such as {example}.")
    return found


def _refuse_wrong_arguments(name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Refuse what the task would refuse at its start; a task that is not registered here is not checked."""
    load_tasks()
    task = current_app.tasks.get(name)
    if task is None:
        return
    try:
        inspect.signature(task.run).bind(*args, **kwargs)
    except TypeError as error:
        raise Refused(f"{name} does not take these arguments: {error}.") from None
