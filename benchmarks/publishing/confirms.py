"""Publishing with confirmations, as the application does, beside bare Celery.

Each publishes the same task with the same arguments to a quorum queue as deployed, without consumers, and waits for the
confirmation of each message: py-amqp alone (``Channel.basic_publish_confirm`` of a ready body), a bare Celery
application, and the project's ``send_task``. They alternate in rounds of 40 messages. The last row is ``publish_many``
of one POST's messages, which are confirmed together.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import amqp
import numpy as np
from celery import Celery
from kombu import Connection

from benchmarks.brokers.application import Settings, make
from benchmarks.brokers.contenders import DEPLOYED, virtual_host
from benchmarks.frame import Figure

TASK = "ami.jobs.tasks.process_nats_pipeline_result"
TARGET = 0.95
#: Results in one POST.
POST = 40

PY_AMQP, BARE, OURS, MANY = "py-amqp", "bare Celery", "send_task", f"publish_many of {POST}"


def arguments() -> dict[str, Any]:
    """Return what a stored result's message carries."""
    return {"job_id": 7, "result_key": f"job-7/{uuid.uuid4().hex}", "reply_subject": "$JS.ACK.job_7.c.1.1.1.1.1"}


@contextmanager
def bare_celery(url: str) -> Iterator[Callable[[int], None]]:
    """Yield what publishes so many tasks with a bare Celery application that confirms."""
    app: Celery = make(Settings(url, "bare", "", True, {"confirm_publish": True}, DEPLOYED))

    def publish(count: int) -> None:
        for _ in range(count):
            app.send_task(TASK, kwargs=arguments())

    yield publish
    app.close()


@contextmanager
def py_amqp(url: str) -> Iterator[Callable[[int], None]]:
    """Yield what publishes so many ready bodies with py-amqp."""
    info = Connection(url).info()
    host = f"{info['hostname']}:{info['port']}"
    body = json.dumps([[], arguments(), {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    with amqp.Connection(host, info["userid"], info["password"], virtual_host=info["virtual_host"]) as connection:
        channel = connection.channel()
        channel.queue_declare("plain", durable=True, auto_delete=False, arguments=DEPLOYED)

        def publish(count: int) -> None:
            for _ in range(count):
                message = amqp.Message(body, content_type="application/json", content_encoding="utf-8", delivery_mode=2)
                channel.basic_publish_confirm(message, "", "plain")

        yield publish


@contextmanager
def ours(url: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Yield what publishes so many tasks one by one as the project does, and what publishes them by POST."""
    import django

    django.setup()
    from ami.celery.bulk_publisher import publish_many
    from config import celery_app as app
    from tests.support.place import celery_at

    def publish(count: int) -> None:
        for _ in range(count):
            app.send_task(TASK, kwargs=arguments())

    def by_post(count: int) -> None:
        task = app.tasks[TASK]
        for _ in range(0, count, POST):
            publish_many(app, [task.signature((), arguments()) for _ in range(POST)])

    with celery_at(url):
        app.declare_everything()
        yield publish, by_post


def figures(quick: bool) -> Iterator[Figure]:
    """Publish the messages of one POST each way in each round, on a virtual host of its own."""
    with virtual_host() as url, py_amqp(url) as plain, bare_celery(url) as bare, ours(url) as (one, many):
        ways = {PY_AMQP: plain, BARE: bare, OURS: one, MANY: many}
        for publish in ways.values():
            publish(POST)
        found = [{how: rate(publish) for how, publish in ways.items()} for _ in range(50 if quick else 300)]
    for how in (PY_AMQP, OURS, MANY):
        for column, unit in enumerate(("/s", "CPU us")):
            value, reference = (float(np.median([each[way][column] for each in found])) for way in (how, BARE))
            ratio = float(np.median([each[how][column] / each[BARE][column] for each in found]))
            target = TARGET if how == OURS and column == 0 else None
            yield Figure(f"publish with {how}", unit, value, BARE, reference, ratio, at_least=target)


def rate(publish: Callable[[int], None]) -> tuple[float, float]:
    """Return the messages per second of one round, and the processor time of each in microseconds."""
    began, used = time.perf_counter(), time.process_time()
    publish(POST)
    return POST / (time.perf_counter() - began), (time.process_time() - used) / POST * 1e6
