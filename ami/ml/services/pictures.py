"""Opens the picture of a capture: JPEG or PNG only, pixels and memory counted from the header before decoding."""

import io
import struct
import warnings
import zlib
from collections.abc import Callable

from django.conf import settings
from PIL import Image, UnidentifiedImageError

from ami.main.services.picture_memory import eight_bit, shortage
from ami.ml.errors import CaptureUnreadable, MemoryOccupied, PictureRefused, PictureTooLarge

#: Pillow's other decoders (TIFF, GIF, ...) have had the most security faults; they never see untrusted bytes.
FORMATS = ("JPEG", "PNG")

#: What Pillow's decoders raise on broken bytes besides its own errors. Time limits and MemoryError are not in the list:
#: they end the task.
BROKEN = (OSError, ValueError, SyntaxError, LookupError, TypeError, AttributeError, ArithmeticError, struct.error)


def open_picture(data: bytes, cropped: Callable[[int, int], int] = lambda *_: 0) -> Image.Image:
    """Return the decoded picture as RGB in its stored pixels, before EXIF's orientation; of several frames the first.

    ``cropped`` is given its width and height, and returns the pixels of the largest crop that is cut from it.

    Raises:
        PictureRefused: not a JPEG or PNG, or more than ANTENNA_MAX_MEGAPIXELS; nothing was decoded.
        PictureTooLarge, MemoryOccupied: it takes more memory than the process may still take; nothing was decoded.
        CaptureUnreadable: broken or truncated.
    """
    picture: Image.Image
    try:
        with warnings.catch_warnings():
            # Warnings about a size that is refused below, and about broken metadata that is not read.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
                _measure(picture, cropped(*picture.size))
                picture.load()
        picture = eight_bit(picture)
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    except UnidentifiedImageError as error:
        raise PictureRefused(f"the file is not a picture in {' or '.join(FORMATS)} format.") from error
    except Image.DecompressionBombError as error:  # Pillow's own limit is twice ours.
        raise PictureRefused(str(error)) from error
    except (*BROKEN, zlib.error) as error:
        raise CaptureUnreadable(f"the picture is broken: {error}"[:500]) from error


def _measure(picture: Image.Image, cropped: int) -> None:
    width, height = picture.size
    most = settings.ANTENNA_MAX_MEGAPIXELS
    if width * height > most * 1_000_000:
        raise PictureRefused(
            f"the picture has {width} x {height} pixels ({width * height / 1e6:.1f} megapixels), "
            f"more than ANTENNA_MAX_MEGAPIXELS={most}."
        )
    if short := shortage(picture, picture.size, cropped):
        raise (PictureTooLarge if short.is_lasting else MemoryOccupied)(short.sentence)
