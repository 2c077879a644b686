"""``python -m demo.deployed``: runs the main job on a running deployment, from a container of its own.

The container (compose/demo.yml) has the deployment's variables and volume, and starts only pullers. `demo.containers`
copies the report from there and prints its path.
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
from demo.progress import StepTimeout


@dataclass(frozen=True)
class DeployedEnvironment:
    """An `demo.environment.Environment`."""

    folder: Path
    media: Path
    journal: Path
    web: str
    push: str
    is_deployed: bool = True


def main(argv: Sequence[str] | None = None) -> int:
    """Run the main job; return 0 only if every check passes."""
    options = _parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 140)
    began = time.monotonic()
    environment = DeployedEnvironment(
        folder=options.folder,
        media=Path(os.environ["ANTENNA_MEDIA_ROOT"]),
        journal=Path(os.environ["ANTENNA_JOURNAL_DIR"]),
        web=options.web,
        push=options.push,
    )
    environment.folder.mkdir(parents=True, exist_ok=True)
    processes = Processes(dict(os.environ), environment.folder / "logs")
    # Only the demo's own lines; the deployment's processes log as they are set.
    os.environ.setdefault("ANTENNA_LOG_LEVEL", "WARNING")
    import django

    django.setup()
    from demo import job

    try:
        return job.run(options, console, environment, processes, began)
    except (StepTimeout, ProcessEnded, ApiRefused, NotADirectoryError) as error:
        console.print(f"[red]The demo failed:[/red] {error}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        processes.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.deployed", description=__doc__)
    parser.add_argument("--web", default="http://proxy:8080", help="URL of web; default: %(default)s")
    parser.add_argument(
        "--push", default="http://processing:2000", help="URL of the processing service; default: %(default)s"
    )
    parser.add_argument("--folder", type=Path, default=Path("/data/demo"), help="output folder; default: %(default)s")
    captures.add_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
