"""``python -m ami.transports.objectstore check FOLDER``: check the files of a folder broker, read-only."""

import argparse
import dataclasses
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ami.transports.objectstore.check.delayed import delayed_reports, slots_of
from ami.transports.objectstore.check.journal import Report, read_queue
from ami.transports.objectstore.check.objects import FOLDERS, declared_queues, set_torn_objects_aside, torn_objects
from ami.transports.objectstore.check.repair import Repair, mark, print_repairs, repair_queue
from ami.transports.objectstore.storage.errors import StorageError

ABOUT = """\
Read all files of a broker's folder, check every checksum, and print a row for each queue. Processes may use the folder
meanwhile. A queue that cannot be read is marked, so that it accepts no message; nothing else is changed. Exit code 0:
whole; 1: damaged; 2: not a broker's folder; 3: no damage found, but a queue's lock was not free for ten seconds.

With --repair, each damaged queue keeps every message that can be read, and accepts messages again. What cannot be read
is copied to the folder .unreadable beside the queues. Messages that may have been acknowledged in the damaged part are
delivered again, flagged as redelivered. Exit code 0: repaired, or nothing was damaged; 1: a repair failed."""


def add(commands: Any) -> None:
    """Add the command to a parser's subcommands."""
    parser = commands.add_parser(
        "check",
        help="check the files of a broker's folder; exit 1 if damaged",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a broker's folder, or that of a single queue")
    parser.add_argument("--repair", action="store_true", help="keep what can be read, and set the rest aside")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the folder and print the result; return the exit code that ``ABOUT`` explains."""
    folder: Path = options.folder
    if options.repair:
        return repair(folder, as_json=options.json)
    try:
        declared, slots = declared_queues(folder), set(slots_of(folder).values())
        paths = [path for path in queues_of(folder) if path not in slots]
        reports = [checked(path, *declared.get(path.name, (None, False))) for path in paths]
        reports += delayed_reports(folder, checked)
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


def repair(folder: Path, *, as_json: bool) -> int:
    """Repair every queue and set torn objects aside; print what was done, and return the exit code."""
    repairs: list[Repair] = []
    failures: list[str] = []
    try:
        paths, declared = queues_of(folder), declared_queues(folder)
    except (OSError, ValueError) as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    for path in paths:
        try:
            done = repair_queue(path, is_transient=declared.get(path.name, (None, False))[1])
        except (OSError, StorageError) as error:
            failures.append(f"{path}: {error}")
        else:
            repairs += [done] if done else []
    objects = [str(path) for path in set_torn_objects_aside(folder)]
    if as_json:
        queues = [dataclasses.asdict(one) for one in repairs]
        print(json.dumps({"folder": str(folder), "queues": queues, "objects": objects, "failures": failures}, indent=2))
    else:
        print_repairs(folder, repairs, objects, failures)
    return 1 if failures else 0


def checked(path: Path, name: str | None = None, is_transient: bool = False) -> Report:
    """Read a queue; mark one that cannot be read, so that no process appends to it."""
    report = read_queue(path, is_transient=is_transient)
    if not report.is_readable and report.damage:
        with suppress(OSError, StorageError):
            mark(path, report.damage[0])
    # The folder of a long name shows only its beginning.
    report.queue = name or report.queue
    return report


def queues_of(folder: Path) -> list[Path]:
    """Return the folders of all queues and delays. Raises ValueError for a folder that is not a broker's."""
    if _is_queue(folder):
        return [folder]
    if not any((folder / name).is_dir() for name in ("queues", *FOLDERS)):
        missing = "is not a broker's folder: it has no queues" if folder.is_dir() else "is not a folder"
        raise ValueError(f"{folder} {missing}")
    kinds = [path for path in sorted(folder.glob("[!.]*")) if path.name not in FOLDERS]
    return [path for kind in kinds for path in sorted(kind.glob("[!.]*")) if _is_queue(path)]


def _is_queue(path: Path) -> bool:
    """Whether it holds a journal, or what is left of one."""
    return path.is_dir() and ((path / "tail").is_file() or next(path.glob("*.log"), None) is not None)


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
