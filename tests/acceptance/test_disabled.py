"""A disabled task or job is set aside at its start, counted, and comes back in order; every state can be asked for."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ami.queues.models import AuditEntry, Letter
from tests.support.brokers import ON_FOLDER, ON_RABBITMQ
from tests.support.place import Place, new_place, until

L = "tests.support.worker_tasks.letters"
B = "tests.support.worker_tasks.basic"
QUEUE = "antenna"
TASKS = 30

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=ON_FOLDER)
def place(request: pytest.FixtureRequest, settings: Any) -> Iterator[Place]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with new_place("disabled", request.param) as made:
        made.use_test_database()
        made.environment |= {"ANTENNA_COLLECT_LETTERS": "1", "ANTENNA_EXTRA_TASKS": f"{L},{B}"}
        for module in made.environment["ANTENNA_EXTRA_TASKS"].split(","):
            importlib.import_module(module)  # As who disables or edits knows the application's tasks.
        made.queues("declare")
        yield made


def state_of(place: Place, task: str) -> str:
    return str(place.queues("state", task, check=False).json["state"])


def names(folder: Path) -> list[str]:
    by_time = sorted(folder.iterdir(), key=lambda path: int(path.name.split()[1]))
    return [path.name.split()[0] for path in by_time]


def test_disabled_task_is_set_aside_and_comes_back_in_order(place: Place, tmp_path: Path):
    place.queues("disable", f"{L}.leave", "--why", "it floods the disk")
    worker = place.worker(QUEUE)
    sent = [place.send(f"{L}.leave", str(tmp_path), number, queue=QUEUE) for number in range(TASKS)]
    other = place.send(f"{B}.succeed", queue=QUEUE)
    until(lambda: Letter.objects.filter(state="set aside").count() == TASKS, 30, "they are set aside")
    until(lambda: f"{other}] succeeded" in worker.text, 10, "another task runs")
    assert place.depth(QUEUE) == 0
    assert state_of(place, sent[0]) == "disabled"
    (listed,) = place.queues("disabled").json
    assert (listed["what"], listed["set_aside"], listed["why"]) == (f"{L}.leave", TASKS, "it floods the disk")
    rows = {row["queue"]: row for row in place.queues("states").json}
    assert rows[QUEUE]["disabled"] == TASKS
    assert all(row["initial"] + row["pending"] == row["computing"] + row["awaiting"] for row in rows.values())
    found = {row["name"] for row in place.queues("check", "--live", check=False).json}
    assert "disabled" in found
    assert "dead-letters" not in found
    assert "Did you mean" in place.queues("disable", f"{L}.leaves", check=False).error

    # One that was delivered before its set-aside was acknowledged is not written twice.
    assert place.queues("enable", f"{L}.leave").json["published"] == TASKS
    until(lambda: len(names(tmp_path)) == TASKS, 30, "all ran")
    assert names(tmp_path) == [f"{number:06d}" for number in range(TASKS)]
    assert not Letter.objects.exists()
    assert set(AuditEntry.objects.values_list("verb", flat=True)) >= {"disable", "enable"}
    until(lambda: place.queues("snapshot").json[QUEUE]["completed"] == TASKS + 1, 20, "they are counted")


def test_disabled_job_is_set_aside_and_others_of_its_task_run(place: Place, tmp_path: Path):
    place.queues("disable", "job:7", "--until", "2099-01-01T00:00+00:00")
    place.worker(QUEUE)
    for job in (7, 8, 7):
        place.send(f"{L}.of_job", kwargs={"folder": str(tmp_path), "job_id": job}, queue=QUEUE)
    until(lambda: Letter.objects.filter(state="set aside", job="7").count() == 2, 20, "the job is set aside")
    until(lambda: len(list(tmp_path.iterdir())) == 1, 10, "the other job ran")
    place.queues("enable", "job:7")
    until(lambda: len(list(tmp_path.iterdir())) == 3, 20, "all ran")


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_state_says_where_each_task_is(place: Place):
    place.worker(QUEUE)
    running = place.send(f"{B}.hold", 20, queue=QUEUE)
    until(lambda: state_of(place, running) == "computing", 15, "it is found where it runs")
    waiting = place.send(f"{B}.hold", 0, queue=QUEUE)
    unknown = place.queues("state", waiting, check=False)
    assert (unknown.json["state"], unknown.code) == ("no trace: waiting, ended well, or never sent", 1)
    searched = place.queues("state", waiting, "--search").json
    assert searched["state"] == "pending"
    assert bool(searched["cost"]) == place.is_rabbitmq
    place.queues("cancel", waiting, "--why", "not needed")
    assert state_of(place, waiting) == "cancelled"
