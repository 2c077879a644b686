"""Brings the jobs of a queue that was one JSON document into a journal."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from ami.jqueue.adapters.storage.moved import mark_of, moved_to
from ami.jqueue.core.codec import decode
from ami.jqueue.domain.errors import CASConflictError
from ami.jqueue.domain.models import Job, JobStatus, QueueState
from ami.transports.objectstore.queue.commands import Bury, Claim, Command, Enqueue
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.port import Storage

#: How long after its last heartbeat a job that was in progress is delivered again; as long as queues wait by default.
LEASE = timedelta(minutes=5)


def import_jobs(store: Store, state: QueueState) -> int:
    """Put the jobs that the store does not hold yet into it, in one batch; return how many.

    Their ids, payloads and order stay. What was in progress is so again, until its heartbeat is older than `LEASE`, and
    is delivered before its equals then; a store that holds jobs already takes it as waiting.
    """
    with store.lock:
        held = set(store.look().entries)
        new = [job for job in sorted(state.jobs, key=lambda job: job.created_at) if job.id not in held]
        # A claim takes what is first in line: that is sure to be the job before it only while nothing waits yet.
        claimed = [job for job in new if job.status is JobStatus.IN_PROGRESS and not held]
        commands = [command for job in claimed for command in (_enqueue(job), _claim(job))]
        for job in new:
            if job.status is not JobStatus.IN_PROGRESS or held:
                commands.append(_enqueue(job))
            if job.status is JobStatus.DEAD:
                commands.append(Bury(job.id, "imported"))
        if commands:
            store.commit(commands)
    return len(new)


def _enqueue(job: Job) -> Command:
    return Enqueue(job.id, job.payload, job.entrypoint, job.priority, created=job.created_at.timestamp())


def _claim(job: Job) -> Command:
    age = LEASE if job.heartbeat_at is None else datetime.now(UTC) - job.heartbeat_at
    return Claim(1, "imported", max(LEASE - age, timedelta(0)).total_seconds())


def import_blob(store: Store, objects: Storage, key: str) -> int:
    """Move the jobs of a queue in one blob into the store; return how many. A copy of the blob stays beside it.

    The blob becomes a mark last. A process that was killed, or runs at the same time, imports the same ids, which are
    stored once. Raises StorageError where the blob is something else; it is left alone.
    """
    count = 0
    while (stored := objects.read(key)) is not None and moved_to(stored.content) is None:
        state = decode(stored.content)
        count += import_jobs(store, state)
        with suppress(CASConflictError):
            objects.create(f"{key}.imported-{state.version}", stored.content)
        # A conflict means that another program still writes the blob: then there is more to import.
        with suppress(CASConflictError):
            objects.replace(key, mark_of(f"{key}/"), stored.version)
    return count
