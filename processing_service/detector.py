"""Detects insects on a lit sheet: regions that differ from the cloth, are large enough and have sharp edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from processing_service.pictures import Picture, Pixels

Mask = NDArray[np.bool_]
Box = tuple[float, float, float, float]
"""(x1, y1, x2, y2) in pixels of the full-size picture, right and bottom exclusive."""


@dataclass(frozen=True)
class DetectorSettings:
    """The detector's thresholds; fractions of the picture's width or area, levels of 255."""

    window: float = 0.30
    floor_level: float = 14.0
    spread_factor: float = 5.0
    seed_level: float = 30.0
    min_area: float = 0.00022
    max_area: float = 0.20
    join_pixels: int = 3
    min_edge_level: float = 5.0
    halo_fraction: float = 0.22


@dataclass(frozen=True)
class Insect:
    """One insect: its box in full-size pixels, and its mask and slices at the working size."""

    box: Box
    mask: Mask
    where: tuple[slice, slice]


def detect(picture: Picture, settings: DetectorSettings | None = None) -> list[Insect]:
    """Return the insects on the sheet, largest first; an empty list for an empty sheet."""
    chosen = settings or DetectorSettings()
    difference = difference_from_sheet(picture.pixels, chosen.window)
    labels = _joined(_foreground(difference, chosen), chosen.join_pixels)
    edges = ndimage.gaussian_gradient_magnitude(difference, 1.0)
    area = labels.size
    found: list[tuple[int, Insect]] = []
    for number, where in enumerate(ndimage.find_objects(labels), start=1):
        mask = _body(labels[where] == number, difference[where], chosen)
        count = int(mask.sum())
        if not chosen.min_area * area <= count <= chosen.max_area * area:
            continue
        if not _is_sharp(mask, edges[where], chosen.min_edge_level):
            continue
        found.append((count, Insect(_full_size(where, mask, picture), mask, where)))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]


def difference_from_sheet(pixels: Pixels, window: float) -> Pixels:
    """Return each pixel's difference from the cloth around it, in levels of 255: shape (height, width)."""
    difference = np.abs(pixels - background(pixels, window))
    # A pale moth may differ in one channel only, so the largest difference counts most.
    return np.asarray(0.5 * difference.max(axis=2) + 0.5 * difference.mean(axis=2), dtype=np.float32)


def background(pixels: Pixels, window: float) -> Pixels:
    """Estimate the empty cloth, RGB of the same shape: the lamp's glow, and a wide local median of the remainder."""
    height, width = pixels.shape[:2]
    small_width = min(64, width)  # Of a narrow picture, 64 columns would make a very high one.
    small_height = max(8, round(height * small_width / width))
    side = max(5, round(small_width * window)) | 1
    layers: list[Pixels] = []
    for channel in range(3):
        layer = Image.fromarray(np.ascontiguousarray(pixels[:, :, channel]))
        small = np.asarray(layer.resize((small_width, small_height), Image.Resampling.BOX))
        bowl = _bowl(small)
        flat = ndimage.percentile_filter(small - bowl, 55, size=(side, side), mode="reflect")
        smooth = bowl + ndimage.gaussian_filter(flat, side / 6)
        wide = Image.fromarray(smooth.astype(np.float32)).resize((width, height), Image.Resampling.BICUBIC)
        layers.append(np.asarray(wide, dtype=np.float32))
    return np.stack(layers, axis=-1)


def _bowl(layer: Pixels) -> Pixels:
    """Fit the lamp's glow, a cubic surface, to one channel; each round excludes more of the insects."""
    height, width = layer.shape
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    terms = np.stack([x**i * y**j for i in range(4) for j in range(4 - i)], axis=-1).reshape(-1, 10)
    values = layer.ravel()
    kept = np.ones(values.size, dtype=bool)
    surface = np.full(values.size, float(np.median(values)))
    for _ in range(4):
        surface = terms @ np.linalg.lstsq(terms[kept], values[kept], rcond=None)[0]
        residual = np.abs(values - surface)
        kept = residual <= 2.5 * max(2.0, float(np.median(residual)))
    return surface.reshape(height, width).astype(np.float32)


def _foreground(difference: Pixels, settings: DetectorSettings) -> Mask:
    """Return regions above the sheet's own variation that contain a clearly higher part."""
    smooth = ndimage.gaussian_filter(difference, 0.8)
    middle = float(np.median(smooth))
    spread = 1.4826 * float(np.median(np.abs(smooth - middle)))
    weak_level = max(settings.floor_level, middle + settings.spread_factor * spread)
    weak = ndimage.binary_opening(smooth > weak_level, np.ones((3, 3), dtype=bool))
    seeds = smooth > max(settings.seed_level, 1.6 * weak_level)
    labels, count = ndimage.label(weak, np.ones((3, 3)))
    kept = np.zeros(count + 1, dtype=bool)
    kept[np.unique(labels[seeds])] = True
    kept[0] = False
    return np.asarray(kept[labels], dtype=np.bool_)


def _joined(mask: Mask, reach: int) -> NDArray[np.int32]:
    """Label the insects: fragments up to `2 * reach` pixels apart are one, holes are filled."""
    disc = np.hypot(*np.mgrid[-reach : reach + 1, -reach : reach + 1]) <= reach + 0.3
    near = ndimage.binary_dilation(mask, disc)
    labels, _ = ndimage.label(near, np.ones((3, 3)))
    filled = ndimage.binary_fill_holes(mask)
    return np.where(filled, labels, 0).astype(np.int32)


def _body(mask: Mask, difference: Pixels, settings: DetectorSettings) -> Mask:
    """Remove shadow and unevenly lit cloth: pixels that are faint compared with the insect's contrast."""
    if not mask.any():
        return mask
    contrast = float(np.percentile(difference[mask], 90))
    return np.asarray(mask & (difference > max(settings.floor_level, settings.halo_fraction * contrast)))


def _is_sharp(mask: Mask, edges: Pixels, at_least: float) -> bool:
    """Reject objects out of focus and folds of the cloth: their outline is soft for their contrast."""
    rim = mask & ~ndimage.binary_erosion(mask, iterations=2)
    if not rim.any():
        return False
    return float(np.percentile(edges[rim], 60)) >= at_least


def _full_size(where: tuple[slice, slice], mask: Mask, picture: Picture) -> Box:
    """Return the mask's extent as a box in the full-size picture."""
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    x_scale = picture.width / picture.pixels.shape[1]
    y_scale = picture.height / picture.pixels.shape[0]
    return (
        round(float(where[1].start + columns[0]) * x_scale, 1),
        round(float(where[0].start + rows[0]) * y_scale, 1),
        round(float(where[1].start + columns[-1] + 1) * x_scale, 1),
        round(float(where[0].start + rows[-1] + 1) * y_scale, 1),
    )
