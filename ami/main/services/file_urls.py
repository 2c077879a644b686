"""Addresses of files: stable ones, which need a token, and signed ones, which open one file for a limited time.

A signature is made when an answer is given and stored nowhere: what is stored or exported is the stable address. It
covers the address and its expiry, under a key that follows from ``SECRET_KEY``.
"""

import math
import time
from collections.abc import Mapping
from urllib.parse import urlencode

from django.conf import settings
from django.core.files.storage import default_storage
from django.core.signing import BadSignature, Signer

from ami.main.models import Detection, SourceImage
from ami.main.services.stored_files import CAPTURE, CROP, Area, FileRefused, in_folder

SALT = "ami.main.services.file_urls"

#: Within so many seconds the same file has the same address, so that a browser finds it in its cache.
WINDOW_SECONDS = 300

#: The longest that S3 signs for.
LONGEST_SECONDS = 7 * 24 * 3600

#: The least that a pushed batch needs: three tries of two minutes, and the time it waits in the service.
PUSH_SECONDS = 900


class LinkRefused(Exception):
    """The signature does not open this address, or not any more; the message is for the person who followed it."""


def for_people() -> int:
    """Return for how many seconds a link in an answer to a person works at least."""
    return int(settings.ANTENNA_FILE_URL_SECONDS)


def for_services() -> int:
    """Return for how many seconds a processing service may need a picture: as long as its work may take in all."""
    return min(max(for_people(), PUSH_SECONDS, settings.NATS_TASK_TTR * settings.NATS_MAX_DELIVER), LONGEST_SECONDS)


def address(collection: str, pk: int, name: str) -> str:
    """Return the path of the endpoint that answers a file, for example ``/api/v2/exports/5/file/``."""
    return f"/api/v2/{collection}/{pk}/{name}/"


def stable(path: str, base: str = "") -> str:
    """Return the endpoint's absolute address, relative only where neither ``base`` nor ANTENNA_PUBLIC_URL is set."""
    return f"{(base or settings.ANTENNA_PUBLIC_URL).rstrip('/')}{path}"


def signed(path: str, seconds: int, base: str = "") -> str:
    """Return the endpoint's address with a signature that opens it for at least ``seconds``."""
    return stable(signed_path(path, seconds), base)


def signed_path(path: str, seconds: int) -> str:
    """Return the endpoint's address with its signature, relative to this server."""
    expires = _expiry(seconds)
    return f"{path}?{urlencode({'expires': expires, 'signature': _signature(path, expires)})}"


def check(path: str, query: Mapping[str, str]) -> None:
    """Accept the signature that a request carries.

    Raises:
        LinkRefused: it is another address's, was changed, or has expired.
    """
    expires, signature = query.get("expires", ""), query.get("signature", "")
    if not _is_right(path, expires, signature):
        raise LinkRefused("The signature of this link is wrong. Ask for a new link where you found this one.")
    if int(expires) < time.time():
        raise LinkRefused("This link has expired. Ask for a new link where you found this one.")


def opens(path: str, query: Mapping[str, str]) -> bool:
    """Say whether a request carries a signature that opens ``path``."""
    try:
        check(path, query)
    except LinkRefused:
        return False
    return True


def capture_address(image: SourceImage) -> str:
    """Return the stable address of a capture's picture: its source's, or that of our endpoint."""
    return image.public_url() or stable(address("captures", image.pk, "image"))


def crop_address(detection: Detection) -> str | None:
    """Return the stable address of a crop; None until it is made."""
    return stable(address("detections", detection.pk, "crop")) if detection.path else None


def capture_url(image: SourceImage, seconds: int, base: str = "") -> str:
    """Return an address of a capture's picture that opens without a token: its source's, or one signed now."""
    if url := image.public_url():
        return url
    return _bucket_url(CAPTURE, image.path, seconds) or signed(address("captures", image.pk, "image"), seconds, base)


def crop_url(detection: Detection, seconds: int, base: str = "") -> str | None:
    """Return an address of a crop that is signed now and opens without a token; None until it is made."""
    if not detection.path:
        return None
    return _bucket_url(CROP, detection.path, seconds) or signed(
        address("detections", detection.pk, "crop"), seconds, base
    )


def _bucket_url(area: Area, path: str, seconds: int) -> str:
    """Return an address that the bucket signs; empty for a folder, and for a path that our endpoint will refuse."""
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
    """Compare with the signature under ``SECRET_KEY``, or one of its fallbacks."""
    if not (expires.isascii() and expires.isdecimal() and signature.isascii()):
        return False
    try:
        return Signer(salt=SALT).unsign(f"{path}?{expires}:{signature}") == f"{path}?{expires}"
    except BadSignature:
        return False


def _signature(path: str, expires: int) -> str:
    return Signer(salt=SALT).signature(f"{path}?{expires}")
