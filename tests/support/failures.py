"""What a failed test left running, and where its logs are."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support import place

LOGS = place.ROOT / ".test-logs"


def left_running(nodeid: str) -> str:
    """Keep the logs of the failed test's processes under ``.test-logs/`` and list them with the processes still
    running; empty when there are none.
    """
    lines: list[str] = []
    for each in place.open_places():
        folder = LOGS / re.sub(r"[^\w.-]+", "_", nodeid.removeprefix("tests/"))[:150]
        each.keep_logs(folder)
        for it in each.running():
            state, log = "running" if it.exit_code is None else f"exited {it.exit_code}", folder / it.log.name
            lines.append(f"{it.pid:>8}  {state:<12} {it.command}\n{'':10}log: {log.relative_to(place.ROOT)}")
    known = {it.pid for each in place.open_places() for it in each.running()}
    lines += [f"{pid:>8}  running      {command}" for pid, command in sorted(_descendants()) if pid not in known]
    return "\n".join(lines)


def _descendants() -> Iterator[tuple[int, str]]:
    """The living processes below this one, from /proc."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # It ended meanwhile.
                continue
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    for pid in below - {os.getpid()}:
        try:
            command = (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if command.strip():
            yield pid, command.strip()[:200]
