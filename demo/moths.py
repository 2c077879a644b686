"""Draws a moth from above, wings open or folded, as a transparent picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

Colour = tuple[int, int, int]
Points = list[tuple[float, float]]

_OVERSAMPLING = 4
_PATTERN_SEED = 20_260_620


@dataclass(frozen=True)
class Species:
    """A species' appearance; `span` is the wing span as a fraction of the picture's width."""

    name: str
    span: float
    posture: str
    forewing: Colour
    hindwing: Colour
    body: Colour
    mark: Colour
    spots: int


SPECIES: tuple[Species, ...] = (
    Species("Autographa gamma", 0.058, "folded", (116, 96, 82), (150, 128, 100), (96, 80, 70), (222, 214, 200), 2),
    Species("Noctua pronuba", 0.082, "folded", (122, 80, 44), (226, 150, 40), (98, 66, 40), (62, 40, 26), 3),
    Species(
        "Deilephila elpenor",
        0.092,
        "open",
        (186, 92, 112),
        (214, 100, 130),
        (136, 122, 62),
        (146, 132, 66),
        1,
    ),
    Species("Arctia caja", 0.104, "open", (88, 52, 36), (222, 92, 40), (120, 50, 30), (240, 226, 204), 5),
    Species("Idaea aversata", 0.036, "open", (188, 160, 122), (196, 170, 134), (156, 128, 94), (128, 98, 68), 2),
    Species("Biston betularia", 0.076, "open", (60, 56, 56), (72, 68, 66), (48, 44, 44), (118, 112, 108), 4),
    Species(
        "Opisthograptis luteolata",
        0.048,
        "open",
        (226, 196, 44),
        (232, 208, 82),
        (206, 178, 60),
        (146, 84, 36),
        2,
    ),
)

_OPEN_FOREWING: Points = [
    (0.04, -0.16),
    (0.30, -0.33),
    (0.50, -0.36),
    (0.47, -0.20),
    (0.38, -0.02),
    (0.20, 0.06),
    (0.04, 0.03),
]
_OPEN_HINDWING: Points = [
    (0.03, -0.02),
    (0.22, 0.03),
    (0.37, 0.02),
    (0.37, 0.16),
    (0.27, 0.28),
    (0.14, 0.27),
    (0.04, 0.16),
]
_FOLDED_FOREWING: Points = [
    (0.02, -0.36),
    (0.14, -0.32),
    (0.27, 0.02),
    (0.37, 0.36),
    (0.26, 0.43),
    (0.11, 0.41),
    (0.02, 0.30),
]
_FOLDED_HINDWING: Points = [
    (0.05, 0.10),
    (0.28, 0.20),
    (0.41, 0.33),
    (0.34, 0.45),
    (0.19, 0.46),
    (0.06, 0.36),
]


@dataclass(frozen=True)
class Sprite:
    """A drawn moth: RGBA picture, and the box (x1, y1, x2, y2) of its body and wings in it."""

    picture: Image.Image
    box: tuple[int, int, int, int]


@lru_cache(maxsize=64)
def draw_moth(species: Species, span_pixels: float, angle_degrees: float, variant: int) -> Sprite:
    """Draw a moth, `span_pixels` wide before its rotation; `variant` selects its markings.

    Sprites are cached: callers must not draw on them.
    """
    side = int(span_pixels * 1.7) * _OVERSAMPLING
    wings, feelers = _layers(species, side, variant)
    turned = [layer.rotate(angle_degrees, Image.Resampling.BICUBIC) for layer in (wings, feelers)]
    small = [layer.reduce(_OVERSAMPLING // 2) for layer in turned]
    box = small[0].getchannel("A").point(lambda alpha: 255 if alpha > 110 else 0).getbbox()
    if box is None:
        raise ValueError(f"a moth of {span_pixels:.1f} pixels is too small to draw")
    return Sprite(Image.alpha_composite(small[1], small[0]), box)


@lru_cache(maxsize=128)
def _layers(species: Species, side: int, variant: int) -> tuple[Image.Image, Image.Image]:
    """Draw wings with body, and feelers with legs, each on a transparent square of `side / 2` pixels."""
    rng = np.random.default_rng((_PATTERN_SEED, variant, side))
    folded = species.posture == "folded"
    fore, hind = (_FOLDED_FOREWING, _FOLDED_HINDWING) if folded else (_OPEN_FOREWING, _OPEN_HINDWING)
    wings = Image.new("RGBA", (side, side), (*species.body, 0))
    for outline, colour, is_fore in ((hind, species.hindwing, False), (fore, species.forewing, True)):
        wing = _wing(_placed(_smooth(outline), side), colour, species, rng, is_fore, side)
        wings.alpha_composite(wing)
        wings.alpha_composite(wing.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    _draw_body(wings, species, side, folded)
    return _with_scales(wings, rng).reduce(2), _feelers(species, side, folded).reduce(2)


def _placed(outline: Points, side: int) -> Points:
    """Scale unit coordinates (wing span 1, origin in the middle) to a square of `side` pixels."""
    scale = side / 1.7
    return [(side / 2 + x * scale, side / 2 + y * scale) for x, y in outline]


def _smooth(outline: Points, rounds: int = 3) -> Points:
    """Round the corners of a polygon by Chaikin's corner cutting."""
    for _ in range(rounds):
        cut: Points = []
        for (x0, y0), (x1, y1) in zip(outline, outline[1:] + outline[:1], strict=True):
            cut += [(0.8 * x0 + 0.2 * x1, 0.8 * y0 + 0.2 * y1), (0.2 * x0 + 0.8 * x1, 0.2 * y0 + 0.8 * y1)]
        outline = cut
    return outline


def _wing(
    outline: Points, colour: Colour, species: Species, rng: np.random.Generator, is_fore: bool, side: int
) -> Image.Image:
    """Draw a right wing with bands, spots, veins and a dark rim."""
    shape = Image.new("L", (side, side), 0)
    ImageDraw.Draw(shape).polygon(outline, fill=255)
    paint = Image.new("RGBA", (side, side), (*colour, 255))
    pen = ImageDraw.Draw(paint, "RGBA")
    width = side / 1.7
    root = outline[0]
    for radius in (0.50, 0.36) if is_fore else (0.34,):
        wobble = radius * (1 + rng.uniform(-0.06, 0.06)) * width
        box = (root[0] - wobble, root[1] - wobble, root[0] + wobble, root[1] + wobble)
        pen.arc(box, 0, 360, fill=(*_darker(colour, 0.62), 170), width=max(2, int(width * 0.018)))
    _spots(pen, outline, species, rng, width, is_fore)
    for end in outline[:: max(1, len(outline) // 7)]:
        pen.line([root, end], fill=(*_darker(colour, 0.75), 90), width=max(1, int(width * 0.006)))
    pen.line([*outline, outline[0]], fill=(*_darker(colour, 0.55), 210), width=max(2, int(width * 0.016)))
    paint.putalpha(shape)
    return paint


def _spots(
    pen: ImageDraw.ImageDraw,
    outline: Points,
    species: Species,
    rng: np.random.Generator,
    width: float,
    is_fore: bool,
) -> None:
    middle_x = sum(x for x, _ in outline) / len(outline)
    middle_y = sum(y for _, y in outline) / len(outline)
    for _ in range(species.spots if is_fore else max(1, species.spots - 2)):
        x, y = outline[int(rng.integers(len(outline)))]
        share = rng.uniform(0.0, 0.62)
        radius = width * rng.uniform(0.014, 0.04)
        centre = (middle_x + (x - middle_x) * share, middle_y + (y - middle_y) * share)
        fill = species.mark if is_fore else _darker(species.hindwing, 0.35)
        box = (centre[0] - radius * 1.4, centre[1] - radius, centre[0] + radius * 1.4, centre[1] + radius)
        pen.ellipse(box, fill=(*fill, 235))


def _draw_body(wings: Image.Image, species: Species, side: int, folded: bool) -> None:
    pen = ImageDraw.Draw(wings, "RGBA")
    end = 0.30 if folded else 0.33
    for top, bottom, half, shade in (
        (-0.10, end, 0.055, 0.95),
        (-0.24, -0.02, 0.082, 1.12),
        (-0.31, -0.21, 0.048, 0.8),
    ):
        if folded:
            top, bottom = top - 0.13, bottom - 0.13
        (x1, y1), (x2, y2) = _placed([(-half, top), (half, bottom)], side)
        pen.ellipse((x1, y1, x2, y2), fill=(*_darker(species.body, shade), 255))
    for ring in np.linspace(0.02, end - 0.06, 5):
        (x1, y1), (x2, _) = _placed([(-0.045, float(ring)), (0.045, 0.0)], side)
        pen.line((x1, y1, x2, y1), fill=(*_darker(species.body, 0.6), 130), width=max(1, side // 170))


def _feelers(species: Species, side: int, folded: bool) -> Image.Image:
    """Draw feelers and legs; they are too thin to count in the true box."""
    layer = Image.new("RGBA", (side, side), (*_darker(species.body, 0.6), 0))
    pen = ImageDraw.Draw(layer)
    head = -0.40 if folded else -0.28
    tips: list[Points] = [[(0.02, head), (0.10, head - 0.09), (0.17, head - 0.13)]]
    tips += [[(0.05, head + 0.08), (0.17, head + 0.01), (0.21, head - 0.05)]] if folded else []
    for line in tips:
        for mirror in (1, -1):
            points = _placed([(mirror * x, y) for x, y in line], side)
            pen.line(points, fill=(*_darker(species.body, 0.6), 255), width=max(2, side // 120), joint="curve")
    return layer


def _with_scales(wings: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Add the grain of scales and a faint light from above left."""
    side = wings.width
    coarse = rng.normal(0, 1, (side // 6 + 1, side // 6 + 1))
    grain = np.kron(coarse, np.ones((6, 6)))[:side, :side]
    light = np.linspace(1.06, 0.94, side)[:, None]
    factor = np.clip(128 * (1 + 0.07 * grain) * light, 0, 255).astype(np.uint8)
    mask = Image.fromarray(factor, "L").filter(ImageFilter.GaussianBlur(1.5))
    red, green, blue, alpha = wings.split()
    lit = [ImageChops.overlay(band, mask) for band in (red, green, blue)]
    return Image.merge("RGBA", (*lit, alpha))


def _darker(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(255, int(value * factor)) for value in colour)
    return red, green, blue
