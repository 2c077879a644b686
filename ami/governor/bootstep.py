"""Wires the governor into a Celery worker: before its pool exists, after each connect, and to its timer."""

from collections.abc import Callable
from typing import Any

from celery import bootsteps
from celery.signals import worker_init
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.consumer import Tasks

from ami.governor.announcer import ignore_event
from ami.governor.governor import Governor
from ami.governor.plan import Options, Plan
from ami.governor.pool_adapters import adapter_for

logger = get_logger(__name__)

#: The first timed check of a new connection runs in its loop; whether to hold was decided before.
FIRST_CHECK_SECONDS = 0.1

NO_AUTOSCALING = (
    "--autoscale has no effect under the governor with this pool and broker: the worker runs %d tasks at once. It "
    "needs the prefork pool and a broker with an event loop (RabbitMQ, Redis, a folder or a bucket)"
)


class GovernorStep(bootsteps.StartStopStep):
    """Runs after ``Tasks`` has created the consumer, and before the loop consumes."""

    requires = (Tasks,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        self.plan: Plan = consumer.controller.governor_plan
        self.enabled = self.plan.settings.memory_governor != "off"
        self.governor: Governor | None = None
        self._connection = 0
        if self.plan.settings.acts:
            # Before Tasks starts, when Celery's strategies keep a reference to it.
            consumer.apply_eta_task = _StartOrRequeue(consumer)
        super().__init__(consumer, **options)

    def start(self, consumer: Any) -> None:
        """Attach to the new connection's consumer; a hold stays in force."""
        if self.governor is None:
            self.governor = self._governor(consumer)
        events = consumer.event_dispatcher
        event = events.send if events and events.enabled else ignore_event
        if consumer.qos_global:
            # A limit of the whole channel, as classic queues have it, would also count tasks that wait for their ETA.
            consumer.task_consumer.channel.basic_qos(0, 0, True)
        self.governor.pool.before_loop()
        self.governor.attach(consumer.task_consumer, consumer.call_soon, event)
        self._connection += 1
        # Later: Celery's loop cannot register a pool while its children are being replaced.
        self.governor.pool.call_later(FIRST_CHECK_SECONDS, self._check, consumer, self._connection)

    def stop(self, _: Any) -> None:
        """Detach from a lost connection."""
        self._connection += 1
        if self.governor is not None:
            self.governor.detach()

    def info(self, _: Any) -> dict[str, Any]:
        """What ``celery -A config inspect stats`` shows."""
        return {"governor": self.governor.info() if self.governor else None, "starts": self.plan.starts()}

    def _governor(self, consumer: Any) -> Governor:
        plan, call_later = self.plan, later(consumer)

        multiplier = max(1, int(consumer.prefetch_multiplier))
        adapter = adapter_for(consumer.pool, plan.settings, multiplier, call_later, plan.soft_kib, plan.hard_kib)
        adapter.autoscaler = consumer.controller.autoscaler
        if adapter.autoscaler is not None and not adapter.has_children:
            logger.warning(NO_AUTOSCALING, adapter.places)
        return Governor(plan.settings, adapter, plan.run_log, plan.paused)

    def _check(self, consumer: Any, connection: int) -> None:
        if connection != self._connection or self.governor is None:
            return
        seconds = self.plan.settings.memory_check_interval
        try:
            seconds = self._guarded(self.governor.observe) or seconds
            self.governor.adjust()  # Unguarded: Celery's loop handles the errors of the broker's connection.
            self._guarded(self.governor.act)
        finally:
            # Also after an error: the loop without a hub logs a callback's connection error and continues.
            self.governor.pool.call_later(seconds, self._check, consumer, connection)

    def _guarded(self, step: Callable[[], Any]) -> Any:
        """Log an error instead of raising it: the last decision stays in force, and tasks continue."""
        try:
            return step()
        except Exception:
            logger.exception("Governor check failed; retrying in %g s", self.plan.settings.memory_check_interval)
            return None


def later(consumer: Any) -> Callable[..., Any]:
    """Return what calls a function on the loop's thread after some seconds."""

    def call_later(seconds: float, function: Callable[..., Any], *args: Any) -> Any:
        if consumer.hub:
            return consumer.timer.call_after(seconds, function, args)
        # Here the timer has its own thread; its calls must run on the loop's thread.
        return consumer.timer.call_after(seconds, consumer.call_soon, (function, *args))

    return call_later


def add_to(app: Any, options: Options) -> None:
    """Add the governor to every worker of ``app``; installed again it has the options of the last time."""
    uid = f"governor.plan.{id(app)}"

    def plan(sender: Any = None, **_: Any) -> None:
        if sender.app is app:
            sender.governor_plan = Plan(sender, options)

    worker_init.disconnect(dispatch_uid=uid)  # Celery would keep the listener that it has.
    worker_init.connect(plan, weak=False, dispatch_uid=uid)
    app.steps["consumer"].add(GovernorStep)


class _StartOrRequeue:
    """Starts a task that is due, or requeues its message when no slot is free."""

    def __init__(self, consumer: Any) -> None:
        self._consumer, self._start = consumer, consumer.apply_eta_task

    def __call__(self, request: Any) -> None:
        if self._consumer.hub:
            self._decide(request)
        else:  # This is the timer's thread.
            self._consumer.call_soon(self._decide, request)

    def _decide(self, request: Any) -> None:
        tasks = self._consumer.task_consumer
        if tasks.over_capacity:
            tasks.adjust()  # On RabbitMQ an idle slot may close for it.
        if not tasks.over_capacity and not tasks.came_from_closed(request.message):
            self._start(request)
            return
        request.reject(requeue=True)
        state.task_ready(request)
        self._consumer.qos.decrement_eventually()
