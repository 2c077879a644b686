"""The verdict of the page and of `top --once`: the worst of errors, promises and warnings."""

from dataclasses import replace
from typing import Any

import pytest

from ami.telemetry.snapshots import verdict
from ami.telemetry.snapshots.shape import FindingFigures, QueueFigures, Snapshot, Stop, WorkerFigures
from tests.support import console

ERROR, WARNING = FindingFigures("error", "alarm", "It is full."), FindingFigures("warning", "paused", "It is paused.")
UNSEEN, BROKEN = FindingFigures("unseen", "management", "No."), FindingFigures("warning", "promise-broken", "Late.")
UNFIT = FindingFigures("error", "storage", "It is unfit.")


def snapshot(**values: Any) -> Snapshot:
    """A deployment that is well: four queues with a worker each."""
    rows = [("a", "worker_a"), ("b", "worker_b"), ("c", "worker_c"), ("d", "worker_d")]
    found = console.snapshot(
        queues=tuple(QueueFigures(name, service, 1.0, 0, 0, 0, 1, 0, promise="kept") for name, service in rows),
        workers=tuple(console.worker(*row) for row in rows),
        findings=(),
    )
    return replace(found, **values)


def workers(**values: Any) -> tuple[WorkerFigures, ...]:
    return tuple(replace(worker, **values) for worker in snapshot().workers)


def broken(count: int) -> tuple[QueueFigures, ...]:
    return tuple(
        replace(queue, promise="broken" if place < count else queue.promise)
        for place, queue in enumerate(snapshot().queues)
    )


@pytest.mark.parametrize(
    ("found", "level", "words"),
    [
        (snapshot(), "ok", "All is well"),
        (snapshot(findings=(ERROR,)), "error", "1 error"),
        (snapshot(findings=(ERROR, ERROR, WARNING)), "error", "2 errors, 1 warning"),
        (snapshot(findings=(BROKEN,), queues=broken(1)), "error", "1 of 4 promises broken"),
        (snapshot(findings=(ERROR, WARNING), queues=broken(4)), "error", "1 error, 4 of 4 promises broken, 1 warning"),
        (snapshot(findings=(WARNING, UNSEEN)), "warning", "1 warning, 1 source not seen"),
        (snapshot(findings=(UNSEEN,)), "unseen", "1 source not seen"),
        (snapshot(unseen=("The broker does not answer.",)), "error", "1 source away"),
        (snapshot(unseen=("It is unfit.",), findings=(UNFIT, ERROR)), "error", "1 source away, 1 error"),
        (snapshot(findings=(UNFIT,)), "error", "1 error"),
        (snapshot(findings_at=None), "unseen", "The live check has not run yet"),
        (snapshot(workers=()), "error", "Nothing runs: 0 of 4 workers"),
        (snapshot(workers=workers(state="dead")), "error", "Nothing runs: 0 of 4 workers"),
        (snapshot(workers=workers(state="parked")), "error", "Nothing runs: 0 of 4 workers"),
        (snapshot(workers=workers(parked=Stop("ada", "", 0.0))), "error", "Nothing runs: 0 of 4 workers"),
        (snapshot(workers=(*workers(state="stale"), *workers(state="held"))), "error", "Nothing runs: 0 of 8 workers"),
        (snapshot(workers=workers(state="dead")[:3] + workers()[3:]), "ok", "All is well"),  # Each is a finding.
        (snapshot(workers=(), is_starting=True), "starting", "Starting: 0 of 4 workers"),
        (snapshot(workers=workers()[:1], is_starting=True), "starting", "Starting: 1 of 4 workers"),
        (snapshot(is_starting=True, findings=(ERROR,)), "error", "1 error, starting: 4 of 4 workers"),
        (snapshot(queues=(), workers=()), "unseen", "No figures yet"),
    ],
)
def test_verdict_is_the_worst_of_what_is_wrong(found: Snapshot, level: str, words: str):
    assert verdict.judge(found) == verdict.Verdict(level, words)
