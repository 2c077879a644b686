"""``python -m benchmarks.publishing``: ``publish_many`` compared with ``apply_async`` in a loop, over each broker.

Both publish the same number of empty tasks to a queue without consumers, and alternate. The reference is the loop in
the same round. RabbitMQ confirms each message of both; its queue is a quorum queue as deployed.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np
from celery import Celery
from rich.console import Console
from rich.table import Table

from ami.celery.bulk_publisher import publish_many
from benchmarks.brokers.application import TASK, make
from benchmarks.brokers.contenders import Contender, contenders, virtual_host

#: A message is made by `apply_async` either way, which takes 0.4 ms; what is saved is the wait for the broker.
TARGET = 1.5
BROKERS = ("folder, early ack", "RabbitMQ quorum, late ack", "Redis, early ack")


@dataclass(frozen=True)
class Published:
    """Medians over the rounds, in microseconds per task; ``ratio`` is that of the rounds' ratios, loop to batch."""

    broker: str
    loop_us: float
    many_us: float
    ratio: float
    lowest: float
    highest: float


def measure(contender: Contender, count: int, rounds: int) -> Published:
    """Publish ``count`` tasks both ways in each round."""
    with contender.place() as settings:
        app = make(settings)
        publish_many(app, [app.tasks[TASK].s(), app.tasks[TASK].s()])  # Connects and declares.
        app.tasks[TASK].apply_async()
        pairs = [(_loop(app, count), _many(app, count)) for _ in range(rounds)]
        app.close()
    ratios = [loop / many for loop, many in pairs]
    loop, many = (float(np.median(column)) * 1e6 / count for column in zip(*pairs, strict=True))
    return Published(contender.name, loop, many, float(np.median(ratios)), min(ratios), max(ratios))


def _loop(app: Celery, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        app.tasks[TASK].apply_async()
    return time.perf_counter() - began


def _many(app: Celery, count: int) -> float:
    began = time.perf_counter()
    publish_many(app, (app.tasks[TASK].s() for _ in range(count)))
    return time.perf_counter() - began


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publishing", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="tasks per round and way (500)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (5)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with virtual_host() as url:
        entered = [one for one in contenders(url) if one.name in BROKERS]
        rows = [measure(one, options.count, options.rounds) for one in entered]
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    table = Table("broker", "loop us", "publish_many us", "x loop", "lowest", "highest", "target", box=None)
    for row in rows:
        ratios = (f"{value:.1f}" for value in (row.ratio, row.lowest, row.highest))
        verdict = f">= {TARGET:g}: {'met' if row.ratio >= TARGET else 'MISSED'}"
        table.add_row(row.broker, f"{row.loop_us:.0f}", f"{row.many_us:.0f}", *ratios, verdict)
    Console(width=110, highlight=False).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
