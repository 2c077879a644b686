"""Inside each child: its staggered start, its run record, its samples of a task's size, and its memory limit."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.signals import task_postrun, task_prerun, worker_process_init

from ami.governor import child_process, memory_limit
from ami.governor.child_process import MIN_SAMPLE_KIB, ChildHooks, read_samples, wait_for_turn
from ami.governor.crash_log import RunLog
from tests.support.governor.forked_processes import forked

pytestmark = pytest.mark.usefixtures("signals")
LISTENED_TO = (worker_process_init, task_prerun, task_postrun)


class Task:
    """What Celery's signals send of a task."""

    def __init__(self, name: str) -> None:
        self.name = name


SAVE, DETECT = Task("jobs.save"), Task("ml detect")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What this process seems to have now and at its peak, in KiB."""
    made = SimpleNamespace(now=100_000, peak=100_000)
    monkeypatch.setattr(child_process.process, "rss_kib", lambda _: made.now)
    monkeypatch.setattr(child_process, "_peak_kib", lambda: made.peak)
    return made


def run(task: Task = SAVE) -> Iterator[None]:
    """Send that a task starts, and at the next step that it has ended."""
    task_prerun.send(sender=task, task_id="id-1")
    yield
    task_postrun.send(sender=task, task_id="id-1")


def ran(memory: SimpleNamespace, now: int, peak: int = 0, task: Task = SAVE) -> None:
    """Run a task that ends with so much, and had at most ``peak``."""
    steps = run(task)
    next(steps)
    memory.now, memory.peak = now, max(memory.peak, peak)
    list(steps)


# --- its turn ---


@pytest.mark.processes
def test_processes_start_one_by_one_a_stagger_apart(tmp_path: Path) -> None:
    seconds, path = 0.1, tmp_path / "turn"

    def start(to: Any) -> None:
        write = os.pwrite

        def pwrite(handle: int, content: bytes, at: int) -> None:
            write(handle, content, at)
            to.send(float(content))  # When it got through; a moment later another process may run.

        os.pwrite = pwrite  # type: ignore[assignment]
        wait_for_turn(path, seconds)

    with ExitStack() as children:
        started = [children.enter_context(forked(start)) for _ in range(5)]
        through = sorted(each.recv() for each in started)
    apart = [later - earlier for earlier, later in zip(through, through[1:], strict=False)]
    assert min(apart) >= seconds * 0.9


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it slept, without sleeping; other threads of this process sleep as ever."""
    seconds: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=seconds.append)
    monkeypatch.setattr(child_process, "time", clock)
    return seconds


def test_it_waits_for_the_rest_of_the_last_turn(tmp_path: Path, slept: list[float]) -> None:
    (tmp_path / "turn").write_text(f"{time.monotonic() - 100:<32.6f}")
    wait_for_turn(tmp_path / "turn", 300)
    wait_for_turn(tmp_path / "turn", 50)
    first, second = slept
    assert 190 < first <= 200
    assert 40 < second <= 50


@pytest.mark.parametrize("left", ["", f"{time.monotonic() + 1e6:<32.6f}", "torn"], ids=["empty", "boot before", "torn"])
def test_turn_file_of_another_boot_delays_no_process(tmp_path: Path, slept: list[float], left: str) -> None:
    (tmp_path / "turn").write_text(left)
    wait_for_turn(tmp_path / "turn", 60)
    assert slept == []
    assert float((tmp_path / "turn").read_text()) == pytest.approx(time.monotonic(), abs=60)


# --- its samples ---


def test_what_a_task_added_is_read_once(tmp_path: Path, memory: SimpleNamespace) -> None:
    ChildHooks(tmp_path, learns=True).install()
    ran(memory, now=100_000 + 5 * MIN_SAMPLE_KIB)
    ran(memory, now=100_000 + 7 * MIN_SAMPLE_KIB, task=DETECT)
    assert read_samples(tmp_path) == [("jobs.save", 5 * MIN_SAMPLE_KIB), ("ml detect", 2 * MIN_SAMPLE_KIB)]
    assert read_samples(tmp_path) == []
    assert [path.suffix for path in tmp_path.iterdir()] == [".run"]


def test_growth_of_less_than_a_mebibyte_is_not_recorded(tmp_path: Path, memory: SimpleNamespace) -> None:
    ChildHooks(tmp_path, learns=True).install()
    ran(memory, now=memory.now + MIN_SAMPLE_KIB - 1)
    ran(memory, now=memory.now - 10 * MIN_SAMPLE_KIB)
    assert read_samples(tmp_path) == []
    ran(memory, now=memory.now + MIN_SAMPLE_KIB)
    assert read_samples(tmp_path) == [("jobs.save", MIN_SAMPLE_KIB)]


def test_a_peak_counts_for_the_task_that_reached_it_only(tmp_path: Path, memory: SimpleNamespace) -> None:
    ChildHooks(tmp_path, learns=True).install()
    ran(memory, now=memory.now, peak=memory.now + 9 * MIN_SAMPLE_KIB)
    ran(memory, now=memory.now + 2 * MIN_SAMPLE_KIB)
    assert read_samples(tmp_path) == [("jobs.save", 9 * MIN_SAMPLE_KIB), ("jobs.save", 2 * MIN_SAMPLE_KIB)]


def test_no_sample_is_written_without_reservation(tmp_path: Path, memory: SimpleNamespace) -> None:
    ChildHooks(tmp_path).install()
    ran(memory, now=memory.now + 5 * MIN_SAMPLE_KIB)
    assert read_samples(tmp_path) == []


def test_torn_line_drops_only_the_rest_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "11.sizes").write_text("5000 jobs.save\nhalf")
    (tmp_path / "12.sizes").write_text("6000 ml.detect\n")
    assert sorted(read_samples(tmp_path)) == [("jobs.save", 5000), ("ml.detect", 6000)]
    assert read_samples(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


# --- run record and memory limit ---


def test_installed_twice_it_listens_once_and_for_the_second(tmp_path: Path, memory: SimpleNamespace) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        ChildHooks(folder, learns=True).install()
    assert [len(signal.receivers) for signal in LISTENED_TO] == [1, 1, 1]
    ran(memory, now=memory.now + 5 * MIN_SAMPLE_KIB)
    assert read_samples(first) == []
    assert read_samples(second) == [("jobs.save", 5 * MIN_SAMPLE_KIB)]


def test_without_a_run_log_no_task_is_recorded(memory: SimpleNamespace) -> None:
    ChildHooks(None, learns=True).install()
    assert [len(signal.receivers) for signal in LISTENED_TO] == [1, 0, 0]


def test_task_is_in_the_run_log_while_it_runs(tmp_path: Path) -> None:
    ChildHooks(tmp_path).install()
    run_log, steps = RunLog(tmp_path), run()
    next(steps)
    assert [(entry.pid, entry.task, entry.id) for entry in run_log.running()] == [(os.getpid(), "jobs.save", "id-1")]
    list(steps)
    assert list(run_log.running()) == []


def test_unwritable_run_log_stops_no_task(tmp_path: Path, memory: SimpleNamespace) -> None:
    ChildHooks(tmp_path / "missing", learns=True).install()
    answers = [task_prerun.send(sender=SAVE, task_id="id-1"), task_postrun.send(sender=SAVE, task_id="id-1")]
    assert [outcome for each in answers for _, outcome in each] == [None, None]


@pytest.mark.processes
def test_forked_child_has_its_own_run_record(tmp_path: Path) -> None:
    side = ChildHooks(tmp_path)
    side.install()
    run_log, steps = RunLog(tmp_path), run()
    next(steps)

    def start(to: Any) -> None:
        task_prerun.send(sender=SAVE, task_id="id-2")
        to.send(os.getpid())

    with forked(start) as other:
        pid = other.recv()
    assert {entry.pid: entry.id for entry in run_log.running()} == {os.getpid(): "id-1", pid: "id-2"}
    list(steps)


def begin() -> Any:
    ((_, outcome),) = worker_process_init.send(sender=None)
    return outcome


@pytest.mark.parametrize(("limit_kib", "imposed"), [(0, []), (4096, [4096])])
def test_child_has_a_memory_limit_where_one_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_kib: int, imposed: list[int]
) -> None:
    given: list[int] = []
    monkeypatch.setattr(memory_limit, "impose", given.append)
    ChildHooks(tmp_path, limit_kib).install()
    assert begin() is None
    assert given == imposed


def test_memory_limit_that_cannot_be_set_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: int) -> None:
        raise OSError("not here")

    monkeypatch.setattr(memory_limit, "impose", refuse)
    ChildHooks(tmp_path, 4096).install()
    assert begin() is None
    assert "Memory limit not set for this process: OSError('not here')" in caplog.text


def test_memory_limit_is_set_when_the_staggered_start_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(memory_limit, "impose", given.append)
    ChildHooks(tmp_path / "missing", 4096, stagger_seconds=60).install()
    assert begin() is None
    assert given == [4096]
