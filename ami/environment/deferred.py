"""Modules that are imported when they are first used: what few processes need and all would pay for at their start.

A module says, beside the import for tools that read the code::

    if TYPE_CHECKING:
        from ami.jobs.services import jetstream
    else:
        jetstream = deferred("ami.jobs.services.jetstream")

``deferred("module:name")`` stands in for an object of a module.
"""

from importlib import import_module
from typing import Any

#: Every module that was deferred in this process.
_deferred: set[str] = set()


class _Module:
    """Has the attributes of a module, or of an object in it, which is imported for the first one that is asked for."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name: str) -> Any:
        return getattr(_imported(self._name), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_imported(self._name), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_imported(self._name), name)


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


def deferred(name: str) -> Any:
    """Return a stand-in for the module ``name``. Its first use raises what the import raises."""
    _deferred.add(name.partition(":")[0])
    return _Module(name)


def names() -> list[str]:
    """Return the modules that this process has deferred."""
    return sorted(_deferred)


def load() -> None:
    """Import what was deferred, as before a fork: what the parent has imported, its children share."""
    loaded: set[str] = set()
    while missing := _deferred - loaded:
        for name in sorted(missing):
            import_module(name)
        loaded |= missing
