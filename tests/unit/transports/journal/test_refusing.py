"""A damaged queue accepts no message, whichever process publishes, until it is repaired."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from ami.transports.objectstore.__main__ import main
from ami.transports.objectstore.journal import folder as folder_module
from ami.transports.objectstore.queue.commands import Ack
from ami.transports.objectstore.storage.errors import DamageError
from tests.support.transports.damaged_files import DAMAGE, cut_tail, first_segment, flip, last_segment
from tests.support.transports.small_stores import claim, held, on_folder, publish, snapshots_every, waiting

REFUSED = "no message is accepted before"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A queue of 20 messages in several segments."""
    store = on_folder(tmp_path / "queue", durable=True)
    for number in range(20):
        publish(store, str(number), size=60)
    return tmp_path / "queue"


def on(folder: Path) -> object:
    return on_folder(folder, durable=True)


@pytest.mark.parametrize("how", sorted(DAMAGE))
def test_no_publisher_gets_an_answer_once_damage_was_read(folder: Path, how: str):
    running = on_folder(folder, durable=True)
    publish(running, "before")
    DAMAGE[how](folder)
    with pytest.raises(DamageError) as read:
        held(on_folder(folder, durable=True))
    for publisher in (running, on_folder(folder, durable=True)):
        for _ in range(2):
            with pytest.raises(DamageError) as refused:
                publish(publisher, "after")
            assert str(folder) in str(refused.value)
    assert str(folder) in str(read.value)


@pytest.mark.parametrize(
    "how", sorted(each for each in DAMAGE if each.startswith(("last", "middle", "all", "first")) or "last" in each)
)
def test_a_new_publisher_finds_what_a_quick_look_shows(folder: Path, how: str):
    DAMAGE[how](folder)
    with pytest.raises(DamageError):
        publish(on_folder(folder, durable=True), "after")


def test_the_refusal_has_the_sentence_of_the_reader_and_the_remedy(folder: Path):
    publisher = on_folder(folder, durable=True)
    publish(publisher, "before")
    flip(first_segment(folder), 30)
    with pytest.raises(DamageError) as read:
        on_folder(folder, durable=True).look()
    with pytest.raises(DamageError) as refused:
        publish(publisher, "after")
    assert str(refused.value).startswith(str(read.value))
    assert str(refused.value).endswith(f"check --repair {folder}`")


def test_a_following_process_refuses_messages_and_settles_what_it_holds(folder: Path):
    worker = on_folder(folder, durable=True)
    held_by_worker = claim(worker, 3)
    flip(first_segment(folder), 30)
    with pytest.raises(DamageError):
        on_folder(folder, durable=True).look()
    with pytest.raises(DamageError, match=REFUSED):
        publish(worker, "after")
    assert worker.commit([Ack(held_by_worker[0])]) == [None]
    assert claim(worker) == ["3"]


def test_the_check_tells_publishers_of_damage(folder: Path, capsys: pytest.CaptureFixture[str]):
    publisher = on_folder(folder, durable=True)
    publish(publisher, "before")
    flip(first_segment(folder), 30)
    assert main(["check", str(folder)]) == 1
    with pytest.raises(DamageError, match=REFUSED):
        publish(publisher, "after")


def test_damage_is_remembered_after_a_start_of_the_system(folder: Path):
    flip(first_segment(folder), 30)
    with pytest.raises(DamageError):
        on_folder(folder, durable=True).look()
    with patch.object(folder_module, "this_boot", lambda: b"after the power!"):
        publisher = on_folder(folder, durable=True)
        for _ in range(2):
            with pytest.raises(DamageError, match=REFUSED):
                publish(publisher, "after")


def _publish(folder: Path, answers: "multiprocessing.Queue[str]", go: Callable[[], object]) -> None:
    store = on_folder(folder, durable=True)
    publish(store, f"by {os.getpid()}")
    answers.put("ready")
    go()
    try:
        publish(store, f"again by {os.getpid()}")
        answers.put("accepted")
    except DamageError as error:
        answers.put(str(error))


@pytest.mark.processes
def test_publishers_of_other_processes_are_refused_too(folder: Path):
    context = multiprocessing.get_context("fork")
    answers, go = context.Queue(), context.Event()
    processes = [context.Process(target=_publish, args=(folder, answers, go.wait)) for _ in range(2)]
    for process in processes:
        process.start()
    assert [answers.get(timeout=60) for _ in processes] == ["ready"] * 2
    flip(first_segment(folder), 30)
    with pytest.raises(DamageError):
        on_folder(folder, durable=True).look()
    go.set()
    found = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert all(REFUSED in each for each in found), found


@pytest.mark.parametrize("remove", [False, True])
def test_a_tail_that_is_lost_costs_nothing(folder: Path, remove: bool):
    cut_tail(folder)
    if remove:
        (folder / "tail").unlink()
    assert publish(on_folder(folder, durable=True), "after") == [True]
    assert waiting(on_folder(folder, durable=True)) == [*map(str, range(20)), "after"]


def test_a_lost_tail_and_a_flipped_bit_do_not_cost_what_follows(folder: Path):
    cut_tail(folder)
    flip(last_segment(folder), 40)
    size = last_segment(folder).stat().st_size
    with pytest.raises(DamageError, match="is damaged at byte"):
        publish(on_folder(folder, durable=True), "after")
    assert last_segment(folder).stat().st_size == size


def test_a_damaged_snapshot_alone_stops_nothing(folder: Path):
    with snapshots_every(500):
        store = on_folder(folder, durable=True)
        store.look()
        for number in range(20):
            publish(store, f"later {number}", size=60)
    max(folder.glob("snapshot-*")).write_bytes(b"")
    assert publish(on_folder(folder, durable=True), "after") == [True]
    assert len(held(on_folder(folder, durable=True))) == 41


def test_snapshots_that_are_all_cut_are_damage(folder: Path):
    with snapshots_every(500):
        store = on_folder(folder, durable=True)
        for name in claim(store, 20):
            store.commit([Ack(name)])
        for number in range(20):
            publish(store, f"later {number}", size=60)
            store.look()
    assert not (folder / "00000001.log").exists()
    for path in folder.glob("snapshot-*"):
        path.write_bytes(b"")
    with pytest.raises(DamageError, match="no whole snapshot"):
        publish(on_folder(folder, durable=True), "after")
