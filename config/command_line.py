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
    _choose_settings(argv[2:])
    from django.core.management import execute_from_command_line
    from django.db import Error

    from ami.celery import outages
    from config import database_errors

    if argv[1:2] == ["runserver"] and TRACEBACK not in argv and "RUN_MAIN" not in os.environ:
        # Django's reloader would print the traceback from a thread and go on waiting for a change of the code.
        _refuse(database_errors.unreachable())
    if argv[1:2] != ["runserver"]:
        outages.silence()
    try:
        execute_from_command_line(list(argv))
    except Error as error:
        if TRACEBACK not in argv:
            _refuse(database_errors.failed(error))
        # The database is in order: a fault of the code.
        raise


def _refuse(sentence: str) -> None:
    if sentence:
        raise SystemExit(sentence)


def _choose_settings(arguments: Sequence[str]) -> None:
    """Choose the settings module as Django will, which reads these two options before it knows the command."""
    from django.core.management.base import CommandError, CommandParser, handle_default_options

    parser = CommandParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    try:
        options, _ = parser.parse_known_args(list(arguments))
    except CommandError:
        # An option without its value: the command itself says so.
        settings_module.choose()
        return
    handle_default_options(options)
    settings_module.choose(options.settings, "--settings" if options.settings else settings_module.VARIABLE)
