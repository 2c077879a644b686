"""Records what operators want, each wish with its entry in the audit log, and wakes the workers."""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery import current_app
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from ami.queues import audit_log, broker_errors
from ami.queues.models import DesiredState
from ami.queues.refusals import Refused
from ami.queues.targets import Target

logger = logging.getLogger(__name__)

LONGEST_WHY = 500
#: Seconds for which a broker that does not answer may hold up an operation; the workers read the wish all the same.
WAKE_SECONDS = 2.0
#: Kinds of which an operator may name what does not exist, and so many of each are kept.
FREELY_NAMED, MOST_OF_A_KIND = (DesiredState.Kind.JOB, DesiredState.Kind.FAIR_KEY), 10_000


@dataclass(frozen=True)
class Operator:
    """Who asks, and from where: ``command``, ``admin``, ``api`` or ``program``. ``who`` is a user or a text."""

    who: Any
    source: str = "program"

    @property
    def name(self) -> str:
        return audit_log.name_of(self.who)

    def record(self, what: str, **about: Any) -> None:
        """Write to the audit log what was done; ``about`` is the rest of what `audit_log.record` takes."""
        audit_log.record(what, who=self.who, source=self.source, **about)


def record(
    operator: Operator,
    verb: str,
    target: Target,
    aspect: str,
    value: int,
    *,
    why: str = "",
    until: datetime | None = None,
) -> None:
    """Replace the wish for one aspect of the target, write the audit log, and wake the workers after the commit.

    Raises:
        Refused: ``until`` is over, or ``why`` is too long.
        django.db.Error: the database did not take it; nothing was changed.
    """
    refuse_wrong(why, until)
    with transaction.atomic():
        row = DesiredState.objects.filter(kind=target.kind, name=target.name, aspect=aspect).first()
        if row is None:
            _refuse_many(target.kind)
        before = _shown(row)
        DesiredState.objects.update_or_create(
            kind=target.kind,
            name=target.name,
            aspect=aspect,
            defaults={
                "value": value,
                "by": operator.name[:255],
                "why": why,
                "since": Now(),
                "until": until,
            },
        )
        after = {aspect: value, "until": until.isoformat() if until else None}
        operator.record(verb, which=str(target), before=before, after=after, why=why)
        transaction.on_commit(wake_workers)


def _refuse_many(kind: str) -> None:
    if kind in FREELY_NAMED and DesiredState.objects.filter(kind=kind).count() >= MOST_OF_A_KIND:
        raise Refused(f"{MOST_OF_A_KIND:,} states of a {kind} are kept already; undo those of old ones first.")


def moment(text: str) -> datetime:
    """Return the time that an operator has written; without a zone it is the server's.

    Raises:
        Refused: it is no time.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"'{text[:40]}' is not a time such as 2026-01-31T06:00.") from None
    return found if found.tzinfo else found.replace(tzinfo=timezone.get_current_timezone())


def refuse_wrong(why: str, until: datetime | None) -> None:
    """Raise `Refused` for a reason that is too long, or a time that is over or has no zone."""
    if len(why) > LONGEST_WHY:
        raise Refused(f"The reason has {len(why)} characters; give at most {LONGEST_WHY}.")
    if until is None:
        return
    if until.tzinfo is None:
        raise Refused(f"{until} has no time zone; write it like 2026-01-31T06:00+00:00.")
    if until <= timezone.now():
        raise Refused(f"{until} is over; give a time in the future.")


def wake_workers() -> None:
    """Tell every worker to read the wishes now. Without the broker they do within ten seconds."""
    options = {"max_retries": 0, "interval_start": 0}
    try:
        with current_app.connection_for_write(connect_timeout=WAKE_SECONDS) as connection:
            connection.ensure_connection(max_retries=1, timeout=WAKE_SECONDS)
            current_app.control.broadcast("antenna_wishes_changed", connection=connection, retry_policy=options)
    except broker_errors.kinds() as error:
        logger.warning("Workers not woken, they read the wish within 10 s: %s", error)


def holds(target: Target, aspect: str) -> DesiredState | None:
    """Return the wish for one aspect of the target while it holds; None where there is none, it is 0, or it is over."""
    found = DesiredState.objects.filter(kind=target.kind, name=target.name, aspect=aspect).exclude(value=0).first()
    return found if found and (found.until is None or found.until > timezone.now()) else None


def _shown(row: DesiredState | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {row.aspect: row.value, "by": row.by, "why": row.why, "until": row.until.isoformat() if row.until else None}
