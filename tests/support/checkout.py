"""A copy of this checkout: what git knows, and new files that it does not ignore."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.place import ROOT


def copy_checkout(folder: Path) -> Path:
    """Copy the checkout's files as they are now into ``folder``, which must not exist; return it."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, os.fsdecode(done.stdout).split("\0")):
        if (ROOT / name).is_file():  # A file that was removed is still known to git.
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder
