"""The priority of a message, as far as the broker has one: on RabbitMQ normal or high, as in its quorum queues.

Those have two levels since RabbitMQ 4.0: above 4 is high, and two high messages are delivered for each normal one
(https://www.rabbitmq.com/docs/quorum-queues#priorities). Before, they ignore it.
"""

import re
from collections.abc import Mapping
from typing import Any

from celery.utils.log import get_logger
from kombu import Connection

from ami.celery.broker_kind import kind_of

logger = get_logger(__name__)

NORMAL, HIGH = 0, 5

#: The first RabbitMQ whose quorum queues have priorities.
SINCE = 4

_warned: set[str] = set()


def level(connection: Connection, priority: Any) -> int:
    """Return the priority to send: as given where the broker has many, ``NORMAL`` or ``HIGH`` where it has two.

    None, or a broker that has none, is normal: on Redis a number would come after all messages without one.

    Raises:
        ValueError: it is not a whole number of at least 0.
    """
    given = NORMAL if priority is None else _number(priority)
    levels = kind_of(connection).priority_levels
    if levels > 2:
        return given
    return HIGH if levels and given >= HIGH else NORMAL


def _number(priority: Any) -> int:
    try:
        number = int(priority)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ValueError(
            f"priority is {priority!r}; it must be a number from 0 (normal) to 9, and 5 and more are high."
        )
    return number


def why_ignored(connection: Connection) -> str:
    """Return why the broker of this connection ignores priorities, in one clause; empty if it does not.

    It must be connected where RabbitMQ is the broker.
    """
    kind = kind_of(connection)
    if not kind.priority_levels:
        return f"{connection.transport.driver_type} as a broker has no priorities here"
    version = _version(connection.connection.server_properties) if kind.is_managed else ""
    if version and int(version.partition(".")[0]) < SINCE:
        return f"the quorum queues of RabbitMQ {version} have no priorities (they have since {SINCE}.0)"
    return ""


def _version(properties: Mapping[str, Any]) -> str:
    """Return a RabbitMQ's version from what it says of itself when a client connects; empty if it is something else."""
    if properties.get("product") != "RabbitMQ":
        return ""
    found = re.match(r"\d+(\.\d+)*", str(properties.get("version")))
    return found[0] if found else ""


def warn_once(why: str, task: str | None) -> None:
    """Log that a call's priority is ignored, the first time in this process; ``task`` is the call's."""
    if why not in _warned:
        _warned.add(why)
        logger.warning("Priority ignored: %s", why, extra={"task": task})
