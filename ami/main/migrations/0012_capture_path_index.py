"""Adds the index for the search of captures by path on PostgreSQL: trigrams, or prefixes where pg_trgm may not be made."""

from django.db import DatabaseError, migrations

INDEX = "captures_by_path"


def add_index(apps, schema_editor):
    connection = schema_editor.connection
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        try:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
        except DatabaseError:
            pass
        cursor.execute("SELECT count(*) FROM pg_opclass WHERE opcname = 'gin_trgm_ops' AND pg_opclass_is_visible(oid)")
        has_trigrams = bool(cursor.fetchone()[0])
        kind = "USING gin (upper(path) gin_trgm_ops)" if has_trigrams else "(upper(path) text_pattern_ops)"
        cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {INDEX}")
        cursor.execute(f"CREATE INDEX CONCURRENTLY {INDEX} ON main_sourceimage {kind}")


def remove_index(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {INDEX}")


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("main", "0011_detections_of_project")]

    operations = [migrations.RunPython(add_index, remove_index, atomic=False)]
