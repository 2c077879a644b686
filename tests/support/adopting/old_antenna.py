"""The old application as publishers see it: one direct exchange, three classic queues, gzip, no confirmations."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import Celery
from kombu import Exchange, Queue

from ami.celery.declaration import depth
from tests.support.brokers import RABBITMQ, new_broker

QUEUES = ("antenna", "jobs", "ml_results")
ROUTES = {
    "ami.jobs.tasks.run_job": {"queue": "jobs"},
    "ami.jobs.tasks.process_nats_pipeline_result": {"queue": "ml_results"},
    "ami.ml.models.pipeline.save_results": {"queue": "ml_results"},
    "ami.ml.tasks.create_detection_images": {"queue": "ml_results"},
}


class OldAntenna:
    """The old application at ``url``; its queues are declared by its first publish, as Celery does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Celery("old", set_as_current=False, fixups=[])
        self.app.conf.update(
            # `broker_url` would lose against CELERY_BROKER_URL in the environment.
            broker_read_url=url,
            broker_write_url=url,
            task_default_queue="antenna",
            task_routes=ROUTES,
            task_compression="gzip",
            task_serializer="json",
            result_extended=True,
            task_ignore_result=True,
        )
        self._declare()

    def _declare(self) -> None:
        with self.app.connection_for_write() as connection, connection.channel() as channel:
            for name in QUEUES:
                Queue(name, Exchange(name, type="direct"), routing_key=name)(channel).declare()

    def send(self, task: str, *args: Any, **options: Any) -> str:
        """Publish a task by its name, as the old web processes do; return its id."""
        return str(self.app.send_task(task, args, **options).id)

    def depth(self, queue: str) -> int:
        with self.app.connection_for_read() as connection, connection.channel() as channel:
            return depth(channel, queue)[0]

    def waiting(self) -> int:
        """How many messages are ready in all three queues."""
        return sum(self.depth(queue) for queue in QUEUES)

    def close(self) -> None:
        self.app.close()
        self.app.pool.force_close_all()


@contextmanager
def old_antenna(folder: Path, url: str = "") -> Iterator[OldAntenna]:
    """Give the old application in a virtual host of its own, or at ``url``."""
    if url:
        old = OldAntenna(url)
        try:
            yield old
        finally:
            old.close()
        return
    with new_broker(RABBITMQ, f"old-{uuid4().hex[:8]}", folder) as made, old_antenna(folder, made) as old:
        yield old
