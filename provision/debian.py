"""Installs a server or a program from its Debian package without starting the package's system service."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from provision import account, commands
from provision.kind import Kind, Unavailable

POLICY = Path("/usr/sbin/policy-rc.d")
# invoke-rc.d and deb-systemd-invoke run this file before they start a service; exit code 101 forbids it.
FORBID = "#!/bin/sh\n# Written by provision for one apt-get install, removed after it.\nexit 101\n"
LOCK_SECONDS = 120
INSTALL_SECONDS = 600.0
_one_at_a_time = threading.Lock()


def look(kind: Kind) -> str:
    """What `install` would install. Raises `Unavailable`."""
    require()
    return f"the Debian package {kind.package}"


def require() -> None:
    """Raise `Unavailable` where no package can be installed."""
    if not shutil.which("apt-get"):
        raise Unavailable("no apt-get")
    if not account.is_root():
        raise Unavailable("not root, so no Debian packages")


def install_commands(packages: Sequence[str], *options: str) -> list[list[str]]:
    """The update and install commands for some packages; `options` go to apt-get (a test passes --simulate)."""
    apt = ["apt-get", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", *options]
    return [[*apt, "update", "-qq"], [*apt, "install", "-y", "-qq", "--no-install-recommends", *packages]]


@contextlib.contextmanager
def services_forbidden(policy: Path | None = None) -> Iterator[None]:
    """Forbid packages to start their services in the block; an existing policy of the machine stays."""
    policy = policy or POLICY
    try:
        with open(os.open(policy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o755), "w") as written:
            written.write(FORBID)
    except FileExistsError:
        yield
        return
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)


def service_runs(name: str) -> bool:
    """Whether the package's system service is running."""
    if not (service := shutil.which("service")):
        return False
    done = subprocess.run(  # noqa: S603
        [service, name, "status"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
    )
    return done.returncode == 0


def install(kind: Kind, *options: str) -> None:
    """Install the package; stop its service if it was not running before. Raises `Unavailable`."""
    look(kind)
    with _one_at_a_time:
        before = service_runs(kind.package)
        _run(install_commands([kind.package], *options))
        if not before and service_runs(kind.package):  # the machine's own policy allowed it
            commands.run(["service", kind.package, "stop"], seconds=60)


def install_programs(packages: Sequence[str]) -> None:
    """Install packages for their programs; a service among them does not run afterwards. Raises `Unavailable`."""
    require()
    with _one_at_a_time:
        before = {package for package in packages if service_runs(package)}
        _run(install_commands(packages))
        for package in packages:
            if package not in before and service_runs(package):
                commands.run(["service", package, "stop"], seconds=60)


def _run(argvs: Sequence[Sequence[str]]) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with services_forbidden():
        for argv in argvs:
            commands.run(argv, seconds=INSTALL_SECONDS, env=environ)
