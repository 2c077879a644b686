"""The Celery task router."""

from typing import Any

from ami.topology.topology import Topology

#: The header with the publisher's kind: ``beat``, ``person`` or ``task``. It survives retries, ``queue=`` does not.
ORIGIN_HEADER = "antenna_origin"


class TaskRouter:
    """An entry of ``CELERY_TASK_ROUTES``: routes by the task's name and its origin, never by ``queue=``."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    # Celery also passes args, kwargs and task; the origin is in the options.
    def __call__(
        self, name: str, _args: object = None, _kwargs: object = None, options: Any = None, **_: object
    ) -> dict[str, str]:
        """Return ``{"queue": name}``; a task that no rule claims goes to the fallback queue."""
        headers = (options or {}).get("headers") or {}
        return {"queue": self.topology.place(name, headers.get(ORIGIN_HEADER)).queue}
