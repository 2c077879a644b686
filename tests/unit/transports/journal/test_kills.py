"""A process that is killed at any byte takes nothing with it that was confirmed, and leaves nothing half done."""

import signal
from pathlib import Path

import pytest

from ami.transports.objectstore.journal import folder as folder_module
from ami.transports.objectstore.journal.frames import frame
from ami.transports.objectstore.journal.place import DESTROYED
from tests.support.soak import soak
from tests.support.transports.python_processes import run
from tests.support.transports.recording_follower import POWER_FAILURE, on_folder
from tests.support.transports.small_stores import claim, held, publish, waiting
from tests.support.transports.small_stores import on_folder as store_on_folder

BODIES = [b"first", b"second"]
NEXT = frame(b"unconfirmed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def segment(folder: Path) -> Path:
    """The one segment of a journal that holds two bodies."""
    reader = on_folder(folder)
    reader.append(*BODIES)
    reader.journal.close()
    return folder / "00000001.log"


@pytest.mark.parametrize("written", range(len(NEXT) + 1))
def test_bytes_of_a_killed_writer_are_cut_off(folder: Path, segment: Path, written: int):
    whole, open_before = segment.read_bytes(), on_folder(folder)
    open_before.all()
    segment.write_bytes(whole + NEXT[:written])
    for reader in (open_before, on_folder(folder)):
        assert reader.all() == BODIES
    on_folder(folder).append(b"next")
    for reader in (open_before, on_folder(folder)):
        assert reader.all() == [*BODIES, b"next"]
    assert segment.read_bytes() == whole + frame(b"next")


@pytest.mark.parametrize("written", [1, 8, len(NEXT), 5000])
def test_a_blind_writer_cuts_off_what_a_killed_one_left(folder: Path, segment: Path, written: int):
    whole = segment.read_bytes()
    segment.write_bytes(whole + (NEXT * 500)[:written])
    on_folder(folder).journal.append(b"next", None, durable=True)
    assert on_folder(folder).all() == [*BODIES, b"next"]
    assert segment.read_bytes() == whole + frame(b"next")


@pytest.mark.parametrize("kept", soak((0, 1, 18, 35), range(36)))
def test_a_tail_that_was_cut_off_is_found_again(folder: Path, segment: Path, kept: int):
    tail = folder / "tail"
    tail.write_bytes(tail.read_bytes()[:kept])
    assert on_folder(folder).all() == [*BODIES, POWER_FAILURE]
    on_folder(folder).append(b"next")
    assert on_folder(folder).all() == [*BODIES, POWER_FAILURE, b"next"]


@pytest.mark.parametrize("written", soak((1, 8, 18, 35), range(1, 36)))
def test_a_tail_that_was_written_over_in_part_is_found_again(folder: Path, segment: Path, written: int):
    tail, before = folder / "tail", (folder / "tail").read_bytes()
    on_folder(folder).append(b"third")
    after = tail.read_bytes()
    tail.write_bytes(after[:written] + before[written:])
    # The third one was not confirmed; where the bytes happen to be those of a whole tail, there is no doubt.
    assert on_folder(folder).all() in (BODIES, [*BODIES, b"third"], [*BODIES, b"third", POWER_FAILURE])


@pytest.mark.parametrize("written", range(len(NEXT) + 1))
def test_without_a_tail_the_whole_frames_count_and_no_torn_one(folder: Path, segment: Path, written: int):
    segment.write_bytes(segment.read_bytes() + NEXT[:written])
    (folder / "tail").unlink()
    unconfirmed = [b"unconfirmed"] if written == len(NEXT) else []
    for _ in range(2):
        assert on_folder(folder).all() == [*BODIES, *unconfirmed, POWER_FAILURE]


def test_a_tail_removed_under_open_journals_is_made_again(folder: Path):
    readers = [on_folder(folder) for _ in range(3)]
    for reader in readers:
        reader.append(*BODIES)
    (folder / "tail").unlink()
    for at, reader in enumerate(readers):
        reader.append(b"%d" % at)
    for reader in (*readers, on_folder(folder)):
        assert reader.all() == [*BODIES * 3, POWER_FAILURE, b"0", b"1", b"2"]


def test_another_start_of_the_system_is_a_doubt_once(folder: Path, segment: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folder_module, "this_boot", lambda: b"another start!!!")
    one, other = on_folder(folder), on_folder(folder)
    assert one.all() == other.all() == [*BODIES, POWER_FAILURE]
    one.append(b"next")
    assert other.all() == [*BODIES, POWER_FAILURE, b"next"]


def test_a_new_journal_is_in_no_doubt(folder: Path, monkeypatch: pytest.MonkeyPatch):
    on_folder(folder).all()
    monkeypatch.setattr(folder_module, "this_boot", lambda: b"another start!!!")
    assert on_folder(folder).all() == []


def test_after_another_start_all_messages_are_flagged(folder: Path, monkeypatch: pytest.MonkeyPatch):
    store = store_on_folder(folder, durable=True)
    publish(store, "a", "b")
    claim(store, seconds=1e6)
    monkeypatch.setattr(folder_module, "this_boot", lambda: b"another start!!!")
    publish(store, "c")
    again = store_on_folder(folder, durable=True)
    flags = {name: entry.redelivered for name, entry in again.look().entries.items()}
    assert flags == {"a": True, "b": True, "c": False}
    assert waiting(again) == ["b", "c"]


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.transports.small_stores import *
folder, killed_at, part = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
store = on_folder(folder, durable=True)
write, count = os.pwrite, 0
def pwrite(fd, content, at):
    global count
    count += 1
    if count == killed_at:
        write(fd, content[:int(part * len(content))], at)
        os.kill(os.getpid(), signal.SIGKILL)
    return write(fd, content, at)
os.pwrite = pwrite
for number in range(100):
    publish(store, f"{number}", size=200)
    print(number, flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize(("killed_at", "part"), [(1, 0.5), (2, 0.5), (4, 1), (7, 0.9), (9, 0.1), (12, 0.5)])
def test_a_killed_process_loses_nothing_it_confirmed(folder: Path, killed_at: int, part: float):
    store = store_on_folder(folder, durable=True)
    publish(store, "before")
    status, output = run(KILLED, folder, killed_at, part)
    assert status == -signal.SIGKILL
    confirmed = {"before", *output.split()}
    found = held(store_on_folder(folder, durable=True)).keys()
    assert confirmed <= found
    assert len(found - confirmed) <= 1
    publish(store, "after")
    assert held(store).keys() == found | {"after"}


@pytest.mark.parametrize("left", [b"", b"half a link", b"x" * 100])
def test_a_segment_that_was_begun_by_a_killed_process_is_gone_on_with(folder: Path, left: bytes):
    reader = on_folder(folder, 20)
    reader.append(b"a body of more than twenty bytes")
    (folder / "00000002.log").write_bytes(left)
    reader.append(b"next")
    assert on_folder(folder).all() == [b"a body of more than twenty bytes", b"next"]
    assert (folder / "00000002.log").read_bytes().endswith(frame(b"next"))


def test_what_killed_processes_did_not_finish_is_removed(folder: Path):
    reader = on_folder(folder)
    left = folder / ".snapshot-00000001-0000000000-abcdef"
    others = folder / ".snapshot-00000099-0000000000-abcdef"
    for at in range(4):
        reader.append(*[b"%d" % at] * 30)
        for path in (left, others):
            path.write_bytes(b"a part")
        reader.save()
    assert not left.exists()
    assert others.exists()
    assert len(list(folder.glob("snapshot-*"))) == 2


def test_a_queue_whose_removal_was_killed_is_either_whole_or_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reader = on_folder(folder)
    reader.append(*BODIES)

    def killed(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patching:
        patching.setattr("shutil.rmtree", killed)
        with pytest.raises(SystemExit):
            on_folder(folder).journal.destroy()
    assert len(list(tmp_path.glob(f"{DESTROYED}*"))) == 1
    assert on_folder(folder).all() == reader.all() == []
    reader.append(b"new")
    on_folder(tmp_path / "another").journal.destroy()
    assert list(tmp_path.iterdir()) == [folder]
    assert on_folder(folder).all() == [b"new"]
