"""A flood on one queue keeps nobody waiting on another, and loses nothing."""

import statistics
import time
from collections import Counter
from collections.abc import Callable

from ami.queues.celery import AntennaCelery
from ami.topology.table import FALLBACK, HOUSEKEEPING, INGEST, INTERACTIVE
from tests.support.celery_suite.vendor import CeleryTestSetup
from tests.support.celery_suite.workers import waiting
from tests.support.containers.effects import Effects, send
from tests.support.place import until

FLOOD = 2000
ASKED = 10


def test_a_flood_of_ingest_keeps_no_other_queue_waiting_and_loses_nothing(
    celery_setup: CeleryTestSetup,
    effects: Effects,
    key: str,
    release: Callable[[str], None],
    record_property: Callable[[str, object], None],
):
    app = celery_setup.app
    quiet = [seconds_to_answer(app, effects, f"{key}-quiet-{turn}", INTERACTIVE) for turn in range(ASKED)]

    # Both processes of ingest are taken, and the flood stands behind them.
    slow = send(app, "suite.hold", [f"{key}-slow-{one}" for one in range(2)], INGEST)
    until(lambda: len(effects.begun(f"{key}-slow")) == len(slow), 30, "ingest is taken")
    flood = send(app, "suite.count", [f"{key}-flood-{one}" for one in range(FLOOD)], INGEST)
    for queue in (INTERACTIVE, HOUSEKEEPING, FALLBACK):
        seconds_to_answer(app, effects, f"{key}-stands-{queue}", queue)
    assert effects.ended(f"{key}-flood") == set()

    began = time.monotonic()
    for one in slow:
        release(one)
    with waiting(app, INGEST) as left:
        until(lambda: left() < FLOOD * 0.95, 60, "the flood runs")
        busy = [seconds_to_answer(app, effects, f"{key}-busy-{turn}", INTERACTIVE) for turn in range(ASKED)]
        seconds_to_answer(app, effects, f"{key}-busy-housekeeping", HOUSEKEEPING)
        still = left()
        assert still > 0, "everybody was answered before the flood had ended"
        until(lambda: left() == 0, 180, "the flood has ended")

    until(lambda: len(effects.ended(f"{key}-flood")) == FLOOD, 30, "nothing of it is lost")
    rows = effects.rows(f"{key}-flood")
    assert Counter(row.key for row in rows) == dict.fromkeys(flood, 1)
    assert {row.node.split("@")[0] for row in rows} == {"ingest"}
    figures = {
        "quiet_seconds": statistics.median(quiet),
        "busy_seconds": statistics.median(busy),
        "flood_left": still,
        "flood_seconds": time.monotonic() - began,
    }
    print(figures)
    for name, value in figures.items():
        record_property(name, value)


def seconds_to_answer(app: AntennaCelery, effects: Effects, key: str, queue: str) -> float:
    """Ask for a task of no length on a queue; return the seconds until it had ended."""
    began = time.monotonic()
    send(app, "smoke.effect", [key], queue)
    until(lambda: effects.ended(key), 30, f"{queue} answers")
    return time.monotonic() - began
