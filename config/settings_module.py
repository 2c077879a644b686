"""Which settings module a process uses; refuses an unknown one before Django or Celery would print a traceback."""

import os
from importlib.util import find_spec

from ami.environment.errors import did_you_mean

VARIABLE = "DJANGO_SETTINGS_MODULE"
DEFAULT = "config.settings.local"
PLACES = (DEFAULT, "config.settings.production", "config.settings.test")

#: What the places import; nothing runs with these.
PARTS = ("config", "config.settings", "config.settings.base")


def choose(name: str | None = None, source: str = VARIABLE) -> str:
    """Set ``DJANGO_SETTINGS_MODULE`` and return it: ``name``, or what is set already, or local settings.

    The module itself is not imported: an import error in it is a fault of the module and keeps its traceback.
    ``source`` is what the user wrote the name into, for the sentence.
    """
    chosen = name or os.environ.get(VARIABLE, "") or DEFAULT
    if chosen in PARTS or not exists(chosen):
        from config.settings.environment import refuse

        refuse(
            f"{source} is '{chosen}', which is not a settings module; use one of {', '.join(PLACES)}."
            f"{did_you_mean(chosen, PLACES)}"
        )
    os.environ[VARIABLE] = chosen
    return chosen


def exists(name: str) -> bool:
    """Return whether there is a module of this name; the packages that it is in are imported."""
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as error:
        # One of its packages; any other missing module is a fault inside them.
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return False
        raise
