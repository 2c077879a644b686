"""Decodes pictures safely, at a working size."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

WORKING_SIDE = 960
"""Longest side, in pixels, at which pictures are analysed."""

MAX_PIXELS = 89_000_000

FORMATS = ("JPEG", "PNG")
"""The formats of cameras; no other decoder of Pillow is used on external bytes."""

Pixels = NDArray[np.float32]


class PictureError(Exception):
    """The bytes are not a usable picture; the message has the reason."""


@dataclass(frozen=True)
class Picture:
    """A decoded capture: `pixels` is RGB (height, width, 3) in 0..255 at the working size; `width` and `height` are
    those of the full-size picture, as it is stored: EXIF's orientation is left aside.
    """

    pixels: Pixels
    width: int
    height: int

    @property
    def scale(self) -> float:
        """Full-size pixels per working pixel, at least about one."""
        return self.width / float(self.pixels.shape[1])


def open_picture(content: bytes, max_pixels: int = MAX_PIXELS) -> Picture:
    """Decode a JPEG or PNG; `PictureError` if it is another format, broken, truncated or has too many pixels."""
    if not content:
        raise PictureError("the picture is empty (0 bytes)")
    try:
        with warnings.catch_warnings():
            # Our own limit is checked below, before decoding.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                return _read(image, max_pixels)
    except PictureError:
        raise
    except UnidentifiedImageError as error:
        raise PictureError(f"not a readable picture: neither {' nor '.join(FORMATS)}") from error
    except Image.DecompressionBombError as error:
        raise PictureError(f"the picture has more than {max_pixels} pixels") from error
    except Exception as error:  # Pillow's plugins raise nearly anything on broken bytes
        raise PictureError(f"not a readable picture: {error}"[:500]) from error


def _read(image: Image.Image, max_pixels: int) -> Picture:
    width, height = image.size
    if width * height > max_pixels:
        raise PictureError(f"the picture has {width} x {height} pixels, more than {max_pixels}")
    shrink = min(1.0, WORKING_SIDE / max(width, height))
    small = (max(1, round(width * shrink)), max(1, round(height * shrink)))
    image.draft("RGB", small)  # JPEG: decode at a half or a quarter of the size
    # Of 16-bit grey the conversion would cut off what is above 255.
    rgb = (image.point(lambda level: level * (1 / 256)) if image.mode[0] == "I" else image).convert("RGB")
    if rgb.size != small:
        rgb = rgb.resize(small, Image.Resampling.BOX, reducing_gap=2.0)
    return Picture(np.asarray(rgb, dtype=np.float32), width, height)
