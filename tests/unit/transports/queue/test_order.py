"""Which message is next."""

from ami.transports.objectstore.queue.commands import Ack, Bury, Claim, Enqueue, Purge, Return, Take
from tests.support.transports.queue_state import AppliedState


def test_lower_priorities_come_first_and_equals_in_order():
    queue = AppliedState()
    queue(0, *(Enqueue(f"{priority}{name}", b"", priority=priority) for name in "ab" for priority in (0, -9, 5)))
    assert queue.claim(1, 6) == ["-9a", "-9b", "0a", "0b", "5a", "5b"]


def test_a_claim_takes_no_more_than_its_limit():
    queue = AppliedState("a", "b", "c")
    assert queue.claim(1, 0) == []
    assert queue.claim(1, 2) == ["a", "b"]
    assert queue.claim(1, 2) == ["c"]
    assert queue.claim(1, 2) == []


def test_a_returned_message_goes_back_to_its_old_place():
    queue = AppliedState("a", "b", "c")
    queue(1, Enqueue("urgent", b"", priority=-1))
    assert queue.claim(2, 3) == ["urgent", "a", "b"]
    queue(3, Return("b"), Return("a"), Return("urgent"))
    assert queue.claim(4, 4) == ["urgent", "a", "b", "c"]


def test_messages_whose_leases_end_go_back_to_their_old_places():
    queue = AppliedState("a", "b", "c")
    queue.claim(1, 1, seconds=20)
    queue.claim(1, 1, seconds=10)
    assert queue.claim(30, 3) == ["a", "b", "c"]


def test_a_claim_of_one_entrypoint_leaves_the_others():
    queue = AppliedState()
    queue(0, Enqueue("a1", b"", "a"), Enqueue("b1", b"", "b"), Enqueue("a2", b"", "a", priority=-1))
    assert [entry.id for entry in queue(1, Claim(5, "w", 60, "a"))] == ["a2", "a1"]
    assert queue(1, Claim(5, "w", 60, "a")) == []
    assert queue(1, Claim(5, "w", 60, "unknown")) == []
    assert [entry.id for entry in queue(1, Claim(5, "w", 60, "b"))] == ["b1"]


def test_a_claim_of_any_entrypoint_takes_the_first_of_all():
    queue = AppliedState()
    queue(
        0, Enqueue("a1", b"", "a", 1), Enqueue("b1", b"", "b", 0), Enqueue("c1", b"", "c", 1), Enqueue("b2", b"", "b")
    )
    assert queue.claim(1, 4) == ["b1", "b2", "a1", "c1"]


def test_work_is_told_of_by_entrypoint():
    queue = AppliedState()
    queue(0, Enqueue("a1", b"", "a"))
    assert queue.state.has_work(0)
    assert queue.state.has_work(0, "a")
    assert not queue.state.has_work(0, "b")
    queue.claim(1)
    assert not queue.state.has_work(1)


def test_what_left_the_line_in_the_middle_is_not_claimed():
    queue = AppliedState("a", "b", "c", "d")
    queue(1, Ack("b"), Bury("c", "rejected"))
    assert queue.claim(2, 9) == ["a", "d"]


def test_an_id_that_comes_again_stands_at_the_end():
    queue = AppliedState("a", "b")
    queue(1, Bury("a", "rejected"))
    queue(2, Ack("a"))
    queue(3, Enqueue("a", b"anew"))
    assert queue.claim(4, 3) == ["b", "a"]
    assert queue.state.entries["a"].length == 4


def test_what_is_taken_is_gone():
    queue = AppliedState("a", "b", "c")
    assert [entry.id for entry in queue(1, Take(2))] == ["a", "b"]
    assert list(queue.state.entries) == ["c"]
    assert queue(2, Take(2, "other")) == []
    assert queue.claim(900) == ["c"]


def test_a_purge_removes_what_waits_and_nothing_else():
    queue = AppliedState("held", "buried", "x", "y")
    queue.claim(1)
    queue(2, Bury("buried", "rejected"))
    assert queue(3, Purge()) == 2
    assert queue.state.entries.keys() == {"held", "buried"}
    assert queue(4, Purge()) == 0
    queue(5, Return("held"), Enqueue("x", b""))
    assert queue.claim(6, 9) == ["held", "x"]


def test_the_depth_counts_what_waits():
    queue = AppliedState("a", "b", "c", "d")
    queue.claim(1)
    queue(2, Bury("b", "rejected"))
    assert queue.state.depth() == 2


def test_a_moment_of_creation_may_be_given():
    queue = AppliedState()
    queue(10, Enqueue("now", b""), Enqueue("earlier", b"", created=3.5))
    assert [entry.created for entry in queue.state.entries.values()] == [10, 3.5]
