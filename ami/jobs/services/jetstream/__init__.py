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

_MODULES = {
    "advisories": ("Exhausted", "exhausted_images"),
    "connection": ("close",),
    "messages": ("Delivery", "acknowledge", "fetch", "image_of_reply", "in_progress"),
    "publisher": ("publish",),
    "streams": (
        "StreamState",
        "consumer_state",
        "consumer_states",
        "create_stream",
        "delete_job",
        "job_streams",
        "recreate_stream",
    ),
}
_deferred = {module: deferred(f"{__name__}.{module}") for module in _MODULES}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_deferred[_PLACES[name]], name)
