"""Reads the slots of delayed messages in a broker's folder."""

from datetime import UTC, datetime
from pathlib import Path

from ami.transports.objectstore.broker.wheel import FOLDER, Slot
from ami.transports.objectstore.check.journal import Report, read_queue


def delayed_reports(broker: Path) -> list[Report]:
    """Return a report for each slot, the first to begin first; its name says when its messages are due."""
    slots = (Slot.parse(path.parent.name) for path in (broker / FOLDER).glob("[!.]*/tail"))
    reports = []
    for slot in sorted(slot for slot in slots if slot is not None):
        report = read_queue(broker / FOLDER / slot.name)
        report.queue = f"(delayed until {datetime.fromtimestamp(slot.start, UTC):%Y-%m-%dT%H:%M:%SZ})"
        # Marks of expiry are not messages.
        report.waiting -= report.marks
        if report.waiting or report.damage or report.is_busy:
            reports.append(report)
    return reports
