"""A running service: its URLs, its origin, and its process if it was started here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from provision.kind import NotManaged
from provision.process import Process


@dataclass
class Service:
    """`how` is "at its URL" or "private (binary)", "private (wheel)", "private (apt)", "private (compose)".

    The URLs contain the password, so `repr` omits them.
    """

    name: str
    url: str = field(repr=False)
    management_url: str | None = field(repr=False)
    how: str
    version: str
    process: Process | None = field(default=None, repr=False)

    @property
    def is_managed(self) -> bool:
        return self.process is not None

    @property
    def pid(self) -> int | None:
        """The server's process id; None if it is stopped or was not started here."""
        return self.process.pid if self.process else None

    @property
    def log_path(self) -> Path | None:
        """The server's output; None if it was not started here."""
        return self.process.launch.log_path if self.process else None

    @property
    def folder(self) -> Path | None:
        """Its data and configuration; None if it was not started here."""
        return self.process.launch.folder if self.process else None

    def _own(self) -> Process:
        if self.process is None:
            raise NotManaged(f"{self.name} was found at its URL, not started here; use private=True")
        return self.process

    def stop(self) -> None:
        """Shut the server down; its data stay for `restart`. Raises `NotManaged`."""
        self._own().stop()

    def kill(self) -> None:
        """Kill the server by SIGKILL and wait for its end; its data stay for `restart`. Raises `NotManaged`."""
        self._own().kill()

    def restart(self) -> None:
        """Start it on the same ports and data and wait until it answers. Raises `NotManaged`, `Unavailable`."""
        self._own().restart()

    def remove(self) -> None:
        """Stop it and delete its data, if it was started here."""
        if self.process:
            self.process.remove()
