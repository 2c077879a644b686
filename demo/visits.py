"""Simulates which moths sit where on the sheet in each frame of a night."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from demo.moths import SPECIES, Species

MOST_MOTHS = 8


@dataclass(frozen=True)
class Visit:
    """A moth in one frame: centre and span in pixels, angle in degrees, markings by `variant`."""

    individual: int
    species: Species
    x: float
    y: float
    span: float
    angle: float
    variant: int
    leaves_at: int

    def keeps_clear_of(self, other: Visit) -> bool:
        """Return whether the circles around the two moths are apart, at any angle of the moths."""
        return math.hypot(self.x - other.x, self.y - other.y) > 0.6 * (self.span + other.span) + 14


class Night:
    """The moths of one night, frame by frame; some frames have none."""

    def __init__(self, size: tuple[int, int], frames: int, first_individual: int, rng: np.random.Generator) -> None:
        self._size = size
        self._frames = frames
        self._rng = rng
        self._next = first_individual
        self._present: list[Visit] = []

    @property
    def next_individual(self) -> int:
        """The number of the next new moth."""
        return self._next

    def frame(self, index: int) -> list[Visit]:
        """Return the moths in frame `index`; call with 0, 1, 2 ... in order."""
        if self._rng.random() < 0.04:
            self._present = []  # a bat passed, or the wind shook the sheet
        self._present = [self._moved(visit) for visit in self._present if visit.leaves_at > index]
        room = self._expected(index) - len(self._present)
        for _ in range(min(2, max(0, room))):
            self._arrive(index)
        return list(self._present)

    def _expected(self, index: int) -> int:
        """Return the number of moths at this hour: none at dusk, most after midnight, none at dawn."""
        hour = (index + 0.5) / self._frames
        return round(MOST_MOTHS * math.pow(math.sin(math.pi * hour), 0.8) - 0.9)

    def _moved(self, visit: Visit) -> Visit:
        if self._rng.random() > 0.15:
            return visit
        others = [other for other in self._present if other.individual != visit.individual]
        return self._placed(visit, others) or visit

    def _arrive(self, index: int) -> None:
        species = SPECIES[int(self._rng.integers(len(SPECIES)))]
        newcomer = Visit(
            individual=self._next,
            species=species,
            x=0,
            y=0,
            span=species.span * self._size[0] * float(self._rng.uniform(0.9, 1.12)),
            angle=0,
            variant=int(self._rng.integers(6)),
            leaves_at=index + int(self._rng.integers(2, 14)),
        )
        placed = self._placed(newcomer, self._present)
        if placed is not None:
            self._present.append(placed)
            self._next += 1

    def _placed(self, visit: Visit, others: list[Visit]) -> Visit | None:
        """Find a free place, sometimes at the edge; None if the sheet is too full."""
        width, height = self._size
        for _ in range(40):
            inset = visit.span * float(self._rng.choice([0.75, 0.75, 0.75, 0.3]))
            moved = replace(
                visit,
                x=float(self._rng.uniform(inset, width - inset)),
                y=float(self._rng.uniform(inset, height - inset)),
                angle=float(self._rng.uniform(0, 360)),
            )
            # `others` may include moths that moved in this frame: their old places are kept free too.
            if all(moved.keeps_clear_of(other) for other in others):
                return moved
        return None
