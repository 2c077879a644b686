"""The short form of `make attack`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from tests.support.own_database import own_database
from tests.support.place import ROOT

MOST_KEPT_MIB = 64


@pytest.mark.timeout(1800)
def test_attack_finds_no_error_no_leak_no_death_and_no_kept_memory(
    tmp_path: Path, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> None:
    found = tmp_path / "attack.json"
    with django_db_blocker.unblock(), own_database("attack"):
        migrated = str(connection.settings_dict["NAME"])
        command = [sys.executable, "-m", "tests.attack", "--short", "--json", str(found), "--migrated", migrated]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1700, check=False)
    print(done.stderr[-4000:], done.stdout[-12_000:], sep="\n")
    report = json.loads(found.read_text())
    assert {name: report["total"][name] for name in ("errors", "leaks", "deaths", "excess")} == {
        "errors": 0,
        "leaks": 0,
        "deaths": 0,
        "excess": 0,
    }
    assert report["total"]["kept_mib"] < MOST_KEPT_MIB
    assert report["total"]["cases"] > 2000
    assert report["left_out"] == [], "kinds of cases that the short form does not meet"
    parts = {"access", "admin", "schema", "messages", "bodies", "logins", "growth", "figures", "documents"}
    assert set(report["parts"]) >= parts
    assert done.returncode == 0
