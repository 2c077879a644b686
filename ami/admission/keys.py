"""The keys of a call, from its arguments: canonical JSON, so that order and spelling make no difference."""

import hashlib
import inspect
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from kombu.utils import json

from ami.admission.policies import Policy

#: A longer key is its beginning and a digest.
LONGEST = 255
_DIGEST = 64
#: In what kombu makes of a value that JSON does not have: a UUID, a date or time, a decimal number.
_MARKER = '"__type__"'
LARGEST_COST = 1_000_000
MOST_DEPTH = 100


class ArgumentRefused(TypeError):
    """An argument that a policy reads is missing, or is not JSON; the sentence names it."""


def arguments(task: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults included.

    Raises:
        ArgumentRefused: the task does not take them.
    """
    try:
        bound = _signature(task).bind(*(args or ()), **(kwargs or {}))
    except TypeError as error:
        raise ArgumentRefused(f"{task.name} was called with arguments that it does not take: {error}.") from None
    bound.apply_defaults()
    found = dict(bound.arguments)
    for parameter in _signature(task).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(parameter.name)
    return found


@lru_cache(maxsize=1000)
def _signature(task: Any) -> inspect.Signature:
    return inspect.signature(task.run)


def parameters(task: Any) -> tuple[str, ...] | None:
    """Return the names of a task's parameters; None where it takes any."""
    found = _signature(task).parameters.values()
    return None if any(each.kind is each.VAR_KEYWORD for each in found) else tuple(each.name for each in found)


def text_of(task: str, given: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the chosen arguments as canonical JSON.

    Raises:
        ArgumentRefused: one is missing, or is not JSON.
    """
    return "{" + ",".join(f"{json.dumps(name)}:{_value(task, given, name)}" for name in sorted(names)) + "}"


def _value(task: str, given: Mapping[str, Any], name: str) -> str:
    if name not in given:
        raise ArgumentRefused(f"{task} was called without '{name}', which its policy reads.")
    try:
        text = _text(_plain(given[name]))
        # It has to be the key of what comes back from the row or the message, too.
        return _text(json.loads(text)) if _MARKER in text else text
    except (TypeError, ValueError) as error:
        raise ArgumentRefused(
            f"{task} was called with '{name}', which its policy reads and is not JSON: {error}."
        ) from None


def _text(value: Any) -> str:
    return str(json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False))


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value as it comes back from JSON; a key that is no text is refused, since it comes back as one."""
    if isinstance(value, bytes):
        raise TypeError("bytes are not JSON")
    if depth >= MOST_DEPTH and isinstance(value, (Mapping, list, tuple)):
        raise TypeError(f"it is nested deeper than {MOST_DEPTH} levels")
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"the key {wrong[0]!r} of a mapping is not a text")
        return {key: _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, depth + 1) for each in value]
    return value


def shortened(text: str) -> str:
    """Return a text as a key: as it is, or its beginning and a digest of all of it."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - _DIGEST - 1]}#{hashlib.sha256(text.encode()).hexdigest()}"


def key_text(task: Any, policy: Policy, given: Mapping[str, Any]) -> str:
    """Return the arguments by which calls are one key; empty where the policy has none."""
    names = policy.key_names
    return "" if names is None else text_of(task.name, given, names or given)


def limit_key(task: Any, name: str, per: str, given: Mapping[str, Any]) -> str:
    """Return the key of a permit or a rate: its name or the task's, and the value of the argument ``per``.

    Empty where that is None: such a call is not limited.
    """
    value = _value(task.name, given, per) if per else ""
    return "" if value == "null" else shortened(f"{name or task.name}:{value}")


def permit_cost(task: Any, cost: int | str, given: Mapping[str, Any]) -> int:
    """Return how many permits a call takes.

    Raises:
        ArgumentRefused: the argument that says it is no whole number of 1 or more.
    """
    if isinstance(cost, int):
        return cost
    value = given.get(cost)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_COST:
        raise ArgumentRefused(
            f"{task.name} was called with '{cost}' = {value!r}, by which its permits count: give a whole number from 1 "
            f"to {LARGEST_COST}."
        )
    return value


def fair_key(task: Any, policy: Policy, given: Mapping[str, Any]) -> str:
    """Return the key that shares work time, such as ``project_id=7``; empty where the policy has none."""
    return shortened(f"{policy.fair_by}={_value(task.name, given, policy.fair_by)}") if policy.fair_by else ""
