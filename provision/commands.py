"""Runs installers (pip, apt-get, docker) in a session of their own, so that Ctrl-C does not interrupt them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from provision.kind import Unavailable


def run(argv: Sequence[str], *, seconds: float, env: Mapping[str, str] | None = None) -> str:
    """The output of a command. Raises `Unavailable`, with its last line, if it is missing, too slow or fails."""
    name = " ".join(argv[:2])
    try:
        done = subprocess.run(  # noqa: S603
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            start_new_session=True,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(f"{argv[0]} not found") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{name} took more than {seconds:g} s") from None
    if done.returncode:
        lines = done.stdout.strip().splitlines() or ["no output"]
        raise Unavailable(f"{name} failed: {lines[-1].strip()}")
    return done.stdout
