"""Names an insect by its size, colour and outline: softmax over distances to reference looks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from processing_service.detector import Found, Mask
from processing_service.pictures import Picture

MOTH = "Moth"
NOT_MOTH = "Non-Moth"
BINARY_LABELS = (MOTH, NOT_MOTH)

SPECIES_LOOKS: dict[str, tuple[float, float, float, float]] = {
    "Arctia caja": (0.36, 0.26, -0.11, 0.070),
    "Autographa gamma": (0.45, 0.07, -0.05, 0.040),
    "Biston betularia": (0.30, 0.02, -0.01, 0.052),
    "Deilephila elpenor": (0.58, 0.31, 0.03, 0.062),
    "Idaea aversata": (0.68, 0.09, -0.13, 0.026),
    "Noctua pronuba": (0.37, 0.16, -0.14, 0.054),
    "Opisthograptis luteolata": (0.70, 0.10, -0.46, 0.036),
}
"""Reference looks: brightness, red minus green and blue minus green (all relative to the cloth), size (see `Look`)."""

SPECIES_LABELS = tuple(SPECIES_LOOKS)
_TOLERANCE = np.array([0.08, 0.06, 0.08, 0.30])
_TEMPERATURE = 2.0


@dataclass(frozen=True)
class Look:
    """What is measured of one insect.

    Colours are relative to the lit cloth (white is 1); `size` is the root of its area over the picture's width;
    `elongation` is long axis over short axis; `fill` is its area over that of its own ellipse.
    """

    brightness: float
    red_green: float
    blue_green: float
    size: float
    elongation: float
    fill: float


@dataclass(frozen=True)
class Opinion:
    """A classifier's answer: scores sum to one and are the softmax of the logits, in the order of the labels."""

    label: str
    labels: tuple[str, ...]
    scores: list[float]
    logits: list[float]


def look_at(picture: Picture, found: Found) -> Look:
    """Measure one insect at the picture's working size; `ValueError` if its mask is empty."""
    if not found.mask.any():
        raise ValueError("nothing to look at: the box holds no pixel of the picture")
    cloth = np.maximum(np.percentile(picture.pixels[::4, ::4].reshape(-1, 3), 75, axis=0), 1.0)
    red, green, blue = (picture.pixels[found.where][found.mask] / cloth).mean(axis=0)
    elongation, fill = _outline(found.mask)
    return Look(
        brightness=float((red + green + blue) / 3),
        red_green=float(red - green),
        blue_green=float(blue - green),
        size=math.sqrt(int(found.mask.sum())) / picture.pixels.shape[1],
        elongation=elongation,
        fill=fill,
    )


def is_moth(look: Look) -> Opinion:
    """Tell a moth from what else lies on a sheet: screws are round, midges thin, dust is small."""
    thin = max(0.0, look.elongation - 2.4)
    tiny = max(0.0, 0.018 - look.size) / 0.006
    round_metal = look.elongation < 1.25 and look.fill > 0.95 and abs(look.red_green) < 0.05
    logit = 2.4 - 2.2 * thin - 1.5 * tiny - (4.0 if round_metal else 0.0)
    return _opinion(BINARY_LABELS, np.array([logit, 0.0]))


def species_of(look: Look) -> Opinion:
    """Name the species whose reference look is nearest; far from all of them the scores flatten out."""
    seen = np.array([look.brightness, look.red_green, look.blue_green, math.log(look.size)])
    looks = np.array([(*colours, math.log(size)) for *colours, size in SPECIES_LOOKS.values()])
    distance = np.linalg.norm((looks - seen) / _TOLERANCE, axis=1)
    return _opinion(SPECIES_LABELS, -distance * _TEMPERATURE)


def _opinion(labels: tuple[str, ...], logits: NDArray[np.float64]) -> Opinion:
    powers = np.exp(logits - logits.max())
    scores = powers / powers.sum()
    return Opinion(
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
    # A twelfth of a pixel squared is the spread of a pixel itself: it keeps a line from having no width.
    spread = np.cov(np.stack([columns, rows])) + np.eye(2) / 12
    short, long = np.sqrt(np.linalg.eigvalsh(spread))
    return float(long / short), float(rows.size / (4 * math.pi * long * short))
