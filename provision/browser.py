"""Finds Chromium, or installs it from Debian's package."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from provision import debian
from provision.kind import NothingFound, Unavailable
from provision.steps import steps

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
    """The executable, installed if needed and possible; ANTENNA_PROVISION_SKIP skips `binary` and `apt`.

    Raises `NothingFound` with every reason.
    """
    wanted = {step.name for step in steps(environ)}
    reasons = []
    if "binary" in wanted:
        try:
            return find()
        except Unavailable as error:
            reasons.append(str(error))
    if "apt" in wanted:
        try:
            debian.install_programs(PACKAGES)
            return find()
        except Unavailable as error:
            reasons.append(str(error))
    tried = "; ".join(reasons) or "every step is skipped"
    raise NothingFound(f"browser: {tried}. Install Chromium (apt-get install chromium fonts-liberation).")
