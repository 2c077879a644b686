"""A child that is killed through pytest-celery's worker: its task runs again, and the worker goes on."""

from collections.abc import Callable

from ami.topology.table import FALLBACK
from tests.support.celery_suite.vendor import CeleryTestSetup
from tests.support.celery_suite.workers import Workers, stats
from tests.support.containers.effects import Effects, send
from tests.support.containers.engine import until


def test_a_task_whose_child_is_killed_runs_again_in_another_child_of_the_same_worker(
    celery_setup: CeleryTestSetup, workers: Workers, effects: Effects, key: str, release: Callable[[str], str]
):
    # The fallback's: a retry is routed anew by the task's name, and the tests' own are not in the topology.
    worker = workers[FALLBACK]
    main = stats(celery_setup.app, worker)["pid"]
    send(celery_setup.app, "smoke.hold", [key])
    until(lambda: effects.begun(key), 60, "it runs")
    worker.container.shell(f"kill -KILL {effects.begun(key)[0].pid}")
    until(lambda: len(effects.begun(key)) == 2, 60, "it runs again")
    release(key)
    until(lambda: effects.ended(key), 60, "it is done")
    first, second = effects.begun(key)
    assert first.pid != second.pid
    assert stats(celery_setup.app, worker)["pid"] == main
