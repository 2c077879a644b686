"""Remote control commands that keep the split: a worker consumes its own queue and has as many processes as it holds.

They replace Celery's of the same names. A refusal is an error in the worker's reply, so that a broadcast shows which
worker did what. A worker without a row of the topology refuses the topology's queues alone.
"""

from typing import Any

from celery.concurrency.prefork import TaskPool
from celery.worker import control
from celery.worker.control import control_command, nok, ok

from ami.celery import worker_records
from ami.celery.declaration import declare
from ami.governor.container_capacity import children_held
from ami.topology import broker
from ami.topology.errors import TopologyError
from ami.topology.overrides import prefix
from ami.topology.topology import Topology
from ami.topology.workload import Workload


def install() -> None:
    """Replace Celery's commands; their arguments on the command line stay the same."""
    arguments = [("queue", str), ("exchange", str), ("exchange_type", str), ("routing_key", str)]
    control_command(args=arguments, signature="<queue> [exchange [type [routing_key]]]")(add_consumer)
    control_command(args=[("n", int)], signature="[N=1]")(pool_grow)
    control_command(args=[("max", int), ("min", int)], signature="[max [min]]")(autoscale)
    control_command(args=[("queue", str)], signature="<queue>")(cancel_consumer)
    control_command(args=[("n", int)], signature="[N=1]")(pool_shrink)
    control_command()(antenna_wishes_changed)
    control_command()(antenna_calls_staged)


def cancel_consumer(state: Any, queue: str, **options: Any) -> dict[str, str]:
    """Tell worker(s) to stop consuming from a queue; a worker that follows wishes refuses."""
    refusal = f"run 'manage.py queues pause {queue}', which also lasts over a restart" if _follows_wishes(state) else ""
    return dict(nok(f"Refused: {refusal}.") if refusal else control.cancel_consumer(state, queue, **options))


def pool_shrink(state: Any, n: int = 1, **_: Any) -> dict[str, str]:
    """Shrink pool by n processes/threads; a worker that follows wishes refuses."""
    refusal = _no_count(n=n) or _wished_size(state)
    return dict(nok(refusal) if refusal else control.pool_shrink(state, n))


def antenna_wishes_changed(state: Any, **_: Any) -> dict[str, str]:
    """Read now what operators want of this worker; without it the worker reads within ten seconds."""
    desired = getattr(state.consumer, "desired_state", None)
    if desired is None:
        return dict(nok("this worker follows no wishes"))
    desired.wake()
    return dict(ok("reading"))


def antenna_calls_staged(*_: Any, **__: Any) -> None:
    """Look now for calls to dispatch, where this worker does; without it a dispatcher looks each second."""
    for duty in worker_records.duties():
        if wake := getattr(duty, "calls_staged", None):
            wake()


def add_consumer(
    state: Any,
    queue: str,
    exchange: str | None = None,
    exchange_type: str | None = None,
    routing_key: str | None = None,
    **options: Any,
) -> dict[str, str]:
    """Tell worker(s) to consume from their own queue again; any other queue is refused."""
    if not isinstance(queue, str) or not queue:
        return dict(nok(f"Refused: queue is {queue!r}; give the name of one queue."))
    topology = _topology(state)
    if topology is not None and (_rows(state) or queue in topology.queues):
        refusal = _foreign(topology, _own_queues(state), queue) or _second_key(queue, exchange, routing_key, options)
        if refusal:
            return dict(nok(refusal))
    if topology is not None and queue in topology.queues:
        # After a rollback the fallback queue has its keys; Celery's own declaration would leave them there as well.
        with state.app.connection_for_write() as connection:
            declare(topology, connection, own=(queue,))
    return dict(control.add_consumer(state, queue, exchange, exchange_type, routing_key, **options))


def pool_grow(state: Any, n: int = 1, **_: Any) -> dict[str, str]:
    """Grow pool by n processes/threads; refused beyond the processes that the container holds."""
    refusal = (
        _no_count(n=n)
        or _wished_size(state)
        or _fixed_size(state)
        or _beyond_container(state, state.consumer.pool.num_processes + n)
    )
    return dict(nok(refusal) if refusal else control.pool_grow(state, n))


def autoscale(state: Any, max: int | None = None, min: int | None = None) -> dict[str, str]:  # noqa: A002 - Celery's
    """Modify autoscale settings; refused beyond the processes that the container holds."""
    given = {name: each for name, each in (("max", max), ("min", min)) if each is not None}
    refusal = _no_count(**given) or _wished_size(state) or _beyond_container(state, *given.values())
    return dict(nok(refusal) if refusal else control.autoscale(state, max, min))


def _topology(state: Any) -> Topology | None:
    """Return the topology; None in an application that has none."""
    return getattr(state.app, "topology", None)


def _own_queues(state: Any) -> tuple[str, ...]:
    """Return the queues that the worker was started with."""
    return tuple(getattr(state.consumer.controller, "own_queues", ()))


def _rows(state: Any) -> list[Workload]:
    """Return the rows of the worker's own queues."""
    topology, own = _topology(state), _own_queues(state)
    return [row for row in topology.workloads if row.queue in own] if topology else []


def _foreign(topology: Topology, own: tuple[str, ...], queue: str) -> str:
    """Return why a worker of the queues ``own`` does not consume ``queue``; empty if it is one of them."""
    if queue in own:
        return ""
    fact = f"Refused: this worker was started for {', '.join(own) or 'no queue'} only."
    try:
        row = topology.workload(queue)
    except TopologyError as error:
        return f"{fact} {error}"
    return f"{fact} Start {row.service} for {queue}, or name its worker, such as '-d {row.key.lower()}@HOST'."


def _second_key(queue: str, exchange: str | None, routing_key: str | None, options: dict[str, Any]) -> str:
    """Return why the queue is not bound as asked; empty if it is asked for as the topology has it.

    ``exchange_type`` does not count: Celery's API always sends ``direct``.
    """
    if (exchange or broker.EXCHANGE_NAME, routing_key or queue) == (broker.EXCHANGE_NAME, queue) and not options:
        return ""
    return (
        f"Refused: {queue} has one exchange ({broker.EXCHANGE_NAME}) and one routing key ({queue}), and a second one "
        f"would deliver tasks twice. Run add_consumer with the queue alone."
    )


def _no_count(**given: Any) -> str:
    """Return which argument is not a whole number of 1 or more, or of 0 as ``min``; empty if each is one."""
    for name, count in given.items():
        least = 0 if name == "min" else 1
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            return f"Refused: {name} is {count!r}; give a whole number of {least} or more."
    return ""


def _follows_wishes(state: Any) -> bool:
    """Whether what a command changes would be undone within seconds: the operators' wishes decide."""
    return getattr(state.consumer, "desired_state", None) is not None


def _wished_size(state: Any) -> str:
    """Return that the operators' wishes decide how large the pool is; empty where there are none."""
    if not _follows_wishes(state):
        return ""
    node = state.consumer.controller.hostname
    return f"Refused: run 'manage.py queues scale {node} N', which also lasts over a restart."


def _fixed_size(state: Any) -> str:
    """Return that the pool cannot grow; empty if it can."""
    if hasattr(state.consumer.pool, "grow"):
        return ""
    return "Refused: this worker's pool cannot grow. Restart the worker with a larger --concurrency."


def _beyond_container(state: Any, *wanted: int) -> str:
    """Return why a prefork pool does not get the largest of ``wanted`` processes; empty if it does.

    Threads and greenlets are no processes with a memory limit of their own: there the governor alone bounds memory.
    """
    rows = _rows(state)
    if not rows or not wanted or not isinstance(state.consumer.pool, TaskPool):
        return ""
    row = min(rows, key=children_held)
    held, count = children_held(row), max(wanted)
    if count <= held:
        return ""
    return (
        f"Refused: the container of {row.queue} holds {held} processes of {row.child_limit_kib // 1024} MiB, and "
        f"{count} were asked for. Raise {prefix(row.key)}CONTAINER_MEMORY_KIB and the machine's memory, or start "
        "another worker."
    )
