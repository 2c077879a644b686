"""A worker's plan for its governor, made before the worker has a pool."""

import logging
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.concurrency.base import BasePool
from celery.concurrency.prefork import TaskPool
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.signals import task_prerun, worker_init, worker_process_init, worker_shutdown, worker_shutting_down
from kombu import Consumer

from ami import governor
from ami.governor import memory_limit
from ami.governor.bootstep import GovernorStep
from ami.governor.plan import POOL_REFUSED, SINGLE_JOB_REFUSED, START_SECONDS, Options, Plan
from ami.governor.slot_consumer import SlotConsumer

QUEUE, KEY = "antenna", "FALLBACK"


def plan(worker: Any) -> Plan:
    return Plan(worker)


@pytest.fixture
def imposed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ceilings that children of the plan give themselves."""
    given: list[int] = []
    monkeypatch.setattr(memory_limit, "impose", given.append)
    return given


@pytest.mark.parametrize(("pool", "eventloop"), [(ThreadPool, True), (TaskPool, False), ("solo", True)])
def test_single_job_mode_is_refused_where_memory_would_stay(
    worker: Any, monkeypatch: pytest.MonkeyPatch, pool: Any, eventloop: bool
) -> None:
    monkeypatch.setenv("WORKER_SINGLE_JOB_MODE", "1")
    worker.pool_cls, worker.use_eventloop = pool, eventloop
    with pytest.raises(SystemExit) as refused:
        plan(worker)
    assert str(refused.value) == SINGLE_JOB_REFUSED
    worker.pool_cls, worker.use_eventloop = "prefork", True
    assert plan(worker).settings.worker_single_job_mode


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("MEMORY_GOVERNOR", "perhaps", "'perhaps'; use one of off, dry-run, on"),
        ("MEMORY_CHECK_INTERVAL", "soon", "'soon'; it must be a number"),
        (f"ANTENNA_{KEY}_MEMORY_RESUME_THRESHOLD", "95", "must be below MEMORY_THROTTLE_THRESHOLD"),
        ("WORKER_COOLDOWN_SECONDS", "-1", "must be a number from 0 to 3600"),
    ],
)
def test_a_setting_that_is_wrong_stops_the_worker(
    worker: Any, monkeypatch: pytest.MonkeyPatch, name: str, raw: str, says: str
) -> None:
    monkeypatch.setenv(name, raw)
    with pytest.raises(SystemExit) as refused:
        plan(worker)
    assert str(refused.value).startswith("Configuration refused: ")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "pool", "eventloop", "taken"),
    [
        ("on", TaskPool, True, True),
        ("on", "prefork", True, True),
        ("on", TaskPool, False, False),
        ("on", ThreadPool, True, False),
        ("dry-run", TaskPool, True, False),
        ("off", TaskPool, True, False),
    ],
)
def test_celerys_child_memory_limit_is_replaced_where_governed(
    worker: Any, monkeypatch: pytest.MonkeyPatch, mode: str, pool: Any, eventloop: bool, taken: bool
) -> None:
    monkeypatch.setenv("MEMORY_GOVERNOR", mode)
    worker.pool_cls, worker.use_eventloop = pool, eventloop
    made = plan(worker)
    assert worker.max_memory_per_child == (None if taken else 200_000)
    assert (made.soft_kib, made.hard_kib) == (200_000, made.row.child_limit_kib)


def test_soft_limit_above_the_rows_raises_the_hard_limit(worker: Any) -> None:
    worker.max_memory_per_child = 800_000
    made = plan(worker)
    assert (made.soft_kib, made.hard_kib) == (800_000, 900_000)


def test_without_a_soft_limit_there_is_no_hard_limit(worker: Any, imposed: list[int]) -> None:
    worker.max_memory_per_child = None
    made = plan(worker)
    worker_process_init.send(sender=None)
    assert (made.soft_kib, made.hard_kib, imposed) == (0, 0, [])


@pytest.mark.parametrize(
    ("name", "raw", "has"),
    [
        ("MEMORY_GOVERNOR", "on", True),
        ("MEMORY_GOVERNOR", "dry-run", False),
        ("MEMORY_GOVERNOR", "off", False),
        ("MEMORY_CEILING", "0", False),
    ],
)
def test_children_have_a_memory_limit_at_their_hard_limit(
    worker: Any, monkeypatch: pytest.MonkeyPatch, imposed: list[int], name: str, raw: str, has: bool
) -> None:
    monkeypatch.setenv(name, raw)
    hard_kib = plan(worker).hard_kib
    worker_process_init.send(sender=None)
    assert imposed == [hard_kib] * has


def test_staggered_children_have_longer_to_start(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan(worker)
    assert worker.app.conf.worker_proc_alive_timeout == 4.0
    monkeypatch.setenv("WORKER_STAGGER_SECONDS", "3")
    worker.pool_cls = ThreadPool
    plan(worker)
    assert worker.app.conf.worker_proc_alive_timeout == 4.0
    worker.pool_cls = TaskPool
    plan(worker)
    assert worker.app.conf.worker_proc_alive_timeout == START_SECONDS + 12


def test_switched_off_it_connects_no_signal_and_leaves_no_file(
    worker: Any, signals: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMORY_GOVERNOR", "off")
    made = plan(worker)
    assert (made.run_log, made.starts()) == (None, None)
    assert [signal.receivers for signal in signals] == [[]] * len(signals)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_folder_is_a_warning_and_no_run_log(
    worker: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GOVERNOR_STATE_DIR", str(tmp_path / "file"))
    made = plan(worker)
    assert made.run_log is None
    assert made.starts()["restarts"] is None, "unknown"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("Crash attribution disabled: cannot write GOVERNOR_STATE_DIR: ")
    assert task_prerun.receivers == []
    assert len(worker_process_init.receivers) == 1


def test_worker_that_is_asked_to_stop_marks_its_run_log(worker: Any, tmp_path: Path) -> None:
    plan(worker)
    folder = tmp_path / "fallback@here"
    assert not (folder / "ending").exists()
    worker_shutting_down.send(sender=None)
    assert (folder / "ending").exists()


@pytest.mark.parametrize(("asked", "exit_code", "restarts"), [(True, 1, 0), (False, 0, 0), (False, 75, 1)])
def test_worker_that_ends_by_itself_is_a_restart_unless_it_was_asked_to(
    worker: Any, asked: bool, exit_code: int, restarts: int
) -> None:
    plan(worker)
    worker.exitcode = exit_code
    if asked:
        worker_shutting_down.send(sender=None)
    worker_shutdown.send(sender=worker)
    assert [one["how"] for one in plan(worker).starts()["restarts"]] == [f"exit code {exit_code}"] * restarts


@pytest.mark.parametrize("queues", [(), (QUEUE, "antenna-ingest"), ("elsewhere",)])
def test_worker_of_an_unknown_queue_has_no_row_and_no_hard_limit(worker_of: Any, queues: tuple[str, ...]) -> None:
    made = plan(worker_of(*queues))
    assert (made.row, made.soft_kib, made.hard_kib) == (None, 200_000, 0)


def test_the_operators_pause_is_that_of_the_workers_queue(worker: Any) -> None:
    asked: list[str] = []
    assert Plan(worker, Options(paused=lambda queue: asked.append(queue) or True)).paused()
    assert asked == [QUEUE]


def test_only_workers_of_its_own_application_get_a_plan(worker: Any, worker_of: Any) -> None:
    worker.app.steps = {"consumer": set()}
    governor.install(worker.app)
    assert worker.app.steps == {"consumer": {GovernorStep}}
    stranger = worker_of(QUEUE)
    for each in (worker, stranger):
        worker_init.send(sender=each)
    assert isinstance(worker.governor_plan, Plan)
    assert not hasattr(stranger, "governor_plan")


@pytest.fixture
def plain(worker: Any) -> Any:
    """A worker of a Celery application that is not this project's."""
    worker.app = Celery("plain", set_as_current=False, fixups=())
    return worker


def test_plain_application_gets_consumers_that_the_governor_can_manage(plain: Any) -> None:
    class OwnConsumer(Consumer):
        pass

    plan(plain)
    assert plain.app.amqp.Consumer is SlotConsumer
    plain.app.amqp.Consumer = OwnConsumer
    plan(plain)
    assert issubclass(plain.app.amqp.Consumer, SlotConsumer)
    assert issubclass(plain.app.amqp.Consumer, OwnConsumer)


@pytest.mark.parametrize(
    ("configured", "command_line", "given", "limits"),
    [
        ({}, None, {}, (0, 0)),
        ({"worker_max_memory_per_child": 100_000}, 100_000, {}, (100_000, 0)),
        ({"worker_hard_memory_per_child": 300_000}, None, {"soft_kib": 200_000}, (200_000, 300_000)),
        ({}, None, {"soft_kib": 200_000, "hard_kib": 400_000}, (200_000, 400_000)),
        ({}, 150_000, {"soft_kib": 200_000}, (150_000, 0)),
    ],
)
def test_limits_come_from_the_call_or_celerys_settings(
    plain: Any, configured: Any, command_line: int | None, given: Any, limits: tuple[int, int]
) -> None:
    plain.app.conf.update(configured)
    plain.max_memory_per_child = command_line
    made = Plan(plain, Options(**given))
    assert (made.soft_kib, made.hard_kib) == limits


def test_environment_takes_precedence_over_the_settings_of_the_call(
    plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(settings={"memory_throttle_threshold": 85, "worker_cooldown_seconds": 3})
    monkeypatch.setenv("WORKER_COOLDOWN_SECONDS", "4")
    made = Plan(plain, options).settings
    assert (made.memory_throttle_threshold, made.worker_cooldown_seconds) == (85, 4)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"settings": {"memory_throtle_threshold": 85}}, "Did you mean 'memory_throttle_threshold'?"),
        ({"settings": {"memory_throttle_threshold": "85"}}, "it must be a float"),
        ({"soft_kib": 200_000, "hard_kib": 200_000}, "hard memory limit (200000 KiB) must be above its soft limit"),
    ],
)
def test_wrong_options_stop_the_worker_with_one_sentence(plain: Any, given: Any, says: str) -> None:
    plain.max_memory_per_child = None
    with pytest.raises(SystemExit) as refused:
        Plan(plain, Options(**given))
    assert says in str(refused.value)


def test_subclass_of_the_prefork_pool_is_governed_like_it(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class OwnPrefork(TaskPool):
        pass

    monkeypatch.setenv("WORKER_SINGLE_JOB_MODE", "1")
    plain.pool_cls, plain.max_memory_per_child = OwnPrefork, 200_000
    assert plan(plain).soft_kib == 200_000
    assert plain.max_memory_per_child is None


def test_only_pools_that_the_governor_knows_are_taken(plain: Any) -> None:
    class OwnPool(BasePool):
        pass

    class OwnPrefork(TaskPool):
        pass

    for pool in ("prefork", "threads", "solo", OwnPrefork):
        plain.pool_cls = pool
        plan(plain)
    for pool, name in (("gevent", "gevent"), (OwnPool, f"{__name__}.{OwnPool.__qualname__}")):
        plain.pool_cls = pool
        with pytest.raises(SystemExit) as refused:
            plan(plain)
        assert str(refused.value) == POOL_REFUSED.format(pool=name)
