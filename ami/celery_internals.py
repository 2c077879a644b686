"""Every private or undocumented name of Celery, its beat, kombu, billiard and amqp that the project uses, in one place.

``INTERNALS`` lists them with the versions they were checked against; ``missing()`` reports those that the installed
versions lack. Names on instances are used through the functions below. Overridden names are spelled in their
subclasses, and listed as well.
"""

import ast
import importlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

#: The versions that the names below were checked against.
CHECKED = {"celery": "5.7.0", "kombu": "5.7.0", "billiard": "4.3.2", "amqp": "5.4.2", "django_celery_beat": "2.9.0"}


@dataclass(frozen=True)
class Internal:
    """One name. ``owner`` is ``module:Class``: the class that has it, or whose code sets it."""

    owner: str
    name: str
    used_by: str
    why: str

    @property
    def package(self) -> str:
        return self.owner.partition(".")[0]


_ASYNPOOL, _POOL, _JOB = "celery.concurrency.asynpool:AsynPool", "billiard.pool:Pool", "billiard.pool:ApplyResult"
_CONSUMER, _REQUEST = "kombu.messaging:Consumer", "celery.worker.request:Request"
_CONTROLLER, _WORKER_CONSUMER = "celery.worker.worker:WorkController", "celery.worker.consumer.consumer:Consumer"
_QOS = "kombu.transport.virtual.base:QoS"
_CHILDREN, _ADAPTERS, _SLOTS = "ami.governor.pool_children", "ami.governor.pool_adapters", "ami.governor.slot_consumer"
_POOL_SIZE = "ami.celery.desired_state.pool_size"
_CLOSABLE = "ami.governor.closable_consumer"
_SCHEDULER, _DATABASE_SCHEDULER = "ami.celery.scheduler", "django_celery_beat.schedulers:DatabaseScheduler"
_FIXUP, _WORKER_FIXUP = "celery.fixups.django:DjangoFixup", "celery.fixups.django:DjangoWorkerFixup"
_OWN_FIXUP = "ami.celery.django_fixup"
_GUARD, _UNACKED = "ami.celery.message_guard", "ami.transports.objectstore.broker.unacked"

INTERNALS = (
    Internal("celery.backends.base:Backend", "_get_result_meta", "config.redis_results", "mask sensitive arguments"),
    # The prefork pool and its children.
    Internal("celery.concurrency.base:BasePool", "_pool", _ADAPTERS, "reach billiard's pool"),
    Internal("celery.concurrency.prefork:TaskPool", "Pool", "ami.celery.pool", "replace the asynchronous pool"),
    Internal(_ASYNPOOL, "flush", "ami.celery.pool", "keep tasks already written to a child"),
    Internal(_ASYNPOOL, "_all_inqueues", _CHILDREN, "know which children are up"),
    Internal(_ASYNPOOL, "_busy_workers", _CHILDREN, "keep tasks from a child"),
    Internal(_ASYNPOOL, "_fileno_to_inq", _CHILDREN, "find the child of a descriptor"),
    Internal(_ASYNPOOL, "_sentinel_poll", _CHILDREN, "repair a child whose pipe has closed"),
    Internal(_ASYNPOOL, "_write_to", "ami.celery.pool", "know which tasks were written to a child"),
    Internal(_POOL, "_pool", _CHILDREN, "list the children"),
    Internal(_POOL, "_cache", _CHILDREN, "list the jobs"),
    Internal(_POOL, "_processes", _POOL_SIZE, "remove a process"),
    Internal(_POOL, "_putlock", _POOL_SIZE, "remove a process"),
    Internal(_POOL, "_maxtasksperchild", _CHILDREN, "know when a child exits by itself"),
    Internal(_POOL, "_result_handler", _CHILDREN, "act before and after a result"),
    Internal("billiard.pool:ResultHandler", "state_handlers", _CHILDREN, "act before and after a result"),
    Internal(_POOL, "maintain_pool", _CHILDREN, "replace a terminated child sooner"),
    Internal("billiard.pool:Worker", "inqW_fd", _CHILDREN, "name a child as the pool does"),
    Internal("billiard.process:BaseProcess", "_controlled_termination", _CHILDREN, "announce that a child is killed"),
    Internal("billiard.process:BaseProcess", "terminate_controlled", _CHILDREN, "recycle an idle child"),
    Internal(_JOB, "_accepted", "ami.celery.pool", "keep a written task through AsynPool.flush"),
    Internal(_JOB, "_job", _CHILDREN, "fail the task of a killed child"),
    Internal(_JOB, "_set", _CHILDREN, "fail the task of a killed child"),
    Internal(_JOB, "_worker_pid", _CHILDREN, "know which child runs a job"),
    # The worker.
    Internal(_REQUEST, "_announce_cancelled", "ami.celery.request", "store no result that is ignored"),
    Internal(_REQUEST, "_announce_revoked", "ami.celery.request", "end the run of a revoked task"),
    Internal(_REQUEST, "_request_dict", "ami.celery.request", "tell two deliveries of one run apart"),
    Internal(_REQUEST, "_context", "ami.celery.request", "count the retries of a task that was ended"),
    Internal(_REQUEST, "_retry_worker_lost", "ami.celery.request", "retry a task that was ended"),
    Internal(_CONTROLLER, "on_before_init", "ami.celery.worker", "refuse a worker before it prints anything"),
    Internal(_CONTROLLER, "setup_defaults", "ami.celery.worker", "take limits from the row"),
    Internal(_CONTROLLER, "_process_task", _GUARD, "bury a message whose start fails"),
    Internal("celery.worker.components:Pool", "_quick_release", _GUARD, "release a task's semaphore"),
    Internal(_WORKER_CONSUMER, "apply_eta_task", "ami.governor.bootstep", "requeue a due task without a free slot"),
    Internal("celery.worker.consumer.tasks:Tasks", "qos_global", "ami.governor.bootstep", "lift its limit"),
    Internal(_WORKER_CONSUMER, "create_task_handler", _GUARD, "check each message before Celery does"),
    Internal(_WORKER_CONSUMER, "on_task_request", _GUARD, "bury a message whose start fails"),
    Internal("celery.worker.consumer.tasks:Tasks", "requires", "ami.celery.bootsteps", "declare before consuming"),
    Internal(
        "celery.worker.consumer.delayed_delivery:DelayedDelivery",
        "include_if",
        "ami.celery.bootsteps",
        "leave out the step that binds every queue",
    ),
    # Django.
    Internal("celery.app.base:Celery", "builtin_fixups", "ami.celery.app", "replace the support of Django"),
    Internal(_FIXUP, "worker_fixup", _OWN_FIXUP, "keep database connections between tasks"),
    Internal(_WORKER_FIXUP, "on_task_prerun", _OWN_FIXUP, "keep database connections between tasks"),
    Internal(_WORKER_FIXUP, "on_task_postrun", _OWN_FIXUP, "keep database connections between tasks"),
    Internal(_WORKER_FIXUP, "close_cache", _OWN_FIXUP, "close caches after each task"),
    # Publishing, events, beat.
    Internal("celery.app.amqp:AMQP", "producer_pool", "ami.celery.producer", "publish with our producer"),
    Internal("celery.beat:Scheduler", "_ensure_connected", _SCHEDULER, "show each try to connect"),
    Internal("celery.beat:Scheduler", "_heap", _SCHEDULER, "compute every next run again"),
    Internal("celery.beat:Scheduler", "_when", _SCHEDULER, "order the heap by the monotonic clock"),
    Internal(_DATABASE_SCHEDULER, "_last_full_sync", _SCHEDULER, "read the schedule again"),
    Internal(_DATABASE_SCHEDULER, "_schedule", _SCHEDULER, "go on with the entries as they ran"),
    Internal("celery.events.dispatcher:EventDispatcher", "_publish", "ami.celery.events", "drop events while blocked"),
    Internal("kombu.messaging:Producer", "_publish", "ami.celery.producer", "give up an unconfirmed publish"),
    Internal("amqp.channel:Channel", "_basic_publish", "ami.celery.events", "publish events without confirmation"),
    Internal(
        "amqp.basic_message:Message", "_load_properties", "ami.celery.amqp_properties", "survive unreadable properties"
    ),
    # Consuming.
    Internal(_CONSUMER, "_active_tags", _CLOSABLE, "close one queue of several"),
    Internal(_CONSUMER, "_active_queue_no_ack", _CLOSABLE, "close one queue of several"),
    Internal(_CONSUMER, "_basic_consume", _CLOSABLE, "leave out closed queues"),
    Internal("kombu.transport.virtual.base:Channel", "_consumers", _CLOSABLE, "know which consumers are there"),
    Internal(_CONSUMER, "_queues", _SLOTS, "open one consumer per slot"),
    Internal(_CONSUMER, "_receive_callback", _SLOTS, "see each message first"),
    Internal(_CONSUMER, "_tags", _SLOTS, "number the consumers"),
    Internal("kombu.transport.redis:Channel", "_in_poll", _SLOTS, "take a message that is already fetched"),
    Internal("kombu.pidbox:Mailbox", "node_cls", "ami.celery.control", "bound the clock of commands"),
    Internal("kombu.pidbox:Node", "adjust_clock", "ami.celery.control", "bound the clock of commands"),
    Internal(_QOS, "_delivered", _UNACKED, "keep unacknowledged messages"),
    Internal(_QOS, "_dirty", _UNACKED, "keep unacknowledged messages"),
    Internal(_QOS, "_flush", _UNACKED, "keep unacknowledged messages"),
    Internal(_QOS, "_on_collect", _UNACKED, "requeue nothing when a channel is collected"),
    Internal(_QOS, "_quick_ack", _UNACKED, "keep unacknowledged messages"),
)


def missing(internals: Iterable[Internal] = INTERNALS) -> list[str]:
    """Return one sentence for each name that the installed version lacks; empty when all are there."""
    return [
        f"{each.owner.replace(':', '.')} has no '{each.name}', which {each.used_by} needs to {each.why}: it was "
        f"checked against {each.package} {CHECKED[each.package]}; {version(each.package)} is installed."
        for each in internals
        if not _exists(each)
    ]


def _exists(internal: Internal) -> bool:
    module, _, name = internal.owner.partition(":")
    try:
        owner = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return False
    return hasattr(owner, internal.name) or any(internal.name in _assigned(each) for each in owner.__mro__[:-1])


def _assigned(owner: type) -> set[str]:
    """Return the attributes that the code of a class assigns, to any object."""
    tree = ast.parse(inspect.getsource(importlib.import_module(owner.__module__)))
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == owner.__name__)
    nodes = (node for each in classes for node in ast.walk(each) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if isinstance(node.ctx, ast.Store)}


# Of Celery's pool and billiard's.


def inner_pool(pool: Any) -> Any:
    """Return billiard's pool in Celery's prefork pool; another object or None for other pools."""
    return getattr(pool, "_pool", None)


def processes(pool: Any) -> list[Any]:
    """Return the child processes of billiard's pool; empty for what is not one."""
    return list(getattr(pool, "_pool", ()))


def expect_fewer(pool: Any) -> None:
    """Make the pool one process smaller: it does not replace the next one that exits."""
    pool._processes -= 1
    if pool._putlock is not None:
        pool._putlock.shrink()


def process_of(pool: Any, fd: int) -> Any:
    """Return the child to which the pool writes through ``fd``, or None."""
    return pool._fileno_to_inq.get(fd)


def busy_fds(pool: Any) -> set[int]:
    """Return the pool's own set of the children, by ``inqW_fd``, to which it writes no task now."""
    busy: set[int] = pool._busy_workers
    return busy


def open_fds(pool: Any) -> Any:
    """Return the ``inqW_fd`` of the children that are up."""
    return pool._all_inqueues


def jobs(pool: Any) -> list[Any]:
    """Return the jobs whose results the pool awaits."""
    return list(pool._cache.values())


def max_tasks_per_child(pool: Any) -> int:
    """Return after how many tasks a child exits; 0 for never."""
    return int(pool._maxtasksperchild or 0)


def result_handlers(pool: Any) -> dict[Any, Any]:
    """Return the pool's own table of handlers, by the kind of a child's message."""
    handlers: dict[Any, Any] = pool._result_handler.state_handlers
    return handlers


def drop_closed_sentinel(child: Any) -> None:
    """Make the pool open the sentinel of a child again that it has closed."""
    if vars(child).get("_sentinel_poll", child) is None:
        del child._sentinel_poll


def expect_exit(child: Any) -> None:
    """Make the pool take the exit of a child for intended."""
    child._controlled_termination = True


# Of a job in billiard's pool.


def job_pid(job: Any) -> int | None:
    """Return the pid of the child that has accepted a job, or None."""
    pid: int | None = job._worker_pid
    return pid


def is_in_pipe(job: Any) -> bool:
    """Whether a job was written to a child that has not accepted it."""
    return bool(job._write_to and not job._accepted)


def set_accepted(job: Any, accepted: bool) -> None:
    job._accepted = accepted


def fail_job(job: Any, error: Any) -> None:
    """End a job with ``error``, an ``ExceptionInfo``."""
    job._set(job._job, (False, error))


# Of the worker and of channels.


def task_starter(controller: Any) -> Any:
    """Return what a worker calls to start a task; None before it has a pool."""
    return getattr(controller, "_process_task", None)


def set_task_starter(controller: Any, start: Any) -> None:
    controller._process_task = start


def semaphore_release(controller: Any) -> Any:
    """Return what releases a worker's semaphore by one; None without one."""
    return getattr(controller, "_quick_release", None)


def publish_unconfirmed(channel: Any) -> Any:
    """Return the publish of an AMQP channel that waits for no confirmation."""
    return channel._basic_publish


def consumer_tags(channel: Any) -> Any:
    """Return the tags of a channel's consumers; AMQP, our transports and kombu's keep them in different places."""
    if (callbacks := getattr(channel, "callbacks", None)) is not None:
        return callbacks
    if (consumers := getattr(channel, "consumers", None)) is not None:
        return {consumer.tag for consumer in consumers}
    return channel._consumers


def is_fetching(channel: Any) -> bool:
    """Whether a Redis channel has asked for a message that is still to be read."""
    return bool(getattr(channel, "_in_poll", None))
