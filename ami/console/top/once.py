"""The figures printed once: as lines of a terminal, or as JSON."""

import json
from dataclasses import asdict
from typing import IO, Any

from rich.console import Console

from ami.console import quantities, seen_workers
from ami.console.pages import overview, workers
from ami.console.tables import Table, raw_rows
from ami.console.top import overview_lines, screen
from ami.console.top.cells import BAD, glyphs_for, plain
from ami.console.top.faults import away
from ami.telemetry import findings
from ami.telemetry.snapshots import shared, verdict
from ami.telemetry.snapshots.shape import Snapshot
from ami.telemetry.snapshots.verdict import Verdict

FRESH_SECONDS = 1.5
#: Where the output is no terminal.
PIPED_WIDTH = 80


def write(out: IO[str], *, as_json: bool) -> Verdict:
    """Look at the broker, the workers and the findings, and print them; return the verdict.

    Raises:
        django.db.Error: the database did not answer.
    """
    findings.look()
    shared.forget()
    snapshot = shared.current(FRESH_SECONDS)
    if as_json:
        out.write(json.dumps(tables(snapshot)) + "\n")
    else:
        _print(snapshot, out)
    return verdict.judge(snapshot)


def tables(snapshot: Snapshot) -> dict[str, Any]:
    """Return the page's tables: raw values, times as ISO 8601 in UTC, a figure that could not be read as null."""
    rows = [seen_workers.as_row(worker) for worker in snapshot.workers]
    shown = [*overview.OverviewPage().tables(snapshot), Table("workers", workers.COLUMNS, rows)]
    return {
        "at": quantities.iso(snapshot.taken_at),
        "verdict": asdict(verdict.judge(snapshot)),
        "unseen": list(away(snapshot)),
        "delayed": snapshot.delayed,
        **{table.name: raw_rows(table) for table in shown},
    }


def _print(snapshot: Snapshot, out: IO[str]) -> None:
    is_terminal = out.isatty()
    width = None if is_terminal else PIPED_WIDTH
    file: Any = getattr(out, "_out", out)  # Django's wrapper does not tell the encoding.
    console = Console(
        file=file,
        width=width,
        force_terminal=is_terminal,
        color_system="auto" if is_terminal else None,
        highlight=False,
        markup=False,
    )
    glyphs, width = glyphs_for(console.encoding), console.width
    if glyphs.full == "#" and hasattr(file, "reconfigure"):
        file.reconfigure(errors="replace")  # A job's name may have more letters than the terminal.
    for each in away(snapshot):
        console.print(plain(each), style=BAD, soft_wrap=True)
    console.print(overview_lines.title(snapshot, 0.0, width, glyphs))
    for shown in screen.overview(snapshot, width, None, glyphs, ""):
        shown.rstrip()
        console.print(shown, soft_wrap=True)
