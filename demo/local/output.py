"""What ``python -m demo.local`` prints: lines of the parts, each after its name, and its own."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo.local.login import Login

NAME_WIDTH = 12
OWN = "run"
BOLD, RED, YELLOW, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


class Output:
    """Prints whole lines from several threads; colour only on a terminal, and not with NO_COLOR."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def part(self, name: str, line: str) -> None:
        """Print a line of a part; those of `ami.topology all` name their worker themselves."""
        self._print(line if not name else f"{name:{NAME_WIDTH}} | {line}")

    def say(self, line: str) -> None:
        self._print(f"{OWN:{NAME_WIDTH}} | {line}", BOLD)

    def warn(self, line: str) -> None:
        self._print(f"{OWN:{NAME_WIDTH}} | {line}", YELLOW)

    def fault(self, line: str) -> None:
        self._print(f"{OWN:{NAME_WIDTH}} | {line}", RED)

    def addresses(self, web: str, login: Login, job: int | None) -> None:
        """Print where to look and how to sign in."""
        shown = [
            ("queues", f"{web}/admin/queues/"),
            ("admin", f"{web}/admin/"),
            ("API", f"{web}/api/v2/"),
            *([("a job to run", f"{web}/admin/jobs/job/{job}/change/")] if job else []),
            ("sign in", f"{login.email}   password: {login.password}"),
            ("terminal", f". {login.folder}/environment.sh; .venv/bin/python manage.py queues top"),
            ("stop", "Ctrl-C; the data stays, and a change of a .py file restarts what runs"),
        ]
        for name, text in shown:
            self.say(f"{name:<13} {text}")

    def _print(self, line: str, style: str = "") -> None:
        with self._lock:
            print(f"{style}{line}{PLAIN}" if style and self._is_coloured else line, flush=True)
