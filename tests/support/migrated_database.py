"""Migrations of the test database, applied by one process of a run; the others begin with a copy of the result.

``python -m tests`` keeps SQLite's for its parts and for later runs, until a migration or a requirement changes.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db import connection

from tests.support.locks import locked

ROOT = Path(__file__).resolve().parents[2]

#: Names the folder of SQLite's migrated database for every process of a run.
VARIABLE = "TESTS_MIGRATED_FOLDER"


def kept_below(folder: Path) -> Path:
    """Return the folder of the migrated database of this code, below ``folder``; those of other code are removed."""
    files = sorted([*ROOT.glob("ami/*/migrations/*.py"), ROOT / "requirements/base.txt"])
    content = hashlib.sha256(b"".join(str(file).encode() + file.read_bytes() for file in files))
    kept = folder / content.hexdigest()[:16]
    for other in folder.glob("*"):
        if other != kept:
            shutil.rmtree(other, ignore_errors=True)
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def share(folder: Path) -> None:
    """Let the processes of a run, which know ``folder``, migrate one test database between them.

    The lock is held while the first migrates: the others would only do the same work beside it. What is copied has
    every migration applied, so that Django's own setup finds none to apply.
    """
    creation = connection.creation
    create = creation.create_test_db

    def create_test_db(*args: Any, **kwargs: Any) -> str:
        # PostgreSQL's is in the run's own server.
        kept = folder if connection.vendor == "postgresql" else Path(os.environ.get(VARIABLE, folder))
        migrated = kept / f"migrated-{connection.vendor}"
        with locked(kept / "migrating.lock"):
            if not migrated.exists():
                name = create(*args, **kwargs)
                _keep(name, migrated)
                return str(name)
        with _begun_with(migrated):
            return str(create(*args, **kwargs))

    creation.create_test_db = create_test_db  # type: ignore[method-assign]


def _keep(name: str, migrated: Path) -> None:
    """Copy a migrated database: SQLite's into the file, PostgreSQL's under a name that the file has."""
    connection.close()
    if connection.vendor == "sqlite":
        shutil.copyfile(name, whole := migrated.with_suffix(".new"))
        whole.rename(migrated)
    else:
        template = template_name()
        drop_template()
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'CREATE DATABASE "{template}" TEMPLATE "{name}"')
        migrated.write_text(template)
    connection.ensure_connection()


@contextlib.contextmanager
def _begun_with(migrated: Path) -> Iterator[None]:
    """Let a test database begin as a copy of this one."""
    creation, test = connection.creation, connection.settings_dict["TEST"]
    make = creation._create_test_db

    def copied(*args: Any, **kwargs: Any) -> Any:
        name = make(*args, **kwargs)
        if connection.vendor == "sqlite":
            shutil.copyfile(migrated, name)
        return name

    before = test.get("TEMPLATE")
    creation._create_test_db = copied  # type: ignore[method-assign]
    if connection.vendor == "postgresql":
        test["TEMPLATE"] = migrated.read_text()
    try:
        yield
    finally:
        creation._create_test_db = make  # type: ignore[method-assign]
        test["TEMPLATE"] = before


def template_name() -> str:
    """Return what PostgreSQL calls the migrated database of the runs on this ``DATABASE_URL``."""
    return f"test_{urlsplit(os.environ['DATABASE_URL']).path[1:]}_migrated"


def drop_template() -> None:
    """Remove what a run left on PostgreSQL, if anything; Django's connections may be barred at that time."""
    url = os.environ.get("DATABASE_URL", "")
    if url.startswith("postgres"):
        import psycopg

        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f'DROP DATABASE IF EXISTS "{template_name()}"')
