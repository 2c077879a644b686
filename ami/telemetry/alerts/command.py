"""``manage.py queues alerts``: what fires, what was sent, whether the receivers work; ``test`` tries them."""

import json
from datetime import datetime, timedelta
from typing import IO, Any

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from django.utils import timezone

from ami.celery.shown_time import shown_time
from ami.queues.management.added import SubCommand
from ami.telemetry.alerts import notices, options, store
from ami.telemetry.alerts.policy import Alert, Event, State
from ami.telemetry.models import Alert as AlertRow
from ami.telemetry.models import AlertReceiver

RECENT = timedelta(hours=24)
ORDER = {State.FIRING: 0, State.PENDING: 1, State.RESOLVED: 2}
TIMES = ("since", "over_at", "last_sent", "next_try")
OFF = "Nothing is evaluated: set ANTENNA_ALERT_WEBHOOK_URL, or ANTENNA_ALERT_EMAIL and EMAIL_URL."


def add_arguments(parser: Any) -> None:
    parser.add_argument(
        "act", nargs="?", choices=("list", "test"), default="list", help="test: send a test alert to each receiver now"
    )


def run(asked: dict[str, Any], out: IO[str]) -> None:
    """Print the alerts and the receivers; after ``test`` end with 1 where one does not accept it."""
    if asked["act"] == "test":
        _test(asked["json"], out)
        return
    alerts, receivers = listed(), states()
    columns: tuple[str, ...]
    if asked["json"]:
        out.write(json.dumps({"alerts": alerts, "receivers": receivers}) + "\n")
        return
    if alerts:
        columns = ("state", "name", "target", "level", "since", "over at", "sent", "sentence")
        _table(out, columns, [_cells(alert, columns) for alert in alerts])
    else:
        out.write("No alert fires, none has in the last 24 hours.\n" if receivers else f"{OFF}\n")
    if receivers:
        columns = ("receiver", "state", "last sent", "since", "tries", "why")
        _table(out, columns, [_cells(row, columns) for row in receivers])


def listed() -> list[dict[str, Any]]:
    """Return the alerts that fire, are pending, or were over in the last 24 hours, in that order."""
    waits = Exists(store.unsent().filter(alert=OuterRef("pk")))
    wanted = ~Q(state=State.RESOLVED) | Q(resolved_at__gt=Now() - RECENT)
    rows: Any = AlertRow.objects.filter(wanted).annotate(waits=waits).order_by("since", "pk")
    return [
        {
            "state": row.state,
            "name": row.name,
            "target": row.target,
            "level": row.level,
            "since": _text(row.fired_at or row.since),
            "over_at": _text(row.resolved_at) if row.state == State.RESOLVED else None,
            "sent": None if row.state == State.PENDING else "waits" if row.waits else "yes",
            "flaps": row.flaps,
            "sentence": row.sentence,
        }
        for row in sorted(rows, key=lambda row: ORDER.get(row.state, 3))
    ]


def states() -> list[dict[str, Any]]:
    """Return how each configured receiver is."""
    rows = AlertReceiver.objects.in_bulk()
    return [_state(name, rows.get(name) or AlertReceiver(name=name)) for name in options.receivers()]


def _state(name: str, row: AlertReceiver) -> dict[str, Any]:
    return {
        "receiver": name,
        "state": "fails" if row.failures else "works" if row.sent_at else "not used yet",
        "last_sent": _text(row.sent_at),
        "since": _text(row.failing_since),
        "tries": row.failures or None,
        "next_try": _text(row.next_try_at),
        "why": row.error or None,
    }


def _test(as_json: bool, out: IO[str]) -> None:
    from ami.telemetry.alerts import receivers

    sentence = "This is a test of the alerts; nothing is wrong."
    alert = Alert("test", "", "warning", sentence, State.FIRING, timezone.now())
    body = {**notices.body(alert, Event.TEST), "id": 0, "sent_at": timezone.now().isoformat(timespec="seconds")}
    outcomes = []
    for name in options.receivers():
        try:
            receivers.send(name, body)
            outcomes.append({"receiver": name, "sent": True, "why": None})
        except receivers.NotSent as error:
            outcomes.append({"receiver": name, "sent": False, "why": str(error)})
    if as_json:
        out.write(json.dumps(outcomes) + "\n")
    elif outcomes:
        rows = [[row["receiver"], "accepted" if row["sent"] else "not sent", row["why"]] for row in outcomes]
        _table(out, ("receiver", "test", "why"), rows)
    else:
        out.write(f"{OFF}\n")
    if not outcomes or not all(row["sent"] for row in outcomes):
        raise SystemExit(1)


def _cells(row: dict[str, Any], columns: tuple[str, ...]) -> list[Any]:
    values = {name: shown_time(value) if name in TIMES else value for name, value in row.items()}
    return [values[column.replace(" ", "_")] for column in columns]


def _text(at: datetime | None) -> str | None:
    return at.isoformat(sep=" ", timespec="seconds") if at else None


def _table(out: IO[str], columns: tuple[str, ...], rows: list[list[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        # Text of findings is no markup.
        table.add_row(*(Text("-" if cell in (None, "") else str(cell)) for cell in row))
    Console(file=out, width=None if out.isatty() else 240).print(table)


COMMAND = SubCommand(
    "show which alerts fire, and whether the receivers work; test: send them a test", add_arguments, run
)
