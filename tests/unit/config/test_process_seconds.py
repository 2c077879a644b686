"""The time of a pushed batch against the soft time limits of the queues that run jobs."""

import pytest

from ami.topology.topology import load
from config.settings.process_seconds import wrong

INTERACTIVE = "ANTENNA_INTERACTIVE_SOFT_TIME_LIMIT_SECONDS"
HOUSEKEEPING = "ANTENNA_HOUSEKEEPING_SOFT_TIME_LIMIT_SECONDS"
HARD = {"ANTENNA_HOUSEKEEPING_HARD_TIME_LIMIT_SECONDS": "600", "ANTENNA_INTERACTIVE_HARD_TIME_LIMIT_SECONDS": "600"}
GRACE = {
    "ANTENNA_HOUSEKEEPING_STOP_GRACE_PERIOD_SECONDS": "630",
    "ANTENNA_INTERACTIVE_STOP_GRACE_PERIOD_SECONDS": "630",
}


@pytest.mark.parametrize(
    ("seconds", "limits", "remedy"),
    [
        (120, {}, ""),
        (149, {}, ""),
        (150, {}, f"or raise {HOUSEKEEPING}"),
        (209, {HOUSEKEEPING: "500"}, ""),
        (210, {HOUSEKEEPING: "500"}, f"or raise {INTERACTIVE}"),
        (399, {HOUSEKEEPING: "500", INTERACTIVE: "500"}, ""),
        (30, {INTERACTIVE: "120"}, "ANTENNA_PROCESS_SECONDS (30) must be below 30: antenna-interactive"),
        (120, {"ANTENNA_INGEST_SOFT_TIME_LIMIT_SECONDS": "60"}, ""),
    ],
)
def test_batch_ends_before_the_shortest_slice_of_a_job(seconds: int, limits: dict[str, str], remedy: str) -> None:
    reason = wrong(load(environ={**HARD, **GRACE, **limits}), seconds)
    assert remedy in reason
    assert bool(remedy) == bool(reason)
