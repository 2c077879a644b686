"""Many letters are replayed at a rate, stopped, killed and resumed; poison is replayed with other arguments."""

import importlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from ami.queues.models import AuditEntry, Letter, LetterEvent, Replay
from tests.support.brokers import ON_FOLDER, ON_RABBITMQ
from tests.support.place import Place, Process, new_place, until
from tests.support.soak import soak

L = "tests.support.worker_tasks.letters"
QUEUE, DEAD = "antenna", "antenna.dlq"
LETTERS, RATE = soak(200, 10_000), soak(60, 500)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=ON_FOLDER)
def place(request: pytest.FixtureRequest, settings: Any) -> Iterator[Place]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with new_place("replays", request.param) as made:
        made.use_test_database()
        made.environment |= {"ANTENNA_COLLECT_LETTERS": "1", "ANTENNA_EXTRA_TASKS": L}
        for module in made.environment["ANTENNA_EXTRA_TASKS"].split(","):
            importlib.import_module(module)  # As who disables or edits knows the application's tasks.
        made.queues("declare")
        yield made


def letters_of(folder: Path, count: int) -> None:
    """Write dead letters of a task that leaves a file."""
    now = timezone.now()
    for start in range(0, count, 1000):
        Letter.objects.bulk_create(
            Letter(
                identity=f"publish{number}:1",
                queue=DEAD,
                task_id=f"letter-{number}",
                task=f"{L}.leave",
                reason="rejected",
                cause="one",
                body=json.dumps([[str(folder), number], {}, {}]).encode(),
                content_type="application/json",
                content_encoding="utf-8",
                headers=json.dumps({"lang": "py", "task": f"{L}.leave", "id": f"letter-{number}", "retries": 3}),
                properties="{}",
                first_collected_at=now,
                collected_at=now,
            )
            for number in range(start, min(start + 1000, count))
        )


def runs(folder: Path) -> Counter[str]:
    return Counter(path.name.rpartition(" ")[2] for path in folder.iterdir())


def replaying(place: Place, *arguments: str) -> Process:
    return place.start([sys.executable, "manage.py", "queues", "letters", *arguments])


def test_replay_that_is_stopped_killed_and_resumed_reaches_each_letter_once_in_effect(place: Place, tmp_path: Path):
    letters_of(tmp_path, LETTERS)
    first = replaying(place, "replay", "--cause", "one", "--rate", str(RATE // 4), "--yes", "--why", "fixed")
    until(lambda: Replay.objects.filter(done__gt=20).exists(), 30, "it publishes")
    first.popen.send_signal(signal.SIGINT)
    assert first.popen.wait(20) == 0, first.text
    replay = Replay.objects.get()
    assert (replay.state, replay.total) == ("stopped", LETTERS)
    assert 0 < replay.done < LETTERS
    assert Letter.objects.filter(state="replayed").count() == replay.done

    Replay.objects.update(rate=RATE)
    second = replaying(place, "resume", str(replay.pk))
    until(lambda: Replay.objects.get().done > LETTERS // 2, 60, "it is half-way")
    second.kill()
    assert Replay.objects.get().state == "running"
    # A worker takes it over when the killed process has not renewed its hold; a minute passes until one looks again.
    if soak(True, False):
        assert Replay.objects.filter(until__gt=Now()).update(until=Now()) == 1, "the killed process holds it"
    place.worker(QUEUE)
    until(lambda: Replay.objects.get().state == "ended", 60 + LETTERS / 100, "another process went on")
    assert Replay.objects.get().done == LETTERS
    until(lambda: len(runs(tmp_path)) == LETTERS, 60 + LETTERS / 100, "every task ran")
    until(lambda: Letter.objects.filter(state="done").count() == LETTERS, 30, "every letter says so")
    doubled = sum(runs(tmp_path).values()) - LETTERS
    assert doubled <= 20, "at most the batch in which the process was killed ran twice"
    assert set(LetterEvent.objects.filter(what="replayed").values_list("why", flat=True)) == {"fixed"}


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_poison_is_buried_with_its_cause_and_replayed_with_other_arguments(place: Place, tmp_path: Path):
    place.worker(QUEUE)
    poison = place.send(f"{L}.kill_if", str(tmp_path), True, queue=QUEUE)
    neighbours = [place.send(f"{L}.leave", str(tmp_path), queue=QUEUE) for _ in range(5)]
    until(lambda: Letter.objects.filter(task_id=poison).exists(), 40, "it is collected")
    until(lambda: set(runs(tmp_path)) == set(neighbours), 20, "its neighbours ran")
    letter = Letter.objects.get(task_id=poison)
    until(lambda: Letter.objects.get().exception.endswith("WorkerLostError"), 10, "its cause is on it")
    key = str(letter.pk)
    (group,) = place.queues("letters", "causes").json
    assert (group["letters"], group["task"]) == (1, f"{L}.kill_if")

    assert "Say why" in place.queues("letters", "edit", key, "--args", "[1]", check=False).error
    wrong = place.queues("letters", "edit", key, "--args", "[1]", "--why", "poison", check=False)
    assert (wrong.code, "does not take these arguments" in wrong.error) == (2, True)
    new = json.dumps([str(tmp_path), False])
    assert place.queues("letters", "edit", key, "--args", new, "--why", "poison").json["done"] == 1
    until(lambda: Letter.objects.get().state == "done", 20, "it succeeded")
    shown = place.queues("letters", "show", key).json
    assert [event["what"] for event in shown["trail"]] == ["died", "edited", "replayed", "done"]
    assert {event["why"] for event in shown["trail"][1:3]} == {"poison"}
    assert shown["is_edited"]
    assert runs(tmp_path)[poison] == 1
    assert bytes(Letter.objects.get().original or b"") == bytes(letter.body)
    verbs = set(AuditEntry.objects.values_list("verb", flat=True))
    assert verbs >= {"edit letter", "replay"}
