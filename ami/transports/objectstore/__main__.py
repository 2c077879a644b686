"""``python -m ami.transports.objectstore check FOLDER``: check the files of a folder broker."""

import argparse
import sys
from collections.abc import Sequence

from ami.transports.objectstore.check import command as check


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ami.transports.objectstore", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check.add(commands)
    options = parser.parse_args(argv)
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
