"""The moment until which a message waits: the ``eta`` that Celery writes into its headers."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

#: Why a message was buried. A dead letter does not wait; a replay drops this header, and the ETA counts again.
REASON_HEADER = "antenna_reason"

#: A message that is due later is delivered at once, so that its consumer refuses it. RabbitMQ's delays are no longer.
LONGEST_SECONDS = 9 * 366 * 86_400.0


def eta_of(headers: Any) -> float | None:
    """Return the ETA in epoch seconds, None where there is none that the broker waits for.

    One without a time zone is None, too: only a worker knows its application's zone, and holds the task until then.
    """
    if not isinstance(headers, Mapping) or REASON_HEADER in headers:
        return None
    eta = headers.get("eta")
    try:
        moment = datetime.fromisoformat(eta) if isinstance(eta, str) else None
        if moment is None or moment.tzinfo is None:
            return None
        due = moment.timestamp()
        return due if due < time.time() + LONGEST_SECONDS else None
    except (ValueError, OverflowError):
        return None
