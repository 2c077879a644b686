"""What the containers of these tests were doing when one failed: in its report, and whole below ``.test-logs``."""

import re
from collections.abc import Iterable
from typing import Any

from tests.support.containers.engine import client
from tests.support.place import ROOT

FOLDER = ROOT / ".test-logs"
#: How much of its end a report shows of each log, in lines.
LINES = 15

#: The compose projects that this process has started.
PROJECTS: set[str] = set()


def containers(projects: Iterable[str] = PROJECTS) -> list[Any]:
    """Return every container of these projects, those that have ended among them."""
    found = client().containers.list(all=True, filters={"label": "com.docker.compose.project"}, ignore_removed=True)
    return sorted(
        (one for one in found if one.labels["com.docker.compose.project"] in set(projects)), key=lambda one: one.name
    )


def text(found: Iterable[Any]) -> str:
    """Return the state of each container and the last lines of its log."""
    return "\n".join(f"--- {state(one)}\n{one.logs(tail=LINES).decode(errors='replace')}" for one in found)


def state(one: Any) -> str:
    """Return name, state, and what else tells why it may not have answered."""
    told = one.attrs["State"]
    health = told.get("Health", {}).get("Status", "no health check")
    killed = ", killed for its memory" if told["OOMKilled"] else ""
    return f"{one.name}: {told['Status']} ({told['ExitCode']}{killed}), {health}, {one.attrs['RestartCount']} restarts"


def save(test: str, found: Iterable[Any]) -> None:
    """Write the whole logs to a folder of the test's name."""
    folder = FOLDER / re.sub(r"[^\w.-]+", "-", test).strip("-")[:120]
    folder.mkdir(parents=True, exist_ok=True)
    for one in found:
        (folder / f"{one.name}.log").write_text(f"{state(one)}\n{one.logs(timestamps=True).decode(errors='replace')}")
