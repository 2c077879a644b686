"""Findings about the queues of the topology: missing, without a consumer, and with messages that were given up."""

from collections.abc import Iterator, Sequence

from amqp.exceptions import NotFound
from kombu import Connection

from ami.celery.broker_kind import kind_of
from ami.queues import governors, start_commands
from ami.queues.diagnostics import reported
from ami.queues.diagnostics.finding import Finding
from ami.queues.letters import both
from ami.queues.overview import WorkerRow
from ami.queues.queue import QueueState, queue_states
from ami.topology import broker
from ami.topology.app import APP
from ami.topology.topology import Topology


def consumed(
    topology: Topology, connection: Connection, workers: Sequence[governors.Worker], rows: Sequence[WorkerRow] | None
) -> Iterator[Finding]:
    """Yield the queues that are missing, or that none of ``workers`` consumes without an operator wanting it so.

    Without ``rows`` what operators want cannot be read: a queue whose worker answers may be paused.
    """
    if rows is None:
        wanted = {queue for worker in workers for queue in worker.own_queues}
    else:
        wanted = reported.closed_queues(topology, rows)
    held = {*governors.held_queues(workers), *wanted}
    for state in queue_states(topology, connection):
        if state.messages is None:
            sentence = f"{state.queue} is not declared; run 'manage.py queues declare'."
            yield Finding("error", "missing-queue", sentence, state.queue)
        elif not state.consumers and state.queue not in held:  # Held, parked or paused: no consumer.
            yield Finding(
                "error",
                "no-consumer",
                f"{state.queue} has no consumer and {state.messages} messages{_remedy(topology, state, workers)}",
                state.queue,
            )


def _remedy(topology: Topology, state: QueueState, workers: Sequence[governors.Worker]) -> str:
    """Return the end of the sentence: who runs without a consumer and how to add it, or what to start.

    A worker whose consumer was cancelled (``celery control cancel_consumer``) no longer consumes the queue, but was
    started for it.
    """
    idle = [each.name for each in workers if state.queue in each.own_queues and state.queue not in each.queues]
    if not idle:
        return f"; start its worker: '{start_commands.of_worker(topology.workload(state.queue))}'."
    how = f"run 'celery -A {APP} control add_consumer {state.queue} -d {','.join(idle)}'."
    runs = "runs without its consumer" if len(idle) == 1 else "run without their consumers"
    return f": {', '.join(idle)} {runs}; {how}"


def given_up(topology: Topology, connection: Connection) -> Iterator[Finding]:
    """Findings about messages that no binding matched, and dead letters."""
    try:
        counts = both.counts(topology, connection) if kind_of(connection).routes else {}
    except NotFound as error:
        yield Finding("error", "missing-queue", f"{error.reply_text}; run 'manage.py queues declare'.")
        return
    for queue, messages in counts.items():
        name, why = "dead-letters", "were buried"
        if queue == broker.UNROUTED:
            name, why = "unrouted", "matched no binding"
        if messages:
            look = f"look with 'manage.py queues dead-letters {queue}'"
            yield Finding("warning", name, f"{messages} messages {why} and are kept in {queue}; {look}.", queue)
