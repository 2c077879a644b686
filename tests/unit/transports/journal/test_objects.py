"""A journal in objects: what it asks, and who may write."""

from typing import Any

import pytest

from ami.transports.objectstore.journal import closed
from ami.transports.objectstore.journal.head import Head
from ami.transports.objectstore.journal.objects import HEAD_SECONDS, TRIES
from ami.transports.objectstore.storage.errors import CASConflictError
from tests.support.transports.flaky_network import HEAD, Fault, FlakyNetwork, asked, reader
from tests.support.transports.recording_follower import number
from tests.support.transports.small_stores import claim, on_objects, publish

pytestmark = pytest.mark.usefixtures("clock")


# What it costs.


def test_the_first_commit_reads_and_creates_the_head(network: FlakyNetwork):
    reader(network).append(b"1")
    assert network.asked == [("read", HEAD), ("create", HEAD)]


def test_a_commit_is_one_replace(network: FlakyNetwork):
    one = reader(network)
    one.append(b"1")
    asked(network)
    one.append(b"2", b"3")
    one.journal.append(b"4", None, durable=True)
    assert asked(network) == {"replace": 3}


def test_a_full_segment_is_one_create_more(network: FlakyNetwork):
    one = reader(network)
    one.append(*number(6))
    asked(network)
    one.append(b"next body")
    assert asked(network) == {"create": 1, "replace": 1}
    one.append(*number(600))
    counts = asked(network)
    assert counts == {"create": 100, "replace": 600}


def test_a_conflict_costs_a_read_and_another_try(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    one.append(b"1")
    other.append(b"2")
    asked(network)
    one.append(b"3")
    assert asked(network) == {"replace": 2, "read": 1}
    assert other.all() == [b"1", b"2", b"3"]


def test_following_reads_the_head_and_each_newly_closed_segment(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    one.append(b"1")
    other.all()
    asked(network)
    other.all()
    assert asked(network) == {"read": 1}
    one.append(*number(18))
    asked(network)
    other.all()
    assert asked(network) == {"read": 1 + 3}


def test_an_old_head_of_a_remote_storage_is_read_before_it_is_written(clock: Any):
    network = FlakyNetwork(is_remote=True)
    one = reader(network)
    one.append(b"1")
    asked(network)
    one.append(b"2")
    assert asked(network) == {"replace": 1}
    clock.now += HEAD_SECONDS + 0.1
    reader(network).append(b"3")
    asked(network)
    one.append(b"4")
    assert asked(network) == {"read": 1, "replace": 1}


def test_who_begins_at_the_snapshot_reads_nothing_that_is_before_it(network: FlakyNetwork):
    one = reader(network)
    one.append(*number(100))
    one.save(set(range(100)))
    one.append(b"next")
    asked(network)
    late = reader(network)
    assert late.all() == [*number(100), b"next"]
    assert asked(network)["read"] <= 3


def test_the_segments_read_last_are_cached(network: FlakyNetwork, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(closed, "KEPT_SEGMENTS", 3)
    reader(network).append(*number(60))
    late = reader(network)
    assert late.all() == number(60)
    of_closed = [body for body in number(60) if late.diary.places[body][0] < 6]
    in_segment = [[body for body in of_closed if late.diary.places[body][0] == each] for each in range(1, 6)]
    for bodies in in_segment:
        assert [late.read(body) for body in bodies] == bodies
    asked(network)
    for bodies in in_segment[2:]:
        assert [late.read(body) for body in bodies] == bodies
    assert asked(network) == {}
    assert late.read(in_segment[0][0]) == in_segment[0][0]
    assert asked(network) == {"read": 1}


def test_a_claim_on_an_empty_queue_is_one_read(network: FlakyNetwork):
    store = on_objects(network)
    publish(store, "a")
    assert claim(store) == ["a"]
    asked(network)
    assert claim(store) == []
    assert asked(network) == {"read": 1}


# Who may write.


def test_a_writer_that_was_away_cannot_write_over_what_others_wrote(network: FlakyNetwork):
    zombie, other = reader(network), reader(network)
    zombie.append(b"1")
    network.rival = lambda: other.append(b"2", *number(30))
    network.plan(Fault.RIVAL)
    zombie.append(b"3")
    assert zombie.all() == reader(network).all() == [b"1", b"2", *number(30), b"3"]


def test_a_write_that_arrives_after_somebody_elses_is_refused(network: FlakyNetwork):
    zombie, other = reader(network), reader(network)
    zombie.append(b"1")
    head = network.objects.read(HEAD)
    other.append(b"2")
    with pytest.raises(CASConflictError):
        network.objects.replace(HEAD, Head.load(head.content).with_frame(b"zombie").dump(), head.version)
    assert reader(network).all() == [b"1", b"2"]


def test_two_first_writers_lose_nothing(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    network.rival = lambda: other.append(b"other")
    network.plan(Fault.NONE, Fault.RIVAL)
    one.append(b"one")
    for each in (one, other, reader(network)):
        assert each.all() == [b"other", b"one"]


def test_two_blind_first_writers_lose_nothing(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    network.rival = lambda: other.journal.append(b"other", None, durable=True)
    network.plan(Fault.NONE, Fault.RIVAL)
    one.journal.append(b"one", None, durable=True)
    assert one.all() == other.all() == [b"other", b"one"]


def test_too_many_faster_writers_are_a_conflict_and_nothing_is_written(network: FlakyNetwork, clock: Any):
    one = reader(network)
    one.append(b"1")
    network.plan(*[Fault.CONFLICT, Fault.NONE] * TRIES)
    with pytest.raises(CASConflictError, match=f"{TRIES} times another writer of queue/ was faster"):
        one.append(b"2")
    assert one.all() == reader(network).all() == [b"1"]
    assert 1 < clock.slept < 20


def test_a_writer_outlasts_many_faster_ones(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    one.append(b"0")
    bodies = iter(number(100))
    network.rival = lambda: other.append(next(bodies), next(bodies))
    network.plan(*[Fault.RIVAL, Fault.NONE] * (TRIES - 5))
    one.append(b"1")
    found = reader(network).all()
    assert found[0] == b"0"
    assert found.count(b"1") == 1
    assert len(found) == len(set(found))
