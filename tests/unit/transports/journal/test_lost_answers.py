"""A journal in objects finds out what became of a write that was not answered."""

from typing import Any

import pytest

from ami.transports.objectstore.journal.objects import STORAGE_TRIES, TRIES
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.soak import soak
from tests.support.transports.flaky_network import Fault, FlakyNetwork, asked, reader
from tests.support.transports.recording_follower import number
from tests.support.transports.small_stores import claim, held, on_objects, publish, waiting

pytestmark = pytest.mark.usefixtures("clock")


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.LATE])
@pytest.mark.parametrize("bodies", soak((0, 1, 9), range(10)))
def test_a_batch_whose_answer_was_lost_is_there_once(network: FlakyNetwork, blind: bool, fault: Fault, bodies: int):
    one = reader(network)
    one.append(b"0", *number(bodies))
    network.plan(fault)
    if blind:
        one.journal.append(b"next body", None, durable=True)
    else:
        one.append(b"next body")
    network.settle()
    one.append(b"end")
    for each in (one, reader(network)):
        assert each.all() == [b"0", *number(bodies), b"next body", b"end"]


@pytest.mark.parametrize("blind", [False, True])
def test_a_lost_answer_is_found_behind_what_others_wrote_since(network: FlakyNetwork, blind: bool):
    one, other = reader(network), reader(network)
    one.append(b"0")
    network.rival = lambda: other.append(*number(20))
    network.plan(Fault.LOST_ANSWER, Fault.RIVAL)
    if blind:
        segment, offset = one.journal.append(b"mine", None, durable=True)
    else:
        one.append(b"mine")
        segment, offset = one.diary.places[b"mine"]
    assert (segment, offset) == other.diary.places[b"mine"]
    for each in (one, other, reader(network)):
        assert each.all() == [b"0", b"mine", *number(20)]


@pytest.mark.parametrize("blind", [False, True])
def test_a_lost_answer_that_can_no_longer_be_found_out_is_an_error(network: FlakyNetwork, blind: bool):
    one, other = reader(network), reader(network)
    one.append(b"0")

    def rival() -> None:
        other.append(*number(60))
        other.save()

    network.rival = rival
    network.plan(Fault.LOST_ANSWER, Fault.RIVAL)
    with pytest.raises(StorageError, match="moved on so far that an unanswered write cannot be found"):
        one.journal.append(b"mine", None if blind else one.diary, durable=True)
    assert one.all() == reader(network).all() == [b"0", b"mine", *number(60)]


def test_a_blind_writer_searches_its_batch_only_where_it_can_be(network: FlakyNetwork):
    one = reader(network)
    one.append(*number(600))
    late = reader(network)
    network.plan(Fault.NONE, Fault.LOST_ANSWER)
    late.journal.append(b"mine", None, durable=True)
    asked(network)
    network.plan(Fault.LOST_ANSWER)
    late.journal.append(b"mine too", None, durable=True)
    assert sum(asked(network).values()) <= 3


def test_a_storage_that_does_not_answer_is_given_up_soon(network: FlakyNetwork, clock: Any):
    one = reader(network)
    one.append(b"0")
    asked(network)
    for faults in ([Fault.LOST_REQUEST] * 100, [Fault.LOST_REQUEST, Fault.NONE] * 100):
        network.plan(*faults)
        with pytest.raises(StorageError, match="no answer"):
            one.append(b"1")
        assert sum(asked(network).values()) <= 2 * STORAGE_TRIES + 1
    assert clock.slept < 5
    network.settle()
    assert one.all() == [b"0"]


def test_a_conflict_after_a_lost_answer_is_not_told_as_nothing_stored(network: FlakyNetwork):
    one = reader(network)
    one.append(b"0")
    network.plan(Fault.LOST_REQUEST, *[Fault.NONE, Fault.CONFLICT] * TRIES)
    with pytest.raises(StorageError, match="did not answer, and other writers were faster"):
        one.append(b"1")


def test_a_lost_answer_is_not_searched_in_another_life(network: FlakyNetwork):
    one, other = reader(network), reader(network)
    one.append(b"0")

    def rival() -> None:
        other.journal.destroy()
        other.append(*number(20))

    network.rival = rival
    network.plan(Fault.LOST_REQUEST, Fault.RIVAL)
    one.append(b"mine")
    for each in (one, other, reader(network)):
        assert each.all() == [*number(20), b"mine"]


def test_stores_on_a_network_that_loses_answers_agree(network: FlakyNetwork):
    stores = [on_objects(network), on_objects(network)]
    publish(stores[0], "first")
    assert claim(stores[1], seconds=None) == ["first"]
    for at in range(30):
        network.plan(Fault.LOST_ANSWER, Fault.NONE, Fault.LOST_REQUEST)
        publish(stores[at % 2], str(at))
        network.settle()
        stores[(at + 1) % 2].look()
        network.plan(Fault.NONE, Fault.LOST_ANSWER)
        assert claim(stores[(at + 1) % 2]) == [str(at)]
    assert waiting(stores[0]) == []
    assert held(stores[0]) == held(stores[1]) == held(on_objects(network))
