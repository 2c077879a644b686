"""In which states the work of each queue is, read at one time.

The states are those of the original's queue: `initial` waits for its time, `pending` is ready or runs, `computing`
runs, `awaiting` waits for a process, `failed` was given up, `disabled` was set aside. Initial and pending are together
as many as computing and awaiting: `awaiting` is what is left of them.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings
from django.db.models import Count, Sum
from django_celery_beat.models import PeriodicTask
from kombu import Connection

from ami.admission import waiting_calls
from ami.admission.waiting_calls import Waiting
from ami.celery.broker_kind import kind_of
from ami.celery.declaration import depth
from ami.celery.origin import BEAT
from ami.queues.letters import both, set_aside
from ami.queues.management_api import ManagementApi, ManagementUnavailable
from ami.queues.models import TaskCount, Worker
from ami.topology import broker
from ami.topology.topology import Topology

#: The row of messages that the broker delays: it does not say for which queue.
DELAYED = "(delayed)"
DELAY_QUEUES = "celery_delayed_"


@dataclass(frozen=True)
class QueueStates:
    """One queue's work, messages and calls that are rows.

    ``initial`` counts its entries of the schedule and its calls with a delay, in the row `DELAYED` messages with one.
    """

    queue: str
    initial: int
    pending: int
    computing: int
    failed: int
    disabled: int

    @property
    def awaiting(self) -> int:
        return self.initial + self.pending - self.computing

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"awaiting": self.awaiting}


@dataclass(frozen=True)
class _Read:
    """What the broker said at one time: (ready, delivered) of each queue, and the delayed messages of all."""

    queues: dict[str, tuple[int, int]]
    delayed: int


def counts(topology: Topology, connection: Connection) -> list[QueueStates]:
    """Return the states of each queue in the order of the table, then those of delayed messages.

    RabbitMQ's management API counts what is delivered. Without it that is what workers report: tasks that have run for
    two seconds; delayed messages are unknown then, and counted as none.

    Raises:
        amqp.exceptions.NotFound: the topology was never declared.
    """
    read, calls = _read(topology, connection), waiting_calls.by_queue()
    dead, scheduled = both.counts(topology, connection), _scheduled(topology)
    disabled = dict(set_aside.kept().order_by().values_list("queue").annotate(count=Count("pk")))
    rows = []
    for workload in topology.workloads:
        ready, delivered = read.queues.get(workload.queue, (0, 0))
        rows_of = calls.get(workload.queue, Waiting())
        rows.append(
            QueueStates(
                queue=workload.queue,
                initial=scheduled[workload.queue] + rows_of.later,
                pending=ready + delivered + rows_of.due,
                computing=delivered,
                failed=dead.get(workload.dead_letter_queue, 0),
                disabled=disabled.get(workload.queue, 0),
            )
        )
    return [*rows, QueueStates(DELAYED, read.delayed, 0, 0, dead.get(broker.UNROUTED, 0), 0)]


def total(rows: list[QueueStates]) -> QueueStates:
    """Return the sum."""
    names = ("initial", "pending", "computing", "failed", "disabled")
    return QueueStates("all", **{name: sum(getattr(row, name) for row in rows) for name in names})


def ingest_snapshot(topology: Topology, connection: Connection) -> dict[str, dict[str, int]]:
    """Return of each queue what is queued, running, completed and failed, and how many workers consume it.

    ``completed`` and ``failed`` are tasks of the last 30 days as the workers counted them; one that is killed loses up
    to ten seconds of its counts.
    """
    read, calls = _read(topology, connection), waiting_calls.by_queue()
    ended = {row["queue"]: row for row in TaskCount.objects.values("queue").annotate(Sum("completed"), Sum("failed"))}
    workers = Counter(queue for row in Worker.objects.exclude(verdict="dead") for queue in row.queues)
    found = {}
    for queue in topology.queues:
        ready, delivered = read.queues.get(queue, (0, 0))
        counted: Any = ended.get(queue, {})
        found[queue] = {
            "queued": ready + calls.get(queue, Waiting()).due,
            "running": delivered,
            "completed": counted.get("completed__sum", 0),
            "failed": counted.get("failed__sum", 0),
            "workers": workers[queue],
        }
    return found


def _read(topology: Topology, connection: Connection) -> _Read:
    kind = kind_of(connection)
    if kind.is_managed:
        try:
            return _managed(ManagementApi(settings.RABBITMQ_MANAGEMENT_URL, connection.virtual_host))
        except ManagementUnavailable:
            return _passive(topology, connection)
    return _stored(topology, connection) if kind.lists else _passive(topology, connection)


def _managed(api: ManagementApi) -> _Read:
    listed = {queue["name"]: queue for queue in api.queues()}
    queues = {
        name: (queue.get("messages_ready", 0), queue.get("messages_unacknowledged", 0))
        for name, queue in listed.items()
    }
    return _Read(queues, sum(ready for name, (ready, _) in queues.items() if name.startswith(DELAY_QUEUES)))


def _stored(topology: Topology, connection: Connection) -> _Read:
    storage = connection.transport.broker
    known = storage.declarations.current(fresh=True).queues
    queues = {}
    for queue in (queue for queue in topology.queues if queue in known):
        state = storage.store(queue).look()
        queues[queue] = (state.depth(), len(state.leased))
    delayed = sum(len(storage.wheel.store(slot).look().entries) for slot in storage.wheel.slots())
    return _Read(queues, delayed)


def _passive(topology: Topology, connection: Connection) -> _Read:
    running = Counter(
        queue for row in Worker.objects.exclude(verdict="dead") for queue in _queues_of_running(topology, row)
    )
    with connection.channel() as channel:
        return _Read({queue: (depth(channel, queue)[0], running[queue]) for queue in topology.queues}, 0)


def _queues_of_running(topology: Topology, row: Worker) -> list[str]:
    """Return the queue of each task that a worker runs: its only one, or the one that the task is routed to."""
    if len(row.queues) == 1:
        return list(row.queues) * len(row.running)
    return [topology.place(str(task.get("name", "")), None).queue for task in row.running]


def _scheduled(topology: Topology) -> Counter[str]:
    names = PeriodicTask.objects.filter(enabled=True).values_list("task", flat=True)
    return Counter(topology.place(name, BEAT).queue for name in names)
