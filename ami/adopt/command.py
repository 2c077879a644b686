"""The verb ``adopt`` of ``manage.py queues``: a thin wrapper around `ami.adopt.operation`."""

import argparse
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from ami.adopt import operation
from ami.adopt.bridge import End
from ami.adopt.errors import AdoptionRefused, OldBrokerFailed, StorageFailed, WrongSource
from ami.adopt.old_broker import QUEUES, OldBroker
from ami.adopt.plan import Outcome
from ami.adopt.source_url import read_url
from ami.adopt.tally import Line, Tally
from ami.queues import audit_log, broker_errors
from ami.queues.management import table
from ami.topology.topology import Topology

COLUMNS = ("old queue", "task", "messages", "what", "runs as", "in", "because")

#: How long the old publishers must be silent unless --silent-minutes says otherwise.
SILENT_MINUTES = 10.0

#: How often the line on a terminal changes, and how often a line is added where output is piped.
TERMINAL_SECONDS, PIPED_SECONDS = 0.2, 10.0


def add_options(parser: CommandParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "--from-env",
        required=True,
        metavar="NAME",
        help="variable with the old broker's URL, or NAME_FILE with its path",
    )
    parser.add_argument(
        "--queue",
        action="append",
        type=_queue,
        metavar="Q",
        help=f"old queue to read (default: {', '.join(QUEUES)})",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="show what would become of each message, move nothing")
    how.add_argument("--follow", action="store_true", help="go on until the old publishers are silent")
    parser.add_argument(
        "--silent-minutes", type=_minutes, metavar="N", help=f"with --follow, end after so long ({SILENT_MINUTES:g})"
    )


def _queue(text: str) -> str:
    if "://" in text or "@" in text:  # The text is not repeated: it may hold a password.
        raise argparse.ArgumentTypeError("--queue takes the name of a queue, not a URL")
    return text


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 7 * 24 * 60:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of minutes from above 0 to 10080")
    return value


def run(options: dict[str, Any], out: IO[str]) -> None:
    """Run the verb and print its result; what moves messages is recorded.

    Raises:
        CommandError: with exit code 2 for a wrong input, else 1.
    """
    if options["dry_run"]:
        _run(options, out)
        return
    name = options["from_env"]
    # What is not a variable's name may be the URL or its password.
    place = f" at {name}" if name in os.environ or f"{name}_FILE" in os.environ else ""
    with audit_log.recorded("queues adopt", who=audit_log.command_user(), which=f"the old queues{place}"):
        _run(options, out)


def _run(options: dict[str, Any], out: IO[str]) -> None:
    topology: Topology = settings.ANTENNA_TOPOLOGY
    if options["silent_minutes"] is not None and not options["follow"]:
        raise CommandError("--silent-minutes needs --follow; add it, or leave both out.", returncode=2)
    try:
        queues = tuple(dict.fromkeys(options["queue"] or QUEUES))
        old = OldBroker(read_url(options["from_env"], os.environ), options["from_env"], queues)
        if options["dry_run"]:
            counts = operation.planned(old, topology)
            data: dict[str, Any] = {"planned": _dicts(counts)}
            closing = f"{sum(counts.values())} messages wait; none was moved."
        else:
            data, counts, closing = _adopt(old, topology, options)
    except WrongSource as error:
        raise CommandError(str(error), returncode=2) from error
    except (AdoptionRefused, OldBrokerFailed, StorageFailed) as error:
        raise CommandError(str(error)) from error
    except broker_errors.kinds() as error:
        raise CommandError(broker_errors.sentence(error)) from error
    table.write(out, data, _cells(counts), COLUMNS, as_json=options["json"])
    if not options["json"]:
        out.write(f"{closing}\n")


def _adopt(old: OldBroker, topology: Topology, options: dict[str, Any]) -> tuple[dict[str, Any], Counter[Line], str]:
    minutes = options["silent_minutes"] or SILENT_MINUTES
    seconds = minutes * 60 if options["follow"] else None
    progress = Progress(sys.stderr)
    with _stopped_by_signals() as stop:
        end, tally = operation.adopt(old, topology, operation.Watcher(progress.moved, progress.notice, stop), seconds)
    progress.close()
    if end is End.STOPPED:
        raise CommandError(f"Stopped: {_summary(tally)} Run it again to go on.")
    data = {
        "source": old.place,
        "end": str(end),
        "run": {"messages": _dicts(tally.run), "possibly_doubled": tally.run_possibly_doubled},
        "all_runs": {"messages": _dicts(tally.counts), "possibly_doubled": tally.possibly_doubled},
    }
    silence = f"The old publishers have been silent for {minutes:g} minutes. " if seconds else ""
    return data, tally.run, f"{silence}{_summary(tally)}"


def _summary(tally: Tally) -> str:
    doubled = f", {tally.possibly_doubled} of them possibly doubled" if tally.possibly_doubled else ""
    return f"{_by_outcome(tally.run)}; {sum(tally.counts.values())} in all runs{doubled}."


def _by_outcome(counts: Counter[Line]) -> str:
    sums = {what: sum(number for line, number in counts.items() if line.outcome == what) for what in Outcome}
    return (
        f"{sum(sums.values())} messages: {sums[Outcome.RUNS]} run, {sums[Outcome.DROPPED]} dropped, "
        f"{sums[Outcome.BURIED]} dead letters"
    )


def _dicts(counts: Counter[Line]) -> list[dict[str, Any]]:
    return [{**line._asdict(), "messages": number} for line, number in sorted(counts.items())]


def _cells(counts: Counter[Line]) -> list[tuple[Any, ...]]:
    return [
        (line.queue, line.task, number, line.outcome, line.runs_as or None, line.to or None, line.why or None)
        for line, number in sorted(counts.items())
    ]


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Let SIGTERM and SIGINT end the run between two messages."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """Says how far it is: one line that changes on a terminal, else a line now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._live = stream, stream.isatty()
        self._began = self._said = time.monotonic()
        self._last = ""

    def moved(self, tally: Tally) -> None:
        """Print the counts so far, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._said < (TERMINAL_SECONDS if self._live else PIPED_SECONDS):
            return
        self._said = now
        rate = sum(tally.run.values()) / (now - self._began)
        line = f"{_by_outcome(tally.run)}; {rate:.0f}/s"
        if self._live:
            self._stream.write(f"\r{line}\x1b[K")
        elif _by_outcome(tally.run) != self._last:
            self._stream.write(f"{line}\n")
        self._last = _by_outcome(tally.run)
        self._stream.flush()

    def notice(self, sentence: str) -> None:
        """Print a sentence on a line of its own."""
        self.close()
        self._stream.write(f"{sentence}\n")
        self._stream.flush()

    def close(self) -> None:
        """End the line that changes."""
        if self._live and self._last:
            self._stream.write("\n")
            self._last = ""
