"""Writes dead letters as rows, once for each death, and publishes them again from there."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from django.db import transaction
from django.db.models import Count, F, QuerySet
from django.db.models.functions import Now
from kombu import Connection, Message
from kombu.utils import json

from ami.celery.app import PUBLISH_ID_HEADER
from ami.celery.message_copy import HISTORY_HEADERS, PROPERTIES, fresh, publish
from ami.queues.dead_letters import DeadLetter, cell, letter
from ami.queues.models import Letter

#: Header of a letter that is published again: the key of its row, so that its next death is found there.
LETTER_HEADER = "antenna_letter"
KEPT = timedelta(days=30)
#: A stranger's message that was written, and not yet acknowledged, is expected back within this time.
RETURNS_WITHIN = timedelta(minutes=10)
BATCH = 100


def write(queue: str, messages: Sequence[Message]) -> None:
    """Write letters of one queue, one row for each death; the caller acknowledges them after the commit.

    A death that is written already stays as it is: a process that died between the commit and the acknowledgement gets
    its messages again.
    """
    rows = [_row(queue, message) for message in messages]
    with transaction.atomic():
        expected = _unsettled(rows)
        new = []
        for row, message in zip(rows, messages, strict=True):
            if row.digest and _is_redelivered(message) and expected[row.digest] > 0:
                expected[row.digest] -= 1
                continue
            new.append(row)
        came_back = {row.identity: _came_back(row, message) for row, message in zip(rows, messages, strict=True)}
        Letter.objects.bulk_create([row for row in new if not came_back.get(row.identity)], ignore_conflicts=True)


def settled(rows: Sequence[Message]) -> None:
    """Note that letters of strangers were acknowledged: an equal message is another one from now on."""
    digests = [each for each in (_digest(message) for message in rows if not _publish_id(message)) if each]
    if digests:
        Letter.objects.filter(digest__in=digests, is_settled=False).update(is_settled=True)


def counts() -> dict[str, int]:
    """Return how many dead letters of each queue are kept as rows."""
    groups = Letter.objects.filter(state=Letter.State.DEAD).values_list("queue").annotate(count=Count("pk"))
    return dict(groups.order_by())


def oldest(queue: str, limit: int) -> list[DeadLetter]:
    """Return the oldest dead letters of a queue that are rows."""
    rows = dead(queue).defer("body", "headers", "properties", "deaths")[:limit]
    return [
        DeadLetter(row.queue, row.task_id, row.task, row.reason, row.retries, row.arguments, row.detail) for row in rows
    ]


def replay(
    connection: Connection,
    letters: "QuerySet[Letter]",
    destination: Callable[[Any], tuple[str, str]],
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Publish the oldest of these letters again, all retries before them; return how many. Only dead ones are.

    Each is marked after the broker has confirmed it, in the order of their keys: a process that dies in between leaves
    one letter that is published twice, and run again, it goes on with the next ones.

    Raises:
        amqp.exceptions.AMQPError: a publish was refused; that letter stays dead.
    """
    done = 0
    options = {**(connection.transport_options or {}), "confirm_publish": True}
    with connection.clone(transport_options=options) as confirming:
        channel = confirming.channel()
        for row in _in_batches(letters.filter(state=Letter.State.DEAD), limit):
            message = _message(row)
            publish(channel, message, message.body, *destination(message), message.headers)
            Letter.objects.filter(pk=row.pk, state=Letter.State.DEAD).update(
                state=Letter.State.REPLAYED, replayed_at=Now()
            )
            done += 1
            if progress:
                progress(done)
    return done


def discard(letters: "QuerySet[Letter]", limit: int | None = None) -> int:
    """Give up the oldest of these letters, or all that are dead; their rows stay for 30 days. Return how many."""
    rows = letters.filter(state=Letter.State.DEAD)
    if limit is not None:
        rows = Letter.objects.filter(pk__in=list(rows.values_list("pk", flat=True)[:limit]), state=Letter.State.DEAD)
    return int(rows.order_by().update(state=Letter.State.DISCARDED))


def forget_old() -> None:
    """Delete letters that died longer than `KEPT` ago, whatever became of them."""
    Letter.objects.filter(collected_at__lt=Now() - KEPT).delete()


def dead(queue: str) -> "QuerySet[Letter]":
    """Return the dead letters of a queue that are rows, oldest first."""
    return Letter.objects.filter(queue=queue, state=Letter.State.DEAD).order_by("pk")


def _in_batches(letters: "QuerySet[Letter]", limit: int | None) -> Iterator[Letter]:
    last, left = 0, limit
    while left is None or left > 0:
        rows = list(letters.order_by("pk").filter(pk__gt=last)[: BATCH if left is None else min(BATCH, left)])
        if not rows:
            return
        yield from rows
        last, left = rows[-1].pk, None if left is None else left - len(rows)


def _row(queue: str, message: Message) -> Letter:
    shown, deaths = letter(queue, message), _deaths(message)
    publish_id, digest = _publish_id(message), ""
    if publish_id:
        identity = f"{publish_id}:{deaths}"
    else:
        digest = _digest(message)
        identity = f"{digest[:40]}:{uuid4().hex}"
    headers = message.headers or {}
    kept = fresh(headers)
    if not message.errors:
        kept.pop("compression", None)
    return Letter(
        identity=identity,
        digest=digest,
        queue=queue,
        task_id=shown.task_id,
        task=shown.task,
        reason=shown.reason,
        detail=shown.detail[:500],
        retries=max(0, min(shown.retries, 2**31 - 1)),
        arguments=shown.arguments,
        body=_bytes(message),
        content_type=cell(message.content_type or ""),
        content_encoding=cell(message.content_encoding or ""),
        headers=_json(kept),
        properties=_json({name: message.properties.get(name) for name in PROPERTIES}),
        deaths=_json({name: headers[name] for name in HISTORY_HEADERS if name in headers}),
        collected_at=Now(),
    )


def _came_back(row: Letter, message: Message) -> bool:
    """Whether the message is a letter that was published again and died again: its row is dead once more."""
    key = (message.headers or {}).get(LETTER_HEADER)
    if not isinstance(key, int) or Letter.objects.filter(identity=row.identity).exists():
        return False
    again = Letter.objects.filter(pk=key, state=Letter.State.REPLAYED, task_id=row.task_id)
    values = {name: getattr(row, name) for name in ("identity", "queue", "reason", "detail", "deaths", "retries")}
    return bool(again.update(**values, state=Letter.State.DEAD, died=F("died") + 1, collected_at=Now()))


def _message(row: Letter) -> Any:
    """Return what publishes the letter again: a new publish, and the key of its row."""
    headers = json.loads(row.headers) | {"retries": 0, PUBLISH_ID_HEADER: uuid4().hex, LETTER_HEADER: row.pk}
    return SimpleNamespace(
        body=bytes(row.body),
        headers=headers,
        properties={name: value for name, value in json.loads(row.properties).items() if value is not None},
        content_type=row.content_type or None,
        content_encoding=row.content_encoding or None,
    )


def _unsettled(rows: Sequence[Letter]) -> Counter[str]:
    """Return how many letters of each digest were written and not acknowledged: so many are delivered again."""
    digests = {row.digest for row in rows if row.digest}
    if not digests:
        return Counter()
    kept = Letter.objects.filter(digest__in=digests, is_settled=False, collected_at__gt=Now() - RETURNS_WITHIN)
    return Counter(dict(kept.values_list("digest").annotate(count=Count("pk")).order_by()))


def _json(values: dict[str, Any]) -> str:
    """Return headers as JSON; of a stranger's value that JSON cannot tell, its text."""
    try:
        return str(json.dumps(values))
    except (TypeError, ValueError, RecursionError):
        return str(json.dumps({str(name): repr(value)[:1000] for name, value in values.items()}))


def _publish_id(message: Message) -> str:
    given = (message.headers or {}).get(PUBLISH_ID_HEADER)
    return given if isinstance(given, str) and len(given) <= 64 and given.isalnum() else ""


def _deaths(message: Message) -> int:
    """Return how often the broker has buried the message."""
    entries = (message.headers or {}).get("x-death")
    found = [each.get("count", 1) for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    return sum(count for count in found if isinstance(count, int))


def _digest(message: Message) -> str:
    data = _bytes(message)
    return hashlib.sha256(
        data + repr(sorted(map(str, fresh(message.headers).items()))).encode("utf-8", "surrogatepass")
    ).hexdigest()


def _bytes(message: Message) -> bytes:
    body = message.body
    return body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body or b"")


def _is_redelivered(message: Message) -> bool:
    return bool((message.delivery_info or {}).get("redelivered"))
