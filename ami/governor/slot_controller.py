"""Decides how many slots a worker's consumer has, and rejects poison tasks before they start."""

from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from ami.governor.monitor import Monitor
from ami.governor.poison_tasks import PoisonTaskDetector
from ami.governor.pool_adapters import PoolAdapter
from ami.governor.reservation import Reservation
from ami.governor.settings import GovernorSettings
from ami.governor.slot_consumer import SlotConsumer

logger = get_logger(__name__)


class SlotController:
    """Applies the gate, the suspects and the reservation to the consumer of the current connection.

    ``check_between_tasks`` is called before the next task of a solo worker, whose loop stands still during a task.
    """

    def __init__(
        self,
        settings: GovernorSettings,
        pool: PoolAdapter,
        monitor: Monitor,
        poison: PoisonTaskDetector,
        reservation: Reservation,
    ) -> None:
        self._settings, self._pool, self._monitor = settings, pool, monitor
        self._poison, self._reservation = poison, reservation
        self.check_between_tasks: Callable[[], Any] = lambda: None
        self.redelivered = self.buried = 0
        self._consumer: SlotConsumer | None = None

    @property
    def open(self) -> int:
        """The slots of the current consumer; 0 while disconnected."""
        return self._consumer.slots if self._consumer else 0

    @property
    def allowed(self) -> int:
        """How many messages this worker may have now."""
        gate, places = self._monitor.gate, self._pool.places + self._pool.growth
        if not self._settings.acts:
            return places
        if gate.held and not gate.admit_one:
            return 0
        if gate.admit_one or self._poison.open:
            # Suspects run one at a time: a second crash then identifies the task.
            places = min(places, 1)
        if self._settings.memory_reservation == "on":
            places = min(places, self._reservation.slots)
        return places

    def attach(self, consumer: SlotConsumer, call_soon: Callable[..., Any]) -> None:
        """Manage the consumer of a new connection."""
        self._consumer = consumer

        def settled(delivery_tag: Any) -> None:
            if consumer is self._consumer:  # Not what a lost connection had delivered.
                self._on_settled(delivery_tag)

        consumer.manage(self._pool.multiplier, call_soon, settled, self._refuses)
        consumer.slots = self.allowed

    def detach(self) -> None:
        """Forget the consumer."""
        self._consumer = None

    def update(self) -> None:
        """Set the number of slots; it takes effect as messages are settled, or with ``adjust``."""
        if self._consumer is not None:
            self._consumer.slots = self.allowed

    def adjust(self) -> None:
        """Open or close slots now. Raises what the broker's connection raises."""
        if self._consumer is not None:
            self._consumer.adjust()

    def pool_changed(self) -> None:
        """Follow a change in the number of the pool's places."""
        self.update()
        if self._consumer is not None:
            self._consumer.adjust_soon()

    def _on_settled(self, delivery_tag: Any) -> None:
        """Update the slots before a message is settled and the broker sends the next one."""
        if self._poison.task_ended(delivery_tag):
            self.pool_changed()
        if self._pool.has_cooldown:
            self._pool.settled()
            self.update()
        if self._pool.checks_between_tasks and self._monitor.is_due:
            self._check_between_tasks()
        if self._monitor.gate.held and self._settings.acts and self._consumer is not None:
            self._consumer.slots = 0  # Also after the one task that was let through.

    def _check_between_tasks(self) -> None:
        """Check before the next task; a failure must not keep this task's message from being settled."""
        try:
            self.check_between_tasks()
        except Exception:
            logger.exception("Governor check failed; retrying after the next task")

    def _refuses(self, message: Any) -> bool:
        """Count redeliveries; reject a task that crashed this worker twice and return True for it."""
        if message.delivery_info.get("redelivered"):
            self.redelivered += 1
        rejected = self._consumer is not None and self._poison.reject_poison(message, self._consumer.give_up)
        self.buried += rejected
        return rejected
