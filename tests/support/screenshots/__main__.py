"""Takes pictures of pages in a real browser: those of the documentation, or every page in both sizes and themes."""

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.support.screenshots import deployment

ROOT = Path(__file__).parents[3]
SEED = 7


def main() -> None:
    """Write the pictures of the documentation; with ``--all FOLDER`` every page there instead."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.screenshots", description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write every page in four forms into FOLDER")
    parser.add_argument("--only", default="", metavar="TEXT", help="only pictures with TEXT in their name")
    parser.add_argument("--keep", action="store_true", help="print the address and serve until a key is pressed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="antenna-screenshots-") as name:
        folder = Path(name)
        deployment.configure(folder)
        from tests.support.screenshots.pictures import take

        began = time.monotonic()
        count = take(folder, given.all, ROOT / "docs/images", given.only, random.Random(SEED), keep=given.keep)
        print(f"{count} pictures in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
