"""What is wrong with the deployment right now, asked of the broker and of every worker."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import NotFound
from kombu import Connection

from ami.celery.broker_kind import kind_of
from ami.celery.producer import Unconfirmed
from ami.queues import broker_queues, dead_letters, governors
from ami.queues.management_api import ManagementApi, ManagementUnavailable
from ami.queues.queue import queue_states
from ami.topology import broker
from ami.topology.errors import did_you_mean
from ami.topology.topology import Topology

#: So many tasks one finding names.
NAMED = 5


@dataclass(frozen=True)
class Finding:
    """``level`` is error, warning, or unseen for what could not be looked at."""

    level: str
    name: str
    sentence: str


def findings(topology: Topology, app: Any, management_url: str) -> list[Finding]:
    """Return everything that is wrong, the gravest first; an empty list is a healthy deployment.

    Raises:
        kombu.exceptions.OperationalError: the broker itself does not answer.
    """
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        answers, told = _asked(topology, app)
        found = [
            *_queues(topology, connection, held=governors.held_queues(governors.workers(answers))),
            *told,
            *_given_up(topology, connection),
            *_beyond(topology, management_url, connection),
        ]
    order = {"error": 0, "warning": 1, "unseen": 2}
    return sorted(found, key=lambda finding: order[finding.level])


def _asked(topology: Topology, app: Any) -> tuple[Mapping[str, Mapping[str, Any]], list[Finding]]:
    """Return what the workers answered, and what is wrong with them.

    While an alarm blocks every publisher, the question is blocked as well, and the alarm itself is what must be seen.
    """
    try:
        answers = governors.stats(app)
    except Unconfirmed:
        sentence = "The workers were not asked: the broker takes no messages, and the question is one."
        return {}, [Finding("unseen", "no-worker", sentence)]
    return answers, list(worker_findings(topology, answers))


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


def _given_up(topology: Topology, connection: Connection) -> Iterator[Finding]:
    """What waits for an operator: messages that no binding matched, and dead letters."""
    try:
        counts = dead_letters.counts(topology, connection) if kind_of(connection).routes else {}
    except NotFound as error:
        yield Finding("error", "missing-queue", f"{error.reply_text}; run 'manage.py queues declare'.")
        return
    for queue, messages in counts.items():
        name, why = "dead-letters", "were given up"
        if queue == broker.UNROUTED:
            name, why = "unrouted", "matched no binding"
        if messages:
            look = f"look with 'manage.py queues dead-letters {queue}'"
            yield Finding("warning", name, f"{messages} messages {why} and are kept in {queue}; {look}.")


def _beyond(topology: Topology, url: str, connection: Connection) -> Iterator[Finding]:
    """What the broker tells by a door of its own, or that nobody could look."""
    if not kind_of(connection).is_managed:
        yield from _listed(topology, broker_queues.stored(connection))
        return
    try:
        api = ManagementApi(url, connection.virtual_host)
        yield from _listed(topology, broker_queues.managed(api))
        yield from _managed(topology, api)
    except ManagementUnavailable as error:
        yield Finding(
            "unseen",
            "management",
            f"Alarms, blocked connections, unknown queues and policies were not looked at: {error}.",
        )


def _listed(topology: Topology, queues: Mapping[str, broker_queues.Listed]) -> Iterator[Finding]:
    own = broker.own_queue_names(topology)
    for name, queue in queues.items():
        if name not in own and queue.messages:
            yield Finding(
                "warning",
                "unknown-queue",
                f"{name} holds {queue.messages} messages and is no queue of ours.{did_you_mean(name, topology.queues)}",
            )
    for expected in broker.task_queues(topology):
        if expected.name in queues and queues[expected.name].arguments != expected.queue_arguments:
            yield Finding(
                "error",
                "arguments",
                f"{expected.name} exists with other arguments than the topology's; a worker would stop with 406. "
                "Drain it, delete it, and declare again.",
            )


def _managed(topology: Topology, api: ManagementApi) -> Iterator[Finding]:
    """Yield alarms, blocked connections, and the known traps of this version. Raises ManagementUnavailable."""
    for alarm in api.alarms():
        yield Finding("error", "alarm", f"RabbitMQ has a resource alarm ({alarm}); it blocks every publisher.")
    for name in api.blocked_connections():
        yield Finding("error", "blocked", f"The connection {name} is blocked from publishing.")
    version = api.version()
    yield from _policies(topology, api, version)
    yield from _version(version)


def _policies(topology: Topology, api: ManagementApi, version: tuple[int, ...]) -> Iterator[Finding]:
    held = api.policies()
    stale = [
        policy["name"]
        for policy in broker.policies(topology, version)
        if held.get(policy["name"], {}).get("definition") != policy["definition"]
    ]
    if stale:
        yield Finding("warning", "policies", f"Policies are missing or old: {', '.join(stale)}; run 'queues declare'.")


def _version(version: tuple[int, ...]) -> Iterator[Finding]:
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
