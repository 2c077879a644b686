"""System checks: what `manage.py check` says about tasks, queues and the schedule."""

from collections.abc import Iterator
from typing import Any

from celery import current_app
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as CheckWarning
from kombu.exceptions import OperationalError

from ami.celery import priority
from ami.celery.time_limits import TimeLimits, in_proportion
from ami.environment.errors import did_you_mean
from ami.queues.schedule import declared
from ami.queues.tasks import registered
from ami.topology.errors import TopologyError
from ami.topology.topology import ROUTES_SETTING, Topology
from ami.topology.workload import CONSUMER_TIMEOUT_SECONDS, Workload

#: Tasks of Celery's own that the table may route; the others run where they are sent.
CELERYS_OWN = ("celery.backend_cleanup",)

#: How long a check waits for the broker; only where a task declares a priority.
CONNECT_SECONDS = 2


@register("queues")
def check_tasks(**_: Any) -> list[CheckMessage]:
    """Check every registered task against the topology."""
    topology: Topology = settings.ANTENNA_TOPOLOGY
    return [message for name in registered() for message in _check_task(topology, name)]


def _check_task(topology: Topology, name: str) -> Iterator[CheckMessage]:
    task = current_app.tasks[name]
    try:
        place = topology.place(name)
    except TopologyError as error:
        yield Error(str(error), id="queues.E001")
        return
    if not place.routed and name not in settings.ANTENNA_FALLBACK_TASKS:
        yield CheckWarning(
            f"{name} is routed by no rule and runs on '{place.queue}'.",
            hint=f"Add it to a row of ami/topology/table.py or to {ROUTES_SETTING}; if it belongs there, to "
            "ANTENNA_FALLBACK_TASKS.",
            id="queues.W002",
        )
    queue = getattr(task, "queue", None)
    if queue and queue not in topology.queues:
        yield Error(
            f"{name} is routed to '{queue}', which no workload consumes.{did_you_mean(queue, topology.queues)}",
            id="queues.E003",
        )
    yield from _check_limits(task, topology.workload(place.queue))


def _check_limits(task: Any, workload: Workload) -> Iterator[CheckMessage]:
    name, own = task.name, TimeLimits(task.soft_time_limit, task.time_limit)
    if own.hard and own.soft and own.hard <= own.soft:
        yield Error(
            f"{name} has a hard time limit of {own.hard} s, not above its soft one of {own.soft} s; "
            "Celery would look at the hard one only after the soft one. Set soft_time_limit below it.",
            id="queues.E007",
        )
    base = TimeLimits(workload.soft_time_limit_seconds, workload.hard_time_limit_seconds)
    hard = in_proportion(own, base).hard or 0
    if any(own) and hard + 60 > CONSUMER_TIMEOUT_SECONDS:
        yield Error(
            f"{name} has a hard time limit of {hard:g} s; RabbitMQ takes a message back after "
            f"{CONSUMER_TIMEOUT_SECONDS} s. Work in slices (ami.queues.slices).",
            id="queues.E004",
        )


@register("queues")
def check_rules(**_: Any) -> list[CheckMessage]:
    """Check that every exact name in the table, or in the deployment's own routes, is a task that exists."""
    topology: Topology = settings.ANTENNA_TOPOLOGY
    names = [*registered(), *CELERYS_OWN]
    rules = [(row.queue, rule, "ami/topology/table.py") for row in topology.workloads for rule in row.tasks]
    rules += [(ROUTES_SETTING, rule, "the settings") for rule in topology.routes]
    return [
        CheckWarning(
            f"{source} names the task '{rule}', which is not registered.{did_you_mean(rule, names)}",
            hint=f"Correct or remove it in {where}.",
            id="queues.W005",
        )
        for source, rule, where in rules
        if "*" not in rule and rule not in names
    ]


@register("queues")
def check_schedule(**_: Any) -> list[CheckMessage]:
    """Check that beat sends only tasks that exist."""
    names = registered()
    return [
        Error(
            f"The schedule names the task '{scheduled.task}', which is not registered."
            f"{did_you_mean(scheduled.task, names)}",
            id="queues.E006",
        )
        for scheduled in declared()
        if scheduled.task not in names
    ]


@register("queues")
def check_priorities(**_: Any) -> list[CheckMessage]:
    """Check that the broker has priorities, if a task declares one."""
    names = [name for name in registered() if current_app.tasks[name].priority]
    why = _why_ignored() if names else ""
    return [
        CheckWarning(
            f"{name} declares the priority {current_app.tasks[name].priority}, and {why}.",
            hint="Upgrade the broker, or give urgent tasks a queue of their own: a row of ami/topology/table.py.",
            id="queues.W008",
        )
        for name in names
        if why
    ]


def _why_ignored() -> str:
    """Return why the broker ignores priorities; empty if it does not, or cannot be reached to tell."""
    with current_app.connection_for_write() as connection:
        try:
            connection.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS)
            return priority.why_ignored(connection)
        except (OperationalError, *connection.connection_errors, *connection.channel_errors):
            return ""
