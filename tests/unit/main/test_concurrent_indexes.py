"""Indexes of large tables are built so that writes go on, and their migrations can be repeated."""

import pytest
from django.db import DatabaseError, connection, migrations, models, transaction
from django.db.migrations.state import ProjectState
from django.test.utils import CaptureQueriesContext

from ami.main.concurrent_indexes import AddIndexConcurrently, AddUniqueConcurrently, RemoveIndexConcurrently
from ami.main.models import Site

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]
NAME = "concurrent_test"


def names():
    with connection.cursor() as cursor:
        return set(connection.introspection.get_constraints(cursor, "main_site"))


def apply(operation, before, *, backwards=False):
    """Run an operation outside a transaction; return the state after it and its statements."""
    after = before.clone()
    operation.state_forwards("main", after)
    with CaptureQueriesContext(connection) as queries, connection.schema_editor(atomic=False) as editor:
        if backwards:
            operation.database_backwards("main", editor, after, before)
        else:
            operation.database_forwards("main", editor, before, after)
    return after, " ".join(query["sql"] for query in queries)


def test_index_is_added_twice_and_removed_concurrently():
    before = ProjectState()
    migrations.CreateModel(
        "Site", [("id", models.BigAutoField(primary_key=True)), ("name", models.CharField())]
    ).state_forwards("main", before)
    add = AddIndexConcurrently("site", models.Index(fields=["name", "id"], name=NAME))
    after, sql = apply(add, before)
    assert NAME in names()
    concurrently = connection.vendor == "postgresql"
    assert ("CREATE INDEX CONCURRENTLY" in sql) is concurrently
    if concurrently:
        # As after a migration that was interrupted.
        apply(add, before)
        assert NAME in names()
    remove = RemoveIndexConcurrently("site", NAME)
    _, sql = apply(remove, after)
    assert NAME not in names()
    assert ("DROP INDEX CONCURRENTLY" in sql) is concurrently
    apply(remove, after, backwards=True)
    assert NAME in names()
    apply(add, before, backwards=True)
    assert NAME not in names()


@pytest.mark.parametrize("condition", [None, models.Q(name__gt="a")])
def test_unique_constraint_is_built_concurrently_and_can_be_repeated(condition):
    if connection.vendor != "postgresql":
        pytest.skip("Django's own operation, which builds the table anew")
    before = ProjectState()
    migrations.CreateModel(
        "Site", [("id", models.BigAutoField(primary_key=True)), ("name", models.CharField())]
    ).state_forwards("main", before)
    add = AddUniqueConcurrently("site", models.UniqueConstraint(fields=["name"], condition=condition, name=NAME))
    twice = [Site.objects.create(name="b") for _ in range(2)]
    with pytest.raises(DatabaseError):
        apply(add, before)
    twice[0].delete()
    after, sql = apply(add, before)
    assert NAME in names()
    # After the build that failed, which left an invalid index, and as if the migration were run again.
    assert "CREATE UNIQUE INDEX CONCURRENTLY" in sql
    _, sql = apply(add, before)
    assert "CREATE" not in sql
    with pytest.raises(DatabaseError), transaction.atomic():
        Site.objects.create(name="b")
    apply(add, before, backwards=True)
    assert NAME not in names()
    apply(add, before)
    assert NAME in names()
    apply(migrations.RemoveConstraint("site", NAME), after)
    assert NAME not in names()
