"""One finding about the running deployment."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``level`` is error, warning, or unseen for what could not be checked."""

    level: str
    name: str
    sentence: str
