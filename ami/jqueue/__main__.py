"""``python -m ami.jqueue import SOURCE TARGET``: import a queue's file into a journal's folder, or back."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ami.jqueue.adapters.storage.local_import import import_queue
from ami.jqueue.domain.errors import JQueueError

ABOUT = """\
Import the jobs of SOURCE into TARGET, which must not exist. A file with a queue in JSON becomes a folder with a journal; a
folder with a journal becomes a file. Stop the programs that use SOURCE first: from then on it raises an error that names
TARGET. A file's content is kept as SOURCE.imported. After an interruption, repeat the command.
Exit code 0: imported, also by an earlier call; 1: the disk failed; 2: cannot be imported."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ami.jqueue", description="Manage queues of ami.jqueue.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "import",
        help="import a queue's file into a journal's folder, or back",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("source", type=Path, metavar="SOURCE", help="the file or folder of a queue")
    command.add_argument("target", type=Path, metavar="TARGET", help="the new folder or file")
    options = parser.parse_args(argv)
    return _import(options.source, options.target)


def _import(source: Path, target: Path) -> int:
    try:
        count = import_queue(source, target)
    except (ValueError, JQueueError) as error:
        print(f"import: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"import: {error}", file=sys.stderr)
        return 1
    jobs = "the jobs, by an earlier call," if count is None else f"{count:,} job{'' if count == 1 else 's'}"
    print(f"Imported {jobs} from {source} into {target}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
