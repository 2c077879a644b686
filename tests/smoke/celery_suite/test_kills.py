"""Processes and containers that die, and one that is asked to: no task is lost, and none runs twice without need."""

from collections.abc import Callable

import pytest

from ami.topology.table import FALLBACK
from tests.support.celery_suite.vendor import CeleryTestSetup, CeleryTestWorker
from tests.support.celery_suite.workers import Workers, stats
from tests.support.containers.effects import Effects, send
from tests.support.place import until

Release = Callable[[str], None]


@pytest.fixture
def worker(workers: Workers) -> CeleryTestWorker:
    """The fallback's: a retry is routed anew by the task's name, and nobody routed the tests' own."""
    return workers[FALLBACK]


def test_a_task_whose_child_is_killed_runs_again_in_another_child_of_the_same_worker(
    celery_setup: CeleryTestSetup, worker: CeleryTestWorker, effects: Effects, key: str, release: Release
):
    main = main_pid(celery_setup, worker)
    send(celery_setup.app, "suite.hold", [key])
    until(lambda: effects.begun(key), 30, "it runs")
    worker.container.shell(f"kill -KILL {effects.begun(key)[0].pid}")
    until(lambda: len(effects.begun(key)) == 2, 60, "it runs again")
    release(key)
    until(lambda: effects.ended(key), 30, "it is done")
    first, second = effects.begun(key)
    assert first.pid != second.pid
    assert main_pid(celery_setup, worker) == main


def test_a_task_whose_worker_is_killed_is_redelivered_to_the_worker_that_docker_starts_again(
    celery_setup: CeleryTestSetup, worker: CeleryTestWorker, effects: Effects, key: str, release: Release
):
    restarts, said = worker.container.state["RestartCount"], worker.container.times_ready
    main = main_pid(celery_setup, worker)
    send(celery_setup.app, "suite.hold", [key])
    until(lambda: effects.begun(key), 30, "it runs")
    worker.container.shell(f"kill -KILL {main}")
    worker.container.until_ready_again(said)
    until(lambda: len(effects.begun(key)) == 2, 90, "it runs again")
    release(key)
    until(lambda: effects.ended(key), 30, "it is done")
    assert [row.redelivered for row in effects.begun(key)] == [False, True]
    assert worker.container.state["RestartCount"] == restarts + 1


def test_a_task_whose_container_is_killed_waits_until_it_is_started_again(
    celery_setup: CeleryTestSetup, worker: CeleryTestWorker, effects: Effects, key: str, release: Release
):
    send(celery_setup.app, "suite.hold", [key])
    until(lambda: effects.begun(key), 30, "it runs")
    worker.kill()
    assert worker.container.state["State"]["Status"] == "exited", "what `docker kill` ended stays so"
    worker.container.start()
    until(lambda: len(effects.begun(key)) == 2, 90, "it runs again")
    release(key)
    until(lambda: effects.ended(key), 30, "it is done")
    assert [row.redelivered for row in effects.begun(key)] == [False, True]


def test_a_worker_that_is_asked_to_stop_ends_what_runs_and_leaves_what_waits(
    celery_setup: CeleryTestSetup, worker: CeleryTestWorker, effects: Effects, key: str, release: Release
):
    running = send(celery_setup.app, "suite.hold", [f"{key}-runs"])
    until(lambda: effects.begun(f"{key}-runs"), 30, "it runs")
    waiting = send(celery_setup.app, "smoke.effect", [f"{key}-waits-{one}" for one in range(5)])
    said = worker.logs().count("Warm shutdown")
    worker.kill("SIGTERM")
    until(lambda: worker.logs().count("Warm shutdown") > said, 30, "it has heard")
    release(f"{key}-runs")
    until(lambda: worker.container.state["State"]["Status"] == "exited", 60, "it has ended")
    assert worker.container.state["State"]["ExitCode"] == 0
    assert effects.ended(key) == set(running)
    assert effects.begun(f"{key}-waits") == []

    worker.container.start()
    until(lambda: effects.ended(key) == {*running, *waiting}, 60, "what waited is done")
    assert sorted(row.key for row in effects.begun(key)) == sorted([*running, *waiting]), "each once"


def main_pid(celery_setup: CeleryTestSetup, worker: CeleryTestWorker) -> int:
    """Return the process id of the worker itself, as its container counts."""
    return int(stats(celery_setup.app, worker)["pid"])
