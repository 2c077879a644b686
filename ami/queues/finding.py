"""One thing that an operator should know about the deployment."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``level`` is error, warning, or unseen for what could not be looked at."""

    level: str
    name: str
    sentence: str
