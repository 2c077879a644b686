"""Finds Chromium, or installs it from Debian's package."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from provision import program
from provision.kind import Unavailable

#: What Chromium is called by Debian, by others, and by Google.
EXECUTABLES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
#: Without a font a page has no text.
PACKAGES = ("chromium", "fonts-liberation")


def find() -> Path:
    """The executable on PATH. Raises `Unavailable`."""
    for name in EXECUTABLES:
        if found := shutil.which(name):
            return Path(found)
    raise Unavailable(f"no {EXECUTABLES[0]} on PATH")


def obtain(environ: Mapping[str, str]) -> Path:
    """The executable, installed if needed and possible (`provision.program.obtain`)."""
    return program.obtain("browser", find, PACKAGES, "Chromium", environ)
