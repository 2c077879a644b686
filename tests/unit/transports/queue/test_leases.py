"""Who holds a message, and until when."""

import pytest

from ami.transports.objectstore.queue.commands import (
    Ack,
    Bury,
    Claim,
    Command,
    Enqueue,
    Renew,
    RenewAll,
    Rescue,
    Return,
    Sweep,
)
from ami.transports.objectstore.queue.state import State
from ami.transports.objectstore.storage.errors import JobNotFoundError
from tests.support.transports.queue_state import AppliedState, assert_consistent


@pytest.fixture
def queue() -> AppliedState:
    return AppliedState("a", "b", "c")


def held(queue: AppliedState) -> list[str]:
    return sorted(queue.state.leased)


def test_a_claimed_message_is_nobody_elses_until_its_lease_ends(queue: AppliedState):
    assert queue.claim(10, 3, seconds=60) == ["a", "b", "c"]
    assert not queue.state.has_work(69.9)
    assert queue.claim(69.9, 3) == []
    assert queue.state.has_work(70)
    assert queue.claim(70, 3, "other") == ["a", "b", "c"]
    assert {entry.owner for entry in queue.state.leased.values()} == {"other"}


def test_the_next_end_of_a_lease_is_known(queue: AppliedState):
    assert queue.state.next_due() is None
    queue.claim(0, 1, seconds=60)
    queue.claim(0, 1, seconds=30)
    assert queue.state.next_due() == 30
    queue(1, Ack("b"))
    assert queue.state.next_due() == 60
    queue(2, Renew("a", "worker", 100))
    assert queue.state.next_due() == 102


def test_a_lease_without_an_end_waits_for_a_rescue(queue: AppliedState):
    queue.claim(0, 1, seconds=None)
    queue(1e9, Sweep())
    assert held(queue) == ["a"]
    assert queue(1e9, Rescue(3600.0)) == 1
    assert queue.claim(1e9 + 1) == ["a"]


def test_a_renewed_lease_ends_later(queue: AppliedState):
    queue.claim(0, 1, seconds=60)
    for moment in (30, 80, 130):
        queue(moment, Renew("a", "worker", 60))
    queue(189.9, Sweep())
    assert held(queue) == ["a"]
    queue(190, Sweep())
    assert held(queue) == []


def test_a_lease_is_renewed_for_its_last_length_by_default(queue: AppliedState):
    queue.claim(0, 1, seconds=60)
    queue(50, Renew("a"))
    assert queue.state.next_due() == 110
    queue(60, Renew("a", "worker", 10))
    queue(65, Renew("a"))
    assert queue.state.next_due() == 75


def test_a_renewal_may_end_a_lease_sooner(queue: AppliedState):
    queue.claim(0, 1, seconds=600)
    queue(1, Renew("a", "worker", 5))
    assert queue.claim(6, 1, "other") == ["a"]


def test_only_its_owner_renews_a_lease(queue: AppliedState):
    queue.claim(0, 1, "first", 10)
    assert isinstance(queue(5, Renew("a", "second", 60)), JobNotFoundError)
    queue.claim(10, 1, "second", 10)
    assert isinstance(queue(11, Renew("a", "first", 60)), JobNotFoundError)
    assert queue(12, Renew("a", None, 60)) is None
    assert queue.state.next_due() == 72


def test_nothing_is_renewed_that_waits_or_is_buried(queue: AppliedState):
    queue(1, Bury("b", "rejected"))
    for name in ("a", "b"):
        assert queue(2, Renew(name, None, 60)) is None
        assert isinstance(queue(2, Renew(name, "worker", 60)), JobNotFoundError)
    assert queue.state.next_due() is None


def test_all_that_an_owner_holds_is_renewed_at_once(queue: AppliedState):
    queue.claim(0, 2, "mine", 60)
    queue.claim(0, 1, "other", 60)
    assert queue(50, RenewAll("mine", 60.0)) == 2
    assert queue(60, RenewAll("another", 60.0)) == 0
    assert held(queue) == ["a", "b"]


def test_an_ended_lease_is_not_renewed(queue: AppliedState):
    queue.claim(0, 1, "mine", 60)
    assert queue(60, RenewAll("mine", 60.0)) == 0
    assert queue.claim(61, 1, "other") == ["a"]


def test_what_its_owner_has_not_renewed_for_so_long_is_rescued(queue: AppliedState):
    queue.claim(0, 1, "slow", 600)
    queue.claim(0, 1, "busy", 600)
    queue(90, Renew("b", "busy", 600))
    assert queue(100, Rescue(60.0, "busy")) == 0
    assert queue(100, Rescue(60.0)) == 1
    assert held(queue) == ["b"]
    assert queue(100, Rescue(0.0, "another")) == 0
    assert queue(100, Rescue(0.0, "busy")) == 1


def test_every_way_back_flags_a_message_as_redelivered(queue: AppliedState):
    assert not queue.state.entries["a"].redelivered
    queue.claim(0, 3, seconds=10)
    queue(1, Return("a", counted=False))
    queue(2, Return("b"))
    queue(10, Sweep())
    entries = queue.state.entries
    assert {name: (entry.redelivered, entry.deliveries) for name, entry in entries.items()} == {
        "a": (True, 0),
        "b": (True, 1),
        "c": (True, 1),
    }


@pytest.mark.parametrize("command", [Ack("x"), Return("x"), Bury("x", "rejected"), Renew("x")])
def test_a_message_that_is_not_there_is_told_of(queue: AppliedState, command: Command):
    answer = queue(1, command)
    assert isinstance(answer, JobNotFoundError)
    assert answer.job_id == "x"


def test_a_failing_command_leaves_the_others_of_its_batch_alone(queue: AppliedState):
    answers = queue(1, Ack("x"), Ack("a"), Ack("a"), Claim(1, "worker", 60), Renew("c", "worker"))
    assert [type(answer) for answer in answers] == [
        JobNotFoundError,
        type(None),
        JobNotFoundError,
        list,
        JobNotFoundError,
    ]
    assert queue.state.entries.keys() == {"b", "c"}


def test_a_message_may_be_acknowledged_by_who_has_lost_it(queue: AppliedState):
    queue.claim(0, 1, "slow", 10)
    queue.claim(10, 1, "other", 10)
    assert queue(11, Ack("a")) is None
    assert isinstance(queue(12, Ack("a")), JobNotFoundError)
    assert_consistent(queue.state)


def test_what_waits_is_not_returned_twice(queue: AppliedState):
    queue.claim(0, 1)
    queue(1, Return("a"), Return("a"))
    assert queue.state.entries["a"].deliveries == 1
    assert queue.claim(2, 9) == ["a", "b", "c"]


def test_a_clock_that_goes_back_ends_no_lease_and_prolongs_none(queue: AppliedState):
    queue.claim(1000, 1, seconds=60)
    queue(10, Sweep())
    assert queue.state.now == 1000
    queue.claim(10, 1, seconds=60)
    assert queue.state.leased["b"].until == 1060
    queue(1060, Sweep())
    assert held(queue) == []


def test_a_thousand_renewals_leave_nothing_behind():
    queue = AppliedState("kept", *map(str, range(20)))
    queue.claim(0, 1, seconds=1e6)
    for moment in range(1, 1001):
        queue.claim(moment, 20, "mine", 1e7)
        queue(moment, RenewAll("mine", 1e7))
    assert_consistent(queue.state)
    assert weight(queue.state) < 500


def test_messages_that_come_and_go_leave_nothing_behind():
    queue = AppliedState("kept")
    queue.claim(0, 1, seconds=1e6)
    for moment in range(1, 1001):
        name = str(moment)
        queue(moment, Enqueue(name, b"", expires=1e6))
        queue.claim(moment, 1, seconds=1e7)
        queue(moment, Ack(name))
    assert_consistent(queue.state)
    assert weight(queue.state) < 500


def weight(state: State) -> int:
    """How many items the state keeps beside its messages and the ids that it remembers."""
    return len(state._leases) + len(state._expiring) + sum(map(len, state._waiting.values()))
