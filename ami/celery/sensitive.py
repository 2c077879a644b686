"""Keeps arguments that a task declares sensitive out of what is shown of it; its message's body alone has them.

``@shared_task(sensitive=("token",))`` names arguments, wherever they stand in a call; ANTENNA_SENSITIVE_NAMES names
them for every task. Their values are masked in the representations that Celery writes when it publishes (they go to
logs, events, Flower, results and dead letters), in ``celery inspect``, and in the text of the task's own errors.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from celery.utils.saferepr import saferepr

from ami.celery import tracebacks

MASK = "********"
#: Names that are sensitive in every task.
_everywhere: frozenset[str] = frozenset()
#: A shorter value stands in a text by chance.
SHORTEST = 4


def connect(names: Iterable[str]) -> None:
    """Set the names that are sensitive in every task."""
    global _everywhere
    _everywhere = frozenset(names)


def names_of(app: Any, name: str) -> frozenset[str]:
    """Return which arguments of a task are sensitive: in every task, and those that it declares itself."""
    return _declared(app.tasks.get(name))


def argument(task: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Return the value of one argument of a call, wherever it stands; None where there is none."""
    if name in (kwargs or {}):
        return kwargs[name]
    positions = _positions(task)
    return args[positions.index(name)] if name in positions[: len(args or ())] else None


def _declared(task: Any) -> frozenset[str]:
    own = getattr(task, "sensitive", ()) or ()
    return _everywhere.union(own) if own else _everywhere


def masked(app: Any, name: str, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the arguments with the sensitive ones masked; None where the task declares none."""
    names = names_of(app, name)
    if not names:
        return None
    positions = _positions(app.tasks[name]) if name in app.tasks else ()
    shown = [MASK if _name_at(positions, index) in names else value for index, value in enumerate(args or ())]
    return shown, {key: MASK if key in names else value for key, value in (kwargs or {}).items()}


def representations(app: Any, name: str, args: Any, kwargs: Any) -> dict[str, str]:
    """Return the options that make Celery publish masked representations; none for most tasks."""
    found = masked(app, name, args, kwargs)
    if found is None:
        return {}
    amqp, levels = app.amqp, app.conf.task_repr_maxlevels
    shown, named = found
    return {
        "argsrepr": saferepr(tuple(shown), amqp.argsrepr_maxsize, maxlevels=levels),
        "kwargsrepr": saferepr(named, amqp.kwargsrepr_maxsize, maxlevels=levels),
    }


def values(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the sensitive values of a call that can be recognised in a text, the longest first."""
    names = _declared(task)
    if not names:
        return []
    positions = _positions(task)
    found = [value for index, value in enumerate(args or ()) if _name_at(positions, index) in names]
    found += [value for key, value in (kwargs or {}).items() if key in names]
    texts = {text for value in found for text in _texts(value) if len(text) >= SHORTEST}
    return sorted(texts, key=len, reverse=True)


def mask_error(error: BaseException | None, secrets: Sequence[str]) -> None:
    """Mask the values in the arguments of an error and of every error behind it; what shows it has none then."""
    for each in tracebacks.behind(error) if secrets else ():
        each.args = tuple(without(text, secrets) if isinstance(text, str) else text for text in each.args)


def without(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _texts(value: Any) -> list[str]:
    """Return the texts in a value, at any depth."""
    waiting, seen, found = [value], set[int](), list[str]()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, (Mapping, list, tuple, set)):
            found += [] if value is None or isinstance(value, bool) else [str(value)]
        elif id(value) not in seen:
            seen.add(id(value))
            waiting += value.values() if isinstance(value, Mapping) else value
    return found


def _name_at(positions: tuple[str, ...], index: int) -> str:
    """Return the parameter's name; all that ``*rest`` takes is called ``rest``."""
    if index >= len(positions) and not (positions and positions[-1].startswith("*")):
        return ""
    return positions[min(index, len(positions) - 1)].removeprefix("*")


@lru_cache(maxsize=1000)
def _positions(task: Any) -> tuple[str, ...]:
    found = []
    for parameter in inspect.signature(task.run).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            found.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            found.append(f"*{parameter.name}")
    return tuple(found)
