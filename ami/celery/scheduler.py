"""Beat's scheduler: django-celery-beat's, with the origin ``beat`` on each message and a sign of life per tick."""

import os
from pathlib import Path
from typing import Any

from celery.utils.log import get_logger
from django_celery_beat.schedulers import DatabaseScheduler

from ami.celery.beat_variables import BeatVariables
from ami.celery.origin import BEAT
from ami.celery.watchdog import Watchdog
from ami.environment.reader import read
from ami.topology.router import ORIGIN_HEADER

logger = get_logger(__name__)


class Scheduler(DatabaseScheduler):
    """Sends each tick with the origin ``beat``, and touches a file after every tick.

    A beat that is alive but frozen (incident 17: 4.6 days) stops touching ``ANTENNA_BEAT_TICK_FILE``; the container's
    health check looks at that file's age. An unhealthy container is not restarted for that, so a watchdog ends a beat
    that has finished no tick for ``ANTENNA_BEAT_PATIENCE_SECONDS`` beyond its announced wait. Waiting for an
    unreachable broker does not count as frozen.
    """

    def __init__(self, *args: Any, lazy: bool = False, **kwargs: Any) -> None:
        self._variables = read(BeatVariables, os.environ)
        self._watchdog = Watchdog(self._variables.antenna_beat_patience_seconds)
        if not lazy:
            self._watchdog.start()
        super().__init__(*args, lazy=lazy, **kwargs)

    def apply_async(self, entry: Any, *args: Any, **kwargs: Any) -> Any:
        entry.options["headers"] = {**(entry.options.get("headers") or {}), ORIGIN_HEADER: BEAT}
        return super().apply_async(entry, *args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        seconds: float = super().tick(*args, **kwargs)
        if path := self._variables.antenna_beat_tick_file:
            Path(path).touch()
        self._watchdog.alive(seconds)
        return seconds

    def close(self) -> None:
        self._watchdog.stop()
        super().close()

    def _ensure_connected(self) -> Any:
        """Connect before the first publish, however long the broker is unreachable; each try is a sign of life."""

        def failed(error: Exception, seconds: float) -> None:
            logger.error("beat: Connection error: %s. Trying again in %s seconds...", error, seconds)
            self._watchdog.alive(seconds)

        return self.connection.ensure_connection(failed, self.app.conf.broker_connection_max_retries)
