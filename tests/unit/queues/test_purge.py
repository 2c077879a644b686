"""A purge says how many messages are lost, and is done for about the number that the user gives."""

import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import current_app
from django.core.management import CommandError, call_command

from ami.queues import messages
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from tests.support.brokers import celery_at

QUEUE = "antenna-ingest"
pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


class Typed(io.StringIO):
    """A terminal on which this is typed."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def publish() -> Iterator[Callable[[int], None]]:
    with celery_at("objectstore+memory://purge"):
        current_app.declare_everything()
        with current_app.connection_for_write() as connection, connection.channel() as channel:
            channel.queue_purge(QUEUE)  # The store outlives a test.

        def publish(count: int) -> None:
            for _ in range(count):
                current_app.send_task("ami.ml.tasks.save", queue=QUEUE)

        yield publish


def waiting() -> int:
    with current_app.connection_for_read() as connection:
        return messages.waiting(connection, QUEUE)


@pytest.mark.parametrize(
    ("typed", "options", "is_done", "says"),
    [
        ("7\n", [], True, "7 in antenna-ingest are deleted for good"),
        (" 7 \n", [], True, ""),
        ("y\n", [], False, "type 7 to go on"),
        ("\n", [], False, "type 7 to go on"),
        ("70\n", [], False, "7 wait in antenna-ingest, and 70 were given"),
        ("0\n", [], False, "nothing was deleted"),
        ("", ["--count", "7"], True, ""),
        ("", ["--count", "3"], False, "nothing was deleted"),
        ("", ["--count", "0"], False, "nothing was deleted"),
        ("", ["--yes"], True, ""),
    ],
)
def test_purge_is_done_for_the_number_that_waits(
    publish: Any, typed: str, options: list[str], is_done: bool, says: str, monkeypatch: Any, capsys: Any
):
    publish(7)
    monkeypatch.setattr(sys, "stdin", Typed(typed))
    text = ""
    try:
        call_command("queues", "purge", QUEUE, *options)
    except CommandError as error:
        text = str(error)
    assert says in text + capsys.readouterr().err
    assert (bool(text), waiting()) == (not is_done, 0 if is_done else 7)


@pytest.mark.parametrize(("came", "is_done"), [(0, True), (5, True), (-5, True), (30, False), (-30, False)])
def test_queue_may_change_a_little_between_the_question_and_the_answer(
    publish: Any, came: int, is_done: bool, settings: Any
):
    publish(100)
    with current_app.connection_for_write() as connection:
        purge = lambda: messages.purge(  # noqa: E731
            settings.ANTENNA_TOPOLOGY, connection, QUEUE, Operator("ada"), expected=100 - came
        )
        if is_done:
            assert purge() == 100
        else:
            with pytest.raises(Refused, match="nothing was deleted"):
                purge()
    assert waiting() == (0 if is_done else 100)
