"""Recall and precision of found boxes against true boxes, at an overlap of one half."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from demo.ground_truth import Box


@dataclass(frozen=True)
class Score:
    """Counts over any number of pictures; `+` adds scores."""

    matched: int = 0
    true: int = 0
    found: int = 0

    @property
    def recall(self) -> float:
        """Share of the true boxes that were found; 1 without true boxes."""
        return self.matched / self.true if self.true else 1.0

    @property
    def precision(self) -> float:
        """Share of the found boxes that are true; 1 without found boxes."""
        return self.matched / self.found if self.found else 1.0

    def __add__(self, other: Score) -> Score:
        return Score(self.matched + other.matched, self.true + other.true, self.found + other.found)


def overlaps(true: Sequence[Box], found: Sequence[Box]) -> NDArray[np.float64]:
    """Return intersection over union of every pair, shape (true, found), each in 0..1."""
    if not true or not found:
        return np.zeros((len(true), len(found)))
    one = np.asarray(true, dtype=np.float64)[:, None, :]
    two = np.asarray(found, dtype=np.float64)[None, :, :]
    sides = np.minimum(one[..., 2:], two[..., 2:]) - np.maximum(one[..., :2], two[..., :2])
    common = np.clip(sides, 0, None).prod(axis=-1)
    area_one = np.clip(one[..., 2:] - one[..., :2], 0, None).prod(axis=-1)
    area_two = np.clip(two[..., 2:] - two[..., :2], 0, None).prod(axis=-1)
    union = area_one + area_two - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=union > 0))


def match(true: Sequence[Box], found: Sequence[Box], at_least: float = 0.5) -> list[tuple[int, int]]:
    """Return as many pairs (true index, found index) as possible that overlap `at_least`, each box used once."""
    from scipy.optimize import linear_sum_assignment

    overlap = overlaps(true, found)
    # One pair above the threshold outweighs all pairs below it.
    value = np.where(overlap >= at_least, 1000.0 + overlap, 0.0)
    rows, columns = linear_sum_assignment(value, maximize=True)
    return [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if overlap[r, c] >= at_least]


def score(true: Sequence[Box], found: Sequence[Box], at_least: float = 0.5) -> Score:
    return Score(len(match(true, found, at_least)), len(true), len(found))


def total(scores: Iterable[Score]) -> Score:
    summed = Score()
    for one in scores:
        summed += one
    return summed
