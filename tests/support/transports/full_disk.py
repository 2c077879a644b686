"""A file system of a few MiB that is really full, in a mount namespace of the process that runs a test's lines."""

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.support.place import ROOT

SECONDS = 120


@cache
def _may_unshare() -> bool:
    command = [shutil.which("unshare") or "unshare", "-Urm", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run_in_namespace(code: str, *arguments: object, before: str = "", size: str = "16m") -> str:
    """Run lines of Python that find a new file system under ``sys.argv[1]``; return what they printed.

    ``before`` is run as the namespace's root first. Skips where user namespaces are not allowed.
    """
    if not _may_unshare():
        pytest.skip("this machine allows no user namespace, in which a small file system could be mounted")
    with tempfile.TemporaryDirectory() as folder:
        script = f'{before}\nmount -t tmpfs -o size={size} full "$1" && exec "$0" -c "$2" "$@"'
        lines = f"import sys\ndel sys.argv[2]\nsys.path.insert(0, {str(ROOT)!r})\n{code}"
        done = subprocess.run(
            ["unshare", "-Urm", "sh", "-c", script, sys.executable, folder, lines, *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fill(folder: Path) -> Path:
    """Fill the file system of a folder to its last byte; return the file that does it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler
