"""The origin of a message, which decides its queue: beat, a person, or another task."""

from typing import Any

from ami.topology.router import ORIGIN_HEADER
from ami.topology.topology import Topology

BEAT, PERSON, TASK = "beat", "person", "task"


def of_request(request: Any) -> str:
    """Return the origin of the message of this Celery request; ``task`` when it has none."""
    return (getattr(request, "headers", None) or {}).get(ORIGIN_HEADER) or TASK


def of_publish(topology: Topology, task: str, parent: Any) -> str:
    """Return the origin of a message about to be published by ``parent`` (the running task, or None).

    A subtask keeps its publisher's origin only where its row says so: a person's run of a long export stays a
    person's through all its slices, while the results it leads to are ingest like any other.
    """
    if parent is not None and topology.home(task).inherits_origin:
        return of_request(parent.request)
    return TASK
