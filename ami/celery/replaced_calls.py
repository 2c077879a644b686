"""Finds out whether a library or an application has replaced what ``publish_many`` does in Celery's stead."""

import sys
from collections.abc import Callable
from types import MethodType
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from celery.app.task import Task
from kombu import Connection

#: Completes the options of a task with this name.
Completer = Callable[[str, dict[str, Any]], dict[str, Any]]


def publishes_as_celery(task: Any) -> bool:
    """Whether a task's ``apply_async`` is Celery's own: not one of a subclass, an instance, or a library's wrapper."""
    bound = task.apply_async
    return type(bound) is MethodType and _is_of(bound.__func__, Task, "apply_async")


def options_completer(app: Celery, connection: Connection) -> Completer | None:
    """Return what an application adds to the options of a task; None where only its own calls know.

    An application class whose ``send_task`` adds something has it in a method ``options_completer`` as well.
    """
    app = app.amqp.app  # The application behind a proxy.
    if not _is_of(Celery.send_task, Celery, "send_task") or "send_task" in vars(app) or not _is_sender(app.amqp):
        return None
    owner = _owner(type(app), "send_task")
    if not _is_of(vars(owner)["send_task"], owner, "send_task"):
        return None
    if owner is Celery:
        return lambda _, options: options
    if _owner(type(app), "options_completer") is not owner:
        return None
    completer: Completer = app.options_completer(connection)
    return completer


def _is_sender(amqp: AMQP) -> bool:
    """Whether messages are built and sent as Celery does."""
    kind, sender = type(amqp), vars(amqp).get("send_task_message")
    names = ("send_task_message", "create_task_message", "as_task_v2")
    is_own = all(getattr(kind, name) is getattr(AMQP, name) for name in names)
    return is_own and "as_task_v2" not in vars(amqp) and (sender is None or _is_from(sender, AMQP))


def _owner(kind: type, name: str) -> Any:
    """Return the class in which a method is defined; None without it."""
    return next((each for each in kind.__mro__ if name in vars(each)), None)


def _is_of(function: Any, owner: type, name: str) -> bool:
    return _is_from(function, owner) and function.__code__.co_name == name


def _is_from(function: Any, owner: type) -> bool:
    """Whether a function was written in the module of a class: what wraps it has another module's names."""
    return getattr(function, "__globals__", None) is vars(sys.modules[owner.__module__])
