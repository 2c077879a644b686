"""Keeps the settings that each publish reads where Celery finds them at once.

Celery looks a setting up under four names in Django's settings, and raises and catches an error for each that is not
there: 10 to 20 us, six times per publish. ``app.conf`` reads what is kept first; a later change of it is seen.
"""

from typing import Any

READ_BY_EACH_PUBLISH = (
    "broker_pool_acquire_timeout",
    "broker_transport",
    "broker_url",
    "broker_write_url",
    "task_always_eager",
    "task_default_queue",
    "task_repr_maxlevels",
    "task_send_sent_event",
)


def keep(app: Any) -> None:
    """Do so as soon as the application is configured."""
    app.on_after_configure.connect(_copy, weak=False)


def _copy(source: Any, **_: Any) -> None:
    for name in READ_BY_EACH_PUBLISH:
        source[name] = source.get(name)
