"""The steps that may provide a service, in the order in which they are tried."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from provision import account, compose, debian, urls, wheel
from provision.kind import Binary, Kind, LaunchSpec, Request, Unavailable
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
    """`look(kind, request)` returns what would be used; `take` uses it. Both raise `Unavailable`."""

    name: str
    look: Callable[[Kind, Request], str]
    take: Callable[[Kind, Request], Service]


def look_at_url(kind: Kind, request: Request) -> str:
    """The version at the configured URL."""
    if request.private:
        raise Unavailable("a private one is required")
    url = request.url(kind)
    try:
        version = kind.probe(url, urls.DEADLINE_SECONDS)
    except Unavailable as error:
        raise Unavailable(f"nothing usable at {urls.where(url)} ({error})") from None
    return f"{version} at {urls.where(url)}"


def take_url(kind: Kind, request: Request) -> Service:
    """The service at the configured URL."""
    version = look_at_url(kind, request)
    url = request.url(kind)
    management = None
    if kind.name == "rabbitmq":
        management = request.environ.get("RABBITMQ_MANAGEMENT_URL") or urls.management_beside(url)
    return Service(kind.name, url, management, "at its URL", version)


def find_binary(kind: Kind) -> Binary:
    """The executable on PATH or where packages put it (PATH often lacks sbin). Raises `Unavailable`."""
    beside = [folder for pattern in kind.folders for folder in sorted(glob(pattern), reverse=True)]
    search = os.pathsep.join([os.environ.get("PATH", ""), *beside, *SYSTEM_FOLDERS])
    found = shutil.which(kind.executable, path=search)
    if found is None:
        raise Unavailable(f"no {kind.executable} on PATH")
    return Binary(kind.executable_of(Path(found)), found)


def attempt(kind: Kind, request: Request, how: str, prepare: Callable[[Path], LaunchSpec]) -> Service:
    """A private instance in a new folder; a failed one is removed completely."""
    folder = account.new_folder(kind)
    process: Process | None = None
    try:
        launch = prepare(folder)
        account.own(folder, launch.account)
        process = Process(kind, launch)
        version = process.start(request.cancelled)
    except BaseException:
        if process:
            process.remove()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Service(kind.name, launch.url, launch.management_url, how, version, process)


def start(kind: Kind, request: Request, how: str, prepare: Callable[[Path], LaunchSpec]) -> Service:
    """A private instance in a new folder; a second attempt if another process took its port.

    Raises `Unavailable`, `Cancelled`.
    """
    try:
        return attempt(kind, request, how, prepare)
    except Collision:
        return attempt(kind, request, how, prepare)


def start_binary(kind: Kind, request: Request, how: str, binary: Binary) -> Service:
    """A private instance of an executable."""

    def prepare(folder: Path) -> LaunchSpec:
        executable, user = account.settle(kind, binary, folder)
        return kind.prepare(executable.resolve() if kind.refuses_root else executable, folder, user)

    return start(kind, request, how, prepare)


def look_at_binary(kind: Kind, _: Request) -> str:
    """The executable's path."""
    return find_binary(kind).origin


def take_binary(kind: Kind, request: Request) -> Service:
    """A private instance of the executable on this machine."""
    return start_binary(kind, request, "private (binary)", find_binary(kind))


def look_at_wheel(kind: Kind, _: Request) -> str:
    return wheel.look(kind)


def take_wheel(kind: Kind, request: Request) -> Service:
    """A private instance from a wheel."""
    request.say(f"{kind.name}: getting {wheel.look(kind)}")
    return start_binary(kind, request, "private (wheel)", wheel.fetch(kind))


def look_at_apt(kind: Kind, _: Request) -> str:
    return debian.look(kind)


def take_apt(kind: Kind, request: Request) -> Service:
    """A private instance from a Debian package."""
    request.say(f"{kind.name}: installing {debian.look(kind)}")
    debian.install(kind)
    return start_binary(kind, request, "private (apt)", find_binary(kind))


def look_at_compose(kind: Kind, _: Request) -> str:
    return compose.look(kind)


def take_compose(kind: Kind, request: Request) -> Service:
    """A private instance in a container."""
    request.say(f"{kind.name}: starting {compose.look(kind)}")
    return start(kind, request, "private (compose)", lambda folder: compose.prepare(kind, folder))


STEPS: tuple[Step, ...] = (
    Step("url", look_at_url, take_url),
    Step("binary", look_at_binary, take_binary),
    Step("wheel", look_at_wheel, take_wheel),
    Step("apt", look_at_apt, take_apt),
    Step("compose", look_at_compose, take_compose),
)


def steps(environ: Mapping[str, str]) -> list[Step]:
    """The steps without those in ANTENNA_PROVISION_SKIP (comma-separated names).

    Raises ValueError for an unknown name.
    """
    skipped = {name.strip() for name in environ.get(SKIP_VARIABLE, "").split(",") if name.strip()}
    known = [step.name for step in STEPS]
    if unknown := sorted(skipped - set(known)):
        raise ValueError(f"{SKIP_VARIABLE}: no step is called {', '.join(unknown)}; the steps are {', '.join(known)}")
    return [step for step in STEPS if step.name not in skipped]
