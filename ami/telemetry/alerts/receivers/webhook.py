"""Posts a notice as JSON, signed where a secret is set. Redirects are not followed: they would carry it elsewhere."""

import hashlib
import hmac
import http.client
import json
import time
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError

from django.conf import settings

from ami.queues.certificates import trusted
from ami.telemetry.alerts.receivers.errors import NotSent

TIMEOUT_SECONDS = 5.0
#: What is read of an answer.
MOST_BYTES = 64 * 1024
SIGNATURE, TIMESTAMP = "X-Antenna-Signature", "X-Antenna-Timestamp"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none; the answer is an error then."""


def send(body: Mapping[str, Any]) -> None:
    """Post it.

    Raises:
        NotSent: the address does not answer, or not with 2xx.
    """
    url, data = settings.ANTENNA_ALERT_WEBHOOK_URL, json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "antenna-alerts/1", **_signed(data)}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - its kind is checked at start
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if url.startswith("https"):
        handlers.append(urllib.request.HTTPSHandler(context=trusted()))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_SECONDS) as answer:
            answer.read(MOST_BYTES)
    except HTTPError as error:
        error.close()
        redirected = ": redirects are not followed" if 300 <= error.code < 400 else ""
        raise NotSent(f"it answers {error.code}{redirected}") from None
    except (URLError, OSError, ValueError, http.client.HTTPException) as error:
        # Neither the error nor its text is passed on: both may have the address.
        raise NotSent(_why(error)) from None


def signature(secret: str, timestamp: str, data: bytes) -> str:
    """Return ``sha256=`` and the HMAC, in hex, of the timestamp, a dot and the body."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + data, hashlib.sha256).hexdigest()


def _signed(data: bytes) -> dict[str, str]:
    secret, now = settings.ANTENNA_ALERT_WEBHOOK_SECRET, str(int(time.time()))
    return {TIMESTAMP: now, SIGNATURE: signature(secret, now, data)} if secret else {TIMESTAMP: now}


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:.0f} s"
    strerror = getattr(reason, "strerror", None)
    return str(strerror) if strerror else type(reason).__name__
