"""Classifies an insect by its size, colour and outline: softmax over distances to reference features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from processing_service.detector import Insect, Mask
from processing_service.pictures import Picture

MOTH = "Moth"
NOT_MOTH = "Non-Moth"
BINARY_LABELS = (MOTH, NOT_MOTH)

SPECIES_FEATURES: dict[str, tuple[float, float, float, float]] = {
    "Arctia caja": (0.36, 0.26, -0.11, 0.070),
    "Autographa gamma": (0.45, 0.07, -0.05, 0.040),
    "Biston betularia": (0.30, 0.02, -0.01, 0.052),
    "Deilephila elpenor": (0.58, 0.31, 0.03, 0.062),
    "Idaea aversata": (0.68, 0.09, -0.13, 0.026),
    "Noctua pronuba": (0.37, 0.16, -0.14, 0.054),
    "Opisthograptis luteolata": (0.70, 0.10, -0.46, 0.036),
}
"""Reference features: brightness, red minus green, blue minus green (relative to the cloth) and size, as `Features`."""

SPECIES_LABELS = tuple(SPECIES_FEATURES)
_TOLERANCE = np.array([0.08, 0.06, 0.08, 0.30])
_TEMPERATURE = 2.0


@dataclass(frozen=True)
class Features:
    """The measured features of an insect.

    Colours are relative to the lit cloth (white is 1); `size` is the root of its area over the picture's width;
    `elongation` is long axis over short axis; `fill` is its area over that of its ellipse.
    """

    brightness: float
    red_green: float
    blue_green: float
    size: float
    elongation: float
    fill: float


@dataclass(frozen=True)
class Classification:
    """A classifier's result: scores sum to one and are the softmax of the logits, in the order of the labels."""

    label: str
    labels: tuple[str, ...]
    scores: list[float]
    logits: list[float]


def features_of(picture: Picture, found: Insect) -> Features:
    """Measure one insect at the picture's working size; `ValueError` if its mask is empty."""
    if not found.mask.any():
        raise ValueError("empty mask: the box contains no pixel of the picture")
    cloth = np.maximum(np.percentile(picture.pixels[::4, ::4].reshape(-1, 3), 75, axis=0), 1.0)
    red, green, blue = (picture.pixels[found.where][found.mask] / cloth).mean(axis=0)
    elongation, fill = _outline(found.mask)
    return Features(
        brightness=float((red + green + blue) / 3),
        red_green=float(red - green),
        blue_green=float(blue - green),
        size=math.sqrt(int(found.mask.sum())) / picture.pixels.shape[1],
        elongation=elongation,
        fill=fill,
    )


def is_moth(features: Features) -> Classification:
    """Distinguish a moth from other objects on a sheet: screws are round, midges thin, dust is small."""
    thin = max(0.0, features.elongation - 2.4)
    tiny = max(0.0, 0.018 - features.size) / 0.006
    round_metal = features.elongation < 1.25 and features.fill > 0.95 and abs(features.red_green) < 0.05
    logit = 2.4 - 2.2 * thin - 1.5 * tiny - (4.0 if round_metal else 0.0)
    return _classified(BINARY_LABELS, np.array([logit, 0.0]))


def species_of(features: Features) -> Classification:
    """Return the species with the nearest reference features; far from all of them the scores flatten out."""
    seen = np.array([features.brightness, features.red_green, features.blue_green, math.log(features.size)])
    references = np.array([(*colours, math.log(size)) for *colours, size in SPECIES_FEATURES.values()])
    distance = np.linalg.norm((references - seen) / _TOLERANCE, axis=1)
    return _classified(SPECIES_LABELS, -distance * _TEMPERATURE)


def _classified(labels: tuple[str, ...], logits: NDArray[np.float64]) -> Classification:
    powers = np.exp(logits - logits.max())
    scores = powers / powers.sum()
    return Classification(
        label=labels[int(np.argmax(scores))],
        labels=labels,
        scores=[float(score) for score in scores],
        logits=[float(logit) for logit in logits],
    )


def _outline(mask: Mask) -> tuple[float, float]:
    """Return long axis over short axis, and area over the area of the ellipse with the same moments."""
    rows, columns = np.nonzero(mask)
    if rows.size < 3:
        return 1.0, 1.0
    # Plus the variance of one pixel (1/12), so that a line has a width.
    spread = np.cov(np.stack([columns, rows])) + np.eye(2) / 12
    short, long = np.sqrt(np.linalg.eigvalsh(spread))
    return float(long / short), float(rows.size / (4 * math.pi * long * short))
