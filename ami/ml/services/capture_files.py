"""The picture file of a capture: its URL for processing services, and its bytes."""

import time

import httpx
from django.conf import settings

from ami.main.models import SourceImage
from ami.main.services import file_urls, outbound
from ami.main.services.outbound import EndpointRefused
from ami.main.services.stored_files import CAPTURE, FileRefused
from ami.ml.errors import CaptureUnreadable, PictureRefused

MAX_BYTES = 256 * 1024**2
FETCH_SECONDS = 120.0
TIMEOUT = httpx.Timeout(30.0, connect=5.0)


def public_url(image: SourceImage, base: str = "") -> str:
    """Return a URL from which a processing service can fetch the picture without a token.

    A picture in our own storage gets a URL signed for as long as processing may take, made absolute with ``base``,
    else ANTENNA_SERVICES_URL, else ANTENNA_PUBLIC_URL.
    """
    return file_urls.capture_url(image, file_urls.for_services(), base or settings.ANTENNA_SERVICES_URL)


def read(image: SourceImage) -> bytes:
    """Return the picture's bytes from our own storage or over HTTP.

    Raises:
        CaptureUnreadable: missing, too slow, or larger than 256 MiB.
        PictureRefused: its address is forbidden (ami.main.services.outbound).
    """
    if url := image.public_url():
        return _fetch(url)
    try:
        return CAPTURE.read(image.path, MAX_BYTES)
    except (OSError, ValueError, FileRefused) as error:
        raise CaptureUnreadable(f"{image.path}: {error}") from error


def _fetch(url: str) -> bytes:
    data = bytearray()
    deadline = time.monotonic() + FETCH_SECONDS
    try:
        with outbound.client(timeout=TIMEOUT) as client, client.stream("GET", url) as answer:
            answer.raise_for_status()
            for chunk in answer.iter_bytes():
                data += chunk
                if len(data) > MAX_BYTES or time.monotonic() > deadline:
                    raise CaptureUnreadable(f"{url} is larger than {MAX_BYTES} bytes or too slow.")
    except EndpointRefused as error:
        raise PictureRefused(f"{url} is not fetched: {error}"[:500]) from error
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise CaptureUnreadable(f"{url}: {type(error).__name__} {error}"[:500]) from error
    return bytes(data)
