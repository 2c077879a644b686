"""The ground truth of the drawn captures: boxes and species per file, stored in `truth.json` beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

TRUTH_FILE = "truth.json"

Box = tuple[float, float, float, float]
"""(x1, y1, x2, y2) in pixels of the picture, right and bottom exclusive."""


@dataclass(frozen=True)
class TrueMoth:
    """One moth on one capture; `individual` identifies it across captures while it stays on the sheet."""

    box: Box
    species: str
    individual: int


@dataclass(frozen=True)
class DrawnFrame:
    """One drawn capture: `file` relative to the manifest's folder, `taken_at` in station local time without a zone."""

    file: str
    station: str
    night: str
    taken_at: datetime
    moths: tuple[TrueMoth, ...]


@dataclass(frozen=True)
class Manifest:
    """All captures of one rendering; the same seed, size and counts give the same bytes."""

    folder: Path
    seed: int
    size: tuple[int, int]
    frames: tuple[DrawnFrame, ...] = field(default_factory=tuple)

    def boxes(self) -> Iterator[tuple[Path, list[Box]]]:
        for frame in self.frames:
            yield self.folder / frame.file, [moth.box for moth in frame.moths]

    def write(self) -> Path:
        """Write `truth.json` into the folder and return its path."""
        body = {
            "seed": self.seed,
            "size": list(self.size),
            "frames": [{**asdict(frame), "taken_at": frame.taken_at.isoformat()} for frame in self.frames],
        }
        path = self.folder / TRUTH_FILE
        path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
        return path


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's `truth.json`; raises `FileNotFoundError` if there is none."""
    body = json.loads((folder / TRUTH_FILE).read_text(encoding="utf-8"))
    width, height = body["size"]
    return Manifest(
        folder=folder,
        seed=body["seed"],
        size=(width, height),
        frames=tuple(_frame(entry) for entry in body["frames"]),
    )


def _frame(entry: dict[str, Any]) -> DrawnFrame:
    moths = tuple(
        TrueMoth(box=tuple(moth["box"]), species=moth["species"], individual=moth["individual"])
        for moth in entry["moths"]
    )
    return DrawnFrame(
        file=entry["file"],
        station=entry["station"],
        night=entry["night"],
        taken_at=datetime.fromisoformat(entry["taken_at"]),
        moths=moths,
    )
