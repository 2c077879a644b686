"""What snapshots of a journal in objects name, and what they remove."""

import pytest

from ami.transports.objectstore.journal.objects import BEHIND_TRIES
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.transports.flaky_network import PREFIX, Fault, FlakyNetwork, asked, reader
from tests.support.transports.recording_follower import number

pytestmark = pytest.mark.usefixtures("clock")


def test_segments_of_writers_that_were_too_slow_are_removed(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    one.append(*number(6))
    network.rival = lambda: other.append(b"a body of another one")
    network.plan(Fault.NONE, Fault.RIVAL)
    one.append(b"a body that needs a new segment")
    assert len(network.objects.list(f"{PREFIX}segments/")) == 1
    assert reader(network).all() == [*number(6), b"a body of another one", b"a body that needs a new segment"]


def test_what_killed_writers_left_is_removed_with_the_next_snapshots(network: FlakyNetwork):
    one, killed = reader(network), reader(network)
    one.append(*number(6))
    killed.all()
    network.plan(Fault.NONE, *[Fault.LOST_REQUEST] * 10)
    with pytest.raises(StorageError):
        killed.append(b"never written")
    network.plan(Fault.NONE, *[Fault.LOST_REQUEST] * 10)
    with pytest.raises(StorageError):
        killed.save()
    assert len(network.objects.list(f"{PREFIX}segments/")) == 1
    assert len(network.objects.list(f"{PREFIX}snapshots/")) == 1
    network.settle()
    one.append(*number(60))
    one.save()
    assert network.objects.list(f"{PREFIX}segments/") == []
    assert len(network.objects.list(f"{PREFIX}snapshots/")) == 1
    assert reader(network).all() == one.all()


def test_what_is_live_is_never_removed(network: FlakyNetwork):
    one = reader(network)
    bodies = number(200)
    one.append(*bodies)
    places = dict(one.diary.places)
    live = {places[body][0] for body in bodies[::25]}
    for _ in range(4):
        one.save(live)
        one.append(*number(20, 500))
        late = reader(network)
        late.all()
        for each in (one, late):
            each.diary.places = dict(places)
            assert [each.read(body) for body in bodies[::25]] == bodies[::25]
    assert len(network.objects.list(f"{PREFIX}segments/")) < 20


def test_a_removed_journal_leaves_nothing(network: FlakyNetwork):
    one = reader(network)
    network.objects.create("queue", b"a neighbour")
    network.objects.create("queue2/head", b"another one")
    one.append(*number(60))
    one.save({1, 2})
    one.append(*number(60))
    one.journal.destroy()
    assert network.objects.list("") == ["queue", "queue2/head"]


def test_a_removal_that_stops_halfway_is_a_removal(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    one.append(*number(60))
    other.all()
    network.plan(Fault.NONE, Fault.NONE, Fault.LOST_REQUEST)
    with pytest.raises(StorageError):
        one.journal.destroy()
    for each in (one, other, reader(network)):
        assert each.all() == []
    other.append(*number(60))
    for each in (one, other, reader(network)):
        assert each.all() == number(60)
    other.append(*number(60))
    other.save()
    assert network.objects.list(f"{PREFIX}segments/") == []


# Snapshots.


def test_a_snapshot_is_named_though_others_write_meanwhile(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    one.append(*number(60))
    bodies = iter(number(100, 100))
    network.rival = lambda: other.append(next(bodies), next(bodies))
    network.plan(*[Fault.NONE, Fault.RIVAL] * 5)
    one.save()
    late = reader(network)
    assert late.all() == other.all() == one.all()
    assert late.diary.began_with == [b"|".join(number(60))]


def test_an_older_snapshot_never_replaces_a_newer_one(network: FlakyNetwork):
    slow, fast = reader(network), reader(network)
    slow.append(*number(60))

    def rival() -> None:
        fast.append(*number(60, 60))
        fast.save()

    network.rival = rival
    network.plan(Fault.NONE, Fault.RIVAL)
    slow.save()
    assert slow.journal.grown == 0
    assert len(network.objects.list(f"{PREFIX}snapshots/")) == 1
    for each in (slow, fast, reader(network)):
        assert each.all() == number(120)
    slow.append(b"next")
    assert reader(network).all() == [*number(120), b"next"]


def test_a_snapshot_whose_naming_was_not_answered_is_not_removed(network: FlakyNetwork):
    one = reader(network)
    one.append(*number(60))
    network.plan(Fault.NONE, Fault.LOST_ANSWER)
    with pytest.raises(StorageError):
        one.save()
    assert reader(network).all() == one.all() == number(60)
    one.append(*number(60, 60))
    one.save()
    assert reader(network).all() == number(120)
    assert len(network.objects.list(f"{PREFIX}snapshots/")) == 1


def test_another_ones_snapshot_puts_off_the_next(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    one.append(*number(60))
    other.all()
    one.save()
    other.append(b"next")
    assert other.journal.grown < 50


@pytest.mark.parametrize("at", range(8))
def test_who_reads_while_segments_are_removed_reads_all_the_same(network: FlakyNetwork, at: int):
    one, slow, fresh = reader(network), reader(network), reader(network)
    one.append(*number(6))
    slow.all()
    one.append(*number(54, 6))
    one.save(set(range(20)))
    one.append(*number(60, 60))

    def rival() -> None:
        one.append(*number(60, 120))
        one.save()

    network.rival = rival
    for each in (slow, fresh):
        network.plan(*[Fault.NONE] * at, Fault.RIVAL)
        each.all()
        network.settle()
        assert each.all() == one.all()
    assert len(set(one.all())) == 180


def test_segments_that_are_gone_for_good_are_an_error(network: FlakyNetwork):
    one = reader(network)
    one.append(*number(60))
    network.objects.delete(network.objects.list(f"{PREFIX}segments/")[3])
    asked(network)
    with pytest.raises(StorageError, match="segment 4 of queue/ is missing"):
        reader(network).all()
    assert asked(network)["read"] <= 5 * BEHIND_TRIES


def test_a_snapshot_that_is_gone_for_good_is_an_error(network: FlakyNetwork):
    one = reader(network)
    one.append(*number(60))
    one.save()
    [key] = network.objects.list(f"{PREFIX}snapshots/")
    network.objects.delete(key)
    with pytest.raises(StorageError, match=f"the snapshot {key} is missing"):
        reader(network).all()
