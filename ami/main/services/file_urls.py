"""URLs of files: stable ones, which need a token, and signed ones, which give temporary access to one file.

A signature covers the path and the expiry, under a key derived from ``SECRET_KEY``. Signed URLs appear in responses
only; what is stored or exported is the stable URL.
"""

import math
import time
from collections.abc import Mapping
from urllib.parse import urlencode

from django.conf import settings
from django.core.files.storage import default_storage
from django.core.signing import BadSignature, Signer

from ami.main.models import Detection, SourceImage
from ami.main.models.captures import public_url
from ami.main.services.stored_files import CAPTURE, CROP, Area, FileRefused, in_folder

SALT = "ami.main.services.file_urls"

#: Within this time a file keeps the same signed URL, so that browsers can cache it.
WINDOW_SECONDS = 300

#: The maximum lifetime of an S3 signature.
LONGEST_SECONDS = 7 * 24 * 3600

#: The minimum for a pushed batch: three attempts of two minutes, and waiting time in the service.
PUSH_SECONDS = 900


class LinkRefused(Exception):
    """A link's signature is wrong or has expired; the message is for the user."""


def for_people() -> int:
    """Return the minimum lifetime in seconds of links for users."""
    return int(settings.ANTENNA_FILE_URL_SECONDS)


def for_services() -> int:
    """Return the lifetime in seconds of links for processing services: the longest their work may take."""
    waits = max(settings.NATS_MAX_DELIVER, settings.NATS_MAX_EXTENSIONS + 1)
    return min(max(for_people(), PUSH_SECONDS, settings.NATS_TASK_TTR * waits), LONGEST_SECONDS)


def address(collection: str, pk: int, name: str) -> str:
    """Return the path of a file's endpoint, for example ``/api/v2/exports/5/file/``."""
    return f"/api/v2/{collection}/{pk}/{name}/"


def stable(path: str, base: str = "") -> str:
    """Return the absolute URL of ``path``; relative if neither ``base`` nor ANTENNA_PUBLIC_URL is set."""
    return f"{(base or settings.ANTENNA_PUBLIC_URL).rstrip('/')}{path}"


def signed(path: str, seconds: int, base: str = "") -> str:
    """Return the absolute URL of ``path`` with a signature that is valid for at least ``seconds``."""
    return stable(signed_path(path, seconds), base)


def signed_path(path: str, seconds: int) -> str:
    """Return ``path`` with a signature that is valid for at least ``seconds``."""
    expires = _expiry(seconds)
    return f"{path}?{urlencode({'expires': expires, 'signature': _signature(path, expires)})}"


def check(path: str, query: Mapping[str, str]) -> None:
    """Check the signature in ``query``.

    Raises:
        LinkRefused: it is for another path, was changed, or has expired.
    """
    expires, signature = query.get("expires", ""), query.get("signature", "")
    if not _is_right(path, expires, signature):
        raise LinkRefused("The signature of this link is wrong. Ask for a new link where you found this one.")
    if int(expires) < time.time():
        raise LinkRefused("This link has expired. Ask for a new link where you found this one.")


def opens(path: str, query: Mapping[str, str]) -> bool:
    """Whether ``query`` has a valid signature of ``path``."""
    try:
        check(path, query)
    except LinkRefused:
        return False
    return True


def capture_address(image: SourceImage) -> str:
    """Return the stable URL of a capture's picture: its public URL, else that of our endpoint."""
    return image.public_url() or stable(address("captures", image.pk, "image"))


def crop_address(detection: Detection) -> str | None:
    """Return the stable URL of a crop; None until the crop exists."""
    return stable(address("detections", detection.pk, "crop")) if detection.path else None


class StableUrls:
    """The stable URLs of files of many rows, from plain values: as `capture_address` and `crop_address`."""

    def __init__(self) -> None:
        self._base = stable("/api/v2")

    def capture(self, pk: int, path: str, public_base_url: str) -> str:
        return public_url(public_base_url, path) or f"{self._base}/captures/{pk}/image/"

    def crop(self, pk: int, path: str) -> str | None:
        return f"{self._base}/detections/{pk}/crop/" if path else None


def capture_url(image: SourceImage, seconds: int, base: str = "") -> str:
    """Return a URL of a capture's picture that needs no token: its public URL, else a newly signed one."""
    if url := image.public_url():
        return url
    return _bucket_url(CAPTURE, image.path, seconds) or signed(address("captures", image.pk, "image"), seconds, base)


def crop_url(detection: Detection, seconds: int, base: str = "") -> str | None:
    """Return a newly signed URL of a crop, which needs no token; None until the crop exists."""
    if not detection.path:
        return None
    return _bucket_url(CROP, detection.path, seconds) or signed(
        address("detections", detection.pk, "crop"), seconds, base
    )


def _bucket_url(area: Area, path: str, seconds: int) -> str:
    """Return a URL signed by the bucket; empty for a folder and for a path that the endpoint would refuse."""
    if in_folder():
        return ""
    try:
        area.refuse(path)
    except FileRefused:
        return ""
    url: str = default_storage.url(path, expire=min(seconds, LONGEST_SECONDS))
    return url


def _expiry(seconds: int) -> int:
    window = max(1, min(WINDOW_SECONDS, seconds))
    return math.ceil((time.time() + seconds) / window) * window


def _is_right(path: str, expires: str, signature: str) -> bool:
    """Check the signature with ``SECRET_KEY`` and its fallbacks."""
    if not (expires.isascii() and expires.isdecimal() and signature.isascii()):
        return False
    try:
        return Signer(salt=SALT).unsign(f"{path}?{expires}:{signature}") == f"{path}?{expires}"
    except BadSignature:
        return False


def _signature(path: str, expires: int) -> str:
    return Signer(salt=SALT).signature(f"{path}?{expires}")
