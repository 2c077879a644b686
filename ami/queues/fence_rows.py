"""The fences in the database: one statement when a run begins, one in each of its transactions."""

from uuid import uuid4

from django.db import connection

from ami.celery import storable
from ami.celery.database_times import now_beside_parameters
from ami.queues.models import Fence


class DatabaseFences:
    """Implements `ami.celery.fences.Fences`."""

    def begin(self, key: str, task_id: str, node: str) -> str:
        run = uuid4().hex
        statement = (
            f"INSERT INTO {Fence._meta.db_table} (key, run, task_id, node, started_at) "  # noqa: S608 - a table's name
            f"VALUES (%s, %s, %s, %s, {now_beside_parameters()}) ON CONFLICT (key) DO UPDATE SET "
            "run = excluded.run, task_id = excluded.task_id, node = excluded.node, started_at = excluded.started_at"
        )
        with connection.cursor() as cursor:
            cursor.execute(statement, [storable.text(each) for each in (key, run, task_id, node)])
        return run

    def holds(self, key: str, run: str) -> bool:
        rows = Fence.objects.filter(key=storable.text(key), run=run)
        if connection.in_atomic_block:
            rows = rows.select_for_update()
        return rows.values_list("run", flat=True).first() is not None


#: This process's, which `config` connects.
FENCES = DatabaseFences()
