"""Children that are forked while a thread of their parent writes to the database, on both databases."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from tests.support.place import ROOT
from tests.support.soak import soak

CHILDREN = soak(40, 200)

pytestmark = pytest.mark.django_db(transaction=True)


def forked(database_url: str) -> dict[str, int]:
    environment = {**os.environ, "DATABASE_URL": database_url}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.forking_writer", str(CHILDREN)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_children_forked_under_writes_use_the_database(tmp_path: Path):
    """On the database of this run, and on a file."""
    file = f"sqlite:///{tmp_path / 'forks.sqlite3'}"
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": file},
        check=True,
    )
    parts = os.environ["DATABASE_URL"].rpartition("/")
    own = f"{parts[0]}/{connection.settings_dict['NAME']}" if connection.vendor == "postgresql" else file
    for url in dict.fromkeys((file, own)):
        found = forked(url)
        assert found["failed"] == 0
        assert found["writes"] > CHILDREN
