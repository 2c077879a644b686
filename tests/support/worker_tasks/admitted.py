"""Tasks with policies, which write down when they begin and end: the acceptance tests look at these lines alone."""

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import shared_task
from celery.exceptions import SoftTimeLimitExceeded

from ami.admission.policies import GroupBy, InOrder, Permits, Rate, Unique
from ami.queues.publish import publish_successor

#: What the state machine and the acceptance tests call, each under one policy.
LINES = "effects"


#: A worker with this variable is of a version without the policy of `changing`.
WITHOUT_POLICY = "TEST_VERSION_BEFORE"


def write(what: str, task: Any, **fields: Any) -> None:
    """Append one line, whole: processes write side by side."""
    path = Path(os.environ["ANTENNA_TEST_FOLDER"], LINES)
    line = json.dumps({"what": what, "at": time.monotonic(), "id": task.request.id, "pid": os.getpid(), **fields})
    with path.open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def work(task: Any, seconds: float, **fields: Any) -> None:
    write("begin", task, **fields)
    time.sleep(seconds)
    write("end", task, **fields)


@shared_task(bind=True, outbox=True, max_retries=3, default_retry_delay=1)
def sent(self: Any, number: int, seconds: float = 0.0) -> None:
    """Work for one number."""
    work(self, seconds, number=number)


@shared_task(bind=True)
def plain(self: Any, number: int, seconds: float = 0.0) -> None:
    """Work for one number, without a policy."""
    work(self, seconds, number=number)


@shared_task(
    bind=True,
    unique=Unique(by=("key",), on_conflict="reschedule_once"),
    ignore_result=True,
    max_retries=5,
    default_retry_delay=1,
)
def once(self: Any, key: str, wish: int, seconds: float = 0.1) -> None:
    """Work for the last wish of a key."""
    work(self, seconds, key=key, wish=wish)


@shared_task(bind=True, unique=Unique(by=("key",)), ignore_result=True)
def dropped(self: Any, key: str, wish: int, seconds: float = 0.1) -> None:
    """Work for the first wish of a key; those meanwhile are dropped."""
    work(self, seconds, key=key, wish=wish)


@shared_task(bind=True, unique=Unique(by=("key",), until="until_executing", on_conflict="replace"), ignore_result=True)
def replaced(self: Any, key: str, wish: int, seconds: float = 0.1) -> None:
    """Work for the last wish that waited."""
    work(self, seconds, key=key, wish=wish)


@shared_task(bind=True, unique=Unique(by=("key",), until="recently", seconds=3), ignore_result=True)
def seldom(self: Any, key: str, wish: int) -> None:
    """Work for a key once in a while."""
    work(self, 0.0, key=key, wish=wish)


@shared_task(bind=True, outbox=True)
def of_job(self: Any, job_id: int, seconds: float = 0.0) -> None:
    """Work for a job."""
    work(self, seconds, job=job_id)


@shared_task(bind=True, permits=Permits(4, per="key", cost="size"), fair_by="project")
def weighty(self: Any, key: str, size: int, project: int = 0, seconds: float = 0.1) -> None:
    """At most four permits for each key, of which a run takes ``size``."""
    work(self, seconds, key=key, size=size)


@shared_task(bind=True, permits=Permits(2, per="key"), max_retries=5, default_retry_delay=1)
def limited(self: Any, key: str, number: int, seconds: float = 0.1) -> None:
    """Work for a key, two at a time."""
    work(self, seconds, key=key, number=number)


@shared_task(bind=True, rate=Rate(20, per_seconds=2))
def paced(self: Any, number: int) -> None:
    """Work ten times a second."""
    work(self, 0.0, number=number)


@shared_task(bind=True, fair_by="key")
def fair(self: Any, key: str, number: int, seconds: float = 0.05) -> None:
    """Work for a key in turn with the others."""
    work(self, seconds, key=key, number=number)


@shared_task(bind=True, in_order_by=InOrder(("key",)), max_retries=3, default_retry_delay=0)
def ordered(self: Any, key: str, number: int, fails: int = 0, seconds: float = 0.0) -> None:
    """Work for a key in order; fail the first ``fails`` times."""
    write("begin", self, key=key, number=number, retries=self.request.retries)
    time.sleep(seconds)
    if self.request.retries < fails:
        raise self.retry(countdown=0.2, exc=ValueError(f"number {number} fails"))
    write("end", self, key=key, number=number)


@shared_task(bind=True, in_order_by=InOrder(("key",), on_failure="skip"), max_retries=0)
def skipping(self: Any, key: str, number: int) -> None:
    """Work for a key in order; a negative number fails."""
    write("begin", self, key=key, number=number)
    if number < 0:
        raise ValueError(f"{number} is negative")
    write("end", self, key=key, number=number)


@shared_task(
    bind=True,
    group_by=GroupBy(("key",), seconds=0.5, merge={"numbers": "list"}, most=200, halves=True),
    ignore_result=True,
    max_retries=5,
    default_retry_delay=1,
)
def grouped(self: Any, key: str, numbers: list[int], seconds: float = 0.0) -> None:
    """Work for all numbers of a key together; one below 0 fails them all."""
    write("begin", self, key=key, numbers=numbers)
    time.sleep(seconds)
    if min(numbers) < 0:
        raise ValueError(f"{min(numbers)} is negative")
    write("end", self, key=key, numbers=numbers)


@shared_task(bind=True, group_by=GroupBy(("key",), seconds=0.01, merge={"numbers": "set"}, most=3), ignore_result=True)
def together(self: Any, key: str, numbers: list[int]) -> None:
    """Work for a few numbers of a key, each once."""
    write("begin", self, key=key, numbers=numbers)
    if min(numbers) < 0:
        raise ValueError(f"{min(numbers)} is negative")
    write("end", self, key=key, numbers=numbers)


@shared_task(bind=True, unique=Unique(by=("key",)), ignore_result=True, max_retries=2, default_retry_delay=0)
def retried(self: Any, key: str, tries: int) -> None:
    """Fail so many times, then succeed."""
    write("begin", self, key=key, retries=self.request.retries)
    if self.request.retries < tries:
        raise self.retry(countdown=1)
    write("end", self, key=key, retries=self.request.retries)


@shared_task(bind=True, unique=Unique(by=("key",)), ignore_result=True, max_retries=0)
def failing(self: Any, key: str) -> None:
    """Fail at once."""
    write("begin", self, key=key)
    raise ValueError("at once")


@shared_task(bind=True, unique=Unique(by=("key",)), ignore_result=True)
def sliced(self: Any, key: str, steps: int) -> None:
    """Do one step and publish the next one."""
    write("begin", self, key=key, steps=steps)
    if steps > 1:
        publish_successor(self, key=key, steps=steps - 1)


@shared_task(bind=True, rate=Rate(1, per_seconds=3600, per="key"))
def rare(self: Any, key: str, number: int) -> None:
    """Work once an hour for each key."""
    work(self, 0.0, key=key, number=number)


@shared_task(
    bind=True,
    unique=Unique(by=("key",), on_conflict="reschedule_once", after=3, at_most=30),
    ignore_result=True,
)
def debounced(self: Any, key: str, wish: int, seconds: float = 0.0) -> None:
    """Work for the last wish of a key once none has come for 3 s."""
    work(self, seconds, key=key, wish=wish)


@shared_task(
    bind=True,
    group_by=GroupBy(("key",), seconds=0.5, merge={"numbers": "list"}, halves=True),
    fair_by="key",
    ignore_result=True,
)
def fairly_grouped(self: Any, key: str, numbers: list[int]) -> None:
    """Work for all numbers of a key together, in turn with other keys."""
    work(self, 0.0, key=key, numbers=numbers)


@shared_task(bind=True, in_order_by=InOrder(("key",)))
def ordered_of_job(self: Any, key: str, number: int, job_id: int) -> None:
    """Work of jobs for a key in order."""
    write("begin", self, key=key, number=number, job=job_id)


@shared_task(bind=True, unique=Unique(by=("key",)), ignore_result=True)
def once_of_job(self: Any, key: str, job_id: int) -> None:
    """Work of jobs for a key, once."""
    write("begin", self, key=key, job=job_id)


@shared_task(
    bind=True,
    unique=None if os.environ.get(WITHOUT_POLICY) else Unique(by=("key",)),
    ignore_result=True,
    max_retries=3,
    default_retry_delay=0,
)
def changing(self: Any, key: str, fails: int = 0, seconds: float = 0.0) -> None:
    """Work for a key, after ``fails`` tries, in two versions."""
    write("begin", self, key=key, retries=self.request.retries)
    time.sleep(seconds)
    if self.request.retries < fails:
        raise self.retry(countdown=0.2, exc=ValueError(f"try {self.request.retries} fails"))
    write("end", self, key=key, retries=self.request.retries)


@shared_task(bind=True, max_retries=0)
def deaf(self: Any, number: int, seconds: float) -> None:
    """Go on after the soft time limit."""
    ignore_soft_limit(self, number, seconds)


@shared_task(bind=True, outbox=True, max_retries=0)
def deaf_row(self: Any, number: int, seconds: float) -> None:
    """Go on after the soft time limit."""
    ignore_soft_limit(self, number, seconds)


def ignore_soft_limit(task: Any, number: int, seconds: float) -> None:
    try:
        work(task, seconds, number=number)
    except SoftTimeLimitExceeded:
        write("soft limit", task, number=number)
        time.sleep(seconds)


@shared_task(bind=True, max_retries=3)
def growing(self: Any, number: int, text: str = "") -> None:
    """Retry with an argument that no worker takes."""
    write("begin", self, number=number)
    raise self.retry(kwargs={"number": number, "text": "x" * 5 * 1024**2}, countdown=0)


@shared_task(bind=True, outbox=True, max_retries=3)
def growing_row(self: Any, number: int, text: str = "") -> None:
    """Go on with an argument that no worker takes."""
    write("begin", self, number=number)
    publish_successor(self, number=number, text="x" * 5 * 1024**2)
