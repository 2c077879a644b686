"""What ``python -m demo.local`` prints: lines of the processes, each after its name, and its own."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from ami.topology.process_group import printed

if TYPE_CHECKING:
    from demo.local.login import Login

NAME_WIDTH = 12
OWN = "run"
BOLD, RED, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


class Output(io.TextIOBase):
    """Standard output, our own lines in bold; colour only on a terminal, and not with NO_COLOR."""

    def __init__(self) -> None:
        self._is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def write(self, text: str) -> int:
        is_own = self._is_coloured and text.startswith(f"{OWN:{NAME_WIDTH}} |")
        return sys.stdout.write(f"{BOLD}{text}{PLAIN}" if is_own else text)

    def flush(self) -> None:
        sys.stdout.flush()

    def fileno(self) -> int:
        return sys.stdout.fileno()

    def say(self, line: str) -> None:
        printed(f"{OWN:{NAME_WIDTH}} | {line}", self)

    def fault(self, line: str) -> None:
        self.say(f"{RED}{line}{PLAIN}" if self._is_coloured else line)

    def addresses(self, web: str, login: Login) -> None:
        """Print where to look and how to sign in."""
        shown = [
            ("queues", f"{web}/admin/queues/"),
            ("admin", f"{web}/admin/"),
            ("API", f"{web}/api/v2/"),
            ("sign in", f"{login.email}   password: {login.password}"),
            ("terminal", f". {login.folder}/environment.sh; .venv/bin/python manage.py queues top"),
            ("stop", "Ctrl-C; the data stays, and a change of a .py file restarts what runs"),
        ]
        for name, text in shown:
            self.address(name, text)

    def address(self, name: str, text: str) -> None:
        self.say(f"{name:<13} {text}")
