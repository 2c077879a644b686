"""``python -m demo.deployed``: the main job on a deployment that runs, from a container beside it (compose/demo.yml).

It reads the same environment and the same volume as the deployment's own containers, and starts pullers alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from demo import captures
from demo.client import ApiRefused
from demo.processes import ProcessEnded, Processes
from demo.showing import TooLong


@dataclass(frozen=True)
class Deployed:
    """What `demo.surroundings.Place` asks for."""

    folder: Path
    media: Path
    journal: Path
    web: str
    push: str
    is_deployed: bool = True


def main(argv: Sequence[str] | None = None) -> int:
    """Run the main job; return 0 only if every rule holds."""
    options = _parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 140)
    began = time.monotonic()
    place = Deployed(
        folder=options.folder,
        media=Path(os.environ["ANTENNA_MEDIA_ROOT"]),
        journal=Path(os.environ["ANTENNA_JOURNAL_DIR"]),
        web=options.web,
        push=options.push,
    )
    place.folder.mkdir(parents=True, exist_ok=True)
    processes = Processes(dict(os.environ), place.folder / "logs")
    import django

    django.setup()
    from demo import job

    try:
        return job.run(options, console, place, processes, began)
    except (TooLong, ProcessEnded, ApiRefused, NotADirectoryError) as error:
        console.print(f"[red]The demo failed:[/red] {error}", highlight=False, soft_wrap=True)
        return 1
    finally:
        processes.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.deployed", description=__doc__)
    parser.add_argument("--web", default="http://web:8000", help="where web is (http://web:8000)")
    parser.add_argument("--push", default="http://processing:2000", help="where the processing service is")
    parser.add_argument("--folder", type=Path, default=Path("/data/demo"), help="where the report is written")
    captures.add_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
