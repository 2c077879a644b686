"""One service that can be used now: its URLs, where it came from, and its process if it was started here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from provision.kind import NotOurs
from provision.process import Process


@dataclass
class Service:
    """`how` is "at its URL" or "private (binary)", "private (wheel)", "private (apt)", "private (compose)".

    The URLs carry the password, so they are kept out of `repr`.
    """

    name: str
    url: str = field(repr=False)
    management_url: str | None = field(repr=False)
    how: str
    version: str
    process: Process | None = field(default=None, repr=False)

    @property
    def is_ours(self) -> bool:
        """Whether it was started here."""
        return self.process is not None

    @property
    def pid(self) -> int | None:
        """The process id of the server itself; None when it is stopped or not ours."""
        return self.process.pid if self.process else None

    @property
    def log_path(self) -> Path | None:
        """The server's output; None when it is not ours."""
        return self.process.launch.log_path if self.process else None

    @property
    def folder(self) -> Path | None:
        """Its data and configuration; None when it is not ours."""
        return self.process.launch.folder if self.process else None

    def _own(self) -> Process:
        if self.process is None:
            raise NotOurs(f"{self.name}: it was found at its URL, not started here; ask for private=True")
        return self.process

    def stop(self) -> None:
        """Shuts the server down in order; its data stay for `restart`. Raises `NotOurs`."""
        self._own().stop()

    def kill(self) -> None:
        """SIGKILL, and waits until it is gone; its data stay for `restart`. Raises `NotOurs`."""
        self._own().kill()

    def restart(self) -> None:
        """Starts it on the same ports and data and waits until it answers. Raises `NotOurs`, `Unavailable`."""
        self._own().restart()

    def remove(self) -> None:
        """Ends it for good, with its data, if it is ours; else does nothing."""
        if self.process:
            self.process.remove()
