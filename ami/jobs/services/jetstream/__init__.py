"""The work queue of pull jobs on NATS JetStream: synchronous functions with deadlines.

Its modules, and with them the NATS client, are imported when one of these is first used.
"""

from typing import TYPE_CHECKING, Any

from ami.environment.deferred import deferred

if TYPE_CHECKING:
    from ami.jobs.services.jetstream.advisories import Exhausted, exhausted_images
    from ami.jobs.services.jetstream.connection import close
    from ami.jobs.services.jetstream.messages import Delivery, acknowledge, fetch, image_of_reply, in_progress
    from ami.jobs.services.jetstream.publisher import publish
    from ami.jobs.services.jetstream.streams import (
        StreamState,
        consumer_state,
        consumer_states,
        create_stream,
        delete_job,
        job_streams,
        recreate_stream,
    )

__all__ = [
    "Delivery",
    "Exhausted",
    "StreamState",
    "acknowledge",
    "close",
    "consumer_state",
    "consumer_states",
    "create_stream",
    "delete_job",
    "exhausted_images",
    "fetch",
    "image_of_reply",
    "in_progress",
    "job_streams",
    "publish",
    "recreate_stream",
]

_modules = [deferred(f"{__name__}.{name}") for name in ("advisories", "connection", "messages", "publisher", "streams")]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return next(getattr(module, name) for module in _modules if hasattr(module, name))
