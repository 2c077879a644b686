"""Beat: it ticks, and what it sends arrives on housekeeping."""

import re

import pytest

from ami.topology.table import FALLBACK, HOUSEKEEPING, INGEST, INTERACTIVE
from tests.support.celery_suite.workers import Workers
from tests.support.containers.deployment import Deployment
from tests.support.containers.engine import until
from tests.support.containers.faults import restarts

#: Beat sends it every minute.
TASK = "ami.jobs.tasks.audit_jobs"
RAN = re.compile(rf"Task {re.escape(TASK)}\[\S+\] succeeded")


def test_beat_ticks_and_its_health_check_sees_it(deployment: Deployment):
    def ticked() -> float:
        return float(deployment.execute("celerybeat", "stat", "--format", "%.Y", "/tmp/beat-tick"))

    first = until(ticked, 60, "beat ticks")
    until(lambda: ticked() > first, 60, "beat ticks again")
    assert deployment.is_healthy("celerybeat")
    assert restarts(deployment.container("celerybeat")) == 0


def test_what_beat_sends_runs_on_housekeeping_and_nowhere_else(deployment: Deployment, workers: Workers):
    def ran() -> dict[str, int]:
        return {queue: len(RAN.findall(worker.logs())) for queue, worker in workers.items()}

    before = ran()
    until(lambda: ran()[HOUSEKEEPING] > before[HOUSEKEEPING], 120, "housekeeping ran it")
    assert f"Sending due task {TASK}" in deployment.logs("celerybeat")
    after = ran()
    for queue in (INGEST, INTERACTIVE, FALLBACK):
        assert after[queue] == before[queue]


@pytest.mark.parametrize("queue", [INGEST, HOUSEKEEPING, INTERACTIVE, FALLBACK])
def test_the_pulse_of_every_worker_is_fresh(workers: Workers, queue: str):
    assert workers[queue].container.shell("fresh /tmp/worker-pulse 60").strip() == "consumes"
