"""``python -m ami.transports.objectstore``: what a bucket costs as a broker, and whether a folder is whole."""

import argparse
import sys
from collections.abc import Sequence

from ami.transports.objectstore.check import command as check
from ami.transports.objectstore.cost import command as cost


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ami.transports.objectstore", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (check, cost):
        command.add(commands)
    options = parser.parse_args(argv)
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
