"""A source that does not answer is one finding, and what follows from it is left out."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, OperationalError
from kombu.exceptions import OperationalError as BrokerError

from ami.queues import database_errors, diagnostics
from ami.queues.diagnostics.finding import BROKER, DATABASE, Finding
from ami.queues.diagnostics.look import Look

HELD = Finding("error", "all-held", "held")


def raising(error: Exception, *found: Finding) -> Iterator[Finding]:
    yield from found
    raise error


def test_two_sources_that_are_away_are_named_first_and_once_each():
    look = Look()
    look.add(lambda: [HELD])
    look.add(lambda: raising(OperationalError("password authentication failed")))
    for _ in range(2):
        look.add(lambda: raising(BrokerError("connection refused")))
    look.add(lambda: pytest.fail("it is not asked"), DATABASE)
    look.add(lambda: [Finding("warning", "late-tick", "late")])
    found = look.findings()
    assert [each.name for each in found] == [DATABASE, BROKER, "all-held"]
    assert {each.level for each in found} == {"error"}


def test_source_that_goes_away_meanwhile_keeps_what_was_found_before():
    look = Look()
    look.add(lambda: raising(OperationalError("server closed the connection"), HELD))
    assert [each.name for each in look.findings()] == [DATABASE, "all-held"]


def test_database_that_goes_away_at_the_end_of_a_look_is_said(settings: Any, monkeypatch: pytest.MonkeyPatch):
    beat = Finding("error", "no-beat", "No beat runs")
    monkeypatch.setattr(diagnostics.beat, "findings", lambda: [beat])
    monkeypatch.setattr(diagnostics.reported, "workers", list)
    for asked in ("_reported", "_is_starting"):
        monkeypatch.setattr(diagnostics, asked, lambda *_, **__: [])
    monkeypatch.setattr(diagnostics.sources, "findings", lambda _: [])
    assert diagnostics.without_broker(settings.ANTENNA_TOPOLOGY) == [beat]

    def away() -> bool:
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(diagnostics, "_is_starting", away)
    found = diagnostics.without_broker(settings.ANTENNA_TOPOLOGY)
    assert [each.name for each in found] == [DATABASE, "no-beat"]


@pytest.mark.parametrize("said", ["no such table: queues_worker", "no such column: queues_worker.version"])
def test_file_that_was_not_migrated_is_to_be_migrated(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = SimpleNamespace(vendor="sqlite", settings_dict={"NAME": str(tmp_path / "db.sqlite3")})
    monkeypatch.setattr(database_errors, "connections", {DEFAULT_DB_ALIAS: file})
    assert "manage.py migrate" in database_errors.why(OperationalError(said))


@pytest.mark.parametrize(
    ("said", "why", "remedy"),
    [
        (
            'FATAL:  password authentication failed for user "a"',
            "the login is refused",
            "correct the user and the password",
        ),
        ("FATAL:  sorry, too many clients already", "no connection left", "max_connections"),
        ("FATAL:  the database system is starting up", "still starting", "wait"),
        ("failed to resolve host 'nosuch'", "the name is not known", "correct the host"),
        ("connection timeout expired", "no answer", "start the database"),
        ("cannot execute UPDATE in a read-only transaction", "accepts no writes", "primary"),
        ('database "nosuch" does not exist', "no such database or role", "create it"),
    ],
)
def test_reason_decides_the_remedy(said: str, why: str, remedy: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ami.queues.database_errors._sqlite_reason", lambda *_: None)
    look = Look()
    look.add(lambda: raising(OperationalError(said)))
    (found,) = look.findings()
    assert why in found.sentence
    assert remedy in found.sentence
