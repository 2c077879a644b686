"""``python -m config.waiting COMMAND ...``: becomes the command once everything answers that it needs."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import NoReturn

from config import settings_module

from . import migrations, probes, wait

NOT_EXECUTABLE, NOT_FOUND = 126, 127
#: Python ignores these, and what is ignored stays so in the command.
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Wait, then become the command. Exit code 1 and one sentence when something does not answer in time."""
    began = time.monotonic()
    # Process 1 of a container ignores what it has no handler for. The command gets none of these: exec removes them.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    arguments = _parser().parse_args(argv)
    limit = _limit_seconds()
    if limit and (silent := _wait(began, began + limit, arguments.services_only)):
        sys.exit(f"Gave up after {limit} s (ANTENNA_WAIT_SECONDS) on {'; on '.join(silent)}.")
    _become([arguments.command, *arguments.arguments])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m config.waiting", description=__doc__)
    parser.add_argument(
        "--services-only", action="store_true", help="do not wait for migrations: the command itself applies them"
    )
    parser.add_argument("command", metavar="COMMAND")
    parser.add_argument("arguments", metavar="ARG", nargs=argparse.REMAINDER)
    return parser


def _limit_seconds() -> int:
    """Read the settings, which refuses wrong ones, and then how many seconds to wait."""
    return int(import_module(settings_module.choose()).ANTENNA_WAIT_SECONDS)


def _wait(began: float, until: float, services_only: bool) -> list[str]:
    """Wait for the services, then for the migrations; return a sentence for each that does not answer."""
    silent = wait(probes.needs(), began, until)
    return silent or ([] if services_only else wait([migrations.need()], began, until))


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """End at once, without waiting for a library's thread."""
    os._exit(128 + number)


def _become(argv: list[str]) -> NoReturn:
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell on purpose
    except OSError as error:
        print(f"config.waiting: '{argv[0]}' cannot be started ({error.strerror}).", file=sys.stderr)
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


if __name__ == "__main__":
    main()
