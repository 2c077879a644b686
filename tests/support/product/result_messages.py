"""The messages of posted results: kept instead of published, and handled as the tasks do."""

from collections.abc import Mapping
from typing import Any

import pytest

from ami.jobs.services import ingest

TASKS = ("process_nats_pipeline_result", "process_nats_pipeline_results")


def keep_result_messages(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the list to which the arguments of each message go that would be published."""
    messages: list[dict[str, Any]] = []
    for name in TASKS:
        monkeypatch.setattr(f"ami.jobs.tasks.{name}.apply_async", lambda kwargs, **_: messages.append(kwargs))
    return messages


def handle_message(message: Mapping[str, Any]) -> None:
    """Handle one result or a batch."""
    handle: Any = ingest.handle_batch if "result_ids" in message else ingest.handle
    handle(**{name: value for name, value in message.items() if name != "project_id"})
