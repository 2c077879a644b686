"""The ways to get a service, in the order in which they are tried."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from provision import account, compose, debian, urls, wheel
from provision.kind import Asked, Binary, Kind, Launch, Unavailable
from provision.process import Collision, Process
from provision.service import Service

SKIP_VARIABLE = "ANTENNA_PROVISION_SKIP"
SYSTEM_FOLDERS = (
    "/usr/local/bin",
    "/usr/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/opt/homebrew/bin",
    "/opt/homebrew/sbin",
)


@dataclass(frozen=True)
class Step:
    """`look(kind, asked)` says what would be used; `take` uses it. Both raise `Unavailable` if it does not work."""

    name: str
    look: Callable[[Kind, Asked], str]
    take: Callable[[Kind, Asked], Service]


def look_at_url(kind: Kind, asked: Asked) -> str:
    """What answers at the configured URL."""
    if asked.private:
        raise Unavailable("a private one is required")
    url = asked.url(kind)
    try:
        version = kind.probe(url, urls.DEADLINE_SECONDS)
    except Unavailable as error:
        raise Unavailable(f"nothing usable at {urls.where(url)} ({error})") from None
    return f"{version} at {urls.where(url)}"


def take_url(kind: Kind, asked: Asked) -> Service:
    """The service at the configured URL."""
    version = look_at_url(kind, asked)
    url = asked.url(kind)
    management = None
    if kind.name == "rabbitmq":
        management = asked.environ.get("RABBITMQ_MANAGEMENT_URL") or urls.management_beside(url)
    return Service(kind.name, url, management, "at its URL", version)


def find_binary(kind: Kind) -> Binary:
    """The executable on PATH or where packages put it (PATH often lacks sbin). Raises `Unavailable`."""
    beside = [folder for pattern in kind.folders for folder in sorted(glob(pattern), reverse=True)]
    search = os.pathsep.join([os.environ.get("PATH", ""), *beside, *SYSTEM_FOLDERS])
    found = shutil.which(kind.executable, path=search)
    if found is None:
        raise Unavailable(f"no {kind.executable} on PATH")
    return Binary(kind.executable_of(Path(found)), found)


def attempt(kind: Kind, asked: Asked, how: str, prepare: Callable[[Path], Launch]) -> Service:
    """A private instance in a new folder; nothing of it is left if it fails."""
    folder = account.new_folder(kind)
    process: Process | None = None
    try:
        launch = prepare(folder)
        account.own(folder, launch.account)
        process = Process(kind, launch)
        version = process.start(asked.cancelled)
    except BaseException:
        if process:
            process.remove()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Service(kind.name, launch.url, launch.management_url, how, version, process)


def start(kind: Kind, asked: Asked, how: str, prepare: Callable[[Path], Launch]) -> Service:
    """A private instance in a new folder; tried once more if somebody took a port.

    Raises `Unavailable`, `Cancelled`.
    """
    try:
        return attempt(kind, asked, how, prepare)
    except Collision:
        return attempt(kind, asked, how, prepare)


def start_binary(kind: Kind, asked: Asked, how: str, binary: Binary) -> Service:
    """A private instance of an executable."""

    def prepare(folder: Path) -> Launch:
        executable, user = account.settle(kind, binary, folder)
        return kind.prepare(executable.resolve() if kind.refuses_root else executable, folder, user)

    return start(kind, asked, how, prepare)


def look_at_binary(kind: Kind, _: Asked) -> str:
    """Where the executable is."""
    return find_binary(kind).origin


def take_binary(kind: Kind, asked: Asked) -> Service:
    """A private instance of the executable on this machine."""
    return start_binary(kind, asked, "private (binary)", find_binary(kind))


def look_at_wheel(kind: Kind, _: Asked) -> str:
    """Which wheel would be installed."""
    return wheel.look(kind)


def take_wheel(kind: Kind, asked: Asked) -> Service:
    """A private instance out of a wheel."""
    asked.say(f"{kind.name}: getting {wheel.look(kind)}")
    return start_binary(kind, asked, "private (wheel)", wheel.fetch(kind))


def look_at_apt(kind: Kind, _: Asked) -> str:
    """Which Debian package would be installed."""
    return debian.look(kind)


def take_apt(kind: Kind, asked: Asked) -> Service:
    """A private instance out of a Debian package."""
    asked.say(f"{kind.name}: installing {debian.look(kind)}")
    debian.install(kind)
    return start_binary(kind, asked, "private (apt)", find_binary(kind))


def look_at_compose(kind: Kind, _: Asked) -> str:
    """Which compose service would be run."""
    return compose.look(kind)


def take_compose(kind: Kind, asked: Asked) -> Service:
    """A private instance in a container."""
    asked.say(f"{kind.name}: starting {compose.look(kind)}")
    return start(kind, asked, "private (compose)", lambda folder: compose.prepare(kind, folder))


STEPS: tuple[Step, ...] = (
    Step("url", look_at_url, take_url),
    Step("binary", look_at_binary, take_binary),
    Step("wheel", look_at_wheel, take_wheel),
    Step("apt", look_at_apt, take_apt),
    Step("compose", look_at_compose, take_compose),
)


def steps(environ: Mapping[str, str]) -> list[Step]:
    """The steps that ANTENNA_PROVISION_SKIP (names, separated by commas) leaves.

    Raises ValueError for a name that is no step.
    """
    skipped = {name.strip() for name in environ.get(SKIP_VARIABLE, "").split(",") if name.strip()}
    known = [step.name for step in STEPS]
    if unknown := sorted(skipped - set(known)):
        raise ValueError(f"{SKIP_VARIABLE}: no step is called {', '.join(unknown)}; the steps are {', '.join(known)}")
    return [step for step in STEPS if step.name not in skipped]
