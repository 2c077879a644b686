"""A running Antenna for the tests: a job with results on their way, other tasks, and publishers that go on."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ami.jobs.models import Job
from ami.main.models import SourceImage
from tests.support.adopting.old_antenna import OldAntenna
from tests.support.product.job_setup import World

SUCCEED = "tests.support.worker_tasks.basic.succeed"
RESULT = "ami.jobs.tasks.process_nats_pipeline_result"


@dataclass
class Traffic:
    """What the old web processes publish: ``sent`` are the ids of all messages, ``images`` those with a result.

    ``merged`` are those of ``sent`` that are about one station, of a task that runs once for several.
    """

    old: OldAntenna
    world: World
    job: Job
    images: list[SourceImage]
    rng: random.Random
    sent: list[str] = field(default_factory=list)
    merged: set[str] = field(default_factory=set)
    _results: Iterator[SourceImage] | None = None

    def send(self, number: int) -> None:
        """Publish so many messages, a fifth of them results while there are images left."""
        self._results = self._results or iter(self.images)
        for _ in range(number):
            image = next(self._results, None) if self.rng.random() < 0.2 else None
            self.sent.append(self._other() if image is None else self._result(image))

    def rest(self) -> None:
        """Publish the results that are left."""
        for image in self._results or ():
            self.sent.append(self._result(image))

    def _result(self, image: SourceImage) -> str:
        data = self.world.found(image)
        # As the old application's serializer wrote it: an object with its type.
        data["detections"][0]["timestamp"] = datetime(2026, 6, 1, 22, tzinfo=UTC)
        kwargs = {"job_id": self.job.pk, "result_data": data, "reply_subject": ""}
        return self.old.send(RESULT, kwargs=kwargs, retries=self.rng.choice([0, 0, 3]))

    def _other(self) -> str:
        kind = self.rng.random()
        if kind < 0.05:
            self.merged.add(task_id := self.old.send("ami.tasks.regroup_events", self.world.station.pk))
            return task_id
        if kind < 0.1:
            return self.old.send("ami.ml.tasks.check_processing_services_online")
        if kind < 0.2:
            eta = datetime.now(UTC) + timedelta(seconds=self.rng.randint(1, 8))
            return self.old.send(SUCCEED, eta=eta)
        return self.old.send(SUCCEED, expires=3600)

    @contextmanager
    def going_on(self, seconds: float = 0.2) -> Iterator[None]:
        """Publish in another thread meanwhile."""
        end = threading.Event()
        failures: list[BaseException] = []

        def publish() -> None:
            try:
                while not end.wait(seconds):
                    self.sent.append(self.old.send(SUCCEED))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
        assert not failures, failures


def traffic(old: OldAntenna, world: World, images: int, seed: int) -> Traffic:
    """Return the traffic about a job with so many images, published to their processing service."""
    captures: list[Any] = world.captures(images)
    return Traffic(old, world, world.running(captures), captures, random.Random(seed))
