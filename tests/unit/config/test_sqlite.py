"""The file of an SQLite database is its owner's alone."""

import os
import stat
import threading

import pytest
from django.db import connection

from config.settings.databases import databases
from config.sqlite3.base import DatabaseWrapper, keep_private


def modes(folder) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.fixture
def connected(django_db_blocker):
    """Connects to a file as Django does, and closes all of it again."""
    opened = []

    def connect(path) -> DatabaseWrapper:
        options = {**connection.settings_dict, **databases(f"sqlite:///{path}")["default"]}
        wrapper = DatabaseWrapper(options, alias="other")
        opened.append(wrapper)
        wrapper.inc_thread_sharing()
        with wrapper.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS seen (name text)")
            cursor.execute("INSERT INTO seen VALUES ('x')")
        return wrapper

    old = os.umask(0o022)
    with django_db_blocker.unblock():
        yield connect
    os.umask(old)
    for wrapper in opened:
        wrapper.close()


def test_a_new_database_and_its_journals_are_0600(tmp_path, connected):
    connected(tmp_path / "a.sqlite3")
    assert modes(tmp_path) == {"a.sqlite3": 0o600, "a.sqlite3-wal": 0o600, "a.sqlite3-shm": 0o600}


def test_an_older_database_is_closed_to_others_when_it_is_opened(tmp_path, connected):
    connected(tmp_path / "a.sqlite3")
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    connected(tmp_path / "a.sqlite3")
    assert set(modes(tmp_path).values()) == {0o600}


def test_two_that_make_it_at_once_make_one(tmp_path):
    threads = [threading.Thread(target=keep_private, args=[tmp_path / "a.sqlite3"]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert modes(tmp_path) == {"a.sqlite3": 0o600}


def test_a_folder_that_is_not_there_is_reported_by_sqlite(tmp_path, connected):
    from django.db import OperationalError

    with pytest.raises(OperationalError, match="unable to open database file"):
        connected(tmp_path / "none" / "a.sqlite3")


@pytest.mark.sqlite
def test_the_database_of_this_run_is_closed_to_others(db):
    if connection.vendor == "sqlite":
        assert stat.S_IMODE(os.stat(connection.settings_dict["NAME"]).st_mode) == 0o600
