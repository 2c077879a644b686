"""A repair keeps every message that can be read, and sets aside what cannot."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ami.transports.objectstore.__main__ import main
from ami.transports.objectstore.check import repair as repair_module
from ami.transports.objectstore.check.journal import read_queue
from ami.transports.objectstore.check.objects import ASIDE
from ami.transports.objectstore.check.repair import repair_queue
from ami.transports.objectstore.journal.frames import frames
from ami.transports.objectstore.queue.commands import Ack, Claim, Configure
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.soak import soak
from tests.support.transports.damaged_files import DAMAGE, first_segment, flip
from tests.support.transports.queue_state import assert_consistent
from tests.support.transports.small_stores import claim, content, held, message, on_folder, publish, snapshots_every

COUNT = 30


def filled(folder: Path, segment_bytes: int = 400) -> Any:
    store = on_folder(folder, segment_bytes, durable=True)
    for number in range(COUNT):
        publish(store, str(number), size=60)
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    filled(tmp_path / "queue")
    return tmp_path / "queue"


def left(folder: Path) -> dict[str, bytes]:
    return held(on_folder(folder, durable=True))


def assert_repaired(folder: Path) -> None:
    assert read_queue(folder).damage == []
    assert repair_queue(folder) is None
    store = on_folder(folder, durable=True)
    assert_consistent(store.look())
    assert publish(store, "afterwards") == [True]
    assert "afterwards" in left(folder)


@pytest.mark.parametrize("how", sorted(DAMAGE))
def test_what_can_be_read_is_kept_and_the_queue_works(folder: Path, how: str):
    whole, sizes = left(folder), sum(path.stat().st_size for path in folder.glob("*.log"))
    DAMAGE[how](folder)
    segments = {str(path): path.read_bytes() for path in folder.glob("*.log")}
    survivors = {name for name, payload in whole.items() if any(payload in each for each in segments.values())}
    done = repair_queue(folder)
    kept = left(folder)
    assert done is not None
    assert kept.items() <= whole.items()
    assert kept.keys() == survivors
    assert done.kept == len(kept)
    assert done.parts > 0
    assert done.bytes <= sizes
    assert_repaired(folder)


def test_a_flipped_bit_in_a_length_costs_no_message(folder: Path):
    flip(first_segment(folder), 1)
    assert repair_queue(folder).kept == COUNT
    assert set(left(folder)) == {str(number) for number in range(COUNT)}


def test_unreadable_bytes_are_set_aside_as_they_were(folder: Path):
    flip(first_segment(folder), 120)
    before = first_segment(folder).read_bytes()
    done = repair_queue(folder)
    parts = [path for path in Path(done.aside).iterdir() if path.name != "report.json"]
    [part] = parts
    name, start, end = part.name.rsplit("-", 2)
    assert name == "00000001.log"
    assert part.read_bytes() == before[int(start) : int(end)]
    assert Path(done.aside).parent == folder.parent / ASIDE
    assert json.loads((Path(done.aside) / "report.json").read_text())["unreadable"] == done.unreadable == 1


def test_messages_whose_acknowledgement_may_be_lost_come_again_flagged(tmp_path: Path):
    folder = tmp_path / "queue"
    store = on_folder(folder, 10**6, durable=True)
    publish(store, "a", "b", "c")
    assert claim(store, 2) == ["a", "b"]
    begins = (folder / "00000001.log").stat().st_size
    store.commit([Ack("a")])
    publish(store, "d")
    flip(folder / "00000001.log", begins + 10)
    assert repair_queue(folder).flagged
    again = on_folder(folder, durable=True)
    [entries] = again.commit([Claim(10, "worker", 60.0)])
    assert [entry.id for entry in entries] == ["a", "b", "c", "d"]
    assert all(entry.redelivered for entry in entries)


@pytest.mark.parametrize("rejects", [False, True])
def test_a_limit_drops_nothing_because_claims_were_lost(tmp_path: Path, rejects: bool):
    folder = tmp_path / "queue"
    store = on_folder(folder, 10**6, durable=True)
    store.commit([Configure(max_length=2, rejects_publish=rejects, keeps_buried=False)])
    publish(store, "a", "b")
    begins = (folder / "00000001.log").stat().st_size
    assert claim(store, 2) == ["a", "b"]
    publish(store, "c", "d")
    flip(folder / "00000001.log", begins + 10)
    assert repair_queue(folder).kept == 4
    again = on_folder(folder, durable=True)
    assert set(held(again)) == {"a", "b", "c", "d"}
    assert again.look().limit == (2, rejects)


def test_damage_before_the_snapshot_costs_its_own_message_only(tmp_path: Path):
    folder = tmp_path / "queue"
    with snapshots_every(1000):
        store = filled(folder)
        store.look()
        publish(store, "last")
        store.commit([Ack("unknown")])  # The first commit after an opening saves no snapshot.
    entry = store.look().entries["2"]
    claimed = claim(store, 1)
    flip(folder / f"{entry.segment:08d}.log", entry.offset + 3)
    done = repair_queue(folder)
    assert (done.kept, done.unreadable, done.flagged) == (COUNT, 1, False)
    again = on_folder(folder, durable=True)
    assert "2" not in held(again)
    assert [entry.id for entry in again.look().leased.values()] == claimed


def test_processes_that_have_it_open_go_on_after_a_repair(folder: Path):
    publisher, worker = on_folder(folder, durable=True), on_folder(folder, durable=True)
    publish(publisher, "before")
    held_by_worker = claim(worker, 2)
    flip(first_segment(folder), 420)
    with pytest.raises(StorageError):
        on_folder(folder, durable=True).look()
    with pytest.raises(StorageError):
        publish(publisher, "refused")
    repair_queue(folder)
    assert publish(publisher, "after") == [True]
    assert worker.commit([Ack(name) for name in held_by_worker]) == [None, None]
    assert held(worker) == held(publisher) == left(folder)
    assert {"before", "after"} <= left(folder).keys()
    assert not {"refused", *held_by_worker} & left(folder).keys()


def test_a_marker_without_damage_is_removed(folder: Path):
    flip(first_segment(folder), 30)
    with pytest.raises(StorageError):
        left(folder)
    flip(first_segment(folder), 30)
    assert "found before" in read_queue(folder).damage[0]
    done = repair_queue(folder)
    assert (done.kept, done.bytes, done.flagged) == (COUNT, 0, False)
    assert_repaired(folder)


def test_a_gap_too_small_for_a_void_frame_costs_no_message(folder: Path):
    segment = first_segment(folder)
    before = segment.read_bytes()
    first = next(frames(before, 0, ""))
    end = first[0] + len(first[1])
    # Three bytes between two whole frames, at the price of the segment's last message.
    segment.write_bytes(before[:end] + b"???" + before[end:-3])
    whole = {str(number): content(str(number), 60) for number in range(COUNT)}
    assert repair_queue(folder) is not None
    kept = left(folder)
    assert kept.items() <= whole.items()
    assert len(kept) >= COUNT - 1
    assert_repaired(folder)


STEPS = ("_set_aside", "_write_segment", "_fill_gaps", "_reopen")


@pytest.mark.parametrize("step", STEPS)
def test_a_repair_that_is_killed_can_be_repeated(folder: Path, step: str, monkeypatch: pytest.MonkeyPatch):
    flip(first_segment(folder), 120)
    whole = {str(number): content(str(number), 60) for number in range(COUNT)}
    with monkeypatch.context() as patching:
        patching.setattr(repair_module._Repairer, step, _killed)
        with pytest.raises(KeyboardInterrupt):
            repair_queue(folder)
    assert repair_queue(folder) is not None
    kept = left(folder)
    assert kept.items() <= whole.items()
    assert len(kept) == COUNT - 1
    assert_repaired(folder)


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


HOW: dict[str, Callable[[bytes, int], bytes]] = {
    "flip": lambda before, at: before[:at] + bytes([before[at] ^ 1 << at % 8]) + before[at + 1 :],
    "cut": lambda before, at: before[:at],
    "zeros": lambda before, at: before[:at] + bytes(min(20, len(before) - at)) + before[at + 20 :],
    "longer": lambda before, at: before + before[:at],
}


@pytest.mark.timeout(soak(300, 1800))
@settings(max_examples=soak(15, 2000), deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(sorted(HOW)), st.integers(0, 100), st.integers(0, 10_000)), max_size=4))
def test_any_damage_is_repaired_and_costs_no_message_beside_it(damage: list[tuple[str, int, int]]):
    with tempfile.TemporaryDirectory() as name, snapshots_every(1500):
        folder = Path(name) / "queue"
        store = filled(folder)
        done = claim(store, 4)
        store.commit([Ack(each) for each in done[:3]])
        # A bit may flip in an id whose message can be read, so payloads are compared.
        whole = {content(str(number), 60) for number in range(COUNT)}
        for how, which, at in damage:
            paths = sorted(path for path in folder.iterdir() if path.name != "lock")
            path = paths[which % len(paths)]
            if before := path.read_bytes():
                path.write_bytes(HOW[how](before, at % len(before)))
        parts = [path.read_bytes() for path in folder.glob("*.log")]
        repair_queue(folder)
        kept = set(left(folder).values())
        assert kept <= whole
        readable = {payload for payload in whole if any(payload in part for part in parts)}
        # A damaged line hides the message after it, and each damage hits two at most.
        acknowledged = {content(each, 60) for each in done[:3]}
        assert len(readable - kept - acknowledged) <= 2 * len(damage)
        assert_repaired(folder)


# The command.


def test_the_command_counts_both_and_a_second_run_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("queues/one", "queues/two", "delayed/slot"):
        filled(tmp_path / name)
    for name in ("queues/two", "delayed/slot"):
        flip(first_segment(tmp_path / name), 120)
    assert main(["check", "--repair", "--json", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["queue"], one["kept"], one["unreadable"]) for one in found["queues"]] == [
        ("slot", COUNT - 1, 1),
        ("two", COUNT - 1, 1),
    ]
    assert main(["check", "--repair", str(tmp_path)]) == 0
    assert "nothing is damaged" in capsys.readouterr().out
    assert main(["check", str(tmp_path)]) == 0


def test_the_table_names_what_was_kept_and_what_was_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    filled(tmp_path / "queues" / "tasks")
    flip(first_segment(tmp_path / "queues" / "tasks"), 120)
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "layout").write_bytes(b"torn")
    assert main(["check", "--repair", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "messages kept" in out
    assert "messages lost" in out
    assert "29" in out
    assert "declare the queues again" in out
    assert main(["check", str(tmp_path)]) == 0


def test_a_queue_of_a_newer_version_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "queues" / "tasks"
    store = on_folder(folder, durable=True)
    store._journal.append(b'[2,"token",1.0,[]]\n', None, durable=True)
    store.commit([message("a")])
    flip(folder / "00000001.log", (folder / "00000001.log").stat().st_size - 1)
    before = (folder / "00000001.log").read_bytes()
    assert main(["check", "--repair", str(tmp_path)]) == 1
    assert "format 2" in capsys.readouterr().out
    assert (folder / "00000001.log").read_bytes() == before
