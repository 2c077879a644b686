"""A publish that is tried again is stored once."""

import pytest

from ami.transports.objectstore.queue import state
from ami.transports.objectstore.queue.commands import Ack, Bury, Configure, Enqueue, Purge, Return, Sweep, Take
from ami.transports.objectstore.queue.state import REMEMBERED_SECONDS
from tests.support.transports.queue_state import AppliedState, assert_consistent

AGAIN = Enqueue("a", b"again")


def test_an_id_that_waits_is_stored_once():
    queue = AppliedState("a")
    before = queue.state.entries["a"].dump()
    assert queue(1, AGAIN) is False
    assert queue.state.entries["a"].dump() == before


def test_an_id_that_comes_twice_in_a_batch_is_stored_once():
    queue = AppliedState()
    assert queue(1, Enqueue("a", b"first"), AGAIN, Enqueue("b", b"other")) == [True, False, True]
    first, other = queue.state.entries.values()
    assert (first.offset, first.length) == (0, 5)
    assert (other.offset, other.length) == (10, 5)


def test_an_id_that_is_held_or_buried_is_stored_once():
    queue = AppliedState("a", "b")
    queue.claim(1)
    assert queue(2, AGAIN) is False
    queue(3, Bury("b", "rejected"))
    assert queue(4, Enqueue("b", b"again")) is False


def test_an_id_acknowledged_shortly_before_is_not_stored_again():
    queue = AppliedState("a")
    queue.claim(1)
    queue(2, Ack("a"))
    assert queue(2 + REMEMBERED_SECONDS - 0.1, AGAIN) is False
    assert queue.state.depth() == 0
    assert queue(2 + REMEMBERED_SECONDS, AGAIN) is True


def test_an_id_that_was_taken_a_short_while_ago_is_not_stored_again():
    queue = AppliedState("a")
    queue(2, Take(1))
    assert queue(3, AGAIN) is False
    assert queue(2 + REMEMBERED_SECONDS, AGAIN) is True


def test_an_id_that_was_buried_and_moved_may_come_back_at_once():
    queue = AppliedState("a")
    queue(1, Bury("a", "rejected"))
    queue(2, Ack("a"))
    assert queue(3, AGAIN) is True


def test_a_dead_or_purged_id_can_be_stored_again_at_once():
    queue = AppliedState("a", "b")
    queue(1, Configure(keeps_buried=False))
    queue(2, Bury("a", "rejected"))
    queue(3, Purge())
    assert queue(4, AGAIN, Enqueue("b", b"again")) == [True, True]
    assert_consistent(queue.state)


def test_only_the_last_ids_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "REMEMBERED", 3)
    queue = AppliedState(*"abcde")
    for moment, name in enumerate("abcde", start=1):
        queue(moment, Ack(name))
    queue(6, Sweep())
    assert list(queue.state.acknowledged) == ["c", "d", "e"]
    assert queue(7, *(Enqueue(name, b"") for name in "abcde")) == [True, True, False, False, False]


def test_a_clock_that_goes_back_does_not_forget():
    queue = AppliedState("a")
    queue(1000, Ack("a"))
    assert queue(10, AGAIN) is False
    queue(1119, Return("a"))
    assert queue(1119, AGAIN) is False
    assert queue(1120, AGAIN) is True
