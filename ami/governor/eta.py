"""When the task of a message is due."""

from datetime import UTC, datetime
from typing import Any


def due_at(message: Any) -> float:
    """Return the task's ETA in epoch seconds; 0 without one, or with one that Celery will refuse."""
    eta = (message.headers or {}).get("eta")
    try:
        moment = datetime.fromisoformat(eta) if eta else None
    except (TypeError, ValueError):
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() if moment else 0.0
