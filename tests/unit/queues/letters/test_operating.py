"""Letters are listed, grouped, edited, discarded and watched; replays are refused, stopped and resumed."""

import contextlib
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from celery import current_app
from django.conf import settings
from django.core.files.storage import storages
from django.db.models.functions import Now
from django.utils import timezone
from kombu import Connection, Message
from kombu.utils import json as kombu_json

from ami.celery.app import LETTER_HEADER, PUBLISH_ID_HEADER
from ami.celery.failures.record import Failure
from ami.queues import failures
from ami.queues.letters import (
    bodies,
    causes,
    editing,
    found,
    publishing,
    replay_thread,
    replays,
    rows,
    set_aside,
    watch,
)
from ami.queues.letters.selection import Selection
from ami.queues.models import Letter, LetterEvent, Replay, TaskFailure
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from tests.support.brokers import celery_at
from tests.support.dead_letters import QUEUE, TASK, letter

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
TESTER = Operator("tester")


@pytest.fixture
def broker(settings: Any) -> Iterator[Connection]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with celery_at(f"objectstore+memory://letters-{uuid4().hex}"), current_app.connection_for_write() as connection:
        current_app.declare_everything()
        yield connection


def failure(number: int, message: str = "No capture 12", **given: Any) -> Failure:
    values = {
        "task_id": f"id-{number}",
        "retries": 0,
        "delivery": 0,
        "task": TASK,
        "kind": "error",
        "exception": "ValueError",
        "message": message,
        "place": "ami/main/tasks.py:7 in run",
        "traceback": "Traceback",
        "node": "ingest@a",
        "host": "a",
        "pid": 1,
        "failed_at": timezone.now().timestamp(),
    }
    return Failure(**values | given)


@pytest.mark.parametrize("is_failure_first", [True, False])
def test_letter_has_the_cause_of_its_failure_whichever_is_written_first(is_failure_first: bool):
    if is_failure_first:
        failures.record([failure(1)])
        letter(1)
    else:
        assert letter(1).cause_text == "the task failed, its retries used up"
        failures.record([failure(1)])
        causes.bind(["id-1"])
    row = Letter.objects.get()
    assert (row.exception, row.cause_text, row.place) == ("ValueError", "No capture <n>", "ami/main/tasks.py:7 in run")
    assert row.cause == TaskFailure.objects.get().cause


def test_letters_are_grouped_counted_and_shown_with_what_is_missing():
    failures.record([failure(number, f"No capture {number}") for number in range(3)])
    for number in range(5):
        letter(number)
    groups = found.groups(Selection().rows())
    assert [(group.letters, group.exception, group.message) for group in groups] == [
        (3, "ValueError", "No capture <n>"),
        (2, "rejected", "the task failed, its retries used up"),
    ]
    assert Selection(cause=groups[0].cause).rows().count() == 3
    assert Selection(search="capture").rows().count() == 3
    assert [count for _, count in found.over_time(Selection().rows())] == [5]
    shown = found.whole(Letter.objects.get(task_id="id-4"))
    assert shown["missing"] == "no failure of it is on record; the broker says: rejected"
    assert [event["what"] for event in shown["trail"]] == ["died"]
    assert "body" not in shown


def test_large_body_is_a_file_and_is_published_and_deleted_with_its_row(broker: Connection):
    body = json.dumps([["x" * (bodies.MOST_ROW_BYTES + 1)], {}, {}])
    row = letter(1, body)
    assert (bytes(row.body), row.body_bytes) == (b"", len(body))
    assert bodies.read(row).decode() == body
    assert publishing.message_of(row).body.decode() == body
    begun = replays.begin(settings.ANTENNA_TOPOLOGY, Selection(), TESTER)
    assert replays.work(settings.ANTENNA_TOPOLOGY, broker, begun.pk).done == 1
    Letter.objects.update(collected_at=Now() - timedelta(days=settings.ANTENNA_LETTER_DAYS + 1))
    rows.forget_old()
    assert not storages["letters"].exists(row.body_name)


def test_replay_is_refused_with_what_is_wrong():
    letter(1)
    topology = settings.ANTENNA_TOPOLOGY
    for options, sentence in (
        ({"selection": Selection(queue="antenna-ingest")}, "keeps no dead letters"),
        ({"selection": Selection(task="x")}, "No dead letter fits (task x)"),
        ({"to": "nowhere"}, "No workload consumes 'nowhere'"),
        ({"rate": 0.0}, "is no rate"),
        ({"why": "x" * 501}, "501 characters"),
    ):
        given = {"selection": Selection(), **options}
        with pytest.raises(Refused, match=sentence.replace("(", r"\(").replace(")", r"\)")):
            replays.begin(topology, given.pop("selection"), TESTER, **given)
    assert not Replay.objects.exists()
    for change in (replays.stop, replays.resume):
        with pytest.raises(Refused, match="There is no replay 7"):
            change(7, TESTER)


def test_storage_that_fails_stops_the_replay_and_the_letter_stays_dead(broker: Connection):
    letter(1)
    large = letter(2, json.dumps([["x" * (bodies.MOST_ROW_BYTES + 1)], {}, {}]))
    letter(3)
    storages["letters"].delete(large.body_name)
    begun = replays.begin(settings.ANTENNA_TOPOLOGY, Selection(), TESTER, why="all")
    ended = replays.work(settings.ANTENNA_TOPOLOGY, broker, begun.pk)
    assert (ended.state, "No such file" in ended.error) == ("stopped", True)
    assert list(Letter.objects.order_by("pk").values_list("state", flat=True)) == ["replayed", "dead", "dead"]
    assert LetterEvent.objects.count() == 1
    rows.discard(Selection(ids=(large.pk,)).rows())
    replays.resume(begun.pk, TESTER)
    assert replays.work(settings.ANTENNA_TOPOLOGY, broker, begun.pk).state == "ended"
    assert Letter.objects.filter(state="replayed").count() == 2


def test_letter_that_ended_before_it_was_counted_is_done_and_one_that_died_is_dead_again(broker: Connection):
    """A task may end while its batch is still being published."""
    first, second = letter(1), letter(2)
    topology = settings.ANTENNA_TOPOLOGY
    begun = replays.begin(topology, Selection(), TESTER)
    work = replays._Work(topology, begun.pk)
    _, batch = work.take([])
    rows.done(first.pk, first.task_id)
    headers = {"task": TASK, "id": "id-2", PUBLISH_ID_HEADER: "p2again", "antenna_letter": second.pk}
    rows.write(QUEUE, [Message(body="[[], {}, {}]", headers=headers, properties={})])
    work.take(batch)
    assert dict(Letter.objects.values_list("task_id", "state")) == {"id-1": "done", "id-2": "dead"}
    assert work.take([])[1] == [], "what died again in a replay is not replayed by it"
    assert Replay.objects.get().done == 2


@pytest.mark.parametrize(
    ("args", "kwargs", "sentence"),
    [
        ("[1", None, "are not JSON"),
        ("{}", None, "are a JSON list"),
        (None, "[]", "are a JSON object"),
        ("[" * 5000 + "]" * 5000, None, "nested too deeply|does not take"),
        ("[1, 2, 3]", None, "does not take these arguments"),
        (None, '{"nonsense": 1}', "does not take these arguments"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_changed(args: Any, kwargs: Any, sentence: str):
    row = letter(1)
    with pytest.raises(Refused, match=sentence):
        editing.edit(row.pk, args, kwargs, TESTER, why="a typing error")
    row.refresh_from_db()
    assert (row.original, LetterEvent.objects.count()) == (None, 0)


def test_what_is_no_json_or_not_dead_is_not_edited():
    row = letter(1, "nonsense")
    with pytest.raises(Refused, match="not a task's"):
        editing.edit(row.pk, "[]", None, TESTER, why="x")
    rows.discard(Selection().rows(), by="tester", why="x")
    with pytest.raises(Refused, match="no dead letter"):
        editing.edit(row.pk, "[]", None, TESTER, why="x")
    with pytest.raises(Refused, match="Say why"):
        editing.edit(row.pk, "[]", None, TESTER, why=" ")


def test_signs_name_new_letters_growing_causes_and_those_that_came_back():
    assert watch.signs(60) == []
    long_ago = (timezone.now() - timedelta(minutes=90)).timestamp()
    failures.record([failure(number, "often", failed_at=long_ago + number) for number in range(3)])
    failures.record([failure(100 + number, "often") for number in range(watch.LEAST)])
    failures.record([failure(200, "seldom")])
    letter(1)
    assert [(sign.name, sign.count) for sign in watch.signs(60)] == [("letters-new", 1), ("letters-grow", watch.LEAST)]
    Letter.objects.update(died=2)
    assert [sign.name for sign in watch.signs(60)][-1] == "letters-back"
    Letter.objects.update(collected_at=Now() - timedelta(hours=2))
    TaskFailure.objects.update(failed_at=timezone.now() - timedelta(hours=3))
    assert watch.signs(60) == []


def test_selection_of_no_letter_reaches_none():
    letter(1)
    assert Selection(ids=()).rows().count() == 0
    assert Selection.of(Selection(ids=()).as_dict()).rows().count() == 0
    assert Selection().rows().count() == 1


def test_two_copies_of_one_replay_are_one_death_also_after_a_retry():
    row = letter(1)
    Letter.objects.update(state="replayed")
    for publish_id in ("first", "second"):
        letter(1, **{PUBLISH_ID_HEADER: publish_id, LETTER_HEADER: row.pk})
    row.refresh_from_db()
    assert (Letter.objects.count(), row.state, row.died) == (1, "dead", 2)


def test_retry_with_other_arguments_that_dies_is_kept_with_them():
    row = letter(1)
    Letter.objects.update(state="replayed")
    letter(1, '[[], {"page": 7}, {}]', **{PUBLISH_ID_HEADER: "again", LETTER_HEADER: row.pk, "kwargsrepr": "page=7"})
    row.refresh_from_db()
    assert editing.arguments(row) == ([], {"page": 7})
    assert bytes(row.original or b"").startswith(b"[[], {}")
    assert "page=7" in row.arguments


def test_process_that_lost_its_replay_changes_nothing_any_more():
    for number in range(3):
        letter(number)
    topology = settings.ANTENNA_TOPOLOGY
    begun = replays.begin(topology, Selection(), TESTER)
    first, second = replays._Work(topology, begun.pk), replays._Work(topology, begun.pk)
    _, batch = first.take([])
    assert second.take([])[1] == [], "it is held"
    Replay.objects.update(until=Now() - timedelta(seconds=1))
    assert [row.pk for row in second.take([])[1]] == [row.pk for row in batch]
    first.leave(batch)
    assert Letter.objects.filter(state="replayed").count() == 3
    first._renewed_at -= replays.RENEW_SECONDS
    with pytest.raises(replays._Lost):
        first.renew(contextlib.nullcontext)


def test_letters_of_a_killed_process_are_dead_again_when_its_replay_is_stopped():
    for number in range(3):
        letter(number)
    topology = settings.ANTENNA_TOPOLOGY
    begun = replays.begin(topology, Selection(), TESTER)
    replays._Work(topology, begun.pk).take([])
    replays.stop(begun.pk, TESTER)
    Replay.objects.update(until=Now() - timedelta(seconds=1))
    assert replays.begin(topology, Selection(), TESTER).total == 3
    assert not LetterEvent.objects.exists()


def test_old_letters_are_forgotten_a_few_at_a_time_with_their_trails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rows, "FORGOTTEN", 2)
    for number in range(3):
        letter(number)
    rows.record(list(Letter.objects.values_list("pk", flat=True)), "replayed")
    Letter.objects.update(collected_at=Now() - timedelta(days=settings.ANTENNA_LETTER_DAYS + 1))
    assert [rows.forget_old() for _ in range(3)] == [2, 1, 0]
    assert not LetterEvent.objects.exists()


def test_arguments_with_types_of_kombu_are_edited():
    identity = uuid4()
    row = letter(1, kombu_json.dumps([[identity], {}, {}]))
    assert editing.arguments(row)[0] == [identity]
    Letter.objects.update(task="a task that is not registered here")
    editing.edit(row.pk, None, "{}", TESTER, why="nothing")
    row.refresh_from_db()
    assert editing.arguments(row)[0] == [identity]


def test_one_statement_finds_replays_and_what_is_enabled(django_assert_num_queries: Any):
    with django_assert_num_queries(1):
        assert replay_thread._waiting() == []
    letter(1)
    begun = replays.begin(settings.ANTENNA_TOPOLOGY, Selection(), TESTER)
    Replay.objects.update(until=Now() - timedelta(seconds=1))
    letter(2)
    letter(3)
    Letter.objects.exclude(task_id="id-1").update(state="set aside")
    with django_assert_num_queries(1):
        assert replay_thread._waiting() == [(0, "set aside"), (begun.pk, "running")]


def test_letter_of_which_no_message_can_be_made_stops_its_replay_and_stays_dead(broker: Connection):
    first, odd = letter(1), letter(2)
    Letter.objects.filter(pk=odd.pk).update(headers="{")
    begun = replays.begin(settings.ANTENNA_TOPOLOGY, Selection(), TESTER)
    replay = replays.work(settings.ANTENNA_TOPOLOGY, broker, begun.pk)
    assert (replay.state, replay.holder) == (Replay.State.STOPPED, "")
    assert replay.error
    first.refresh_from_db(), odd.refresh_from_db()
    assert (first.state, odd.state) == (Letter.State.REPLAYED, Letter.State.DEAD)


def test_message_set_aside_of_which_none_can_be_made_holds_up_no_other(broker: Connection, caplog: Any):
    odd, _ = letter(1), letter(2)
    Letter.objects.update(state=Letter.State.SET_ASIDE, queue="antenna-ingest")
    Letter.objects.filter(pk=odd.pk).update(properties="[" * 5000)
    assert set_aside.publish_enabled(settings.ANTENNA_TOPOLOGY, broker, "me") == 1
    assert set_aside.kept().get().pk == odd.pk
    assert [vars(each)["letter"] for each in caplog.records if "not published" in each.message] == [odd.pk]
