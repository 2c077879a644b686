"""A database for what several tests share: rows that are committed there are seen by no other test."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.test.utils import setup_databases, teardown_databases

from tests.support.place import Place, new_place


@contextmanager
def own_database(name: str) -> Iterator[None]:
    """Point this process at an empty copy of the run's test database for a while."""
    with _test_database():
        creation, settings = connection.creation, connection.settings_dict
        original, copy = settings["NAME"], creation.get_test_db_clone_settings(name)["NAME"]
        _end_connections(original)
        creation.clone_test_db(name, verbosity=0)
        settings["NAME"] = copy
        try:
            yield
        finally:
            connection.close()
            settings["NAME"] = original
            creation.destroy_test_db(suffix=name, verbosity=0)


def _end_connections(database: str) -> None:
    """End what is connected to a database, as a thread that ended may have left: PostgreSQL copies none in use."""
    connection.close()
    if connection.vendor == "postgresql":
        with connection._nodb_cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database])


@contextmanager
def _test_database() -> Iterator[None]:
    """Make the test database where no test of the run asks for one: pytest-django counts fixtures of functions only."""
    if str(connection.settings_dict["NAME"]).startswith("test_"):
        yield
        return
    made = setup_databases(verbosity=0, interactive=False, aliases={"default"})
    try:
        yield
    finally:
        teardown_databases(made, verbosity=0)


@contextmanager
def place_with_own_database(name: str) -> Iterator[Place]:
    """A broker and a database for processes that the tests of one module share."""
    with own_database(name.replace("-", "_")), new_place(name) as place:
        place.use_test_database()
        yield place
