"""The demo's captures: drawn, or copied from a folder of photographs."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from demo.ground_truth import Manifest
from demo.photographs import scan_photographs
from demo.renderer import draw_nights

FRAMES_PER_NIGHT = 60


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gather`."""
    parser.add_argument(
        "--captures", type=Path, metavar="FOLDER", help="use these photographs instead of drawn captures"
    )
    parser.add_argument(
        "--frames",
        type=int,
        default=FRAMES_PER_NIGHT,
        help="drawn captures per night, two nights; default: %(default)s",
    )
    parser.add_argument("--seed", type=int, default=7, help="seed of the drawn captures; default: %(default)s")


def gather(options: argparse.Namespace, media: Path, console: Console) -> tuple[list[Path], Manifest | None]:
    """Write the captures below ``media``, one folder per station; return the folders, and the ground truth if drawn.

    Raises:
        NotADirectoryError: the folder of photographs does not exist, or has no usable photograph.
    """
    if options.captures:
        return _copied(options.captures, media / "captures", console), None
    target = media / "captures"
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("drawing captures", total=2 * options.frames)
        manifest = draw_nights(
            target,
            frames_per_night=options.frames,
            seed=options.seed,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    console.print(f"{len(manifest.frames)} captures drawn, two nights, seed {manifest.seed}")
    return sorted(path for path in target.iterdir() if path.is_dir()), manifest


def _copied(source: Path, target: Path, console: Console) -> list[Path]:
    folders = []
    for station in scan_photographs(source):
        for skipped in station.skipped:
            console.print(f"skipped {skipped.path.name}: {skipped.reason}", highlight=False, soft_wrap=True)
        if not station.photographs:
            continue
        folder = target / station.name
        folder.mkdir(parents=True, exist_ok=True)
        for photograph in station.photographs:
            shutil.copyfile(photograph.path, folder / photograph.path.name)
        folders.append(folder)
        console.print(f"station {station.name}: {len(station.photographs)} photographs", highlight=False)
    if not folders:
        raise NotADirectoryError(f"{source} has no usable photograph")
    return folders
