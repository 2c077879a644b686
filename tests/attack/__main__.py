"""``python -m tests.attack [--short] [--json FILE]``: attack the product on this machine; exit 1 for any finding."""

import argparse
import random
import sys
from collections.abc import Sequence

from tests.attack.report import Report
from tests.attack.stage import database, stage
from tests.support import services

PARTS = ("access", "admin", "schema", "messages", "bodies", "logins", "growth", "figures", "documents")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts and print the table."""
    arguments = parser().parse_args(argv)
    if missing := services.missing():
        sys.exit(f"{', '.join(missing)} not set; run `make attack`.")
    report = Report()
    with database(arguments.migrated):
        from tests.attack.runner import run

        with stage() as place:
            run(place, report, arguments.parts, random.Random(arguments.seed), short=arguments.short)
    report.show()
    if arguments.json:
        report.write(arguments.json)
    return 0 if report.passed else 1


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser("python -m tests.attack", description=__doc__)
    made.add_argument("--short", action="store_true", help="fewer requests and smaller bodies; about a minute")
    made.add_argument("--json", metavar="FILE", help="write all findings to FILE")
    made.add_argument("--migrated", metavar="DATABASE", default="", help="start from a copy of DATABASE, to save time")
    made.add_argument("--seed", type=int, default=9, help="seed for the choice of requests; default: 9")
    made.add_argument("--parts", default=PARTS, type=parts, help=f"some of {','.join(PARTS)}")
    return made


def parts(text: str) -> list[str]:
    """Return the parts in a comma-separated list."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := set(names) - set(PARTS):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
