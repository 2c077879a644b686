"""Runs ``manage.py``; a database that cannot be used is one sentence instead of a traceback."""

import os
from collections.abc import Sequence

from config import settings_module

TRACEBACK = "--traceback"


def main(argv: Sequence[str]) -> None:
    """Run a command of Django.

    A settings module that does not exist and a database that cannot be used end with one sentence and exit code 1.
    ``--traceback`` shows the traceback of the database's error.
    """
    given = _settings_option(argv[2:])
    settings_module.choose(given, "--settings" if given else settings_module.VARIABLE)
    from django.core.management import execute_from_command_line
    from django.db import Error

    from config import database_errors

    if argv[1:2] == ["runserver"] and TRACEBACK not in argv and "RUN_MAIN" not in os.environ:
        # Django's reloader would print the traceback from a thread and go on waiting for a change of the code.
        _refuse(database_errors.unreachable())
    try:
        execute_from_command_line(list(argv))
    except Error:
        if TRACEBACK not in argv:
            _refuse(database_errors.unusable())
        # The database is in order: a fault of the code.
        raise


def _refuse(sentence: str) -> None:
    if sentence:
        raise SystemExit(sentence)


def _settings_option(arguments: Sequence[str]) -> str | None:
    """Return what ``--settings`` names, as Django will read it."""
    for index, argument in enumerate(arguments):
        if argument.startswith("--settings="):
            return argument.partition("=")[2]
        if argument == "--settings":
            return next(iter(arguments[index + 1 :]), None)
    return None
