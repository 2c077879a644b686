"""Ends what a dead worker has open in PostgreSQL: a transaction of a frozen process keeps its locks."""

from django.db import connection


def terminate(application_name: str) -> int:
    """Terminate every backend with this ``application_name``; return how many. On SQLite there are none."""
    if connection.vendor != "postgresql" or not application_name:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name = %s AND pid <> pg_backend_pid()",
            [application_name],
        )
        return int(cursor.fetchone()[0])
