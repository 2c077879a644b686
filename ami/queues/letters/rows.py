"""Writes dead letters as rows, once for each death, and gives them up."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, QuerySet
from django.db.models.functions import Now
from kombu import Message
from kombu.utils import json

from ami.admission import stopped
from ami.celery import storable
from ami.celery.app import LETTER_HEADER, PUBLISH_ID_HEADER
from ami.celery.message_copy import HISTORY_HEADERS, PROPERTIES, fresh
from ami.queues.dead_letters import DeadLetter, cell, letter
from ami.queues.letters import bodies, causes
from ami.queues.letters.selection import Selection
from ami.queues.models import Letter, LetterEvent
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator, refuse_wrong

#: A stranger's message that was written, and not yet acknowledged, is expected back within this time.
RETURNS_WITHIN = timedelta(minutes=10)
BATCH = 100
FORGOTTEN = 500
#: A letter in these states was published again, and may come back.
OUTSIDE = (Letter.State.REPLAYED, Letter.State.DONE)
#: What the next death of a letter replaces.
DEATH = ("identity", "queue", "reason", "detail", "deaths", "retries")


def write(queue: str, messages: Sequence[Message]) -> None:
    """Write letters of one queue, one row for each death; the caller acknowledges them after the commit.

    A death that is written already stays as it is: a process that died between the commit and the acknowledgement gets
    its messages again.
    """
    rows = [row_of(queue, message) for message in messages]
    causes.explain(rows)
    with transaction.atomic():
        expected = _unsettled(rows)
        new = []
        for row, message in zip(rows, messages, strict=True):
            if row.digest and _is_redelivered(message) and expected[row.digest] > 0:
                expected[row.digest] -= 1
            elif not _came_back(row, message):
                bodies.keep(row, bodies.of(message))
                new.append(row)
        Letter.objects.bulk_create(new, ignore_conflicts=True)


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
    rows = dead(queue).defer("body", "original", "headers", "properties", "deaths")[:limit]
    return [shown(row) for row in rows]


def shown(row: Letter) -> DeadLetter:
    return DeadLetter(row.queue, row.task_id, row.task, row.reason, row.retries, row.arguments, row.detail, row.pk)


def discard(letters: "QuerySet[Letter]", limit: int | None = None, *, by: str = "", why: str = "") -> int:
    """Give up the oldest of these letters, or all that are dead; return how many. Their rows stay for a while."""
    rows = letters.filter(state=Letter.State.DEAD).order_by("pk")
    done = 0
    while left := rows.values_list("pk", flat=True)[: BATCH if limit is None else min(BATCH, limit - done)]:
        with transaction.atomic():
            batch = Letter.objects.filter(pk__in=list(left))
            # Writing first: SQLite refuses a transaction that begins to write after another has.
            done += batch.filter(state=Letter.State.DEAD).update(state=Letter.State.DISCARDED)
            keys = batch.filter(state=Letter.State.DISCARDED).values_list("pk", flat=True)
            record(list(keys), LetterEvent.What.DISCARDED, by=by, why=why)
            _let_keys_go_on(set(batch.values_list("task_id", flat=True)))
    return done


def discard_recorded(selection: Selection, operator: Operator, *, why: str = "", limit: int | None = None) -> int:
    """Give up the dead letters that fit, oldest first, with an entry in the audit log; return how many.

    Raises:
        Refused: ``why`` is too long, or no letter fits.
    """
    refuse_wrong(why, None)
    count = selection.count(limit)
    if not count:
        raise Refused(f"No dead letter fits ({selection}); nothing was done.")
    # Before the first: a process that is killed has been recorded.
    which = f"{count} letters: {selection}"
    operator.record("discard", which=which, why=why)
    return discard(selection.rows(), limit, by=operator.name, why=why)


def done(key: int, task_id: str) -> None:
    """Note that the task of a letter succeeded after its replay."""
    replayed = Letter.objects.filter(pk=key, task_id=task_id, state=Letter.State.REPLAYED)
    if replayed.update(state=Letter.State.DONE):
        record([key], LetterEvent.What.DONE)
        stopped.give_up([task_id])  # Where its task had no order any more, its message was no call.


def record(keys: Sequence[int], what: str, *, by: str = "", why: str = "", detail: str = "") -> None:
    """Add an event to the trail of each of these letters; one statement."""
    LetterEvent.objects.bulk_create(
        LetterEvent(letter_id=key, at=Now(), what=what, by=by[:255], why=why[:500], detail=detail[:500]) for key in keys
    )


def forget_old() -> int:
    """Delete some letters that died longer than ANTENNA_LETTER_DAYS ago, whatever became of them; return how many.

    Never one that is set aside. As few as `FORGOTTEN` at once; fewer means that no more are left.
    """
    kept = timedelta(days=settings.ANTENNA_LETTER_DAYS)
    old = Letter.objects.filter(collected_at__lt=Now() - kept).exclude(state=Letter.State.SET_ASIDE)
    rows = list(old.order_by("collected_at").values_list("pk", "body_name", "task_id")[:FORGOTTEN])
    found = {key: body for key, body, _ in rows}
    bodies.delete(found.values())
    with transaction.atomic():
        LetterEvent.objects.filter(letter__in=found).delete()
        Letter.objects.filter(pk__in=found).only("pk").delete()
        _let_keys_go_on({task_id for *_, task_id in rows})
    return len(found)


def _let_keys_go_on(task_ids: set[str]) -> None:
    """Let the keys in order that stopped at these letters go on, unless a later letter of the same task is dead."""
    dead = set(Letter.objects.filter(task_id__in=task_ids, state=Letter.State.DEAD).values_list("task_id", flat=True))
    stopped.give_up(task_ids - dead)


def dead(queue: str) -> "QuerySet[Letter]":
    """Return the dead letters of a queue that are rows, oldest first."""
    return Letter.objects.filter(queue=queue, state=Letter.State.DEAD).order_by("pk")


def row_of(queue: str, message: Any) -> Letter:
    """Return an unsaved letter; its body and its cause are set elsewhere."""
    said, deaths = letter(queue, message), _deaths(message)
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
        task_id=said.task_id,
        task=said.task,
        reason=said.reason,
        detail=said.detail[:500],
        retries=said.retries,
        arguments=said.arguments,
        content_type=cell(message.content_type or ""),
        content_encoding=cell(message.content_encoding or ""),
        headers=_json(kept),
        properties=_json({name: message.properties.get(name) for name in PROPERTIES}),
        deaths=_json({name: headers[name] for name in HISTORY_HEADERS if name in headers}),
        first_reason=said.reason,
        first_collected_at=Now(),
        collected_at=Now(),
    )


def _came_back(row: Letter, message: Message) -> bool:
    """Whether the message is a letter that was published again and died again: its row is dead once more.

    Two copies of one replay are one death: the second finds its row dead.
    """
    key = (message.headers or {}).get(LETTER_HEADER)
    if not isinstance(key, int) or Letter.objects.filter(identity=row.identity).exists():
        return False
    again = Letter.objects.filter(pk=key, task_id=row.task_id)
    values = {name: getattr(row, name) for name in (*DEATH, *causes.FIELDS)}
    is_new = again.filter(state__in=OUTSIDE).update(
        **values, state=Letter.State.DEAD, died=F("died") + 1, collected_at=Now()
    )
    if not is_new and not again.filter(state=Letter.State.DEAD).exists():
        return False
    if is_new:
        _keep_changed(again.get(), row, bodies.of(message))
    record([key], LetterEvent.What.DIED, detail=row.detail or row.reason)
    return True


def _keep_changed(known: Letter, row: Letter, body: bytes) -> None:
    """Keep the message that died where it is another one: a retry may have had other arguments."""
    if known.body_bytes == len(body) and bodies.read(known) == body:
        return
    if known.original is None and not known.body_name:
        known.original = bytes(known.body)
    known.body, known.body_name = b"", ""
    bodies.keep(known, body)
    known.headers, known.arguments = row.headers, row.arguments
    known.save(update_fields=("original", "body", "body_name", "body_bytes", "headers", "arguments"))


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
    return storable.count(sum(map(storable.count, found)))


def _digest(message: Message) -> str:
    data = bodies.of(message)
    return hashlib.sha256(
        data + repr(sorted(map(str, fresh(message.headers).items()))).encode("utf-8", "surrogatepass")
    ).hexdigest()


def _is_redelivered(message: Message) -> bool:
    return bool((message.delivery_info or {}).get("redelivered"))
