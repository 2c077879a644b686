"""``publish_many`` compared with ``apply_async`` in a loop, over each broker.

Both publish the same number of empty tasks to a queue without consumers, and alternate. The reference is the loop in
the same round. RabbitMQ confirms each message of both; its queue is a quorum queue as deployed.
"""

import time
from collections.abc import Iterator

import numpy as np
from celery import Celery

from ami.celery.bulk_publisher import publish_many
from benchmarks.brokers.application import TASK, make
from benchmarks.brokers.contenders import Contender, contenders, virtual_host
from benchmarks.frame import Figure

#: A message is made by `apply_async` either way, which takes 0.4 ms; what is saved is the wait for the broker.
TARGET = 1.5
BROKERS = ("folder, early ack", "RabbitMQ quorum, late ack", "Redis, early ack")


def measure(contender: Contender, count: int, rounds: int) -> Figure:
    """Publish ``count`` tasks both ways in each round."""
    with contender.place() as settings:
        app = make(settings)
        publish_many(app, [app.tasks[TASK].s(), app.tasks[TASK].s()])  # Connects and declares.
        app.tasks[TASK].apply_async()
        pairs = [(_loop(app, count), _many(app, count)) for _ in range(rounds)]
        app.close()
    ratios = [loop / many for loop, many in pairs]
    loop, many = (float(np.median(column)) * 1e6 / count for column in zip(*pairs, strict=True))
    what = f"a task with apply_async, {contender.name}"
    return Figure(what, "us", loop, "with publish_many", many, float(np.median(ratios)), at_least=TARGET)


def _loop(app: Celery, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        app.tasks[TASK].apply_async()
    return time.perf_counter() - began


def _many(app: Celery, count: int) -> float:
    began = time.perf_counter()
    publish_many(app, (app.tasks[TASK].s() for _ in range(count)))
    return time.perf_counter() - began


def figures(quick: bool) -> Iterator[Figure]:
    """Yield each broker's."""
    with virtual_host() as url:
        for one in contenders(url):
            if one.name in BROKERS:
                yield measure(one, 100 if quick else 500, 3 if quick else 5)
