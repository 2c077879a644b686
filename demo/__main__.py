"""``python -m demo``: runs the main job end to end with real worker processes, on files only or on real services."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from demo import arguments, brokers, captures
from demo.client import ApiRefused
from demo.environment import FolderInUse, lock, prepare
from demo.processes import ProcessEnded, Processes
from demo.progress import StepTimeout
from provision.kind import NothingFound


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 only if every check passes."""
    parser = _parser()
    options = parser.parse_args(argv)
    arguments.refuse_wrong(parser, options)
    # A pipe has no width; the table per queue needs this much.
    console = Console(width=None if sys.stdout.isatty() else 140)
    # Also if a shell started this with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    brokers.leave_the_machine_alone()
    try:
        return _run(options, console)
    except (
        FolderInUse,
        StepTimeout,
        ProcessEnded,
        ApiRefused,
        NothingFound,
        NotADirectoryError,
        brokers.BrokerRefused,
    ) as error:
        console.print(f"[red]The demo failed:[/red] {error}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; all started processes are stopped.")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--broker",
        type=arguments.broker,
        default=brokers.EMBEDDED,
        metavar="BROKER",
        help=f"{brokers.CHOICES}; default: {brokers.EMBEDDED}, a folder that needs no service",
    )
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="output folder; default: .demo")
    parser.add_argument("--keep", action="store_true", help="leave everything running after the checks, until Ctrl-C")
    captures.add_options(parser)
    return parser


def _run(options: argparse.Namespace, console: Console) -> int:
    def say(line: str) -> None:
        console.print(f"  {line}", highlight=False, soft_wrap=True)

    began = time.monotonic()
    with ExitStack() as stack:
        lock(options.folder.resolve(), stack)
        environment = prepare(options.folder.resolve())
        console.print("[bold]Services[/bold]")
        variables = environment.variables(brokers.obtain(options.broker, environment.folder, stack, say))
        os.environ.update(variables)
        processes = Processes(variables, environment.folder / "logs")
        stack.callback(processes.stop)
        import django

        django.setup()
        from demo import job

        return job.run(options, console, environment, processes, began)


if __name__ == "__main__":
    sys.exit(main())
