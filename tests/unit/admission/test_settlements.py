"""A note that the database refuses holds up no other one, whatever a message says of its run."""

from typing import Any

import pytest
from celery import current_app
from django.db import DataError, OperationalError

from ami.admission import runs, settlements
from ami.admission.models import Run
from ami.celery import staged_calls
from ami.celery.staged_calls import End, Note

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]
ODD = "nul \0 half \ud800"


@pytest.fixture(autouse=True)
def no_notes() -> Any:
    staged_calls.take_notes()
    yield
    staged_calls.take_notes()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were settled; the run ``odd`` is refused as data, the run ``away`` finds no database."""
    seen: list[str] = []

    def settle(_: Any, note: Note) -> bool:
        if note.run in ("odd", "away"):
            raise DataError("out of range") if note.run == "odd" else OperationalError("away")
        seen.append(note.run)
        return True

    monkeypatch.setattr(runs, "settle", settle)
    return seen


def note(*names: str) -> None:
    for name in names:
        if name != ODD:
            Run.objects.create(id=name, call=1, task="t", queue="q", send_again_at="2030-01-01T00:00Z")
        staged_calls.note(Note(name, "delivery", End.FAILED))


def test_note_that_is_refused_holds_up_no_other(settled: list[str], caplog: pytest.LogCaptureFixture):
    note("first", "odd", ODD, "last")
    assert settlements.write(current_app)
    assert settled == ["first", "last"]
    assert not staged_calls.has_notes()
    assert [vars(each)["run"] for each in caplog.records if "refuses it" in each.message] == [ODD, "odd"]


def test_notes_wait_while_the_database_is_away(settled: list[str]):
    note("first", "away", "last")
    assert not settlements.write(current_app)
    assert settled == ["first"]
    assert [each.run for each in staged_calls.take_notes()] == ["away", "last"]
