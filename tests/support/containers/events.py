"""What the engine tells of containers, read as it comes: it keeps the last 256 only, health checks among them."""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Events:
    """Those of some kinds since the block began."""

    log: Path

    def of(self, container: str, action: str) -> list[dict[str, Any]]:
        """Return a container's events of one kind, oldest first."""
        events = [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in events if (event["Action"], event["Actor"]["ID"]) == (action, container)]


@contextmanager
def events(*actions: str) -> Iterator[Events]:
    """Listen for these kinds of events while the block runs."""
    filters = [part for action in actions for part in ("--filter", f"event={action}")]
    argv = ["docker", "events", "--since", str(int(time.time())), *filters, "--format", "{{json .}}"]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as log:
        listener = subprocess.Popen(argv, stdout=log)
        try:
            yield Events(Path(log.name))
        finally:
            listener.terminate()
            listener.wait()
