"""``manage.py queues alerts``: what fires, what was sent, whether the receivers work; ``test`` tries them."""

import json
from datetime import datetime
from typing import IO, Any

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from ami.celery.shown_time import shown_time
from ami.queues.management import table
from ami.queues.management.added import SubCommand
from ami.telemetry.alerts import notices, options, receiver_findings
from ami.telemetry.alerts.policy import Event
from ami.telemetry.models import Alert

ORDER = ("firing", "pending", "resolved")
TIMES = ("since", "over_at")
OFF = "Nothing is evaluated: set ANTENNA_ALERT_WEBHOOK_URL, or ANTENNA_ALERT_EMAIL and EMAIL_URL."
NO_LINK = "Set ANTENNA_PUBLIC_URL: without it alerts have no link to the handbook."


def add_arguments(parser: Any) -> None:
    parser.add_argument(
        "act", nargs="?", choices=("list", "test"), default="list", help="test: send a test alert to each receiver now"
    )


def run(asked: dict[str, Any], out: IO[str]) -> None:
    """Print the alerts and the receivers; after ``test`` end with 1 where one does not accept it."""
    if asked["act"] == "test":
        _test(asked["json"], out)
        return
    alerts, receivers = listed(), receiver_findings.states()
    if asked["json"]:
        out.write(json.dumps({"alerts": alerts, "receivers": receivers}) + "\n")
        return
    if alerts:
        _table(out, ("state", "name", "target", "level", "since", "over at", "sent", "sentence"), alerts)
    else:
        out.write("No alert fires, none has in the last 24 hours.\n" if receivers else f"{OFF}\n")
    if receivers:
        _table(out, ("receiver", "state", "waiting", "since", "tries", "why"), receivers)


def listed() -> list[dict[str, Any]]:
    """Return the alerts that fire, are pending, or were over in the last 24 hours, in that order."""
    rows = Alert.objects.filter(Q(resolved_at=None) | Q(resolved_at__gt=Now() - options.KEPT)).order_by("since", "pk")
    return [
        {
            "state": row.state,
            "name": row.name,
            "target": row.target,
            "level": row.level,
            "since": _text(row.fired_at or row.since),
            "over_at": _text(row.resolved_at),
            "sent": None if row.fired_at is None else "yes" if options.is_sent(row) else "waits",
            "sentence": row.sentence,
        }
        for row in sorted(rows, key=lambda row: ORDER.index(row.state))
    ]


def _test(as_json: bool, out: IO[str]) -> None:
    from ami.telemetry.alerts import receivers

    now = timezone.now()
    sentence = "This is a test of the alerts; nothing is wrong."
    alert = Alert(name="test", level="warning", sentence=sentence, since=now, fired_at=now)
    outcomes = []
    for name in options.receivers():
        try:
            receivers.send(name, notices.body(alert, Event.TEST))
            outcomes.append({"receiver": name, "test": "accepted", "sent": True, "why": None})
        except receivers.NotSent as error:
            outcomes.append({"receiver": name, "test": "not sent", "sent": False, "why": str(error)})
    if as_json:
        out.write(json.dumps(outcomes) + "\n")
    elif outcomes:
        _table(out, ("receiver", "test", "why"), outcomes)
        if not settings.ANTENNA_PUBLIC_URL:
            out.write(f"{NO_LINK}\n")
    else:
        out.write(f"{OFF}\n")
    if not outcomes or not all(row["sent"] for row in outcomes):
        raise SystemExit(1)


def _text(at: datetime | None) -> str | None:
    return at.isoformat(sep=" ", timespec="seconds") if at else None


def _table(out: IO[str], columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row.update({name: shown_time(row[name]) for name in TIMES if row.get(name)})
    cells = ([row[column.replace(" ", "_")] or None for column in columns] for row in rows)
    table.write(out, rows, cells, columns, as_json=False)


COMMAND = SubCommand(
    "show which alerts fire, and whether the receivers work; test: send them a test", add_arguments, run
)
