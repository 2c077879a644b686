"""Draws a station's lit sheet at night: lamp, vignette, weave, folds, dirt and camera noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Pixels = NDArray[np.float32]

_NOISE_TILES = 4


class Sheet:
    """A station's sheet of `size` (width, height) pixels; its frames differ by flicker, noise and dust."""

    def __init__(self, size: tuple[int, int], rng: np.random.Generator) -> None:
        self.size = size
        self._cloth = _cloth(size, rng)
        width, height = size
        self._noise = [rng.normal(0, 2.2, (height, width, 3)).astype(np.float32) for _ in range(_NOISE_TILES)]
        self._specks = _specks(size, rng, int(rng.integers(10, 22)))

    def lit(self, rng: np.random.Generator) -> Image.Image:
        """Return one exposure of the empty sheet, with its dirt and a few grains of new dust."""
        exposed = self._cloth * np.float32(rng.uniform(0.96, 1.03))
        picture = Image.fromarray(np.clip(exposed, 0, 255).astype(np.uint8), "RGB")
        _draw_specks(picture, self._specks + _specks(self.size, rng, int(rng.integers(0, 5))))
        return picture

    def with_noise(self, picture: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Add the sensor's noise."""
        tile = self._noise[int(rng.integers(_NOISE_TILES))]
        shift = (int(rng.integers(self.size[1])), int(rng.integers(self.size[0])))
        noisy = np.asarray(picture, dtype=np.float32) + np.roll(tile, shift, axis=(0, 1))
        return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8), "RGB")


def _cloth(size: tuple[int, int], rng: np.random.Generator) -> Pixels:
    """Paint the empty cloth as float RGB (height, width, 3) in 0..255."""
    width, height = size
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    lamp_x, lamp_y = width * rng.uniform(0.42, 0.58), height * rng.uniform(0.38, 0.55)
    distance = np.hypot((x - lamp_x) / width, (y - lamp_y) / height * 0.75)
    light = 238 - 150 * distance**2 - 26 * distance
    light += 6 * np.exp(-((distance / 0.22) ** 2))
    weave = 1.3 * np.sin(x * 2.1 + 0.3 * np.sin(y / 40)) + 1.3 * np.sin(y * 2.3 + 0.3 * np.sin(x / 47))
    grey = light + weave + _folds(size, rng)
    warm = np.clip((x - lamp_x) / width, -1, 1) * rng.uniform(6, 16)
    tint = np.stack([grey + warm, grey + 0.15 * warm, grey - 1.1 * warm + 2], axis=-1)
    return tint.astype(np.float32)


def _folds(size: tuple[int, int], rng: np.random.Generator) -> Pixels:
    """Return wide folds of a few grey levels, and a fainter fibre texture."""
    width, height = size
    soft = rng.normal(0, 1, (9, 16)).astype(np.float32)
    fine = rng.normal(0, 1, (height // 5, width // 5)).astype(np.float32)
    layers = [(soft, 3.5, Image.Resampling.BICUBIC), (fine, 0.9, Image.Resampling.BILINEAR)]
    total = np.zeros((height, width), dtype=np.float32)
    for field, strength, how in layers:
        total += strength * np.asarray(Image.fromarray(field, "F").resize(size, how), dtype=np.float32)
    return total


def _specks(size: tuple[int, int], rng: np.random.Generator, count: int) -> list[tuple[float, float, float, int]]:
    """Return `count` specks (x, y, radius, grey): dirt and midges, far smaller than any moth."""
    width, height = size
    scale = width / 1280
    return [
        (
            float(rng.uniform(0, width)),
            float(rng.uniform(0, height)),
            float(rng.uniform(0.7, 2.6)) * scale,
            int(rng.integers(60, 150)),
        )
        for _ in range(count)
    ]


def _draw_specks(picture: Image.Image, specks: list[tuple[float, float, float, int]]) -> None:
    pen = ImageDraw.Draw(picture)
    for x, y, radius, grey in specks:
        pen.ellipse((x - radius, y - radius * 0.7, x + radius, y + radius * 0.7), fill=(grey, grey - 8, grey - 14))


def shadow_of(sprite: Image.Image, strength: float = 0.28) -> Image.Image:
    """Return a moth's soft shadow on the cloth, of the sprite's size."""
    alpha = sprite.getchannel("A").filter(ImageFilter.GaussianBlur(max(1.5, sprite.width * 0.03)))
    dark = Image.new("RGBA", sprite.size, (50, 44, 40, 0))
    dark.putalpha(alpha.point(lambda value: int(value * strength)))
    return dark
