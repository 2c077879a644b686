"""What is wrong with the deployment right now, asked of the broker and of every worker."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import NotFound
from kombu import Connection

from ami.queues import governors
from ami.queues.declare import depth
from ami.queues.management_api import ManagementApi, ManagementUnavailable
from ami.topology import broker
from ami.topology.errors import did_you_mean
from ami.topology.topology import Topology

#: Queues of others that may hold messages: Celery's remote control and events, kombu's delay queues.
FOREIGN = ("celeryev.", "celery_delayed_", "amq.gen-")
FOREIGN_SUFFIXES = (".pidbox", ".reply.celery.pidbox")

#: So many tasks one finding names.
NAMED = 5


@dataclass(frozen=True)
class Finding:
    """One thing an operator should know. ``level`` is error, warning, or unseen for what could not be looked at."""

    level: str
    name: str
    sentence: str


@dataclass(frozen=True)
class QueueState:
    """A queue as the broker sees it; ``messages`` and ``consumers`` are None when it does not exist."""

    queue: str
    service: str
    messages: int | None
    consumers: int | None


def queue_states(topology: Topology, connection: Connection) -> list[QueueState]:
    """Return each consumed queue's depth and consumers, by passive declares."""
    states = []
    for row in topology.workloads:
        # A failed passive declare closes its channel, so each queue has one of its own.
        channel = connection.channel()
        try:
            states.append(QueueState(row.queue, row.service, *depth(channel, row.queue)))
            channel.close()
        except NotFound:
            states.append(QueueState(row.queue, row.service, None, None))
    return states


def findings(topology: Topology, app: Any, management_url: str) -> list[Finding]:
    """Return everything that is wrong, the gravest first; an empty list is a healthy deployment.

    Raises:
        kombu.exceptions.OperationalError: the broker itself does not answer.
    """
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        answers = governors.stats(app)
        found = [
            *_queues(topology, connection, held=governors.held_queues(governors.workers(answers))),
            *worker_findings(topology, answers),
            *_management(topology, management_url, connection),
        ]
    order = {"error": 0, "warning": 1, "unseen": 2}
    return sorted(found, key=lambda finding: order[finding.level])


def _queues(topology: Topology, connection: Connection, held: Container[str]) -> Iterator[Finding]:
    for state in queue_states(topology, connection):
        if state.messages is None:
            yield Finding("error", "missing-queue", f"{state.queue} is not declared; run 'manage.py queues declare'.")
        elif not state.consumers and state.queue not in held:  # A worker that holds has no consumer.
            yield Finding(
                "error",
                "no-consumer",
                f"{state.queue} has no consumer and {state.messages} messages; start {state.service}.",
            )


def worker_findings(topology: Topology, answers: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield what is wrong with the workers, from what each answered to ``inspect stats``."""
    if not answers:
        yield Finding("error", "no-worker", f"No worker answered within {governors.INSPECT_SECONDS:.0f} s.")
    for worker, stats in sorted(answers.items()):
        told = stats.get("topology")
        if told is None:
            yield Finding("warning", "foreign-worker", f"{worker} tells no topology: it runs other code than this.")
        elif told["fingerprint"] != topology.fingerprint:
            yield Finding(
                "error",
                "fingerprint",
                f"{worker} has topology {told['fingerprint']} (routing {told['routing']}), this publisher has "
                f"{topology.fingerprint} (routing {topology.routing}); deploy both from one version and environment.",
            )
    workers = governors.workers(answers)
    for governed in workers:
        yield from _governor(governed)
    for queue, names in governors.held_queues(workers).items():
        yield Finding(
            "error",
            "all-held",
            f"Nobody takes work from {queue}: {', '.join(names)} held. Free memory or add a machine; more workers on "
            "the same full one would hold, too.",
        )


def _governor(worker: governors.Worker) -> Iterator[Finding]:
    told = worker.told or {}
    if worker.is_held:
        yield Finding("warning", "held", f"{worker.name} takes no tasks: {'; '.join(told['reasons'])}.")
    for fault in told.get("faults", ()):
        yield Finding("warning", "probe", f"{worker.name} cannot see what that probe shows, and goes on. {fault}")
    if suspects := told.get("suspects"):
        more = f" and {len(suspects) - NAMED} more" if len(suspects) > NAMED else ""
        yield Finding(
            "warning",
            "suspect",
            f"{worker.name} was killed at once while it ran {', '.join(suspects[:NAMED])}{more}; its log names the "
            "task. What runs at a second such death is buried.",
        )


def _management(topology: Topology, url: str, connection: Connection) -> Iterator[Finding]:
    if connection.transport.driver_type != "amqp":
        return
    try:
        api = ManagementApi(url, connection.virtual_host)
        yield from _seen_through(topology, api)
    except ManagementUnavailable as error:
        yield Finding(
            "unseen",
            "management",
            f"Alarms, blocked connections, unknown queues and policies were not looked at: {error}.",
        )


def _seen_through(topology: Topology, api: ManagementApi) -> Iterator[Finding]:
    for alarm in api.alarms():
        yield Finding("error", "alarm", f"RabbitMQ has a resource alarm ({alarm}); it blocks every publisher.")
    for name in api.blocked_connections():
        yield Finding("error", "blocked", f"The connection {name} is blocked from publishing.")
    queues = api.queues()
    yield from _unknown_queues(topology, queues)
    yield from _traps(topology, queues, api)


def _unknown_queues(topology: Topology, queues: list[dict[str, Any]]) -> Iterator[Finding]:
    own = broker.own_queue_names(topology)
    for queue in queues:
        name, messages = queue["name"], queue.get("messages", 0)
        if name in own or name.startswith(FOREIGN) or name.endswith(FOREIGN_SUFFIXES) or not messages:
            continue
        hint = did_you_mean(name, topology.queues)
        yield Finding("warning", "unknown-queue", f"{name} holds {messages} messages and is no queue of ours.{hint}")
    unrouted = next((queue.get("messages", 0) for queue in queues if queue["name"] == broker.UNROUTED), 0)
    if unrouted:
        yield Finding(
            "warning",
            "unrouted",
            f"{unrouted} messages matched no binding and are kept in {broker.UNROUTED}; "
            f"look with 'manage.py queues dead-letters {broker.UNROUTED}'.",
        )


def _traps(topology: Topology, queues: list[dict[str, Any]], api: ManagementApi) -> Iterator[Finding]:
    """The known traps of this broker version."""
    version = api.version()
    by_name = {queue["name"]: queue for queue in queues}
    for expected in broker.task_queues(topology):
        arguments = by_name.get(expected.name, {}).get("arguments")
        if arguments is not None and arguments != expected.queue_arguments:
            yield Finding(
                "error",
                "arguments",
                f"{expected.name} exists with other arguments than the topology's; a worker would stop with 406. "
                "Drain it, delete it, and declare again.",
            )
    held = api.policies()
    stale = [
        policy["name"]
        for policy in broker.policies(topology, version)
        if held.get(policy["name"], {}).get("definition") != policy["definition"]
    ]
    if stale:
        yield Finding("warning", "policies", f"Policies are missing or old: {', '.join(stale)}; run 'queues declare'.")
    if version < (3, 10):
        yield Finding(
            "error", "version", "RabbitMQ is older than 3.10: no message TTL and no at-least-once dead letters."
        )
    elif version < (3, 12):
        yield Finding(
            "warning",
            "version",
            f"RabbitMQ {'.'.join(map(str, version))} has no consumer timeout per queue; its own 30 minutes hold, "
            "and every hard time limit is below that.",
        )
