"""Tells the product that a worker's run has ended for good, so that its leases need not run out."""

from collections.abc import Callable

from celery.utils.log import get_logger

logger = get_logger(__name__)

Listener = Callable[[str], None]

_listeners: list[Listener] = []


def connect(listener: Listener) -> None:
    """Have ``listener`` called with a worker's incarnation (`ami.celery.connection_names`), in a background thread."""
    _listeners.append(listener)


def worker_gone(incarnation: str) -> None:
    """Tell every listener; one that fails is logged, and does not keep the others from it."""
    for listener in _listeners:
        try:
            listener(incarnation)
        except Exception:
            logger.exception("Leases of a dead worker not released", extra={"worker": incarnation})
