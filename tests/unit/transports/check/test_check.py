"""The check reads a broker's folder as it is and reports its damage."""

import fcntl
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from kombu import Connection, Exchange, Producer, Queue

from ami import transports
from ami.transports.objectstore.__main__ import main
from ami.transports.objectstore.check import journal
from ami.transports.objectstore.check.journal import read_queue
from ami.transports.objectstore.queue.commands import Ack, Bury, Claim
from ami.transports.objectstore.queue.store import Store
from tests.support.place import until
from tests.support.soak import soak
from tests.support.transports.small_stores import message as enqueue
from tests.support.transports.small_stores import on_folder, snapshots_every

Check = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Run the command and return its exit code and its answer."""

    def run(folder: Path) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["check", "--json", str(folder)])
        return code, json.loads(capsys.readouterr().out)

    return run


def declared(broker: Path, *names: str, durable: bool = True) -> None:
    """Publish a message to each of these queues of a broker."""
    transports.register()
    with Connection(f"objectstore+{broker.as_uri()}") as connection:
        for name in names:
            queue = Queue(name, Exchange(name), name, durable=durable)(connection.default_channel)
            queue.declare()
            Producer(connection).publish("x", exchange=queue.exchange, routing_key=name)


def filled(folder: Path, count: int = 40, done: int = 0) -> Store:
    """Return a store whose queue has a few segments, of which the first messages are done."""
    store = on_folder(folder)
    for number in range(count):
        store.commit([enqueue(str(number), 60)])
        if number < done:
            [[entry]] = store.commit([Claim(1, "worker", 60.0)])
            store.commit([Ack(entry.id)])
    return store


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def spoil(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_every_queue_of_a_broker_is_counted_and_nothing_is_changed(tmp_path: Path, check: Check):
    declared(tmp_path, "tasks", "a/b")
    store = on_folder(tmp_path / "queues" / "tasks")
    store.commit([enqueue(str(number), 10) for number in range(5)])
    store.commit([Claim(2, "worker", 60.0)])
    before = files(tmp_path)
    code, found = check(tmp_path)
    assert (code, found["damage"]) == (0, [])
    [slashed, tasks] = found["queues"]
    assert (slashed["queue"], slashed["waiting"]) == ("a/b", 1)
    assert (tasks["queue"], tasks["waiting"], tasks["leased"]) == ("tasks", 4, 2)
    assert files(tmp_path) == before


def test_the_folder_of_a_single_queue_can_be_checked(tmp_path: Path, check: Check):
    filled(tmp_path / "queue").commit([Bury("4", "rejected")])
    code, found = check(tmp_path / "queue")
    assert code == 0
    assert [(queue["waiting"], queue["buried"]) for queue in found["queues"]] == [(39, 1)]


def test_segments_and_snapshots_are_counted(tmp_path: Path):
    with snapshots_every(2000):
        filled(tmp_path, done=20)
    report = read_queue(tmp_path)
    paths = [*tmp_path.glob("*.log"), *tmp_path.glob("snapshot-*")]
    assert report.segments == len(list(tmp_path.glob("*.log"))) > 3
    assert report.bytes == sum(path.stat().st_size for path in paths)
    assert (report.waiting, report.damage, report.notes) == (20, [], [])


def test_one_changed_byte_anywhere_is_found(tmp_path: Path):
    with snapshots_every(2000):
        filled(tmp_path, done=20)
    paths = [*tmp_path.glob("*.log"), *tmp_path.glob("snapshot-*")]
    for path in paths:
        for at in range(0, path.stat().st_size, 37):
            spoil(path, at)
            assert read_queue(tmp_path).damage, (path.name, at)
            spoil(path, at)
    assert not read_queue(tmp_path).damage


def test_damage_is_named_with_its_place_and_the_exit_code_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    declared(tmp_path, "tasks")
    filled(tmp_path / "queues" / "tasks", 3)
    spoil(tmp_path / "queues" / "tasks" / "00000001.log", 100)
    assert main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "DAMAGED" in out
    assert "00000001.log is damaged at byte" in out
    assert "up to the damage" in out


def test_a_segment_that_is_gone_is_damage(tmp_path: Path):
    filled(tmp_path)
    (tmp_path / "00000002.log").unlink()
    assert read_queue(tmp_path).damage == [f"{tmp_path / '00000002.log'} is missing"]


def test_a_last_segment_that_is_gone_is_damage(tmp_path: Path):
    filled(tmp_path)
    last = max(tmp_path.glob("*.log"))
    last.unlink()
    assert read_queue(tmp_path).damage == [f"{last} is missing"]


def test_a_segment_that_lost_whole_batches_is_damage(tmp_path: Path):
    filled(tmp_path)
    path = tmp_path / "00000001.log"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(0)
    assert read_queue(tmp_path).damage == [f"{path} has 0 bytes; {size} were written"]


def test_an_end_that_is_missing_is_damage(tmp_path: Path):
    filled(tmp_path)
    last = max(tmp_path.glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 1)
    assert f"{last} has" in read_queue(tmp_path).damage[0]


def test_an_older_snapshot_counts_where_the_newest_is_damaged(tmp_path: Path):
    with snapshots_every(2000):
        filled(tmp_path, done=20)
    spoil(max(tmp_path.glob("snapshot-*")), 40)
    report = read_queue(tmp_path)
    assert (report.waiting, len(report.damage), report.notes) == (20, 1, [])


def test_what_a_killed_writer_left_beyond_the_end_is_no_damage(tmp_path: Path):
    filled(tmp_path)
    with max(tmp_path.glob("*.log")).open("ab") as file:
        file.write(b"half a batch")
    report = read_queue(tmp_path)
    assert (report.waiting, report.damage) == (40, [])


def test_what_a_power_failure_tore_at_the_end_is_a_note(tmp_path: Path):
    filled(tmp_path)
    last = max(tmp_path.glob("*.log"))
    with last.open("ab") as file:
        file.write(b"half a batch")
    with patch.object(journal, "this_boot", lambda: b"another start   "):
        report = read_queue(tmp_path)
    assert (report.waiting, report.damage) == (40, [])
    assert report.notes == [f"{last}: its last 12 bytes are not a whole batch and will be cut off"]


def test_a_transient_queue_begins_anew_after_a_power_failure(tmp_path: Path):
    filled(tmp_path)
    spoil(tmp_path / "00000001.log", 60)
    with patch.object(journal, "this_boot", lambda: b"another start   "):
        report = read_queue(tmp_path, is_transient=True)
    assert not report.damage
    assert "next writer empties it" in report.notes[-1]
    assert read_queue(tmp_path, is_transient=True).damage


def test_the_layout_tells_which_queues_are_transient(tmp_path: Path, check: Check):
    declared(tmp_path, "replies", durable=False)
    spoil(tmp_path / "queues" / "replies" / "00000001.log", 60)
    assert check(tmp_path)[0] == 1
    with patch.object(journal, "this_boot", lambda: b"another start   "):
        assert check(tmp_path)[0] == 0


def test_a_torn_layout_is_damage(tmp_path: Path, check: Check):
    declared(tmp_path, "tasks")
    spoil(tmp_path / "objects" / "layout", 40)
    code, found = check(tmp_path)
    assert code == 1
    assert str(tmp_path / "objects" / "layout") in found["damage"][0]


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_what_is_no_brokers_folder_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "empty").mkdir()
    assert main(["check", str(tmp_path / name)]) == 2
    assert str(tmp_path / name) in capsys.readouterr().err


def test_a_busy_queue_is_never_taken_for_damaged(tmp_path: Path):
    """Writers shorten and destroy it all the time; a check may find it busy, never damaged."""
    is_over, folder, failures = threading.Event(), tmp_path / "queue", []

    def write(writer: int) -> None:
        try:
            store = on_folder(folder)
            while not is_over.is_set():
                for number in range(30):
                    store.commit([enqueue(f"{writer}-{number}-{time.monotonic()}", 60)])
                    [entries] = store.commit([Claim(1, "worker", 60.0)])
                    store.commit([Ack(entry.id) for entry in entries])
                if writer == 0:
                    store.destroy()
        except Exception as error:
            failures.append(error)

    writing = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    with snapshots_every(3000):
        for each in writing:
            each.start()
        try:
            until(lambda: list(folder.glob("snapshot-*")), 60)
            ends = time.monotonic() + soak(1.5, 60.0)
            reports = []
            while time.monotonic() < ends or len(reports) < 20:
                reports.append(read_queue(folder))
        finally:
            is_over.set()
            for each in writing:
                each.join()
    assert failures == []
    assert [report.damage for report in reports if report.damage] == []
    assert max(report.waiting for report in reports) <= 4


def test_a_queue_whose_lock_is_held_is_busy_not_damaged(tmp_path: Path, check: Check, monkeypatch):
    folder = tmp_path / "queues" / "held"
    filled(folder)
    spoil(folder / "00000001.log", 60)
    monkeypatch.setattr(journal, "PATIENCE_SECONDS", 0.05)
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, answer = check(tmp_path)
    assert (code, answer["damage"], answer["queues"][0]["is_busy"]) == (3, [], True)
    monkeypatch.undo()
    assert check(tmp_path)[0] == 1


def test_a_segment_that_came_and_went_during_a_read_is_no_damage(tmp_path: Path):
    store, glob, compare = filled(tmp_path), Path.glob, journal._Reading._compare
    moments: list[str] = []

    def work_off(count: int) -> None:
        with snapshots_every(1000):
            store.commit([*(Ack(name) for name in store.look().entries), enqueue(f"stays-{len(moments)}", 60)])
            store.commit([Claim(1, "worker", 60.0)])
            for number in range(count):
                store.commit([enqueue(f"{len(moments)}-{number}", 60)])
                [[entry]] = store.commit([Claim(1, "worker", 60.0)])
                store.commit([Ack(entry.id)])

    def listed(self: Path, pattern: str) -> object:
        if pattern == "snapshot-*" and not moments:
            moments.append("after the segments were listed")
            work_off(60)
        return glob(self, pattern)

    def compared(self: journal._Reading) -> None:
        if len(moments) == 1:
            moments.append("before they were compared")
            work_off(60)
        compare(self)

    with patch.object(Path, "glob", listed), patch.object(journal._Reading, "_compare", compared):
        report = read_queue(tmp_path)
    assert len(moments) == 2
    assert (report.damage, report.waiting, report.leased) == ([], 0, 1)


def test_queue_that_changes_during_every_read_is_busy_not_damaged(tmp_path: Path, check: Check, monkeypatch):
    filled(tmp_path / "queues" / "busy")
    monkeypatch.setattr(journal, "PATIENCE_SECONDS", 0.05)
    with patch.object(journal._Reading, "report", side_effect=FileNotFoundError):
        code, answer = check(tmp_path)
    [queue] = answer["queues"]
    assert (code, answer["damage"], queue["is_busy"]) == (3, [], True)
    assert "changed during each read" in queue["notes"][0]
    assert check(tmp_path)[0] == 0


def test_file_removed_after_it_was_listed_is_still_read_whole(tmp_path: Path):
    filled(tmp_path)
    before = read_queue(tmp_path)
    compare = journal._Reading._read_snapshots

    def removing(self) -> None:
        for path in tmp_path.glob("*.log"):
            path.rename(tmp_path / f"{path.name}.removed")
        compare(self)

    with patch.object(journal._Reading, "_read_snapshots", removing):
        assert read_queue(tmp_path) == before


def test_a_queue_that_is_deleted_meanwhile_is_no_damage(tmp_path: Path):
    report = read_queue(tmp_path / "deleted")
    assert (report.damage, report.notes) == ([], ["deleted: it was deleted meanwhile"])
