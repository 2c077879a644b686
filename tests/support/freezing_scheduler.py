"""A beat that freezes: alive as a process, and never done with its third tick."""

import threading
from typing import Any

from ami.celery.scheduler import Scheduler


class FreezingScheduler(Scheduler):
    """Ticks twice, then never again."""

    ticks = 0

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Tick, and freeze at the third."""
        self.ticks += 1
        if self.ticks > 2:
            threading.Event().wait()
        return min(super().tick(*args, **kwargs), 0.5)
