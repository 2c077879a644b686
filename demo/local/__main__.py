"""``python -m demo.local``: web, beat, a worker per queue and a processing service, restarted when the code changes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from demo.client import ApiRefused
from demo.local import parts
from demo.local.login import Login
from demo.local.output import Output
from demo.local.place import LocalPlace, NotUsable
from demo.local.source_changes import SourceChanges
from demo.local.supervisor import PartFailed, Supervisor

INTERRUPTED, TERMINATED = 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything until Ctrl-C; return 0 then, and 1 if it could not start."""
    options = _parser().parse_args(argv)
    output = Output()
    # Also if a shell started this with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(TERMINATED))
    try:
        with ExitStack() as stack:
            _run(options, output, stack)
    except (NotUsable, PartFailed, ApiRefused) as error:
        output.fault(str(error))
        return 1
    except KeyboardInterrupt:
        output.say("Stopped; everything that was started has ended.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.local", description=__doc__)
    parser.add_argument("--port", type=_port, default=8000, help="port of web; default: %(default)s")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(".antenna/run"),
        help="where broker, database, pictures and the login are kept; default: %(default)s",
    )
    parser.add_argument("--frames", type=int, default=12, help="drawn captures per night; default: %(default)s")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 1 to 65535")
    return int(text)


def _run(options: argparse.Namespace, output: Output, stack: ExitStack) -> None:
    place = LocalPlace(options.folder.resolve(), options.port)
    place.claim(stack)
    login = Login.kept(place.folder)
    variables = place.variables(login, stack, output.say)
    os.environ.update(variables)
    import django

    django.setup()
    from demo.local import seed

    output.say("preparing the database, the queues and the schedule")
    seed.prepare(login)
    supervisor = Supervisor(variables, output)
    stack.callback(supervisor.stop)
    supervisor.start(*parts.antenna(place))
    client = parts.await_web(place, supervisor, login)
    seeded = seed.project(place, login, options.frames, output.say)
    if place.has_nats:
        supervisor.start(parts.processing(place, seeded.project_id, client.token))
    job = seed.job(client, seeded, supervisor, output.say) if seeded.is_new and place.has_nats else None
    output.addresses(place.web, login, job)
    supervisor.watch(SourceChanges())


if __name__ == "__main__":
    sys.exit(main())
