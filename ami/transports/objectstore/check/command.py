"""``python -m ami.transports.objectstore check FOLDER``: check the files of a folder broker, read-only."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ami.transports.objectstore.check.delayed import delayed_reports
from ami.transports.objectstore.check.journal import Report, read_queue
from ami.transports.objectstore.check.objects import FOLDERS, declared_queues, torn_objects

ABOUT = """\
Read all files of a broker's folder, check every checksum, and print a row for each queue. Nothing is changed;
processes may use the folder meanwhile. Exit code 0: whole; 1: damaged; 2: not a broker's folder; 3: no damage found,
but a queue changed during every read."""


def add(commands: Any) -> None:
    """Add the command to a parser's subcommands."""
    parser = commands.add_parser(
        "check",
        help="check the files of a broker's folder; exit 1 if damaged",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a broker's folder, or that of a single queue")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the folder and print the result; return the exit code that ``ABOUT`` explains."""
    folder: Path = options.folder
    try:
        declared = declared_queues(folder)
        reports = [_report(path, *declared.get(path.name, (None, False))) for path in queues_of(folder)]
        reports += delayed_reports(folder)
        damage = list(torn_objects(folder))
    except (OSError, ValueError) as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    damage += [one for report in reports for one in report.damage]
    if options.json:
        queues = [dataclasses.asdict(report) for report in reports]
        print(json.dumps({"folder": str(folder), "queues": queues, "damage": damage}, indent=2))
    else:
        _print(folder, reports, damage)
    return 1 if damage else 3 if any(report.is_busy for report in reports) else 0


def _report(folder: Path, name: str | None, is_transient: bool) -> Report:
    report = read_queue(folder, is_transient=is_transient)
    # The folder of a long name shows only its beginning.
    report.queue = name or report.queue
    return report


def queues_of(folder: Path) -> list[Path]:
    """Return the folders of all queues. Raises ValueError for a folder that is not a broker's."""
    if (folder / "tail").is_file():
        return [folder]
    if not any((folder / name).is_dir() for name in ("queues", *FOLDERS)):
        missing = "is not a broker's folder: it has no queues" if folder.is_dir() else "is not a folder"
        raise ValueError(f"{folder} {missing}")
    return sorted(path.parent for path in (folder / "queues").glob("[!.]*/tail"))


def _print(folder: Path, reports: list[Report], damage: list[str]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    table = Table("queue", "waiting", "leased", "buried", "segments", "bytes", "damage", box=None)
    for report in reports:
        counts = (report.waiting, report.leased, report.buried, report.segments, report.bytes, len(report.damage))
        table.add_row(report.queue, *(f"{count:,}" for count in counts))
    console.print(table)
    for note in (note for report in reports for note in report.notes):
        console.print(f"note: {note}", soft_wrap=True)
    for one in damage:
        console.print(f"DAMAGED: {one}", soft_wrap=True)
    busy = sum(report.is_busy for report in reports)
    if not damage:
        unread = f"; {busy} could not be read while in use" if busy else ""
        console.print(f"{folder}: {len(reports)} queues, all {'that was read' if busy else 'of it'} whole{unread}")
