"""The `queues` command: what it prints, and what it refuses in one sentence."""

import io
import json
import socket
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ami.queues.tasks import registered
from tests.support.place import celery_at


def queues(*argv: str) -> str:
    out = io.StringIO()
    call_command("queues", *argv, stdout=out)
    return out.getvalue()


def test_unknown_verb_is_refused_with_the_known_ones():
    with pytest.raises(CommandError, match="invalid choice: 'flush'.*'declare'"):
        queues("flush")


def test_no_verb_is_refused():
    with pytest.raises(CommandError, match="verb"):
        queues()


@pytest.mark.parametrize("flags", [(), ("--replay",), ("--json",)])
def test_queue_that_keeps_no_dead_letters_is_refused_with_those_that_do(flags: tuple[str, ...]):
    with pytest.raises(CommandError) as refused:
        queues("dead-letters", "antenna-ingest", *flags)
    assert str(refused.value).startswith("'antenna-ingest' keeps no dead letters. Known: ")
    assert " antenna-ingest.dlq, " in str(refused.value)
    assert "antenna.unrouted" in str(refused.value)


@pytest.mark.parametrize("act", ["--replay", "--discard"])
def test_letters_of_no_queue_in_particular_are_left_where_they_are(act: str):
    with pytest.raises(CommandError, match="Name the queue. Known: .*antenna-ingest.dlq, "):
        queues("dead-letters", act)
    with pytest.raises(CommandError, match="not allowed with"):
        queues("dead-letters", "antenna.dlq", "--replay", "--discard")


@pytest.mark.parametrize("argv", [("declare",), ("rollout",), ("rollback", "--yes"), ("dead-letters",), ("governor",)])
def test_broker_that_does_not_answer_is_one_sentence_without_its_password(argv: tuple[str, ...], settings: Any):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with celery_at(f"amqp://antenna:s3cret@127.0.0.1:{port}/{argv[0]}"), pytest.raises(CommandError) as refused:
            queues(*argv)
    assert f"Broker operation failed (amqp://antenna:**@127.0.0.1:{port}" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_live_check_without_the_broker_names_it_first_and_once(db: None):
    out = io.StringIO()
    with celery_at("amqp://antenna:s3cret@127.0.0.1:1//"), pytest.raises(SystemExit) as ended:
        call_command("queues", "check", "--live", stdout=out)
    said = out.getvalue()
    assert ended.value.code == 1
    assert said.splitlines()[1].startswith("error    broker-unreachable  Broker operation failed (amqp://antenna:**@")
    assert said.count("Broker operation failed") == 1


def test_tasks_lists_every_registered_task_once():
    rows = json.loads(queues("tasks", "--json"))
    assert sorted(row["task"] for row in rows) == registered()
    counts = next(row for row in rows if row["task"] == "ami.main.tasks.purge_old_rows")
    assert (counts["queue"], counts["by_person"], counts["by_beat"], counts["every_seconds"]) == (
        "antenna-housekeeping",
        "antenna-interactive",
        "antenna-housekeeping",
        600,
    )


def test_table_for_people_names_rule_limits_and_trigger():
    text = queues("tasks")
    (line,) = [line for line in text.splitlines() if line.startswith("ami.main.tasks.purge_old_rows")]
    assert all(word in line for word in ("antenna-housekeeping", "240/300", "beat, each 600 s"))
    (line,) = [line for line in text.splitlines() if line.startswith("ami.main.tasks.update_counts")]
    assert "ami.main.tasks.update_*" in line


@pytest.mark.django_db
def test_schedule_is_written_and_counted():
    first = json.loads(queues("schedule", "--json"))
    assert first["created"] > 0
    assert json.loads(queues("schedule", "--json")) == {"created": 0, "updated": first["created"], "removed": 0}


def test_check_of_the_product_alone_exits_with_an_error_only_for_errors(make_task: Any):
    assert all(row["level"] != "error" for row in json.loads(queues("check", "--json")))
    make_task("ami.jobs.tasks.audit_limited", time_limit=100, soft_time_limit=200)
    with pytest.raises(SystemExit) as ended:
        queues("check")
    assert ended.value.code == 1


def test_text_of_a_message_is_no_markup_in_a_table(make_task: Any):
    make_task("[red]unknown[/x]")
    assert "[red]unknown[/x]" in queues("tasks")
