"""One process makes a value for all; the others show the last one."""

import pytest

from ami.telemetry import shared_values
from ami.telemetry.models import SharedValue

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def test_value_is_made_once_while_it_is_new_enough():
    made = []
    for _ in range(3):
        found = shared_values.current("a", 60, lambda version: made.append(version) or {"n": len(made)})
    assert (made, found.value, found.version) == ([1], {"n": 1}, 1)
    assert found.age_seconds < 5


def test_old_value_is_made_again():
    for _ in range(2):
        found = shared_values.current("a", 0, lambda version: version)
    assert (found.value, found.version) == (2, 2)


def test_others_show_the_last_value_while_one_is_made():
    shared_values.current("a", 0, lambda version: version)

    def make(version):
        assert shared_values.current("a", 0, lambda _: pytest.fail("two make it")).value == 1
        return version

    assert shared_values.current("a", 0, make).value == 2


def test_maker_that_died_is_replaced(monkeypatch):
    with pytest.raises(RuntimeError):
        shared_values.current("a", 0, lambda _: (_ for _ in ()).throw(RuntimeError()))
    assert shared_values.current("a", 0, lambda version: version).version == 0  # The first one's time is not over.
    SharedValue.objects.update(taking_until="2020-01-01T00:00:00Z")
    assert shared_values.current("a", 0, lambda version: version).version == 1


def test_outdated_value_is_made_again_at_once():
    shared_values.current("a", 60, lambda version: version)
    shared_values.outdate("a")
    assert shared_values.current("a", 60, lambda version: version).value > 1
    assert shared_values.current("a", 60, lambda _: pytest.fail("it is new")).age_seconds < 5


def test_value_that_is_outdated_while_it_is_made_is_not_kept():
    shared_values.current("a", 60, lambda _: "first")

    def make(_):
        shared_values.outdate("a")
        # Another process does not wait for this one.
        assert shared_values.current("a", 60, lambda _: "third").value == "third"
        return "second"

    shared_values.outdate("a")
    assert shared_values.current("a", 60, make).value == "second"
    assert shared_values.last("a").value == "third"


def test_value_that_was_never_made_may_be_outdated():
    shared_values.outdate("a")
    assert shared_values.last("a") is None
