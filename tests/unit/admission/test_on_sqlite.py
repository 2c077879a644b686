"""A worker on a folder and SQLite: tasks with policies keep their promises there, too, while a process is killed."""

from collections.abc import Iterator

import pytest

from ami.admission.models import Call, Run
from tests.support.admission import QUEUE, Killer, admission_place, effects, most_at_once, task
from tests.support.place import FOLDER, Place, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite, pytest.mark.processes]


@pytest.fixture
def place() -> Iterator[Place]:
    with admission_place(FOLDER) as made:
        yield made


def is_quiet() -> bool:
    return not Call.objects.exists() and not Run.objects.exists()


def test_promises_hold_on_a_folder_and_sqlite(place: Place):
    killer = Killer(place, names=("only@%h",))
    for number in range(20):
        task("once").delay(key="a", wish=number, seconds=0.3)
        task("limited").delay(key="a", number=number, seconds=0.1)
        task("ordered").delay(key="a", number=number, fails=number % 3 == 0)
        task("grouped").delay(key="b", numbers=[number])
    killer.kill_child()
    until(is_quiet, 90, "all calls have run")
    lines = effects(place)
    ended = [line for line in lines if line["what"] == "end"]
    wishes = [line["wish"] for line in ended if "wish" in line]
    assert wishes[-1] == 19
    assert len(wishes) <= 5
    assert most_at_once([line for line in lines if "wish" in line], "key", killer.dead) == 1
    assert sorted({number for line in ended for number in line.get("numbers", ())}) == list(range(20))
    begun = [line["number"] for line in lines if "retries" in line]
    assert begun == sorted(begun), "not in order"
    assert place.depth(QUEUE) == 0
