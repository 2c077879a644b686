"""``python -m demo.local``: web, beat, a worker per queue and a processing service, restarted when the code changes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx

from ami.topology.process_group import ProcessGroup
from demo.brokers import leave_the_machine_alone
from demo.client import ApiRefused, Client
from demo.local import parts
from demo.local.login import Login
from demo.local.output import NAME_WIDTH, OWN, Output
from demo.local.parts import PartFailed
from demo.local.place import LocalPlace, NotUsable
from demo.local.source_changes import SourceChanges
from demo.local.terminal import take_foreground

TERMINATED = 143
LOOK_SECONDS = 0.5
SHOWN_FILES = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything until Ctrl-C; return 0 then, and 1 if it could not start."""
    options = _parser().parse_args(argv)
    output = Output()
    leave_the_machine_alone()
    # Also if a shell started this with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(TERMINATED))
    try:
        take_foreground()
        with ExitStack() as stack:
            return _run(options, output, stack)
    except (NotUsable, PartFailed, ApiRefused, httpx.TransportError) as error:
        output.fault(str(error))
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Another one has nothing left to stop.
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


def _run(options: argparse.Namespace, output: Output, stack: ExitStack) -> int:
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
    seeded = seed.project(place, login)
    group = ProcessGroup(out=output, name=f"{OWN:{NAME_WIDTH}}")
    stack.callback(group.stop)
    commands = parts.antenna(place, variables)
    group.start(*commands)
    if place.has_nats:
        group.start(parts.processing(place, variables, seeded.project_id, seeded.token))
    seed.draw(place, options.frames, group, output)
    parts.until(group, output, f"web at {place.web}", lambda: parts.web_lives(place.web))
    pulses = [command.pulse for command in commands if command.pulse]
    parts.until(group, output, "the workers", lambda: all(pulse.exists() for pulse in pulses))
    output.addresses(place.web, login)
    if place.has_nats and not seed.has_job(seeded):
        client = Client(place.web)
        client.log_in(login.email, login.password)
        job = seed.job(client, seeded, group, output)
        output.address("a job to run", f"{place.web}/admin/jobs/job/{job}/change/")
    watch(group, SourceChanges(), output)
    return next(iter(group.down.values()), 0)


def watch(group: ProcessGroup, changes: SourceChanges, output: Output) -> None:
    """Restart all when the code changes; return when the output is closed."""
    due = time.monotonic()
    while group.step():
        if time.monotonic() < due:
            continue
        due = time.monotonic() + LOOK_SECONDS
        if changed := changes.settled():
            more = f" and {len(changed) - SHOWN_FILES} more" if len(changed) > SHOWN_FILES else ""
            output.say(f"changed: {', '.join(changed[:SHOWN_FILES])}{more}; restarting")
            group.restart()


if __name__ == "__main__":
    sys.exit(main())
