"""Every operation leaves an entry: who, what, which, and what came of it; never a secret."""

import json
import logging
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command

from ami.main.models import User
from ami.queues import audit_log
from ami.queues.models import AuditEntry


@pytest.fixture
def entries(caplog: pytest.LogCaptureFixture):
    """The lines that were written, as dictionaries."""
    caplog.set_level(logging.INFO, "ami.audit")
    return lambda: [json.loads(record.getMessage()) for record in caplog.records if record.name == "ami.audit"]


@pytest.fixture
def people(db: None) -> list[User]:
    return [User.objects.create_user(f"{number}@example.org") for number in range(3)]


def test_entry_says_who_what_which_and_the_outcome(entries: Any, people: list[User]):
    audit_log.record("greet", who=people[0], rows=people[1:], outcome="greeted https://u:pw@h")
    keys = f"{people[1].pk}-{people[2].pk}"
    who = f"user {people[0].pk} 0@example.org"
    assert entries() == [
        {"who": who, "what": "greet", "which": f"main.User {keys}", "outcome": "greeted https://u:********@h"}
    ]
    assert {entry.object_id for entry in LogEntry.objects.filter(user=people[0])} == {str(p.pk) for p in people[1:]}
    assert LogEntry.objects.first().change_message == "greet: greeted https://u:********@h"


def test_person_cannot_write_a_line_of_their_own(entries: Any, people: list[User], caplog: Any):
    audit_log.record("x\nINFO fake", who="a\nb", which="c\nd")
    assert "\n" not in caplog.records[-1].getMessage()


def test_many_rows_are_one_entry_that_lists_them(people: list[User], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_log, "MOST_ENTRIES", 2)
    audit_log.record("greet", who=people[0], rows=people)
    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.object_id) == ("3 users", None)
    assert f"({people[0].pk}-{people[2].pk})" in entry.change_message


def test_history_that_cannot_be_written_does_not_undo_the_operation(entries: Any, people: list[User]):
    people[0].delete()
    people[0].pk = None
    audit_log.record("greet", who=people[0], rows=people[1:])
    assert entries()
    assert not LogEntry.objects.exists()


@pytest.mark.django_db
@pytest.mark.sqlite
@pytest.mark.parametrize("after", [None, {"task": "half \ud800"}, {"task": "nul \0"}, {"n": object()}, {"n": 10**400}])
def test_entry_is_written_whatever_a_message_says(after: Any):
    text = "nul \0 half \ud800"
    audit_log.record(text, who=text, which=text, outcome=text, why=text, after=after)
    row = AuditEntry.objects.get()
    assert [row.verb, row.who, row.target, row.outcome, row.why] == ["nul ? half ?"] * 5


def test_keys_are_listed_as_ranges():
    assert audit_log.ranges([7, 1, 2, 3]) == "1-3, 7"
    assert audit_log.ranges(["b", "a"]) == "b, a"


@pytest.mark.django_db
def test_operator_command_leaves_an_entry_of_the_process_user(entries: Any):
    call_command("queues", "schedule", "--json")
    (entry,) = entries()
    assert entry["who"].startswith("command:")
    assert (entry["what"], entry["outcome"]) == ("queues schedule", "done")


@pytest.mark.parametrize(
    ("argv", "what", "which"),
    [
        (("declare",), "queues declare", "all queues"),
        (("rollback", "--yes"), "queues rollback", "all queues"),
        (("dead-letters", "antenna.dlq", "--replay"), "queues dead-letters --replay", "antenna.dlq"),
        (
            ("dead-letters", "antenna.dlq", "--discard", "--yes", "--limit", "3"),
            "queues dead-letters --discard",
            "antenna.dlq, at most 3 messages",
        ),
    ],
)
def test_operator_command_that_fails_leaves_an_entry_too(entries: Any, argv: Any, what: str, which: str):
    from tests.support.place import celery_at

    with celery_at("amqp://antenna:s3cret@127.0.0.1:1/x"), pytest.raises(CommandError):
        call_command("queues", *argv)
    (entry,) = entries()
    assert (entry["what"], entry["which"]) == (what, which)
    assert entry["outcome"].startswith("failed: ")
    assert "s3cret" not in json.dumps(entry)


@pytest.mark.parametrize(
    "argv", [("tasks",), ("rollback", "--dry-run"), ("dead-letters", "antenna.dlq", "--discard", "--dry-run")]
)
def test_command_that_only_looks_leaves_none(entries: Any, capsys: Any, argv: tuple[str, ...]):
    from tests.support.place import celery_at

    with celery_at("objectstore+memory://looks"):
        call_command("queues", "declare")
        before = len(entries())
        call_command("queues", *argv, "--json")
    assert len(entries()) == before
