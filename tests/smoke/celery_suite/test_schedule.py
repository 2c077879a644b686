"""Beat: it ticks, and what it sends arrives on housekeeping."""

import re

import pytest

from ami.topology.table import FALLBACK, HOUSEKEEPING, INGEST, INTERACTIVE
from tests.support.celery_suite.containers import Beat
from tests.support.celery_suite.workers import Workers
from tests.support.containers.engine import docker, inspect
from tests.support.place import until

#: Beat sends it every 15 seconds; nobody else runs it in these tests.
TASK = "ami.main.tasks.update_stale_counts"


def test_beat_ticks_and_its_health_check_sees_it(beat: Beat):
    def ticked() -> float:
        return float(docker("exec", beat.id, "stat", "--format", "%.Y", "/tmp/beat-tick"))

    first = until(ticked, 30, "beat ticks")
    until(lambda: ticked() > first, 30, "beat ticks again")
    docker("exec", beat.id, "fresh", "/tmp/beat-tick", "60")
    assert inspect(beat.id)["RestartCount"] == 0


def test_what_beat_sends_runs_on_housekeeping_and_nowhere_else(beat: Beat, workers: Workers):
    ran = re.compile(rf"Task {re.escape(TASK)}\[\S+\] succeeded")
    until(lambda: ran.search(workers[HOUSEKEEPING].logs()), 60, "housekeeping ran it")
    assert f"Sending due task {TASK}" in beat.logs()
    for queue in (INGEST, INTERACTIVE, FALLBACK):
        assert not ran.search(workers[queue].logs())


@pytest.mark.parametrize("queue", [INGEST, HOUSEKEEPING, INTERACTIVE, FALLBACK])
def test_the_pulse_of_every_worker_is_fresh(workers: Workers, queue: str):
    assert workers[queue].container.shell("fresh /tmp/worker-pulse 60").strip() == "consumes"
