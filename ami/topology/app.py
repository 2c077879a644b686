"""What the topology needs of the application that it starts: its name, and the variables that its processes read."""

from functools import cache
from importlib import import_module
from types import ModuleType

from ami.environment.declaration import Variable

#: What ``celery -A`` finds. Its package has the schema of its variables, too: by name, since nothing imports it.
APP = "config"


@cache
def _schema() -> ModuleType:
    return import_module(f"{APP}.schema.environment")


def declared(field: str) -> Variable:
    """Return the variable that the application declares as ``field``.

    Raises:
        KeyError: it declares none.
    """
    found: Variable = _schema().declared()[field]
    return found


def shared() -> tuple[Variable, ...]:
    """Return the variables that every process of the application may read, secrets among them."""
    return tuple(_schema().shared())


def of_workers() -> tuple[Variable, ...]:
    """Return the variables that each worker reads, for all queues or with a queue's prefix for one."""
    return tuple(_schema().of_workers())
