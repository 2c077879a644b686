"""Long work in slices of about a minute, so that nothing holds a slot for long."""

import time
from typing import Any

from celery.exceptions import Ignore
from celery.utils.log import get_logger

from ami.celery import origin, task_progress
from ami.celery.declaration import depth
from ami.celery.producer import answering
from ami.queues import reserved_slot
from ami.queues.publish import publish_successor

logger = get_logger(__name__)

SLICE_SECONDS = 60.0

#: Work is short until it has run this long; from then on it needs one of the worker's slots for long work.
FAIR_SHARE_SECONDS = 0.25
#: So often it reports how far it is, for those who look at what a worker runs.
REPORT_SECONDS = 1.0
#: The broker is given so long to say how many messages wait.
ANSWER_SECONDS = 5.0


class Slice:
    """One bounded piece of the running task's work. Make it before the work is touched.

    It is over after ``SLICE_SECONDS``. Beyond its fair share it needs one of the worker's slots for long work, of which
    there is one less than the worker has (:mod:`ami.queues.reserved_slot`): five long exports leave a slot for clicks.
    Where none is free it is over, and its successor is delayed by ``ROOM_SECONDS``. On a worker of a single slot it
    makes room instead as soon as another message waits. ``what`` is said before its progress, such as a job's number.

    Raises:
        celery.exceptions.Ignore: on making it, when the work is known to be long (a successor, or published as long)
            and no slot for long work is free; the same message was published again for later.
    """

    def __init__(self, task: Any, seconds: float = SLICE_SECONDS, what: str = "") -> None:
        self._task, self._what = task, what
        self._started = self._looked = self._reported = time.monotonic()
        self._steps = 0
        self._seconds = seconds
        self._over = False
        self._has_slot = False
        if _headers(task).get(reserved_slot.LONG_HEADER) and not self._take_slot():
            publish_successor(task, **(task.request.kwargs or {}))
            raise Ignore

    def over(self) -> bool:
        """Whether to stop here and publish the successor. Cheap: call it after every small step."""
        now = time.monotonic()
        self._steps += 1
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            task_progress.write(str(self._task.request.id), self._progress(now))
        if now - self._started >= self._seconds:
            self._over = True
        elif not self._over and now - self._looked >= FAIR_SHARE_SECONDS:
            self._looked = now
            self._over = not self._may_go_on()
        return self._over

    def _progress(self, now: float) -> str:
        steps = f"{self._steps:,} steps in {now - self._started:.0f} s of a slice of {self._seconds:.0f} s"
        return f"{self._what}: {steps}" if self._what else steps

    def _may_go_on(self) -> bool:
        if self._slots() > 1:
            return self._has_slot or self._take_slot()
        waiting = self._task.request.antenna_makes_room = others_wait(self._task)
        return not waiting

    def _take_slot(self) -> bool:
        request = self._task.request
        self._has_slot = self._slots() == 1 or reserved_slot.take(
            str(request.hostname), self._slots() - 1, str(request.id)
        )
        request.antenna_makes_room = not self._has_slot
        return self._has_slot

    def _slots(self) -> int:
        app = self._task.app
        return int(app.conf.worker_concurrency or app.topology.workload(_queue_of(self._task)).concurrency)


def _headers(task: Any) -> dict[str, Any]:
    return getattr(task.request, "headers", None) or {}


def _queue_of(task: Any) -> str:
    queue: str = task.app.topology.place(task.name, origin.of_request(task.request)).queue
    return queue


def others_wait(task: Any) -> bool:
    """Whether a message waits in the queue that the running task came from. False for an unreachable broker."""
    queue = _queue_of(task)
    try:
        with task.app.connection_or_acquire() as connection, answering(connection, ANSWER_SECONDS) as channel:
            return depth(channel, queue)[0] > 0
    except Exception as error:
        # The answer only shortens this slice; its time limit still bounds it.
        logger.warning("Queue depth unknown: %r", error, extra={"queue": queue})
        return False
