"""Damage is reported with the file and the byte, and damaged content is never served."""

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ami.transports.objectstore.journal.frames import HEADER_BYTES, frame
from ami.transports.objectstore.journal.head import Head
from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.queue import snapshot
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.storage.errors import StorageError
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.soak import soak
from tests.support.transports.recording_follower import Reader, number, on_folder
from tests.support.transports.small_stores import claim, held, publish, waiting
from tests.support.transports.small_stores import on_folder as store_on_folder
from tests.support.transports.small_stores import on_objects as store_on_objects

BODIES = [b"first body", b"second body", b"third"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue"


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_anywhere_is_found_by_a_reader(folder: Path, bit: int):
    on_folder(folder).append(*BODIES)
    path = folder / "00000001.log"
    starts = [0, HEADER_BYTES + 10, 2 * HEADER_BYTES + 21, path.stat().st_size]
    for at in range(path.stat().st_size):
        flip(path, at, bit)
        damaged = max(start for start in starts if start <= at)
        reader = on_folder(folder)
        for use in (reader.all, reader.all, lambda reader=reader: reader.append(b"next")):
            with pytest.raises(StorageError, match=f"{path} is damaged at byte {damaged} of {starts[-1]}"):
                use()
        assert set(reader.diary.bodies) <= set(BODIES)
        flip(path, at, bit)
    assert on_folder(folder).all() == BODIES


def test_the_byte_is_told_by_who_has_read_what_is_before_it(folder: Path):
    writer, reader = on_folder(folder, 1000), on_folder(folder, 1000)
    writer.append(*BODIES[:2])
    assert reader.all() == BODIES[:2]
    writer.append(BODIES[2])
    size = (folder / "00000001.log").stat().st_size
    flip(folder / "00000001.log", size - 1)
    with pytest.raises(StorageError, match=f"00000001.log is damaged at byte 37 of {size}"):
        reader.all()


def test_a_payload_that_was_damaged_after_it_was_read_is_not_served(folder: Path):
    store = store_on_folder(folder, 10_000)
    publish(store, "a", "b", size=100)
    entries = dict(store.look().entries)
    entry = entries["a"]
    for at in range(entry.offset, entry.offset + entry.length):
        flip(folder / "00000001.log", at)
        with pytest.raises(StorageError, match=f"00000001.log is damaged between byte {entry.offset} and byte"):
            store.payload(entry)
        assert store.payload(entries["b"]).startswith(b"b")
        flip(folder / "00000001.log", at)
    assert store.payload(entry).startswith(b"a")


def test_a_payload_before_the_snapshot_is_checked(folder: Path):
    store = store_on_folder(folder, 200)
    publish(store, "a", "b", size=100)
    for at in range(10):
        publish(store, str(at))
    store.look()
    store._journal.save(snapshot.dump(store.look()), set(store.look().in_segment))
    entry = store.look().entries["a"]
    flip(folder / "00000001.log", entry.offset + 5)
    again = store_on_folder(folder, 200)
    assert waiting(again)[:2] == ["a", "b"]
    with pytest.raises(StorageError, match=r"00000001.log is damaged between byte"):
        again.payload(again.look().entries["a"])
    assert again.payload(again.look().entries["b"]).startswith(b"b")


HOW: dict[str, Callable[[bytes, int], bytes]] = {
    "flip": lambda content, at: content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :],
    "cut": lambda content, at: content[:at],
    "zeros": lambda content, at: content[:at] + bytes(min(20, len(content) - at)) + content[at + 20 :],
    "longer": lambda content, at: content + content[:at],
    "missing": lambda content, at: b"",
}


@settings(max_examples=soak(60, 1000), deadline=None, derandomize=True)
@given(st.sampled_from(sorted(HOW)), st.integers(0, 100), st.integers(0, 10_000))
def test_whatever_is_done_to_the_files_no_wrong_byte_is_served(how: str, which: int, at: int):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "queue"
        store = store_on_folder(folder, 150)
        contents = {str(each): b"%d" % each * 20 for each in range(12)}
        for name, content in contents.items():
            store.commit([Enqueue(name, content)])
        paths = sorted(path for path in folder.iterdir() if path.name != "lock")
        path = paths[which % len(paths)]
        before = path.read_bytes()
        path.write_bytes(HOW[how](before, at % len(before)))
        if how == "missing":
            path.unlink()
        for reader in (store, store_on_folder(folder, 150)):
            try:
                found = held(reader)
            except StorageError as error:
                said = str(error)
            else:
                # The journal's end may be found again by the checksums, and what is beyond it does not count.
                assert found == contents
                said = str(folder)
            assert str(folder) in said
            reader.close()


# Snapshots.


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:1],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content + content,
        lambda content: bytes(len(content)),
        lambda content: content[:20] + b"!" + content[21:],
    ],
)
def test_a_damaged_snapshot_is_passed_over_for_the_one_before(folder: Path, damage, caplog: pytest.LogCaptureFixture):
    writer = on_folder(folder)
    for at in range(4):
        writer.append(*number(30, 30 * at))
        writer.save()
    writer.append(b"end")
    newest = max(folder.glob("snapshot-*"))
    newest.write_bytes(damage(newest.read_bytes()))
    reader = on_folder(folder)
    assert reader.all() == [*number(120), b"end"]
    assert reader.diary.began_with == [b"|".join(number(90))]
    assert str(newest) in caplog.text
    reader.append(*number(30, 120))
    reader.save()
    assert on_folder(folder).all() == [*number(120), b"end", *number(30, 120)]


def test_without_a_whole_snapshot_the_first_segments_must_be_there(folder: Path):
    writer = on_folder(folder)
    for at in range(4):
        writer.append(*number(30, 30 * at))
        writer.save({1, 4})
    for path in folder.glob("snapshot-*"):
        flip(path, 12)
    for use in (lambda: on_folder(folder).all(), lambda: on_folder(folder).append(b"next")):
        with pytest.raises(StorageError, match=f"{folder} has no whole snapshot, and its first segments are missing"):
            use()


def test_a_damaged_first_snapshot_is_replaced_by_all_segments(folder: Path):
    writer = on_folder(folder)
    writer.append(*number(30))
    writer.save()
    flip(next(folder.glob("snapshot-*")), 12)
    assert on_folder(folder).all() == number(30)


def test_a_process_before_the_damage_continues_at_a_later_snapshot(folder: Path):
    writer, stuck = on_folder(folder), on_folder(folder)
    writer.append(*number(30))
    flip(folder / "00000002.log", 30)
    with pytest.raises(StorageError, match="00000002.log is damaged"):
        stuck.all()
    writer.save()
    assert stuck.all() == number(30)


@pytest.mark.parametrize("frames", range(5))
def test_a_closed_segment_that_lost_whole_frames_is_an_error(folder: Path, frames: int):
    writer, behind = on_folder(folder), on_folder(folder)
    writer.append(*number(3))
    assert behind.all() == number(3)
    writer.append(*number(17, 3))
    path = folder / "00000001.log"
    written = path.stat().st_size
    path.write_bytes(b"".join(map(frame, number(frames))))
    for reader in (behind, on_folder(folder)):
        for use in (reader.all, lambda reader=reader: reader.append(b"next")):
            with pytest.raises(StorageError, match=f"00000001.log (has {16 * frames} bytes; {written}|ends before)"):
                use()
        assert reader.diary.bodies == number(len(reader.diary.bodies))


def test_a_missing_segment_is_an_error(folder: Path):
    on_folder(folder).append(*number(60))
    (folder / "00000003.log").unlink()
    for use in (lambda: on_folder(folder).all(), lambda: on_folder(folder).append(b"next")):
        with pytest.raises(StorageError, match=re.escape(str(folder))):
            use()


@pytest.mark.parametrize("how", ["missing", "short"])
def test_a_last_segment_that_lost_what_was_counted_is_an_error(folder: Path, how: str):
    writer = on_folder(folder)
    writer.append(*number(20))
    last = max(folder.glob("*.log"))
    last.unlink() if how == "missing" else last.write_bytes(last.read_bytes()[:-1])
    for use in (lambda: on_folder(folder).all(), lambda: on_folder(folder).append(b"next")):
        with pytest.raises(StorageError, match=str(last)):
            use()


# Objects.


def test_a_damaged_closed_segment_in_a_storage_is_told_of():
    objects = MemoryObjects()
    writer = Reader(ObjectJournal(objects, "queue/", segment_bytes=100))
    writer.append(*number(20))
    key = objects.list("queue/segments/")[1]
    damage(objects, key, lambda content: content[:30] + b"!" + content[31:])
    for _ in range(2):
        reader = Reader(ObjectJournal(objects, "queue/"))
        with pytest.raises(StorageError, match="segment 2 of queue/ is damaged at byte 16 of"):
            reader.all()
        assert reader.diary.bodies == number(6)
    writer.save()
    assert reader.all() == number(20)


def test_a_damaged_payload_in_a_storage_is_told_of():
    objects = MemoryObjects()
    store = store_on_objects(objects, 200)
    store.look()
    publish(store, *map(str, range(10)), size=50)
    publish(store, "end")
    entry = store.look().entries["3"]
    [key] = objects.list("queue/segments/")
    damage(objects, key, lambda content: content.replace(b"3.....", b"4....."))
    with pytest.raises(StorageError, match=f"segment 1 of queue/ is damaged between byte {entry.offset}"):
        store.payload(entry)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"null\n", b"[]\n", b"{}\n", b"\xff", b'{"format":1,"life":"","number":1,"segment":1}\n']
)
def test_a_head_that_cannot_be_read_is_told_of(content: bytes):
    objects = MemoryObjects()
    objects.create("queue/head", content)
    for use in (held, claim, lambda store: publish(store, "a")):
        with pytest.raises(StorageError, match="head cannot be read"):
            use(store_on_objects(objects))
    assert objects.read("queue/head").content == content


def test_a_head_of_a_newer_version_is_refused():
    objects = MemoryObjects()
    line, _, rest = Head().dump().partition(b"\n")
    objects.create("queue/head", json.dumps({**json.loads(line), "format": 2}).encode() + b"\n" + rest)
    with pytest.raises(StorageError, match="format 2; this version reads 1"):
        held(store_on_objects(objects))


def test_a_snapshot_of_a_storage_that_cannot_be_read_is_told_of():
    objects = MemoryObjects()
    writer = Reader(ObjectJournal(objects, "queue/", segment_bytes=100))
    writer.append(*number(20))
    writer.save()
    damage(objects, objects.list("queue/snapshots/")[0], lambda content: b"no JSON\n" + content)
    with pytest.raises(StorageError, match="snapshots/.* cannot be read"):
        Reader(ObjectJournal(objects, "queue/")).all()


def damage(objects: MemoryObjects, key: str, how) -> None:
    stored = objects.read(key)
    objects.replace(key, how(stored.content), stored.version)
