"""What every journal does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.journal.frames import MAX_BODY_BYTES, frame
from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.journal.port import Journal
from ami.transports.objectstore.storage.errors import StorageError
from ami.transports.objectstore.storage.folder import FolderObjects
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.transports.recording_follower import POWER_FAILURE, Reader, number


@pytest.fixture(params=["folder", "objects", "objects in a folder"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Reader]:
    """Each call opens the same journal as another process would."""
    memory = MemoryObjects()
    opening: dict[str, Callable[[], Journal]] = {
        "folder": lambda: FolderJournal(tmp_path / "a" / "queue", power_failure=POWER_FAILURE, segment_bytes=100),
        "objects": lambda: ObjectJournal(memory, "queue/", segment_bytes=100),
        "objects in a folder": lambda: ObjectJournal(FolderObjects(tmp_path, durable=False), "q/", segment_bytes=100),
    }
    return lambda: Reader(opening[request.param]())


def test_an_empty_journal_has_nothing(opened: Callable[[], Reader]):
    reader = opened()
    assert reader.all() == []
    assert reader.diary.began_with == [None]
    assert opened().all() == []


def test_all_read_the_same_in_the_same_order(opened: Callable[[], Reader]):
    bodies = number(60)
    writers, late = [opened(), opened(), opened()], opened()
    for at, body in enumerate(bodies):
        writers[at % 3].append(body)
        if at % 7 == 0:
            assert late.all() == bodies[: at + 1]
    for reader in (*writers, late, opened()):
        assert reader.all() == bodies
        assert [reader.read(body) for body in bodies] == bodies
    assert writers[0].journal.position[0] > 5


def test_a_follower_is_fed_earlier_batches_first(opened: Callable[[], Reader]):
    one, other = opened(), opened()
    one.append(b"1")
    other.append(b"2")
    one.append(b"3")
    assert one.diary.bodies == [b"1", b"2", b"3"]
    assert one.diary.began_with == [None]


def test_a_blind_batch_is_found_by_everybody_and_by_its_writer_later(opened: Callable[[], Reader]):
    writer, other = opened(), opened()
    writer.append(b"1")
    places = [writer.journal.append(body, None, durable=True) for body in number(30)]
    assert writer.diary.bodies == [b"1"]
    assert other.all() == writer.all() == [b"1", *number(30)]
    assert [writer.diary.places[body] for body in number(30)] == places


def test_the_first_batch_may_be_blind(opened: Callable[[], Reader]):
    opened().journal.append(b"1", None, durable=True)
    assert opened().all() == [b"1"]


def test_a_batch_may_be_larger_than_a_segment(opened: Callable[[], Reader]):
    bodies = [b"small", b"x" * 1000, b"y" * 100, b"z" * 300, b"small again"]
    opened().append(*bodies)
    reader = opened()
    assert reader.all() == bodies
    assert [reader.read(body) for body in bodies] == bodies


@pytest.mark.parametrize("size", [0, MAX_BODY_BYTES + 1])
def test_a_batch_that_no_reader_could_tell_from_damage_is_refused(size: int):
    with pytest.raises(ValueError, match=f"a batch of {size} bytes"):
        frame(bytes(size))


def test_a_reader_begins_at_the_snapshot(opened: Callable[[], Reader]):
    writer, behind = opened(), opened()
    writer.append(b"0")
    assert behind.all() == [b"0"]
    for at in range(5):
        writer.append(*number(30, 30 * at))
        writer.save()
    writer.append(b"end")
    everything = [b"0", *number(150), b"end"]
    for reader in (opened(), behind):
        assert reader.all() == everything
        assert reader.diary.began_with[-1] == b"|".join(everything[:-1])


def test_what_is_live_can_be_read_after_the_snapshot(opened: Callable[[], Reader]):
    writer = opened()
    bodies = number(60)
    writer.append(*bodies)
    places = dict(writer.diary.places)
    live = places[bodies[3]][0]
    for _ in range(3):
        writer.save({live})
        writer.append(*bodies[:20])
    for reader in (writer, opened()):
        reader.all()
        reader.diary.places = dict(places)
        assert reader.read(bodies[3]) == bodies[3]
        with pytest.raises(StorageError, match="missing"):
            reader.read(bodies[33])


def test_the_growth_since_the_snapshot_is_counted(opened: Callable[[], Reader]):
    writer, reader = opened(), opened()
    writer.append(*number(30))
    grown = writer.journal.grown
    assert grown == 30 * len(frame(number(1)[0]))
    reader.all()
    assert reader.journal.grown == grown
    writer.save()
    assert writer.journal.grown == 0
    writer.append(b"1")
    later = opened()
    later.all()
    assert later.journal.grown == writer.journal.grown == len(frame(b"1"))


def test_a_journal_that_is_told_to_forget_begins_anew(opened: Callable[[], Reader]):
    reader = opened()
    reader.append(b"1", b"2")
    reader.journal.forget()
    assert reader.all() == [b"1", b"2"]
    assert reader.diary.began_with == [None, None]
    reader.journal.forget()
    reader.append(b"3")
    assert reader.diary.bodies == [b"1", b"2", b"3"]


def test_a_body_at_the_wrong_place_is_not_served(opened: Callable[[], Reader]):
    reader = opened()
    reader.append(*number(5))
    segment, offset = reader.diary.places[number(5)[2]]
    for wrong in [(segment, offset + 1), (segment, offset + 10_000), (segment + 50, offset)]:
        reader.diary.places[number(5)[2]] = wrong
        with pytest.raises(StorageError):
            reader.read(number(5)[2])


def test_a_destroyed_journal_begins_anew_for_everybody(opened: Callable[[], Reader]):
    readers = [opened() for _ in range(3)]
    for reader in readers:
        reader.append(*number(30))
    readers[0].save()
    readers[1].journal.destroy()
    for reader in (*readers, opened()):
        assert reader.all() == []
    for at, reader in enumerate(readers):
        reader.append(b"%d" % at)
    for reader in (*readers, opened()):
        assert reader.all() == [b"0", b"1", b"2"]
        assert [reader.read(body) for body in reader.all()] == reader.all()


def test_nothing_of_an_earlier_life_is_read(opened: Callable[[], Reader]):
    reader, other = opened(), opened()
    for life in range(5):
        bodies = [b"life %d: %02d" % (life, at) for at in range(40)]
        if life % 2:
            for body in bodies:
                other.journal.append(body, None, durable=True)
        else:
            other.append(*bodies)
        assert reader.all() == bodies
        assert [reader.read(body) for body in bodies] == bodies
        other.save() if not life % 2 else reader.save()
        other.journal.destroy()
    assert reader.all() == []


def test_a_snapshot_of_an_earlier_life_is_not_kept(opened: Callable[[], Reader]):
    reader, other = opened(), opened()
    reader.append(*number(50))
    other.journal.destroy()
    other.append(b"new")
    reader.save()
    assert opened().all() == [b"new"]
    assert reader.all() == [b"new"]
