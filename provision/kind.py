"""The types of this package: a kind of service, a request for one, how it is launched, and the errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


class Unavailable(Exception):
    """This step cannot provide the service; the message has the reason, without secrets."""


class NothingFound(Exception):
    """No step can provide the service; the message has every reason and what to install."""


class NotManaged(Exception):
    """The service was not started here, so it cannot be stopped, killed or restarted."""


class Cancelled(Exception):
    """The start was cancelled, by a signal or because another service is unavailable."""


@dataclass(frozen=True)
class Account:
    """The user that a server runs as when we are root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Wheel:
    """A Python wheel with a server: the pinned requirement and the executable's relative path.

    `package` is the import package that contains it (None: the environment's scripts folder); `keeps` are the folders
    beside that package to copy together.
    """

    requirement: str
    executable: str
    package: str | None = None
    keeps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binary:
    """An executable, and the parts of its installation to copy if the server's account cannot reach it."""

    path: Path
    origin: str
    root: Path | None = None
    keeps: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchSpec:
    """How to run one server, and its URL.

    `leaves_something`: SIGKILL would leave more than processes and the folder (PostgreSQL: shared memory), so the
    server is always shut down in order.
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
        return self.folder / "log"


@dataclass(frozen=True)
class Container:
    """How docker compose runs the service: its inner ports, environment and URLs.

    `urls` takes {inner port: published port} and this run's password, and returns (url, management url or None).
    """

    ports: tuple[int, ...]
    urls: Callable[[Mapping[int, int], str], tuple[str, str | None]]
    environment: Callable[[str], Mapping[str, str]] = lambda _: {}
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of service: its variable, its probe, and how to start a private one.

    `probe(url, seconds)` returns the version ("Redis 7.0.15") or raises `Unavailable`. `prepare(binary, folder,
    account)` writes the configuration into `folder` and returns the `LaunchSpec`. `executable_of` maps the executable
    found to the one to run (a packaged wrapper to the wrapped one).
    """

    name: str
    variable: str
    default_url: str
    executable: str
    package: str
    probe: Callable[[str, float], str]
    prepare: Callable[[Path, Path, Account | None], LaunchSpec]
    container: Container
    folders: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    refuses_root: bool = False
    wheel: Wheel | None = None
    executable_of: Callable[[Path], Path] = lambda path: path


@dataclass(frozen=True)
class Request:
    """A call's parameters: its environment, whether a private instance is required, and an event to cancel it."""

    environ: Mapping[str, str]
    private: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)
    say: Callable[[str], None] = lambda _: None

    def url(self, kind: Kind) -> str:
        """The configured URL, or the local default."""
        return self.environ.get(kind.variable) or kind.default_url
