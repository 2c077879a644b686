"""Who gets alerts: each receiver sends one notice, or raises `NotSent` with a reason that names no address."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ami.telemetry.alerts.options import EMAIL, WEBHOOK
from ami.telemetry.alerts.receivers import email, webhook
from ami.telemetry.alerts.receivers.errors import NotSent

__all__ = ["LONGEST_SECONDS", "NotSent", "send"]

Body = Mapping[str, Any]

#: For one notice, all in all: a server that answers byte by byte holds up the next look no longer.
LONGEST_SECONDS = 12.0

SENDERS: Mapping[str, Callable[[Body], None]] = {WEBHOOK: webhook.send, EMAIL: email.send}
_busy: dict[str, threading.Thread] = {}


def send(receiver: str, body: Body) -> None:
    """Send one notice.

    Raises:
        NotSent: it was not accepted, or not in time.
    """
    before = _busy.get(receiver)
    if before is not None and before.is_alive():
        raise NotSent("the try before has not ended")
    outcome: list[Exception | None] = []
    thread = threading.Thread(target=_send, args=(receiver, body, outcome), name=f"alert-{receiver}", daemon=True)
    _busy[receiver] = thread
    thread.start()
    thread.join(LONGEST_SECONDS)
    if not outcome:
        raise NotSent(f"no answer within {LONGEST_SECONDS:.0f} s")
    if isinstance(outcome[0], NotSent):
        raise outcome[0]
    if outcome[0] is not None:
        raise NotSent(type(outcome[0]).__name__) from outcome[0]


def _send(receiver: str, body: Body, outcome: list[Exception | None]) -> None:
    try:
        SENDERS[receiver](body)
        outcome.append(None)
    except Exception as error:  # The other thread reports it.
        outcome.append(error)
