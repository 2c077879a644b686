"""Findings about the running deployment, from the broker and from every worker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import NotFound
from kombu import Connection

from ami.celery.broker_kind import kind_of
from ami.celery.producer import Unconfirmed
from ami.environment.errors import did_you_mean
from ami.queues import broker_queues, dead_letters, governors
from ami.queues.management_api import ManagementApi, ManagementUnavailable
from ami.queues.queue import QueueState, queue_states
from ami.topology import broker
from ami.topology.app import APP
from ami.topology.topology import Topology

#: The most tasks that one finding names.
NAMED = 5


@dataclass(frozen=True)
class Finding:
    """``level`` is error, warning, or unseen for what could not be checked."""

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
        answers, of_workers = _worker_answers(topology, app)
        found = [
            *_queues(topology, connection, governors.workers(answers)),
            *of_workers,
            *_given_up(topology, connection),
            *_management_findings(topology, management_url, connection),
        ]
    order = {"error": 0, "warning": 1, "unseen": 2}
    return sorted(found, key=lambda finding: order[finding.level])


def _worker_answers(topology: Topology, app: Any) -> tuple[Mapping[str, Mapping[str, Any]], list[Finding]]:
    """Return the workers' statistics, and the findings about them.

    While an alarm blocks every publisher, `celery inspect` is blocked as well; the alarm is a finding of its own.
    """
    try:
        answers = governors.stats(app)
    except Unconfirmed:
        sentence = "Workers not inspected: the broker accepts no messages, so none can be sent to them."
        return {}, [Finding("unseen", "no-worker", sentence)]
    return answers, list(worker_findings(topology, answers))


def _queues(topology: Topology, connection: Connection, workers: Sequence[governors.Worker]) -> Iterator[Finding]:
    held = governors.held_queues(workers)
    for state in queue_states(topology, connection):
        if state.messages is None:
            yield Finding("error", "missing-queue", f"{state.queue} is not declared; run 'manage.py queues declare'.")
        elif not state.consumers and state.queue not in held:  # A held worker has no consumer.
            yield Finding(
                "error",
                "no-consumer",
                f"{state.queue} has no consumer and {state.messages} messages{_remedy(topology, state, workers)}",
            )


def _remedy(topology: Topology, state: QueueState, workers: Sequence[governors.Worker]) -> str:
    """Return the end of the sentence: who runs without a consumer and how to add it, or what to start.

    A worker whose consumer was cancelled (``celery control cancel_consumer``) no longer reports the queue: only its
    node name, which the start command makes of the row's key, tells which queue is its own.
    """
    own = f"{topology.workload(state.queue).key.lower()}@"
    running = [worker for worker in workers if worker.is_ours and worker.name.startswith(own)]
    idle = [worker.name for worker in running if state.queue not in worker.queues]
    if not idle:
        return f"; start {state.service}."
    how = f"run 'celery -A {APP} control add_consumer {state.queue} -d {','.join(idle)}'."
    runs = "runs without its consumer" if len(idle) == 1 else "run without their consumers"
    return f": {', '.join(idle)} {runs}; {how}"


def worker_findings(topology: Topology, answers: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield what is wrong with the workers, from what each answered to ``inspect stats``."""
    if not answers:
        yield Finding("error", "no-worker", f"No worker answered within {governors.INSPECT_SECONDS:.0f} s; start one.")
    for worker, stats in sorted(answers.items()):
        reported = stats.get("topology")
        if reported is None:
            yield Finding(
                "warning", "foreign-worker", f"{worker} reports no topology fingerprint; it runs a different version."
            )
        elif reported["fingerprint"] != topology.fingerprint:
            yield Finding(
                "error",
                "fingerprint",
                f"{worker} has topology {reported['fingerprint']} (routing {reported['routing']}), this publisher has "
                f"{topology.fingerprint} (routing {topology.routing}); deploy both from one version and environment.",
            )
    workers = governors.workers(answers)
    for governed in workers:
        yield from _governor(governed)
    for queue, names in governors.held_queues(workers).items():
        yield Finding(
            "error",
            "all-held",
            f"Every worker of {queue} is held: {', '.join(names)}. Free memory or add a machine; more workers on the "
            "same full one would be held, too.",
        )


def _governor(worker: governors.Worker) -> Iterator[Finding]:
    status = worker.governor or {}
    if worker.is_held:
        yield Finding("warning", "held", f"{worker.name} takes no tasks: {'; '.join(status['reasons'])}.")
    for fault in status.get("faults", ()):
        yield Finding("warning", "probe", f"{worker.name} ignores a probe that failed. {fault}")
    if suspects := status.get("suspects"):
        more = f" and {len(suspects) - NAMED} more" if len(suspects) > NAMED else ""
        yield Finding(
            "warning",
            "suspect",
            f"{worker.name} was killed without warning while running {', '.join(suspects[:NAMED])}{more}; its log "
            "names the task. A task that runs at a second such crash is buried.",
        )


def _given_up(topology: Topology, connection: Connection) -> Iterator[Finding]:
    """Findings about messages that no binding matched, and dead letters."""
    try:
        counts = dead_letters.counts(topology, connection) if kind_of(connection).routes else {}
    except NotFound as error:
        yield Finding("error", "missing-queue", f"{error.reply_text}; run 'manage.py queues declare'.")
        return
    for queue, messages in counts.items():
        name, why = "dead-letters", "were buried"
        if queue == broker.UNROUTED:
            name, why = "unrouted", "matched no binding"
        if messages:
            look = f"look with 'manage.py queues dead-letters {queue}'"
            yield Finding("warning", name, f"{messages} messages {why} and are kept in {queue}; {look}.")


def _management_findings(topology: Topology, url: str, connection: Connection) -> Iterator[Finding]:
    """Findings from the management API, or one saying it was unreachable."""
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
            f"Alarms, blocked connections, unknown queues and policies were not checked: {error}.",
        )


def _listed(topology: Topology, queues: Mapping[str, broker_queues.Listed]) -> Iterator[Finding]:
    own = broker.own_queue_names(topology)
    for name, queue in queues.items():
        if name not in own and queue.messages:
            yield Finding(
                "warning",
                "unknown-queue",
                f"{name} holds {queue.messages} messages and is not a queue of the topology."
                f"{did_you_mean(name, topology.queues)}",
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
    """Yield alarms, blocked connections, and known faults of this version. Raises ManagementUnavailable."""
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
