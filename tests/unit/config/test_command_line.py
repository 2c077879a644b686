"""``manage.py`` and ``celery``: a fault of the code keeps its traceback, and what should work works."""

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from .conftest import Run, copy

pytestmark = pytest.mark.processes

LOCAL = {"DJANGO_SETTINGS_MODULE": "config.settings.local", "CELERY_BROKER_URL": "", "REDIS_URL": "", "NATS_URL": ""}
BROKEN = "raise ImportError('nothing of the settings')\n"


def test_traceback_option_shows_the_error_of_the_database(run: Run, tmp_path: Path):
    done = run("manage.py", "tokens", "--traceback", "list", **LOCAL, DATABASE_URL=f"sqlite:///{tmp_path}/x.sqlite3")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert "no such table: main_apitoken" in done.stderr


def test_query_error_of_a_migrated_database_keeps_its_traceback(run: Run, migrated: Path, tmp_path: Path):
    database = tmp_path / "x.sqlite3"
    copy(migrated, database)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("ALTER TABLE main_apitoken RENAME COLUMN prefix TO beginning")
    done = run("manage.py", "tokens", "list", **LOCAL, DATABASE_URL=f"sqlite:///{database}")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert "no such column" in done.stderr


@pytest.mark.parametrize("name", ["broken_settings", "broken_package.settings"])
def test_import_error_inside_settings_keeps_its_traceback(run: Run, tmp_path: Path, name: str):
    (tmp_path / "broken_package").mkdir()
    for module in ("broken_settings.py", "broken_package/__init__.py"):
        (tmp_path / module).write_text(BROKEN)
    done = run("manage.py", "check", f"--pythonpath={tmp_path}", "--settings", name, **LOCAL)
    assert done.returncode == 1
    assert "ImportError: nothing of the settings" in done.stderr


def test_own_settings_module_is_accepted(run: Run, tmp_path: Path):
    (tmp_path / "own_settings.py").write_text("from config.settings.local import *\n")
    done = run("manage.py", "check", f"--pythonpath={tmp_path}", "--settings=own_settings", **LOCAL)
    assert (done.returncode, done.stderr) == (0, "")


def test_celery_call_publishes_where_results_are_in_the_database(run: Run, migrated: Path, tmp_path: Path):
    database = tmp_path / "x.sqlite3"
    copy(migrated, database)
    place = {**LOCAL, "DATABASE_URL": f"sqlite:///{database}", "CELERY_BROKER_URL": f"objectstore+file://{tmp_path}/b"}
    assert run("manage.py", "queues", "declare", **place).returncode == 0
    done = run("-m", "celery", "-A", "config", "call", "ami.main.tasks.purge_old_rows", **place)
    assert (done.returncode, done.stderr) == (0, "")
    rollout = run("manage.py", "queues", "rollback", "--dry-run", "--json", **place)
    assert json.loads(rollout.stdout)["antenna-housekeeping"] == 1
