"""Migration operations for indexes of large tables; on PostgreSQL they do not block writes."""

from typing import Any

from django.db.migrations import AddConstraint, AddIndex, RemoveIndex
from django.db.models import UniqueConstraint


class AddIndexConcurrently(AddIndex):
    """Adds an index with CREATE INDEX CONCURRENTLY; its migration has ``atomic = False`` and can be repeated.

    An interrupted build leaves an invalid index of the same name, which is dropped first.
    """

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(self.index.name)}")
            schema_editor.add_index(model, self.index, concurrently=True)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)
            return
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.remove_index(model, self.index, concurrently=True)


class RemoveIndexConcurrently(RemoveIndex):
    """Removes an index with DROP INDEX CONCURRENTLY; its migration has ``atomic = False``."""

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            index = from_state.models[app_label, self.model_name_lower].get_index_by_name(self.name)
            schema_editor.remove_index(model, index, concurrently=True)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            index = to_state.models[app_label, self.model_name_lower].get_index_by_name(self.name)
            schema_editor.add_index(model, index, concurrently=True)


class AddUniqueConcurrently(AddConstraint):
    """Adds a unique constraint whose index is built with CREATE UNIQUE INDEX CONCURRENTLY; it can be repeated.

    Its migration has ``atomic = False``. An interrupted build leaves an invalid index of the same name, which is
    dropped first; a constraint that is there stays. Attaching the index takes no scan of the table.
    """

    atomic = False
    constraint: UniqueConstraint

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        if connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(connection.alias, model) or self._exists(connection, model):
            return
        name, table = map(schema_editor.quote_name, (self.constraint.name, model._meta.db_table))
        columns = [model._meta.get_field(field).column for field in self.constraint.fields]
        on = ", ".join(map(schema_editor.quote_name, columns))
        condition = self.constraint._get_condition_sql(model, schema_editor)  # type: ignore[attr-defined]
        where = f" WHERE {condition}" if condition else ""
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", params=None)
        schema_editor.execute(f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {table} ({on}){where}", params=None)
        if not where:
            schema_editor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE USING INDEX {name}")

    def _exists(self, connection: Any, model: Any) -> bool:
        """Whether the constraint is there, or for one with a condition its valid index."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS (SELECT FROM pg_constraint WHERE conname = %s AND conrelid = %s::regclass) OR EXISTS ("
                "SELECT FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relname = %s "
                "AND indrelid = %s::regclass AND indisvalid AND indpred IS NOT NULL)",
                [self.constraint.name, model._meta.db_table] * 2,
            )
            return bool(cursor.fetchone()[0])
