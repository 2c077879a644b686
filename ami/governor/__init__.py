"""Resource-aware consumption: probes read the machine, a pure policy decides, a worker bootstep holds and releases."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


def install(
    app: Any,
    *,
    soft_kib: int | None = None,
    hard_kib: int | None = None,
    settings: Mapping[str, object] = MappingProxyType({}),
    paused: Callable[[str], bool] = lambda _: False,
) -> None:
    """Add the governor to every worker of ``app``, any Celery application; call it where the application is made.

    Args:
        app: a `celery.Celery` on RabbitMQ, Redis, or a folder or bucket (`ami.transports.register`); a worker's pool
            is prefork, threads or solo.
        soft_kib: KiB after which a process is replaced when its task has ended; None: Celery's
            ``worker_max_memory_per_child``. ``--max-memory-per-child`` on the command line takes precedence.
        hard_kib: KiB at which a running task is ended; None: ``worker_hard_memory_per_child`` in the settings of
            ``app``, else no task is ended. Only the prefork pool has these two limits.
        settings: the governor's settings by name (docs/settings.md), in lower case: ``memory_throttle_threshold``. The
            environment variable of the same name takes precedence.
        paused: whether an operator has paused a queue, by its name in the topology (empty without one). While it
            raises, its last answer counts.

    A worker whose settings are wrong, or whose pool is another one, ends before it consumes, with one sentence.
    """
    from ami.governor import bootstep, plan  # Not above: what imports an error of this package runs no worker.

    bootstep.add_to(app, plan.Options(soft_kib, hard_kib, MappingProxyType(dict(settings)), paused))
