"""The rollout from one queue to one per workload, and the rollback, without stranding a message."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from kombu import Connection

from ami.celery.broker_kind import kind_of
from ami.celery.declaration import conflicts, declare, depth, routing_keys
from ami.queues import broker_errors, broker_queues, start_commands
from ami.queues.queue import QueueState, queue_states
from ami.queues.refusals import Refused
from ami.queues.shovel import move
from ami.topology import broker
from ami.topology.table import FALLBACK
from ami.topology.topology import Topology
from ami.topology.workload import Workload


@dataclass(frozen=True)
class Stage:
    """The stage of the rollout or rollback, and the next step. ``may_split`` is False while tasks would be stranded:
    a queue that receives them has no live consumer.
    """

    name: str
    next_step: str
    may_split: bool
    queues: tuple[QueueState, ...]


class RollbackRefused(Refused):
    """Workers still consume the split queues; the text names the services to stop first."""


def stage(
    topology: Topology, connection: Connection, management_url: str, held: Callable[[], Collection[str]] = tuple
) -> Stage:
    """Return the stage and the next step. Reads only. ``held`` tells, if asked, the queues whose workers are held."""
    states = tuple(queue_states(topology, connection))
    # On RabbitMQ a held worker has no consumer; a folder counts it as one.
    if not kind_of(connection).is_managed or any(state.consumers == 0 for state in states):
        names = held()
        states = tuple(replace(state, is_held=state.queue in names) for state in states)
    if taken := _taken(topology, connection):
        return Stage("another application's", f"{taken}; {broker_errors.ADOPT}.", False, states)
    try:
        if _is_rolled_back(topology, connection, management_url, states):
            return _after_rollback(topology, states)
        unknown = ""
    except broker_queues.BindingsUnknown as error:
        unknown = f" Whether this is a finished rollback was not checked: {error}."
    missing = [state.queue for state in states if state.messages is None]
    idle = [state for state in states if not state.is_consumed and state.messages is not None]
    if missing:
        step = f"Run 'manage.py queues declare' ({', '.join(missing)} missing).{unknown}"
        return Stage("undeclared", step, False, states)
    if idle:
        return Stage("without workers", _start(topology, idle) + unknown, False, states)
    if topology.routing == "single":
        step = f"Set ANTENNA_ROUTING=split for every process and deploy again.{_of_held(states)}"
        return Stage("ready", step, True, states)
    return _split_stage(states)


def _of_held(states: tuple[QueueState, ...]) -> str:
    held = ", ".join(state.queue for state in states if state.is_held)
    return f" Held: {held}; 'manage.py queues governor' shows why." if held else ""


def _taken(topology: Topology, connection: Connection) -> str:
    """Return which exchange or queue in the place of ours another application has declared, or nothing."""
    if not kind_of(connection).is_managed:
        return ""  # A store keeps exchanges of one application only.
    texts = (broker_errors.plain_text(error) for error in conflicts(topology, connection))
    return next(filter(broker_errors.is_anothers, texts), "")


def _split_stage(states: tuple[QueueState, ...]) -> Stage:
    behind = next(state for state in states if state.queue == FALLBACK)
    if behind.messages:
        step = f"Wait: {behind.messages} messages from before the split drain from '{FALLBACK}'.{_of_held(states)}"
        return Stage("split, draining", step, True, states)
    step = "None: every routed queue has consumers. 'manage.py queues rollback' returns to one queue."
    return Stage("split", step + _of_held(states), True, states)


def _is_rolled_back(
    topology: Topology, connection: Connection, management_url: str, states: tuple[QueueState, ...]
) -> bool:
    """Whether one queue is used and the fallback queue has the keys of all others, as :func:`rollback` leaves them.

    The bindings alone tell it from a rollout that has not begun: the queues of both are empty and not consumed.

    Raises:
        BindingsUnknown: the broker does not list its bindings.
    """
    if topology.routing != "single" or any(state.is_consumed for state in states if state.queue != FALLBACK):
        return False
    if all(state.messages is None for state in states if state.queue == FALLBACK):
        return False
    handed_over = {key for row in _split(topology) for key in routing_keys(row.queue)}
    return handed_over <= broker_queues.bound_keys(connection, management_url, FALLBACK)


def _after_rollback(topology: Topology, states: tuple[QueueState, ...]) -> Stage:
    left = [state for state in states if state.queue != FALLBACK and state.messages]
    idle = [state for state in states if state.queue == FALLBACK and not state.is_consumed]
    if left:
        step = f"Run 'manage.py queues rollback' again: {_names(left)} would be stranded."
        return Stage("rolled back, messages left", step, False, states)
    if idle:
        return Stage("rolled back, without workers", _start(topology, idle), False, states)
    step = "None: rolled back, nothing is left to move. To roll out again, start the workers of the split queues."
    return Stage("rolled back", step, True, states)


def _start(topology: Topology, idle: list[QueueState]) -> str:
    commands = "; ".join(f"'{start_commands.of_worker(topology.workload(state.queue))}'" for state in idle)
    return f"Start the workers of {_names(idle)}, which have no consumers: {commands}."


def planned(topology: Topology, connection: Connection) -> dict[str, int]:
    """Return how many messages of each split queue `rollback` would move now. Reads only.

    Raises:
        RollbackRefused: workers still consume a split queue.
    """
    states = _refuse_consumed(topology, connection)
    return {row.queue: states[row.queue].messages or 0 for row in _split(topology)}


def rollback(
    topology: Topology, connection: Connection, progress: Callable[[str, int], None] | None = None
) -> dict[str, int]:
    """Send the work of the split queues to the fallback queue; return how many messages were moved from each.

    Binds the split routing keys to the fallback queue first, so that delayed messages and retries land there when
    their time comes, unbinds them from the split queues, then moves what is left. A message published between the
    binding and the unbinding is delivered twice, never lost.

    Raises:
        RollbackRefused: workers still consume a split queue.
        amqp.exceptions.AMQPError: the broker refused a message; it stays where it was. Running it again resumes.
    """
    split = _split(topology)
    declare(topology, connection)
    _refuse_consumed(topology, connection)
    fallback = next(queue for queue in broker.task_queues(topology) if queue.name == FALLBACK)
    with connection.channel() as channel:
        for row in split:
            _hand_over(channel, fallback(channel), row.queue)
    return {row.queue: _move_all(connection, row.queue, progress) for row in split}


def _split(topology: Topology) -> list[Workload]:
    return [row for row in topology.workloads if row.queue != FALLBACK]


def _refuse_consumed(topology: Topology, connection: Connection) -> dict[str, QueueState]:
    """Return the queues' states by name; raise `RollbackRefused` if a worker consumes a split queue."""
    states = {state.queue: state for state in queue_states(topology, connection)}
    if busy := [row.service for row in _split(topology) if states[row.queue].consumers]:
        raise RollbackRefused(f"Workers still consume the split queues; stop {', '.join(busy)} first.")
    return states


def _hand_over(channel: Any, fallback: Any, queue: str) -> None:
    for key in routing_keys(queue):
        fallback.bind_to(broker.EXCHANGE_NAME, routing_key=key)
        channel.queue_unbind(queue, broker.EXCHANGE_NAME, routing_key=key)


def _move_all(connection: Connection, queue: str, progress: Callable[[str, int], None] | None) -> int:
    with connection.channel() as channel:
        waiting = depth(channel, queue)[0]
    report = (lambda count: progress(queue, count)) if progress else None
    return move(connection, queue, lambda _: (broker.EXCHANGE_NAME, FALLBACK), None, report) if waiting else 0


def _names(states: list[QueueState]) -> str:
    return ", ".join(f"{state.queue} ({state.messages} messages)" for state in states)
