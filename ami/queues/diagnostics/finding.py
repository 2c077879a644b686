"""One finding about the running deployment."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``level`` is error, warning, or unseen for what could not be checked.

    ``target`` is what it is about: a queue, a worker, a task, a server; empty for the deployment. Name and target are
    the same as long as it lasts, the sentence changes.
    """

    level: str
    name: str
    sentence: str
    target: str = ""
