"""Finds a program on this machine, or installs it from Debian's packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from provision import debian
from provision.kind import NothingFound, Unavailable
from provision.steps import steps

Found = TypeVar("Found")


def obtain(
    name: str, find: Callable[[], Found], packages: Sequence[str], remedy: str, environ: Mapping[str, str]
) -> Found:
    """What `find` finds, installed if needed and possible; ANTENNA_PROVISION_SKIP skips `binary` and `apt`.

    `find` raises `Unavailable`. Raises `NothingFound` with every reason, and what to install.
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
            debian.install_programs(packages)
            return find()
        except Unavailable as error:
            reasons.append(str(error))
    tried = "; ".join(reasons) or "every step is skipped"
    raise NothingFound(f"{name}: {tried}. Install {remedy} (apt-get install {' '.join(packages)}).")
