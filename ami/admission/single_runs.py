"""Begins and ends the runs of one call that leave nothing behind but their share of the work: most of them. Plain
statements, one each, since they stand beside every such task.
"""

from django.db import connection, transaction

from ami.admission.models import Call, Run, Share
from ami.celery import connection_names

_CALLS, _RUNS, _SHARES = Call._meta.db_table, Run._meta.db_table, Share._meta.db_table
_BEGIN = f"""
UPDATE {_RUNS} SET state = '{Run.State.RUNNING}', delivery = %s, worker = %s, began_at = CURRENT_TIMESTAMP
WHERE id = %s AND state = '{Run.State.SENT}'
"""  # noqa: S608 - names of the models
_END = f"DELETE FROM {_RUNS} WHERE id = %s AND delivery = %s AND state = '{Run.State.RUNNING}'"  # noqa: S608
_USED = f"""
UPDATE {_SHARES} SET used = used + %s / ended.weight FROM {{ended}} AS ended
WHERE {_SHARES}.queue = ended.queue AND {_SHARES}.fair_key = ended.fair_key
"""  # noqa: S608
_END_ALL = f"""
WITH ended AS ({_END} RETURNING id, queue, fair_key, weight), used AS ({_USED.format(ended="ended")})
DELETE FROM {_CALLS} WHERE run IN (SELECT id FROM ended)
"""  # noqa: S608


def begin(run: str, delivery: str) -> bool:
    """Begin a run that was sent and has not begun; False if it has, or has ended."""
    with connection.cursor() as cursor:
        cursor.execute(_BEGIN, [delivery, connection_names.incarnation(), run])
        return bool(cursor.rowcount)


def end(run: str, delivery: str, seconds: float) -> bool:
    """Delete a run of so many seconds that this delivery has begun, and its call; False if it was taken away before."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_END_ALL, [run, delivery, seconds])
            return bool(cursor.rowcount)
        with transaction.atomic():
            mine = f"(SELECT * FROM {_RUNS} WHERE id = %s AND delivery = %s AND state = '{Run.State.RUNNING}')"  # noqa: S608
            cursor.execute(_USED.format(ended=mine), [seconds, run, delivery])
            cursor.execute(_END, [run, delivery])
            is_mine = bool(cursor.rowcount)
            if is_mine:
                cursor.execute(f"DELETE FROM {_CALLS} WHERE run = %s", [run])  # noqa: S608
            return is_mine
