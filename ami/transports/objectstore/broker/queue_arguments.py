"""The arguments of a queue: which values are refused when it is declared."""

from collections.abc import Callable, Mapping
from typing import Any

from amqp.exceptions import PreconditionFailed

#: The most priorities that a queue may have, as on RabbitMQ.
MAX_PRIORITY = 255

#: The longest time to live that RabbitMQ takes, too: what fits into an unsigned number of 32 bits.
LONGEST_MILLISECONDS = 2**32 - 1

#: What a queue does with one message too many; reject-publish-dlx is not supported.
DROP_HEAD, REJECT_PUBLISH = "drop-head", "reject-publish"


def _is_number(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "x-message-ttl": (
        lambda value: _is_number(value) and value <= LONGEST_MILLISECONDS,
        f"milliseconds, 0 to {LONGEST_MILLISECONDS}",
    ),
    "x-expires": (lambda value: _is_number(value, 1), "milliseconds, 1 or more"),
    "x-max-length": (_is_number, "a number of messages, 0 or more"),
    "x-max-priority": (lambda value: _is_number(value) and value <= MAX_PRIORITY, f"from 0 to {MAX_PRIORITY}"),
    "x-delivery-limit": (lambda value: _is_number(value, -1), "a number of deliveries"),
    "x-overflow": (lambda value: value in (DROP_HEAD, REJECT_PUBLISH), f"{DROP_HEAD} or {REJECT_PUBLISH}"),
    "x-dead-letter-exchange": (lambda value: isinstance(value, str), "the name of an exchange"),
    "x-dead-letter-routing-key": (lambda value: isinstance(value, str), "a routing key"),
    "x-queue-type": (lambda value: value in ("classic", "quorum"), "classic or quorum"),
}

#: What changes which messages a consumer gets, and is not done here.
_UNSUPPORTED = ("x-max-length-bytes", "x-single-active-consumer")


def check_arguments(queue: str, arguments: Mapping[str, Any], *, ends_with_owner: bool) -> None:
    """Refuse what cannot be kept; ``ends_with_owner``: the queue is auto-delete or exclusive.

    Raises amqp's PreconditionFailed.
    """
    for name, value in arguments.items():
        fits, allowed = _RULES.get(name, (None, ""))
        if fits is not None and not fits(value):
            raise PreconditionFailed(f"invalid arg '{name}' for queue '{queue}': {value!r}; it must be {allowed}")
        if name in _UNSUPPORTED and value:
            raise PreconditionFailed(f"queue '{queue}': {name} is not supported by this broker")
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise PreconditionFailed(f"queue '{queue}' has an x-dead-letter-routing-key without an x-dead-letter-exchange")
    if "x-expires" in arguments and not ends_with_owner:
        raise PreconditionFailed(
            f"queue '{queue}': x-expires is supported for auto-delete and exclusive queues only, which end with their"
            " connection"
        )
