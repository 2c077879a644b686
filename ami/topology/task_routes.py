"""A deployment's own ``CELERY_TASK_ROUTES``: dictionaries of rules on top of the table."""

from collections.abc import Mapping

from ami.topology.errors import TopologyError
from ami.topology.router import TaskRouter
from ami.topology.topology import ROUTES_SETTING

FORM = 'write {"task.name.or.*": {"queue": "name"}}'


def rules(setting: object) -> dict[str, str]:
    """Return the queue of each task name or glob: of one dictionary, or of a list of dictionaries and our own router.

    Raises:
        TopologyError: an entry is neither a dictionary nor our router, a value is not a queue, or two dictionaries send
            the same rule to different queues.
    """
    found: dict[str, str] = {}
    for entry in setting if isinstance(setting, list | tuple) else (setting,):
        if entry is None or isinstance(entry, TaskRouter):
            continue
        if not isinstance(entry, Mapping):
            raise TopologyError(
                f"{ROUTES_SETTING} holds an object of type {type(entry).__name__}, which is not a dictionary and "
                f"cannot be checked; {FORM}."
            )
        for rule, value in entry.items():
            queue = _queue(rule, value)
            if (other := found.setdefault(rule, queue)) != queue:
                raise TopologyError(
                    f"{ROUTES_SETTING} sends '{rule}' to '{other}' and to '{queue}'; remove one of the two."
                )
    return found


def _queue(rule: object, value: object) -> str:
    if not isinstance(rule, str):
        raise TopologyError(
            f"{ROUTES_SETTING} has a key of type {type(rule).__name__}, not a task name or glob; {FORM}."
        )
    options = {"queue": value} if isinstance(value, str) else value
    if not isinstance(options, Mapping) or not isinstance(options.get("queue"), str):
        raise TopologyError(f"{ROUTES_SETTING} sends '{rule}' to no queue; {FORM}.")
    if others := sorted(str(name) for name in options if name != "queue"):
        raise TopologyError(
            f"{ROUTES_SETTING} sets {', '.join(others)} for '{rule}', which the topology decides; keep only the queue."
        )
    return str(options["queue"])
