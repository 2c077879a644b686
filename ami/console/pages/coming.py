"""The place of a page that is not built yet."""

from typing import Any

from ami.console.page import Page
from ami.telemetry.snapshots.shape import Snapshot


class ComingPage(Page):
    """An empty page."""

    title = "Not built yet"

    def figures(self, snapshot: Snapshot) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing."""
        return {}
