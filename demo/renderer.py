"""Renders nights of captures with known boxes: moths on a lit sheet, one picture every few minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path

import numpy as np
from PIL import Image

from demo.ground_truth import Box, DrawnFrame, Manifest, TrueMoth
from demo.moths import Sprite, draw_moth
from demo.sheets import Sheet, shadow_of
from demo.visits import Night, Visit

FIRST_NIGHT = date(2026, 6, 20)
DUSK = time(21, 0)
NIGHT_LENGTH = timedelta(hours=8)
_SMALLEST = 320

Progress = Callable[[int, int], None]
"""Called with (drawn frames, all frames) after every frame."""


def draw_nights(
    folder: Path,
    stations: int = 1,
    nights: int = 2,
    frames_per_night: int = 60,
    size: tuple[int, int] = (1280, 720),
    seed: int = 7,
    progress: Progress | None = None,
) -> Manifest:
    """Draw JPEGs of `size` (width, height) pixels and their `truth.json` below `folder`; deterministic by `seed`.

    Files are `station-<n>/YYYYMMDDHHMMSS-<frame>-snapshot.jpg`, 21:00 to 05:00 station local time.

    Raises:
        ValueError: a count is below one, or the size is below 320 pixels.
        OSError: the folder is not writable.
    """
    if min(stations, nights, frames_per_night) < 1 or min(size) < _SMALLEST:
        raise ValueError(f"need at least one station, night and frame, and {_SMALLEST} pixels on each side")
    total = stations * nights * frames_per_night
    frames: list[DrawnFrame] = []
    for number in range(1, stations + 1):
        station = _Station(folder, station_name(number), size, np.random.default_rng((seed, number)))
        for night in range(nights):
            for frame in station.night(FIRST_NIGHT + timedelta(days=night), frames_per_night):
                frames.append(frame)
                if progress is not None:
                    progress(len(frames), total)
    manifest = Manifest(folder=folder, seed=seed, size=size, frames=tuple(frames))
    manifest.write()
    return manifest


def station_name(number: int) -> str:
    """Return the name of a station's folder; ``number`` is from 1."""
    return f"station-{number}"


class _Station:
    def __init__(self, folder: Path, name: str, size: tuple[int, int], rng: np.random.Generator) -> None:
        self._folder = folder
        self._name = name
        self._rng = rng
        self._sheet = Sheet(size, rng)
        self._individuals = 1
        (folder / name).mkdir(parents=True, exist_ok=True)

    def night(self, day: date, frames: int) -> Iterator[DrawnFrame]:
        """Draw the night after `day`."""
        visitors = Night(self._sheet.size, frames, self._individuals, self._rng)
        for index in range(frames):
            yield self._frame(day, index, frames, visitors.frame(index))
        self._individuals = visitors.next_individual

    def _frame(self, day: date, index: int, frames: int, visits: list[Visit]) -> DrawnFrame:
        taken_at = (datetime.combine(day, DUSK) + NIGHT_LENGTH * index / frames).replace(microsecond=0)
        picture, moths = draw_capture(self._sheet, visits, self._rng)
        file = f"{self._name}/{taken_at:%Y%m%d%H%M%S}-{index + 1:02d}-snapshot.jpg"
        picture.save(self._folder / file, quality=90)
        return DrawnFrame(file, self._name, f"{day:%Y-%m-%d}", taken_at, tuple(moths))


def draw_capture(sheet: Sheet, visits: list[Visit], rng: np.random.Generator) -> tuple[Image.Image, list[TrueMoth]]:
    """Draw the sheet with these moths; return the RGB picture and its ground truth."""
    picture = sheet.lit(rng)
    moths: list[TrueMoth] = []
    for visit in visits:
        sprite = draw_moth(visit.species, visit.span, visit.angle, visit.variant)
        box = _settle(picture, sprite, visit)
        moths.append(TrueMoth(box=box, species=visit.species.name, individual=visit.individual))
    return sheet.with_noise(picture, rng), moths


def _settle(picture: Image.Image, sprite: Sprite, visit: Visit) -> Box:
    """Paste a moth and its shadow; return its box inside the picture."""
    left = round(visit.x - sprite.picture.width / 2)
    top = round(visit.y - sprite.picture.height / 2)
    shadow = shadow_of(sprite.picture)
    offset = max(1, round(visit.span * 0.03))
    picture.paste(shadow, (left + offset, top + offset), shadow)
    picture.paste(sprite.picture, (left, top), sprite.picture)
    x1, y1, x2, y2 = sprite.box
    return (
        float(max(0, left + x1)),
        float(max(0, top + y1)),
        float(min(picture.width, left + x2)),
        float(min(picture.height, top + y2)),
    )
