"""Opens the picture of a capture: a JPEG or PNG, measured from its header before anything is decoded."""

import io
import struct
import warnings
import zlib

from django.conf import settings
from PIL import Image, UnidentifiedImageError

from ami.ml.errors import CaptureUnreadable, PictureRefused

#: No other decoder of Pillow sees bytes that a stranger sent: TIFF, GIF and the rest have had the most faults.
FORMATS = ("JPEG", "PNG")

#: What Pillow's decoders raise on broken bytes, beside its own errors. A time limit and a lack of memory are not among
#: them: those end the task.
BROKEN = (OSError, ValueError, SyntaxError, LookupError, TypeError, AttributeError, ArithmeticError, struct.error)


def open_picture(data: bytes) -> Image.Image:
    """Return the decoded picture as RGB; of several frames the first.

    It takes 4 bytes per pixel; another mode than RGB is held beside it while it is converted.

    Raises:
        PictureRefused: not a JPEG or PNG, or more than ANTENNA_MAX_MEGAPIXELS; nothing was decoded.
        CaptureUnreadable: broken or truncated.
    """
    try:
        with warnings.catch_warnings():
            # Of a size that is refused below, and of broken metadata that is not read.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
                _measure(picture)
                picture.load()
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    except UnidentifiedImageError as error:
        raise PictureRefused(f"the file is not a picture in {' or '.join(FORMATS)} format.") from error
    except Image.DecompressionBombError as error:  # Pillow's own limit, twice ours, stays behind it.
        raise PictureRefused(str(error)) from error
    except (*BROKEN, zlib.error) as error:
        raise CaptureUnreadable(f"the picture is broken: {error}"[:500]) from error


def _measure(picture: Image.Image) -> None:
    width, height = picture.size
    most = settings.ANTENNA_MAX_MEGAPIXELS
    if width * height > most * 1_000_000:
        raise PictureRefused(
            f"the picture has {width} x {height} pixels ({width * height / 1e6:.1f} megapixels), "
            f"more than ANTENNA_MAX_MEGAPIXELS={most}."
        )
