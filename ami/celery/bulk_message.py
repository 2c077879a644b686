"""Builds the message of one signature of many: the one that its ``apply_async`` would publish, for less work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery import Celery, Signature, signals
from celery.utils import uuid
from celery.utils.nodenames import anon_nodename
from celery.utils.saferepr import saferepr
from celery.utils.time import subtract_datetimes
from kombu import Producer
from kombu.common import Broadcast
from kombu.exceptions import OperationalError

from ami import celery_internals
from ami.celery import sensitive, staged_calls
from ami.celery.replaced_calls import options_completer, publishes_as_celery

#: The options of a signature whose message is built here. With any other one its own `apply_async` publishes it.
OPTIONS = frozenset(
    {
        "compression",
        "delivery_mode",
        "exchange",
        "expires",
        "headers",
        "ignore_result",
        "parent_id",
        "priority",
        "queue",
        "retries",
        "root_id",
        "routing_key",
        "serializer",
        "shadow",
        "soft_time_limit",
        "task_id",
        "time_limit",
    }
)

#: The options of a message after its route. With any other one, too, the task's own `apply_async` publishes it.
_SENT = frozenset(
    {"compression", "declare", "delivery_mode", "exchange", "exchange_type", "headers", "immediate", "mandatory"}
    | {"priority", "queue", "routing_key", "serializer"}
)


@dataclass(slots=True)
class BulkMessage:
    """A message that was built and not yet sent. ``arguments`` are those of kombu's ``Producer._publish``.

    They are the same objects in every try, so that a broker that knows a message by an id in its properties stores it
    once. ``declare`` has the entities that must be there before. ``has_result`` says that the result backend records it
    before. Once the broker has the message, ``announce`` sends Celery's signals, and ``event`` is published where it
    has fields; ``size_bytes`` is that of its body.
    """

    signature: Signature
    task_id: str
    arguments: tuple[Any, ...] = ()
    declare: tuple[Any, ...] = ()
    has_result: bool = False
    announce: Callable[[], None] = lambda: None
    event: dict[str, Any] | None = None
    size_bytes: int = 0


class _Collector(Producer):
    """A producer that serializes and keeps what it is given."""

    collected: tuple[Any, ...] = ()

    def _publish(self, *arguments: Any) -> None:
        self.collected = arguments


class MessageBuilder:
    """Builds messages for one caller: settings and the running task are read once.

    ``connection`` says which broker they are for and is not opened. None of a pool is held: signals and generators may
    publish by themselves.
    """

    def __init__(self, app: Celery, connection: Any) -> None:
        self._app = app
        self._amqp, conf = app.amqp, app.conf
        self._parent = app.current_worker_task
        self._collector = _Collector(connection)
        self._node, self._oid = anon_nodename(), app.thread_oid
        self._levels = conf.task_repr_maxlevels
        self._inherits_priority = conf.task_inherit_parent_priority
        self._sends_event = conf.task_send_sent_event
        self._delivery_mode = conf.task_default_delivery_mode
        self._exchange, self._key = self._amqp.default_exchange, conf.task_default_routing_key
        self._serializer, self._compression = conf.task_serializer, conf.task_compression
        self._policy = conf.task_publish_retry_policy
        self._own = options_completer(app, connection)
        self._is_plain = self._own is not None and not conf.task_always_eager and conf.task_protocol == 2

    def build(self, signature: Signature) -> BulkMessage | None:
        """Return the message of a signature; None where its own ``apply_async`` has to publish it.

        That is canvas, a delay, callbacks, stamps, a call that is to be a row, a route with unusual options, a task of
        another application, and eager mode; and whatever publishes by code that is not Celery's.

        Raises what ``apply_async`` raises before it publishes.
        """
        task = self._task(signature)
        if task is None:
            return None
        args, kwargs = signature.args, signature.kwargs
        if task.soft_time_limit and task.time_limit and task.soft_time_limit > task.time_limit:
            raise ValueError("soft_time_limit must be less than or equal to time_limit")
        if task.typing and hasattr(task, "__header__"):
            task.__header__(*args, **kwargs)
        options = {**celery_internals.execution_options(task), **signature.options}
        seconds = self._seconds_left(options.get("expires"))
        if seconds is not None and seconds < 0:
            return None
        message = BulkMessage(signature, options.pop("task_id", None) or uuid())
        options.setdefault("ignore_result", task.ignore_result)
        shadow = options.pop("shadow", None) or task.shadow_name(args, kwargs, options)
        assert self._own is not None
        options = self._own(task.name, options)
        return message if self._fill(message, task, shadow, options, seconds) else None

    def _task(self, signature: Signature) -> Any:
        if not self._is_plain or type(signature) is not Signature or signature.get("subtask_type"):
            return None
        if not OPTIONS.issuperset(signature.options):
            return None
        task = self._app.tasks.get(signature.task)
        is_plain = task is not None and not staged_calls.stages(task) and publishes_as_celery(task)
        return task if is_plain and not celery_internals.dumps_models(task) else None

    def _seconds_left(self, expires: Any) -> float | None:
        if expires is None or isinstance(expires, (int, float)):
            return expires
        moment = datetime.fromisoformat(expires) if isinstance(expires, str) else expires
        seconds: float = subtract_datetimes(moment, self._app.now()).total_seconds()
        return seconds

    def _fill(self, message: BulkMessage, task: Any, shadow: Any, options: dict[str, Any], seconds: Any) -> bool:
        """Do what ``Celery.send_task`` does, up to the producer; return False where its route forbids that."""
        args, kwargs = message.signature.args, message.signature.kwargs
        limits = options.pop("time_limit", None), options.pop("soft_time_limit", None)
        expires, ignored = options.pop("expires", None), options.pop("ignore_result")
        retries = options.pop("retries", 0)
        lineage = options.pop("root_id", None), options.pop("parent_id", None)
        options.pop("confirm_timeout", None)  # Our application's; a batch has its own.
        options = self._amqp.router.route(options, task.name, args, kwargs, task)
        if not _SENT.issuperset(options):
            return False
        if expires is not None:
            options["expiration"] = seconds
        root, parent = self._lineage(*lineage, options)
        headers, properties, body, event = self._amqp.as_task_v2(
            message.task_id,
            task.name,
            args,
            kwargs,
            expires=expires,
            retries=retries,
            reply_to=self._oid,
            time_limit=limits[0],
            soft_time_limit=limits[1],
            create_sent_event=self._sends_event,
            root_id=root,
            parent_id=parent,
            shadow=shadow,
            origin=self._node,
            ignore_result=ignored,
            **self._representations(task.name, args, kwargs),
        )
        sent = self._collect(message, task.name, headers, properties, body, options)
        message.has_result = not ignored
        queue = sent.pop("queue")
        message.announce = self._announcement(task, message.task_id, ignored, body, sent)
        if event:
            exchange = getattr(sent["exchange"], "name", sent["exchange"])
            where = {"queue": queue and queue.name, "exchange": exchange, "routing_key": sent["routing_key"]}
            message.event = {**event, **where}
        return True

    def _representations(self, name: str, args: Any, kwargs: Any) -> dict[str, str]:
        return sensitive.representations(self._app, name, args, kwargs) or {
            "argsrepr": saferepr(args, self._amqp.argsrepr_maxsize, maxlevels=self._levels) if args else "()",
            "kwargsrepr": saferepr(kwargs or {}, self._amqp.kwargsrepr_maxsize, maxlevels=self._levels),
        }

    def _lineage(self, root: Any, parent_id: Any, options: dict[str, Any]) -> tuple[Any, Any]:
        if self._parent is not None and not (root and parent_id):
            request = self._parent.request
            root, parent_id = root or request.root_id or request.id, parent_id or request.id
            if self._inherits_priority:
                options.setdefault("priority", request.delivery_info.get("priority"))
        return root, parent_id

    def _collect(
        self, message: BulkMessage, name: str, headers: Any, properties: Any, body: Any, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Serialize a message for its destination; return where it goes, as Celery's signals say it."""
        headers.update(options.pop("headers", None) or {})
        serializer, compression = options.pop("serializer", None), options.pop("compression", None)
        declare, mode = options.pop("declare", None), options.pop("delivery_mode", None)
        queue, kind = options.pop("queue", None), options.pop("exchange_type", None)
        exchange, key = options.pop("exchange", None), options.pop("routing_key", None)
        exchange, key, queue = self._destination(exchange, key, queue, kind)
        if declare is None and queue and not isinstance(queue, Broadcast):
            declare = [queue]
        mode = mode or getattr(getattr(queue, "exchange", None), "delivery_mode", None) or self._delivery_mode
        properties.update(options)
        signals.before_task_publish.send(
            sender=name,
            body=body,
            exchange=exchange,
            routing_key=key,
            declare=declare,
            headers=headers,
            properties=properties,
            retry_policy=dict(self._policy),
        )
        self._collector.publish(
            body,
            exchange=exchange,
            routing_key=key,
            serializer=serializer or self._serializer,
            compression=compression or self._compression,
            delivery_mode=mode,
            headers=headers,
            **properties,
        )
        message.arguments, message.declare = self._collector.collected, tuple(declare or ())
        message.size_bytes = len(message.arguments[0])
        return {"headers": headers, "exchange": exchange, "routing_key": key, "queue": queue}

    def _destination(self, exchange: Any, key: Any, queue: Any, kind: Any) -> tuple[Any, Any, Any]:
        """Return exchange, routing key and queue; a direct exchange that is not named becomes AMQP's default one."""
        if queue is None and exchange is None:
            queue = self._amqp.default_queue
        if isinstance(queue, str):
            queue = self._amqp.queues[queue]
        kind = kind or getattr(getattr(queue, "exchange", None), "type", None) or "direct"
        if (not exchange or not key) and kind == "direct":
            return "", queue.name if queue else None, queue
        if exchange is None:
            return queue.exchange.name or self._exchange, key or queue.routing_key or self._key, queue
        return exchange, key, queue

    def _announcement(
        self, task: Any, task_id: str, ignored: Any, body: Any, sent: dict[str, Any]
    ) -> Callable[[], None]:
        def announce() -> None:
            signals.after_task_publish.send(sender=task.name, body=body, **sent)
            signals.task_sent.send(
                sender=task.name,
                task_id=task_id,
                task=task.name,
                args=body[0],
                kwargs=body[1],
                eta=sent["headers"]["eta"],
                taskset=sent["headers"]["group"],
            )
            if self._parent is not None:
                result = task.AsyncResult(task_id)
                result.ignored = ignored
                self._parent.add_trail(result)

        return announce


class UnconfirmedTasks(OperationalError):
    """The broker has not confirmed every task of a call of ``publish_many``; the cause says why.

    ``confirmed`` are the ids of those that it has. ``unconfirmed`` are the signatures of the others, each with its id:
    publishing them again completes the call, and a task that the broker had all the same keeps its id.
    """

    def __init__(self, confirmed: list[str], unconfirmed: list[Signature], cause: BaseException) -> None:
        count = len(confirmed) + len(unconfirmed)
        super().__init__(f"The broker confirmed {len(confirmed)} of {count} tasks; publish the others again: {cause}")
        self.confirmed, self.unconfirmed = confirmed, unconfirmed


def with_id(signature: Signature, task_id: str | None = None) -> Signature:
    """Return a copy of a signature that has an id: its own, this one, or a new one."""
    copy = signature.clone()
    copy.options["task_id"] = task_id or copy.options.get("task_id") or uuid()
    return copy


def id_of(options: Mapping[str, Any]) -> str:
    """Return the id in a signature's options, or a new one."""
    return str(options.get("task_id") or uuid())
