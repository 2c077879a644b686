"""Path patterns of project members, test-compiled in a child process with limits.

``(((a{100}){100}){100}){100}`` and ``((((a+)+)+)+)...`` take gigabytes to compile, and C code cannot be interrupted.
"""

import subprocess
import sys
from typing import Any

MAX_MIB = 192
MAX_CPU_SECONDS = 2
WAIT_SECONDS = 20.0
TOO_COSTLY = "Takes too much memory or time to compile; write fewer repeats within repeats."

_CHILD = f"""
import resource, sys
import regex
limits = {{"CORE": 0, "CPU": {MAX_CPU_SECONDS}, "AS": {MAX_MIB} << 20}}
for name, most in limits.items():
    resource.setrlimit(getattr(resource, f"RLIMIT_{{name}}"), (most, most))
try:
    regex.compile(sys.stdin.buffer.read().decode())
except regex.error as error:
    print(f"Does not compile: {{error}}.")
"""


class PatternRefused(ValueError):
    """A pattern that cannot be used; the message says why."""


def problem_of(pattern: str) -> str:
    """Return why a pattern cannot be used; empty if it can."""
    if not pattern:
        return ""
    command = [sys.executable, "-I", "-c", _CHILD]
    try:
        child = subprocess.run(  # noqa: S603 - a fixed program; the pattern is its input
            command, input=pattern.encode(), capture_output=True, timeout=WAIT_SECONDS, check=False
        )
    except (subprocess.TimeoutExpired, UnicodeEncodeError):
        return TOO_COSTLY
    return child.stdout.decode(errors="replace").strip()[:500] if child.returncode == 0 else TOO_COSTLY


def compiled(pattern: str) -> Any:
    """Return the compiled pattern.

    Raises:
        PatternRefused: it does not compile, or only with too much memory or time.
    """
    if problem := problem_of(pattern):
        raise PatternRefused(problem)
    import regex

    return regex.compile(pattern, cache_pattern=False)
