"""Looks for what is wrong every 15 s while this process holds the sampler's lease, and sends what lasts.

A look asks every worker and takes seconds: it runs in a thread of its own, so that samples are taken meanwhile.
"""

import threading
import time
from typing import TYPE_CHECKING

from celery.utils.log import get_logger
from django.conf import settings
from django.db import Error, connections

from ami.celery import outages, storable
from ami.celery.thread_database import beside_forks, database_block
from ami.environment.deferred import deferred
from ami.telemetry.alerts import options, policy, rules, store
from ami.telemetry.alerts.policy import Seen
from ami.telemetry.alerts.store import Memory

if TYPE_CHECKING:
    from ami.telemetry import findings
    from ami.telemetry.alerts import delivery
else:  # Few processes ever look.
    findings, delivery = deferred("ami.telemetry.findings"), deferred("ami.telemetry.alerts.delivery")

logger = get_logger(__name__)

#: A process that has not turned for so long may have been frozen, and another one may have the lease since.
GAP_SECONDS = 20.0
CLEAN_SECONDS = 3600.0


class Evaluator:
    """One per process, turned by the sampler's thread; what it remembers belongs to one hold of the lease."""

    def __init__(self) -> None:
        self._next = self._cleaned_at = 0.0
        self._turned_at = float("-inf")
        self._memory: Memory | None = None
        self._thread: threading.Thread | None = None

    def turn(self, holder: str) -> None:
        """Begin a look if it is time and the one before has ended; called every second by who holds the lease."""
        if not options.receivers():
            return
        now = time.monotonic()
        if now - self._turned_at > GAP_SECONDS:
            self.forget()
        self._turned_at = now
        if now < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = now + settings.ANTENNA_ALERT_INTERVAL_SECONDS
        self._thread = threading.Thread(target=self._run, args=(holder,), name="alerts", daemon=True)
        self._thread.start()

    def forget(self) -> None:
        """Read everything again: the lease was lost, or may have been."""
        self._memory = None

    def _run(self, holder: str) -> None:
        try:
            with beside_forks():
                self.look(holder)
        except Error as error:
            self.forget()
            outages.complain("Alerts not evaluated", error)
        except Exception:
            self.forget()
            logger.exception("Alerts not evaluated; trying again")
        finally:
            connections.close_all()  # This thread's.

    def look(self, holder: str) -> None:
        """Look once, write what it changes, and send what waits.

        Raises:
            django.db.Error: the database did not answer.
        """
        memory = self._memory
        if memory is None:
            with database_block():
                memory = self._memory = store.load(holder)
        if memory is None:
            return
        now, names = memory.now(), options.receivers()
        found = findings.for_alerts(settings.ANTENNA_ALERT_INTERVAL_SECONDS)
        hidden = rules.hidden((each.name, each.level, each.target) for each in found)
        lasting = policy.seen(
            (
                Seen(each.name, storable.text(each.target), each.level, storable.text(each.sentence, None))
                for each in found
            ),
            collects_letters=settings.ANTENNA_COLLECT_LETTERS,
        )

        def decide(alerts: dict[policy.Key, policy.Alert]) -> list[policy.Change]:
            return list(policy.changes(alerts, lasting, hidden, now, options.patience()))

        if decide(memory.alerts):
            with database_block():
                alerts = store.apply(holder, names, now, decide)
            if alerts is None:
                self.forget()
                return
            memory.alerts, memory.has_unsent = alerts, True
        if memory.has_unsent:
            delivery.turn(memory, names)
        self._clean()

    def _clean(self) -> None:
        if time.monotonic() - self._cleaned_at >= CLEAN_SECONDS:
            self._cleaned_at = time.monotonic()
            with database_block():
                store.forget_old()
