"""The reports of earlier runs, beside the last one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

#: Reports that are kept, the last one included.
KEPT = 3
#: The folder of earlier reports.
EARLIER = "reports"


def set_aside(folder: Path) -> None:
    """Move the last report below ``folder`` to the earlier ones, named after its time; the oldest are deleted."""
    last, earlier = folder / "report" / "index.html", folder / EARLIER
    if not last.is_file():
        return
    earlier.mkdir(exist_ok=True)
    at = datetime.fromtimestamp(last.stat().st_mtime).astimezone()
    last.replace(earlier / f"{at:%Y-%m-%d-%H%M%S}.html")
    for old in sorted(earlier.glob("*.html"), reverse=True)[KEPT - 1 :]:
        old.unlink()
