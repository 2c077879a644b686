"""The function that Celery asks where a task goes."""

from typing import Any

from ami.topology.topology import Topology

#: The header that says who asked: ``beat``, ``person`` or ``task``. It survives retries, ``queue=`` does not.
ORIGIN_HEADER = "antenna_origin"


class TaskRouter:
    """An entry of ``CELERY_TASK_ROUTES``: decides by the task's name and by who asked, never by ``queue=``."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    # Celery passes args, kwargs and task, too; who asks is in the options.
    def __call__(
        self, name: str, _args: object = None, _kwargs: object = None, options: Any = None, **_: object
    ) -> dict[str, str]:
        """Return ``{"queue": name}``; a task that no rule claims goes to the fallback queue."""
        headers = (options or {}).get("headers") or {}
        return {"queue": self.topology.place(name, headers.get(ORIGIN_HEADER)).queue}
