"""Reads the slots of delayed messages in a broker's folder."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ami.transports.objectstore.broker.wheel import FOLDER, Slot
from ami.transports.objectstore.check.journal import Report


def slots_of(broker: Path) -> dict[Slot, Path]:
    """Return the folder of each slot, the first to begin first."""
    found = ((Slot.parse(path.parent.name), path.parent) for path in (broker / FOLDER).glob("[!.]*/tail"))
    return dict(sorted((slot, path) for slot, path in found if slot is not None))


def delayed_reports(broker: Path, read: Callable[[Path], Report]) -> list[Report]:
    """Return what ``read`` reports of each slot; the name of the report says when its messages are due."""
    reports = []
    for slot, path in slots_of(broker).items():
        report = read(path)
        report.queue = f"(delayed until {datetime.fromtimestamp(slot.start, UTC):%Y-%m-%dT%H:%M:%SZ})"
        # Marks of expiry are not messages.
        report.waiting -= report.marks
        if report.waiting or report.buried or report.damage or report.is_busy:
            reports.append(report)
    return reports
