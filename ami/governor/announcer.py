"""Logs each change of the gate and sends it as a worker event."""

from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from ami.governor.monitor import Monitor
from ami.governor.pool_adapters import PoolAdapter
from ami.governor.settings import GovernorSettings

logger = get_logger(__name__)

#: How often to check again whether every delivered task has started, before a hold is announced.
SETTLE_SECONDS = 0.02


def ignore_event(*_: Any, **__: Any) -> None:
    """Send nothing: the worker sends no events."""


class ChangeAnnouncer:
    """Announces a hold only after every delivered task has started: after the log line no task starts."""

    def __init__(self, settings: GovernorSettings, pool: PoolAdapter, monitor: Monitor) -> None:
        self._settings, self._pool, self._monitor = settings, pool, monitor
        self.event: Callable[..., Any] = ignore_event

    def announce(self) -> None:
        """Log the change that the monitor has noted, if any."""
        monitor, gate, acts = self._monitor, self._monitor.gate, self._settings.acts
        if not monitor.change:
            return
        if gate.held and acts and self._pool.unstarted:
            self._pool.call_later(SETTLE_SECONDS, self.announce)
            return
        level = logger.warning if gate.held else logger.info
        level("%s%s", "" if acts else "[dry-run] ", monitor.change, extra={"causes": sorted(gate.causes)})
        monitor.change = None
        self.event("worker-governor", held=gate.held, reasons=list(gate.reasons), dry_run=not acts)
