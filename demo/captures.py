"""Where the demo's captures come from: drawn, or a folder of photographs."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from demo.drawing import draw_nights
from demo.photographs import scan_photographs
from demo.truth import Manifest

FRAMES_PER_NIGHT = 60


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what `gather` reads."""
    parser.add_argument("--captures", type=Path, metavar="FOLDER", help="photographs instead of drawn captures")
    parser.add_argument("--frames", type=int, default=FRAMES_PER_NIGHT, help="drawn captures per night, two nights")
    parser.add_argument("--seed", type=int, default=7, help="of the drawing")


def gather(options: argparse.Namespace, media: Path, console: Console) -> tuple[list[Path], Manifest | None]:
    """Put the captures below ``media``, one folder a station; return those folders, and the truth if it is known.

    Raises:
        NotADirectoryError: the folder of photographs does not exist, or no photograph in it can be used.
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
        raise NotADirectoryError(f"{source}: no photograph in it can be used")
    return folders
