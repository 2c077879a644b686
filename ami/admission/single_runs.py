"""Begins and ends the runs of one call that leave nothing behind but their share of the work: most of them. Plain
statements, one each, since they stand beside every such task.
"""

from django.db import connection, transaction

from ami.admission import shares
from ami.admission.models import Call, Run
from ami.celery import connection_names, database_times

_CALLS, _RUNS = Call._meta.db_table, Run._meta.db_table
_BEGIN = f"""
UPDATE {_RUNS} SET state = '{Run.State.RUNNING}', delivery = %s, worker = %s, began_at = {{now}}
WHERE id = %s AND state = '{Run.State.SENT}' AND task = %s
"""  # noqa: S608 - names of the models
_OF_CALL = f" AND call IN (SELECT id FROM {_CALLS} WHERE task_id = %s)"  # noqa: S608
_MINE = f"FROM {_RUNS} WHERE id = %s AND delivery = %s AND state = '{Run.State.RUNNING}'"
_END_ALL = f"""
WITH ended AS (DELETE {_MINE} RETURNING id, queue, fair_key, weight, began_at), used AS ({{charging}})
DELETE FROM {_CALLS} WHERE run IN (SELECT id FROM ended)
"""  # noqa: S608


def begin(task: str, run: str, delivery: str, task_id: str | None) -> bool:
    """Begin a run that was sent as this task and call; False if it has begun or ended, or is another's."""
    statement = _BEGIN.format(now=database_times.now_beside_parameters())
    values = [delivery, connection_names.incarnation(), run, task]
    if task_id is not None:
        statement, values = statement + _OF_CALL, [*values, task_id]
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return bool(cursor.rowcount)


def end(run: str, delivery: str) -> bool:
    """Delete a run that this delivery has begun, and its call; False if it was taken away before."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_END_ALL.format(charging=shares.charging("ended")), [run, delivery])
            return bool(cursor.rowcount)
        with transaction.atomic():
            cursor.execute(shares.charging(f"(SELECT * {_MINE})"), [run, delivery])
            cursor.execute(f"DELETE {_MINE}", [run, delivery])
            is_mine = bool(cursor.rowcount)
            if is_mine:
                cursor.execute(f"DELETE FROM {_CALLS} WHERE run = %s", [run])  # noqa: S608
            return is_mine
