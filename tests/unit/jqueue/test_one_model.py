"""Both ways of keeping a queue, and both queues on each, do what one simple model does."""

import asyncio
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ami.jqueue import BrokerQueue, DirectQueue, JobNotFoundError
from tests.support.soak import soak
from tests.unit.jqueue.conftest import STORAGES

names = st.sampled_from(["a", "b"])
#: Jobs by the order of their arrival; numbers beyond that are jobs that never were.
numbers = st.integers(0, 6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), names, st.integers(-2, 2)),
        st.tuples(st.just("enqueue"), names, st.integers(-2, 2)),
        st.tuples(st.just("dequeue"), st.none() | names, st.integers(1, 3)),
        st.tuples(st.sampled_from(["ack", "nack", "heartbeat"]), numbers),
        st.tuples(st.just("requeue_stale")),
    ),
    max_size=30,
)


@dataclass
class Model:
    """A queue as a list of [number, entrypoint, priority, is in progress], in the order of arrival."""

    jobs: list = field(default_factory=list)
    arrived: int = 0

    def enqueue(self, entrypoint, priority):
        self.jobs.append([self.arrived, entrypoint, priority, False])
        self.arrived += 1
        return self.arrived - 1

    def dequeue(self, entrypoint, limit):
        waiting = [job for job in self.jobs if not job[3] and entrypoint in (None, job[1])]
        claimed = sorted(waiting, key=lambda job: job[2])[:limit]
        for job in claimed:
            job[3] = True
        return [job[0] for job in claimed]

    def ack(self, number):
        self.jobs.remove(self._found(number))

    def nack(self, number):
        self._found(number)[3] = False

    def heartbeat(self, number):
        self._found(number)

    def requeue_stale(self):
        stale = [job for job in self.jobs if job[3]]
        for job in stale:
            job[3] = False
        return len(stale)

    def _found(self, number):
        for job in self.jobs:
            if job[0] == number:
                return job
        raise JobNotFoundError(str(number))


class Real:
    """A queue that speaks of its jobs by number."""

    def __init__(self, queue, direct):
        self.queue = queue
        self.direct = direct
        self.ids = []

    async def enqueue(self, entrypoint, priority):
        self.ids.append((await self.queue.enqueue(entrypoint, b"", priority)).id)
        return len(self.ids) - 1

    async def dequeue(self, entrypoint, limit):
        return [self.ids.index(job.id) for job in await self.queue.dequeue(entrypoint, batch_size=limit)]

    async def requeue_stale(self):
        return await self.direct.requeue_stale(timedelta(0))

    async def settle(self, name, number):
        await getattr(self.queue, name)(self.ids[number] if number < len(self.ids) else "never was")

    async def jobs(self):
        state = await self.queue.read_state()
        found = [
            [self.ids.index(job.id), job.entrypoint, job.priority, job.status == "in_progress"] for job in state.jobs
        ]
        waiting = [self.ids.index(job.id) for job in state.queued_jobs()]
        assert all((job.heartbeat_at is not None) == (job.status == "in_progress") for job in state.jobs)
        return found, waiting


async def agrees(real, model, step):
    name, *arguments = step
    if name in ("ack", "nack", "heartbeat"):
        try:
            getattr(model, name)(*arguments)
        except JobNotFoundError:
            with pytest.raises(JobNotFoundError):
                await real.settle(name, *arguments)
        else:
            await real.settle(name, *arguments)
    else:
        assert await getattr(real, name)(*arguments) == getattr(model, name)(*arguments)
    waiting = sorted((job for job in model.jobs if not job[3]), key=lambda job: job[2])
    assert await real.jobs() == (model.jobs, [job[0] for job in waiting])


@pytest.mark.parametrize("queue", [BrokerQueue, DirectQueue])
@pytest.mark.parametrize("storage", STORAGES)
@settings(max_examples=soak(20, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps)
def test_it_does_what_the_model_does(storage, queue, steps):
    async def main(folder):
        place = STORAGES[storage](folder)
        q = queue(place)
        async with q if queue is BrokerQueue else nullcontext():
            real, model = Real(q, DirectQueue(place)), Model()
            for step in steps:
                await agrees(real, model, step)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))


@settings(max_examples=soak(15, 25), deadline=None)
@given(batches=st.lists(st.lists(st.tuples(st.sampled_from(["enqueue", "dequeue", "ack"]), numbers)), max_size=6))
def test_a_batch_is_its_calls_one_after_the_other(batches):
    """Concurrent calls end as if they had been made in the order in which they were begun, on every storage alike."""

    async def outcomes(q, batches):
        ids, answers_seen = [], []
        for batch in batches:
            calls = [
                {
                    "enqueue": lambda number: q.enqueue("t", b"", number),
                    "dequeue": lambda number: q.dequeue(batch_size=number + 1),
                    "ack": lambda number: q.ack(ids[number] if number < len(ids) else "never was"),
                }[name](number)
                for name, number in batch
            ]
            for answer in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(answer, list):
                    answers_seen.append([len(ids) if job.id not in ids else ids.index(job.id) for job in answer])
                elif answer is None or isinstance(answer, JobNotFoundError):
                    answers_seen.append(type(answer).__name__)
                else:
                    ids.append(answer.id)
                    answers_seen.append(answer.priority)
        return answers_seen

    async def main(folder):
        answers_seen = []
        for storage in STORAGES.values():
            async with BrokerQueue(storage(folder)) as q:
                answers_seen.append(await outcomes(q, batches))
        assert answers_seen == [answers_seen[0]] * len(STORAGES)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
