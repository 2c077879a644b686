"""Records who did what to what: a row of the audit log, a log line, and for users the admin's history of the rows."""

import getpass
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import Error, connection, transaction
from django.utils import timezone

from ami.celery import storable
from ami.celery.database_away import is_away
from ami.queues.models import AuditEntry, RefusedRequests
from ami.queues.redaction import redact_text

logger = logging.getLogger("ami.audit")

#: Above so many rows the history has one entry that lists their keys, instead of one per row.
MOST_ENTRIES = 500
LONGEST_LIST = 20_000
LONGEST_OUTCOME = 1000


def record(
    what: str,
    *,
    who: Any,
    rows: Sequence[Any] = (),
    which: str = "",
    outcome: str = "done",
    flag: int = CHANGE,
    in_history: bool = True,
    before: Any = None,
    after: Any = None,
    why: str = "",
    source: str = "",
) -> None:
    """Record an operation that happened or was tried; a failure to write it down is logged, not raised.

    Args:
        what: the operation, in words or as its name.
        who: a user, or another actor as text (`command_user`).
        rows: what it was about: model instances, or `Row`.
        which: what it was about when that is not a row, such as a queue.
        outcome: its result.
        flag: the kind of the history's entries: ADDITION, CHANGE or DELETION.
        in_history: whether a user's operation also shows on the pages of its rows.
        before: what was, as JSON; ``after``: what is now.
        why: the operator's reason.
        source: where it was asked for: ``command``, ``admin``, ``api``, ``worker``.
    """
    outcome = _shown(outcome)[:LONGEST_OUTCOME]
    named = which or ", ".join(f"{row._meta.label} {keys}" for row, keys in _by_model(rows))
    what = _shown(what)
    named, why = _shown(named[:LONGEST_LIST]), _shown(why)
    entry = {"who": name_of(who), "what": what, "which": named, "outcome": outcome} | ({"why": why} if why else {})
    # JSON, so that a user's text cannot look like a separate line.
    logger.info(json.dumps(entry))
    row = AuditEntry(who=storable.text(name_of(who)), verb=what[:255], target=named, outcome=outcome, why=why[:500])
    row.user_id = getattr(who, "pk", None)
    row.before, row.after, row.source = before, after, source or _source(who)
    _write(row)
    if in_history and rows and getattr(who, "pk", None):
        _add_to_history(who.pk, rows, flag, f"{what}: {outcome}")


def count_refused(what: str, *, user: Any, status: int) -> None:
    """Count a request that was answered with ``status``, 400 or more: a row for each user, status and hour.

    The log has a line for each, as for an operation. A failure to count it is logged, not raised.
    """
    what = _shown(what)
    logger.info(json.dumps({"who": name_of(user), "what": what, "which": "", "outcome": f"answered {status}"}))
    table = connection.ops.quote_name(RefusedRequests._meta.db_table)
    hour = connection.ops.adapt_datetimefield_value(timezone.now().replace(minute=0, second=0, microsecond=0))
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {table} (user_id, status, hour, requests, last) VALUES (%s, %s, %s, 1, %s) "  # noqa: S608
                f"ON CONFLICT (hour, user_id, status) DO UPDATE "
                f"SET requests = {table}.requests + 1, last = excluded.last",
                [user.pk, status, hour, what[:255]],
            )
    except Error as error:
        logger.info("Refused request not counted: %s", str(error).partition("\n")[0], extra={"operation": what})


@contextmanager
def recorded(what: str, *, who: Any, which: str = "") -> Iterator[None]:
    """Record what happens inside as done, or as failed with the error's name and words."""
    try:
        yield
    except BaseException as error:
        record(what, who=who, which=which, outcome=f"failed: {type(error).__name__}: {error}")
        raise
    record(what, who=who, which=which)


def command_user() -> str:
    """Return the operator of a command: ``command:`` and the name of the process's user."""
    try:
        return f"command:{getpass.getuser()}"
    except (KeyError, OSError):  # A container's user need not have a name.
        return f"command:{os.getuid()}"


class Row:
    """A row that is known by its model and key alone, or was deleted."""

    def __init__(self, model: Any, pk: Any) -> None:
        self._meta, self.pk = model._meta, pk

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"


def name_of(who: Any) -> str:
    return f"user {who.pk} {who}" if getattr(who, "pk", None) else str(who)


def _source(who: Any) -> str:
    return "command" if str(who).startswith("command:") else "admin"


def _shown(text: str) -> str:
    return redact_text(storable.text(text, None))


def _write(row: AuditEntry) -> None:
    """Write an entry; without the values before and after where the database refuses those."""
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except Exception as error:  # Also what a driver raises for a value that it cannot send.
        logger.info("Audit entry not written: %s", str(error).partition("\n")[0], extra={"operation": row.verb})
        if not is_away(error) and (row.before, row.after) != (None, None):
            row.before = row.after = None
            _write(row)


def _by_model(rows: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(row._meta.label, []).append(row)
    for group in groups.values():
        yield group[0], ranges([row.pk for row in group])


def ranges(keys: Sequence[Any]) -> str:
    """Return keys as text, neighbours as a range: ``1-3, 7``."""
    if not all(isinstance(key, int) for key in keys):
        return ", ".join(map(str, keys))
    parts: list[list[int]] = []
    for key in sorted(keys):
        if parts and key == parts[-1][1] + 1:
            parts[-1][1] = key
        else:
            parts.append([key, key])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def _add_to_history(user_id: Any, rows: Sequence[Any], flag: int, message: str) -> None:
    try:
        with transaction.atomic():
            _write_history(user_id, rows, flag, message)
    except Exception:
        logger.exception("History entry not written", extra={"operation": message})


def _write_history(user_id: Any, rows: Sequence[Any], flag: int, message: str) -> None:
    if len(rows) > MOST_ENTRIES:
        listed = next(keys for _, keys in _by_model(rows))
        message, rows = f"{message} ({listed})"[:LONGEST_LIST], [_Many(rows)]
    LogEntry.objects.bulk_create(
        LogEntry(
            user_id=user_id,
            content_type=ContentType.objects.get_for_model(row._meta.model, for_concrete_model=False),
            object_id=row.pk,
            object_repr=_shown(str(row))[:200],
            action_flag=flag,
            change_message=message,
        )
        for row in rows
    )


class _Many(Row):
    """Many rows of one model, as one entry."""

    def __init__(self, rows: Sequence[Any]) -> None:
        super().__init__(rows[0], None)
        self._text = f"{len(rows)} {self._meta.verbose_name_plural}"

    def __str__(self) -> str:
        return self._text
