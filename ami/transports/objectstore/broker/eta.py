"""The moment until which a message waits: the ``eta`` that Celery writes into its headers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def eta_of(headers: Mapping[str, Any]) -> float | None:
    """Return the ETA in epoch seconds, None where there is none.

    One without a time zone is None, too: only a worker knows its application's zone, and holds the task until then.
    """
    eta = headers.get("eta")
    try:
        moment = datetime.fromisoformat(eta) if isinstance(eta, str) else None
        return None if moment is None or moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None
