"""A plain query of the rows that a page shows, for each page that shows rows."""

from collections.abc import Callable
from typing import Any

from django.db import connection

from ami.queues.models import Letter
from tests.support import console_rows

SAMPLES = (
    "SELECT at, waiting, running, consumers, started, ended, failed FROM telemetry_sample WHERE kind = 'queue' "
    "AND name = %s AND resolution = %s AND at > now() - %s::interval ORDER BY at"
)
SNAPSHOT = "SELECT value FROM telemetry_sharedvalue WHERE name = 'snapshot'"
COLUMNS = "id, task, task_id, exception, cause_text, arguments, collected_at"
DEAD = f"SELECT {COLUMNS} FROM queues_letter WHERE state = 'dead'"  # noqa: S608
AUDIT = "SELECT at, who, verb, target, why FROM queues_auditentry"


def of(name: str, address: str) -> Callable[[], Any] | None:
    """Return a function that runs the query; None where a page shows no rows."""
    queue, query = console_rows.queues()[0], address.partition("?")[2]
    by_name: dict[str, tuple[str, list[Any]]] = {
        **dict.fromkeys(("overview", "queue", "workers", "worker"), (SNAPSHOT, [])),
        "letters": ("SELECT cause, count(*) FROM queues_letter WHERE state = 'dead' GROUP BY cause", []),
        "letter_list": (f"{DEAD} ORDER BY id DESC LIMIT 50", []),
        "letter_group": (f"{DEAD} AND cause = %s ORDER BY id DESC LIMIT 50", [f"{3:040x}"]),
        "letter": ("SELECT * FROM queues_letter WHERE id = %s", [Letter.objects.latest("pk").pk]),
        "letter_edit": ("SELECT * FROM queues_letter WHERE id = %s", [Letter.objects.latest("pk").pk]),
        "replays": ("SELECT * FROM queues_replay ORDER BY id DESC LIMIT 50", []),
        "schedule": ("SELECT * FROM django_celery_beat_periodictask", []),
        "audit": (f"{AUDIT} ORDER BY at DESC LIMIT 50", []),
        "task": ("SELECT * FROM queues_taskfailure WHERE task_id = 'task-7'", []),
    }
    by_query: dict[tuple[str, str], tuple[str, list[Any]]] = {
        ("series", "span=1h"): (SAMPLES, [queue, 5, "1 hour"]),
        ("series", "span=24h"): (SAMPLES, [queue, 60, "24 hours"]),
        ("series", "span=7d"): (SAMPLES, [queue, 3600, "7 days"]),
        ("letter_list", "page=100"): (f"{DEAD} ORDER BY id DESC LIMIT 50 OFFSET 4950", []),
        ("letter_list", "text=task-7"): (f"{DEAD} AND upper(task_id) LIKE '%%TASK-7%%' ORDER BY id DESC LIMIT 50", []),
        ("audit", "page=1000"): (f"{AUDIT} ORDER BY at DESC LIMIT 50 OFFSET 49950", []),
        ("audit", "verb=pause"): (f"{AUDIT} WHERE verb = 'pause' ORDER BY at DESC LIMIT 50", []),
        ("audit", "who=person3"): (f"{AUDIT} WHERE upper(who) LIKE '%%PERSON3%%' ORDER BY at DESC LIMIT 50", []),
        ("audit", "target=ingest"): (f"{AUDIT} WHERE upper(target) LIKE '%%INGEST%%' ORDER BY at DESC LIMIT 50", []),
    }
    found = by_query.get((name, query)) or by_name.get(name)
    return _run(*found) if found else None


def _run(statement: str, given: list[Any]) -> Callable[[], Any]:
    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, given)
            cursor.fetchall()

    return run
