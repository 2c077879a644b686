"""The Celery application class: everything that is published passes through its ``send_task``."""

import math
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from amqp.exceptions import NotFound
from celery import Celery
from celery.exceptions import QueueNotFound
from celery.signals import before_task_publish
from celery.utils.functional import maybe_list
from kombu import Queue
from kombu.utils.objects import cached_property

from ami.celery import origin, publish_bounds, sensitive, staged_calls
from ami.celery.broker_kind import BrokerKind, kind_of
from ami.celery.producer import CONFIRM_TIMEOUT_SECONDS
from ami.environment.errors import did_you_mean
from ami.topology.router import ORIGIN_HEADER
from ami.topology.topology import Topology

#: Epoch seconds at which a message was published, or is due when it was published with a countdown.
PUBLISHED_HEADER = "antenna_published_at"
#: Names one publish: of a message that is buried, and of its copies.
PUBLISH_ID_HEADER = "antenna_publish_id"
#: Header of a dead letter that is published again: the key of its row, so that what becomes of it is found there.
LETTER_HEADER = "antenna_letter"


class AntennaCelery(Celery):
    """Celery with the origin on each message, retries routed again, and short countdowns sent at once."""

    builtin_fixups = frozenset({"ami.celery.django_fixup:fixup"})
    task_cls = "ami.celery.task:Task"
    amqp_cls = "ami.celery.producer:AntennaAMQP"
    events_cls = "ami.celery.events:Events"
    control_cls = "ami.celery.control:Control"

    #: What is called with the application once a worker is to start: other processes import none of it.
    worker_parts: tuple[Callable[[Any], None], ...] = ()

    #: The settings of the broker that is published to, and its kind.
    _known_kind: tuple[Any, BrokerKind] | None = None

    @cached_property
    def Worker(self) -> Any:  # noqa: N802 - Celery's name.
        """The class of what ``celery worker`` starts; the parts of a worker are installed first."""
        for install in self.worker_parts:
            install(self)
        return self.subclass_with_self("ami.celery.worker:Worker")

    @property
    def topology(self) -> Topology:
        """The topology that settings loaded."""
        from django.conf import settings

        topology: Topology = settings.ANTENNA_TOPOLOGY
        return topology

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Publish a task, or stage its call if it has a policy; see ``Celery.send_task``.

        Raises:
            celery.exceptions.QueueNotFound: ``queue=`` names a queue that no workload consumes.
            kombu.exceptions.OperationalError: the broker did not take the message.
        """
        task = self.tasks.get(name)
        if staged_calls.stages(task) or (task is not None and staged_calls.is_retry_of_run(options)):
            return self._stage(task, args, kwargs, options)
        options = self._completed(self._broker_kind(), name, options)
        options = sensitive.representations(self, name, args, kwargs) | options
        send = super().send_task
        return self._declaring_what_is_missing(lambda: send(name, args, kwargs, **_copied(options)))

    def _stage(self, task: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        if options.get("retries"):
            _forget_destination(options)
        self._refuse_unknown_queue(options.get("queue"))
        options = dict(options)
        seconds = publish_bounds.seconds_ahead(task.name, options)
        headers = dict(options.pop("headers", None) or {})
        headers.setdefault(ORIGIN_HEADER, origin.of_publish(self.topology, task.name, self.current_worker_task))
        due = time.time() + seconds if seconds > 0 else 0.0
        self._check_call(task.name, args, kwargs, {**options, "headers": headers})
        return staged_calls.call(self, task, args, kwargs, {**options, "headers": headers}, due)

    def _check_call(self, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> None:
        """Refuse a call that workers would bury when it is sent. Raises publish_bounds.MessageRefused."""
        publish_bounds.check_expires(name, options.get("expires"))
        links = {"callbacks": maybe_list(options.get("link")), "errbacks": maybe_list(options.get("link_error"))}
        named = {"argsrepr": "", "kwargsrepr": "", **options, "task_id": options.get("task_id") or uuid4().hex}
        self.amqp.as_task_v2(name=name, args=args, kwargs=kwargs, **named, **links)

    def _broker_kind(self) -> BrokerKind:
        # A connection that is only built costs a fifth of a publish, so it is built once for each setting.
        conf = self.conf
        setting = (conf.broker_write_url, conf.broker_transport)
        if self._known_kind is None or self._known_kind[0] != setting:
            self._known_kind = (setting, kind_of(self.connection_for_write()))
        return self._known_kind[1]

    def _completed(self, kind: BrokerKind, name: str, options: dict[str, Any]) -> dict[str, Any]:
        if options.get("retries") and not staged_calls.is_dispatching():
            _forget_destination(options)
        self._refuse_unknown_queue(options.get("queue"))
        publish_bounds.check_expires(name, options.get("expires"))
        due = _normalise_delay(kind, name, options)
        headers = dict(options.pop("headers", None) or {})
        if not staged_calls.is_dispatching():
            headers = staged_calls.without_own(headers)  # Those of the running task's message, handed on.
        headers.setdefault(ORIGIN_HEADER, origin.of_publish(self.topology, name, self.current_worker_task))
        if not (staged_calls.is_dispatching() and PUBLISHED_HEADER in headers):
            headers[PUBLISHED_HEADER] = due
        headers[PUBLISH_ID_HEADER] = uuid4().hex  # Not a retry's, which has the headers of the message before it.
        if kind.confirms:
            options.setdefault("confirm_timeout", CONFIRM_TIMEOUT_SECONDS)
        if kind.routes:
            # A publisher that declares the queue would bind it again after a rollback took its key.
            options["declare"] = options.get("declare") or []
        return {**options, "headers": headers}

    def _declaring_what_is_missing(self, send: Callable[[], Any]) -> Any:
        """Publish; on a broker that lacks the exchange (no worker has ever started) declare everything, once."""
        try:
            return send()
        except NotFound:
            self.declare_everything()
            return send()

    def declare_everything(self) -> None:
        """Declare the topology on the broker."""
        from ami.celery.declaration import declare

        with self.connection_for_write() as connection:
            declare(self.topology, connection)

    def _refuse_unknown_queue(self, queue: Any) -> None:
        if queue is None or isinstance(queue, Queue) or queue in self.amqp.queues:
            return
        known = self.topology.queues
        raise QueueNotFound(
            f"No workload consumes the queue '{queue}'.{did_you_mean(str(queue), known)} Known: {', '.join(known)}."
        )


def _copied(options: dict[str, Any]) -> dict[str, Any]:
    """Return options that Celery may change; a second try starts from the first ones."""
    return {**options, "headers": dict(options["headers"])}


def _forget_destination(options: dict[str, Any]) -> None:
    """Drop the last delivery's destination: a retry is routed again, by name and origin."""
    for name in ("queue", "exchange", "routing_key", "exchange_type", "redelivered"):
        options.pop(name, None)


def _normalise_delay(kind: BrokerKind, name: str, options: dict[str, Any]) -> float:
    """Make a countdown what the broker can carry and return when the task is due, in epoch seconds.

    Delay exchanges count whole seconds: anything else is rounded up so that no task starts early. Under a second
    is sent at once on every broker (kombu raises on it there).
    """
    countdown = publish_bounds.seconds_ahead(name, options)
    if countdown < 1:
        return time.time()
    options["countdown"] = math.ceil(countdown) if kind.delay_exchanges else countdown
    return time.time() + float(options["countdown"])


@before_task_publish.connect(dispatch_uid="antenna_no_message_ttl")
def _no_message_ttl(properties: dict[str, Any] | None = None, **_: Any) -> None:
    """Drop the message TTL that ``expires=`` sets: RabbitMQ would dead-letter a tick that merely came too late.

    The worker still reads ``expires`` from the headers and drops the task without running it.
    """
    if properties is not None:
        properties.pop("expiration", None)
