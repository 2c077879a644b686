"""``python -m demo``: the main job, end to end, with real worker processes, on files alone or on real services."""

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

from demo import captures, ground
from demo.client import ApiRefused
from demo.processes import ProcessEnded, Processes
from demo.showing import TooLong
from demo.surroundings import prepare
from provision.kind import NothingFound


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 only if every rule holds."""
    options = _parser().parse_args(argv)
    # Piped, there is no width to keep to; the table per queue needs this much.
    console = Console(width=None if sys.stdout.isatty() else 140)
    # Also where a shell started this with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _run(options, console)
    except (TooLong, ProcessEnded, ApiRefused, NothingFound, NotADirectoryError, ground.BrokerRefused) as error:
        console.print(f"[red]The demo failed:[/red] {error}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; everything that was started is stopped.")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--broker",
        type=ground.broker,
        default=ground.EMBEDDED,
        metavar="BROKER",
        help=f"{ground.CHOICES}; {ground.EMBEDDED} unless set: a folder, and no service beside it",
    )
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where everything is written (.demo)")
    captures.add_options(parser)
    return parser


def _run(options: argparse.Namespace, console: Console) -> int:
    def say(line: str) -> None:
        console.print(f"  {line}", highlight=False, soft_wrap=True)

    began = time.monotonic()
    surroundings = prepare(options.folder.resolve())
    with ExitStack() as stack:
        console.print("[bold]Services[/bold]")
        environment = surroundings.environment(ground.obtain(options.broker, surroundings.folder, stack, say))
        os.environ.update(environment)
        processes = Processes(environment, surroundings.folder / "logs")
        stack.callback(processes.stop)
        import django

        django.setup()
        from demo import job

        return job.run(options, console, surroundings, processes, began)


if __name__ == "__main__":
    sys.exit(main())
