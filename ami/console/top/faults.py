"""A sentence about each source that does not answer."""

from celery import current_app
from django.conf import settings

from ami.queues import database_errors
from ami.queues.diagnostics.finding import AWAY, OF_BROKER
from ami.telemetry.broker_figures import link
from ami.telemetry.snapshots.shape import FindingFigures, Snapshot


def database_fault(error: BaseException) -> str:
    """Return why the database cannot be used, on one line and without a password."""
    return f"The database does not answer: {database_errors.why(error)}"


def without_database(error: BaseException) -> tuple[str, ...]:
    """Return the database's sentence, and the broker's if that does not answer either."""
    unseen = link.read(current_app, settings.ANTENNA_TOPOLOGY, letters=False, delayed=False).unseen
    return (database_fault(error), *([unseen] if unseen else []))


def away(snapshot: Snapshot) -> tuple[str, ...]:
    """Return a sentence about each source that did not answer, each once."""
    shown = OF_BROKER if snapshot.unseen else ()
    found = [each.sentence for each in snapshot.findings if is_away(each) and each.name not in shown]
    return tuple(dict.fromkeys([*snapshot.unseen, *found]))


def is_away(finding: FindingFigures) -> bool:
    """Whether a finding says that a source did not answer."""
    return finding.level == "error" and finding.name in AWAY
