"""Small pictures of captures, for lists."""

import io

from django.conf import settings
from PIL import Image

from ami.main.services.stored_files import CAPTURE

#: The longest side in pixels, and the quality of the JPEG: about 10 KB.
SIDE, QUALITY = 240, 75

#: Larger files have no thumbnail: they are read in a request.
MOST_BYTES = 64 * 1024**2
FORMATS = ("JPEG", "PNG")


class NoThumbnail(Exception):
    """The file is no picture, is too large, or cannot be read; the message says which."""


def thumbnail(path: str) -> bytes:
    """Return a JPEG of the capture at ``path`` in the default storage, at most ``SIDE`` pixels wide and high.

    A large JPEG is decoded at an eighth of its size, so that a request takes little memory.

    Raises:
        NoThumbnail: there is none.
    """
    try:
        with CAPTURE.open(path) as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise NoThumbnail(f"the file has more than {MOST_BYTES} bytes")
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            width, height = picture.size
            if width * height > settings.ANTENNA_MAX_MEGAPIXELS * 1_000_000:
                raise NoThumbnail(f"the picture has {width} x {height} pixels")
            picture.draft("RGB", (SIDE, SIDE))
            picture.thumbnail((SIDE, SIDE))
            small = io.BytesIO()
            picture.convert("RGB").save(small, "JPEG", quality=QUALITY)
    except NoThumbnail:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds on broken bytes, storages others.
        raise NoThumbnail(f"{type(error).__name__}: {error}"[:200]) from error
    return small.getvalue()
