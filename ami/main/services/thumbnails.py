"""Small pictures of captures and crops, for pages: whatever the storage is, they come from our own origin."""

import io
import threading

from django.conf import settings
from PIL import Image

from ami.main.services.picture_memory import eight_bit, shortage
from ami.main.services.stored_files import CAPTURE, Area

#: The longest side in pixels, and the quality of the JPEG: about 10 KB.
SIDE, QUALITY = 240, 75
#: The longest side of a capture on its own page: some 200 KB.
PREVIEW_SIDE = 1600

#: Larger files have no thumbnail: they are read in a request.
MOST_BYTES = 64 * 1024**2
FORMATS = ("JPEG", "PNG")
#: A picture that is published elsewhere is fetched in a request for so long.
FETCH_SECONDS = 10.0
#: So many at once, and so long does another one wait: a host that sends a header every few seconds stalls its thread
#: for hours, and each picture takes memory.
MOST_FETCHES, FETCH_WAIT_SECONDS = 2, 3.0
_fetching = threading.BoundedSemaphore(MOST_FETCHES)


class NoThumbnail(Exception):
    """The file is no picture, is too large, or cannot be read; the message says which."""


def thumbnail(path: str, side: int = SIDE, area: Area = CAPTURE) -> bytes:
    """Return a JPEG of the picture at ``path`` in the default storage, at most ``side`` pixels wide and high.

    Raises:
        NoThumbnail: there is none.
    """
    try:
        data = area.read(path, MOST_BYTES)
    except Exception as error:  # Storages raise many kinds.
        raise NoThumbnail(f"{type(error).__name__}: {error}"[:200]) from error
    return _small(data, side)


def published_thumbnail(url: str, side: int = SIDE) -> bytes:
    """Return the same of a picture that its source publishes elsewhere.

    Raises:
        NoThumbnail: there is none.
    """
    if not _fetching.acquire(timeout=FETCH_WAIT_SECONDS):
        raise NoThumbnail(f"{MOST_FETCHES} other published pictures are being fetched")
    try:
        return _small(_fetched(url), side)
    finally:
        _fetching.release()


def _fetched(url: str) -> bytes:
    import httpx

    from ami.main.services import outbound

    try:
        with outbound.client(timeout=FETCH_SECONDS) as client:
            answer = outbound.fetch(client, "GET", url, MOST_BYTES, FETCH_SECONDS).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, outbound.EndpointRefused, ValueError) as error:
        raise NoThumbnail(f"{type(error).__name__}: {error}"[:200]) from error
    return answer.content


def _small(data: bytes, side: int) -> bytes:
    """Return the stored pixels, in which boxes are: EXIF's orientation is left aside.

    A large JPEG is decoded at a fraction of its size, so that a request takes little memory.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            width, height = size = picture.size
            if width * height > settings.ANTENNA_MAX_MEGAPIXELS * 1_000_000:
                raise NoThumbnail(f"the picture has {width} x {height} pixels")
            picture.draft("RGB", (side, side))
            if short := shortage(picture, size):
                raise NoThumbnail(short.sentence)
            thumb = eight_bit(picture)
            thumb.thumbnail((side, side))
            small = io.BytesIO()
            thumb.convert("RGB").save(small, "JPEG", quality=QUALITY)
    except NoThumbnail:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds on broken bytes.
        raise NoThumbnail(f"{type(error).__name__}: {error}"[:200]) from error
    return small.getvalue()
