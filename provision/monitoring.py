"""Finds Prometheus and promtool, or installs them from Debian's package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from provision import program
from provision.kind import Unavailable
from provision.steps import SYSTEM_FOLDERS

#: The package has both; its service, which would scrape its own port, is not started.
PACKAGES = ("prometheus",)
EXECUTABLES = ("prometheus", "promtool")


def find() -> tuple[Path, Path]:
    """The server and promtool, on PATH or where packages put them. Raises `Unavailable`."""
    search = os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_FOLDERS])
    found = [shutil.which(name, path=search) for name in EXECUTABLES]
    if None in found:
        raise Unavailable(f"no {EXECUTABLES[found.index(None)]} on PATH")
    server, tool = (Path(str(each)) for each in found)
    return server, tool


def obtain(environ: Mapping[str, str]) -> tuple[Path, Path]:
    """The server and promtool, installed if needed and possible (`provision.program.obtain`)."""
    return program.obtain("monitoring", find, PACKAGES, "Prometheus", environ)
