"""What is not delivered any more: delivered too often, outlived, or rejected."""

import pytest

from ami.transports.objectstore.queue.commands import (
    Ack,
    Bury,
    Claim,
    Configure,
    Enqueue,
    Rescue,
    Return,
    Sweep,
    Take,
)
from ami.transports.objectstore.queue.state import DELIVERY_LIMIT, EXPIRED
from tests.support.transports.queue_state import AppliedState, assert_consistent


@pytest.fixture
def queue() -> AppliedState:
    return AppliedState("a", "b")


def reasons(queue: AppliedState) -> dict[str, str | None]:
    return {name: entry.buried for name, entry in queue.state.buried.items()}


# Delivered too often.


def test_a_message_over_the_delivery_limit_is_buried(queue: AppliedState):
    queue(0, Configure(delivery_limit=2))
    for moment in range(3):
        assert reasons(queue) == {}
        assert queue.claim(moment) == ["a"]
        queue(moment, Return("a"))
    assert reasons(queue) == {"a": DELIVERY_LIMIT}
    assert queue.state.entries["a"].deliveries == 3
    assert queue.claim(10, 9) == ["b"]
    assert_consistent(queue.state)


def test_a_limit_of_none_delivers_for_ever(queue: AppliedState):
    for moment in range(100):
        assert queue.claim(moment) == ["a"]
        queue(moment, Return("a"))
    assert reasons(queue) == {}


def test_a_limit_of_zero_delivers_once(queue: AppliedState):
    queue(0, Configure(delivery_limit=0))
    queue.claim(1)
    queue(2, Return("a"))
    assert reasons(queue) == {"a": DELIVERY_LIMIT}


def test_an_uncounted_return_does_not_come_nearer_to_the_limit(queue: AppliedState):
    queue(0, Configure(delivery_limit=1))
    for moment in range(10):
        assert queue.claim(moment) == ["a"]
        queue(moment, Return("a", counted=False))
    assert queue.state.entries["a"].deliveries == 0


def test_ended_leases_and_rescues_count_toward_the_limit(queue: AppliedState):
    queue(0, Configure(delivery_limit=1))
    queue.claim(0, 1, seconds=10)
    queue.claim(10, 1, seconds=None)
    queue(20, Rescue(5.0))
    assert reasons(queue) == {"a": DELIVERY_LIMIT}


def test_a_lowered_limit_holds_from_the_next_failure_on(queue: AppliedState):
    for moment in range(5):
        queue.claim(moment)
        queue(moment, Return("a"))
    queue(5, Configure(delivery_limit=1))
    assert queue.claim(6) == ["a"]
    queue(7, Return("a"))
    assert reasons(queue) == {"a": DELIVERY_LIMIT}


# Rejected.


def test_a_buried_message_is_held_but_not_delivered(queue: AppliedState):
    queue.claim(0, 1, seconds=10)
    queue(1, Bury("a", "rejected"))
    assert reasons(queue) == {"a": "rejected"}
    assert queue.state.entries["a"].owner is None
    queue(100, Sweep(), Return("a"))
    assert queue.claim(101, 9) == ["b"]
    assert_consistent(queue.state)


def test_a_buried_message_that_was_moved_elsewhere_is_gone(queue: AppliedState):
    queue(0, Bury("a", "rejected"))
    assert queue(1, Ack("a")) is None
    assert reasons(queue) == {}
    assert_consistent(queue.state)


def test_where_nothing_is_kept_what_is_given_up_is_gone_at_once(queue: AppliedState):
    queue(0, Configure(delivery_limit=0, keeps_buried=False), Enqueue("c", b"", expires=5.0))
    queue.claim(1)
    queue(2, Return("a"), Bury("b", "rejected"))
    queue(5, Sweep())
    assert queue.state.entries == {}
    assert_consistent(queue.state)


# Outlived.


def test_a_message_that_has_outlived_its_time_is_buried(queue: AppliedState):
    queue(0, Enqueue("short", b"", expires=10.0), Enqueue("long", b"", expires=20.0))
    assert not queue.state.is_overdue(9.9)
    assert queue.state.is_overdue(10)
    queue(10, Sweep())
    assert reasons(queue) == {"short": EXPIRED}
    assert not queue.state.is_overdue(19.9)
    assert queue.state.is_overdue(20)


def test_a_claim_never_hands_out_what_has_outlived_its_time():
    queue = AppliedState()
    queue(0, Enqueue("short", b"", expires=10.0), Enqueue("long", b""))
    assert [entry.id for entry in queue(10, Claim(2, "worker", 60))] == ["long"]
    queue(11, Enqueue("late", b"", expires=10.0))
    assert queue(12, Take(2)) == []


def test_a_message_stored_after_its_expiry_is_buried_with_the_next_batch(queue: AppliedState):
    for number, expires in enumerate((0.0, -5.0, 3.0)):
        queue(3, Enqueue(str(number), b"", expires=expires))
    queue(3, Sweep())
    assert reasons(queue) == {"0": EXPIRED, "1": EXPIRED, "2": EXPIRED}


def test_what_somebody_holds_outlives_its_time_when_it_comes_back():
    queue = AppliedState()
    queue(0, Enqueue("a", b"", expires=10.0), Enqueue("b", b"", expires=10.0))
    queue.claim(1, 2, seconds=600)
    queue(20, Sweep())
    assert not queue.state.is_overdue(20)
    assert reasons(queue) == {}
    queue(21, Ack("a"), Return("b"))
    assert queue.state.is_overdue(21)
    queue(22, Sweep())
    assert reasons(queue) == {"b": EXPIRED}


def test_what_was_handled_in_time_is_never_overdue():
    queue = AppliedState()
    queue(0, Enqueue("a", b"", expires=10.0), Enqueue("b", b"", expires=10.0))
    queue(1, Take(1))
    queue.claim(2)
    queue(3, Ack("b"))
    assert not queue.state.is_overdue(11)


def test_an_id_that_comes_again_lives_as_long_as_it_says_then():
    queue = AppliedState()
    queue(0, Enqueue("a", b"", expires=10.0))
    queue(1, Bury("a", "rejected"))
    queue(2, Ack("a"), Enqueue("a", b"", expires=100.0))
    assert not queue.state.is_overdue(11)
    queue(11, Sweep())
    assert queue.claim(12) == ["a"]
