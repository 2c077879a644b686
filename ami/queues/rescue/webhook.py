"""Tells a host's supervisor about a dead worker, where a webhook is set."""

import json
import threading
import urllib.request
from typing import Any
from urllib.error import URLError

from celery.utils.log import get_logger
from django.conf import settings

logger = get_logger(__name__)

TIMEOUT_SECONDS, TRIES = 5.0, 3


def send(text: str, fields: dict[str, Any]) -> None:
    """Post the finding as JSON, ``{"text": ..., "worker": ..., "verdict": ...}``, in the background; three tries."""
    url = settings.ANTENNA_RESCUE_WEBHOOK_URL
    if url:
        body = json.dumps({"text": text, **fields}).encode()
        threading.Thread(target=_post, args=(url, body), name="rescue-webhook", daemon=True).start()


def _post(url: str, body: bytes) -> None:
    for number in range(1, TRIES + 1):
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - its kind is checked
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):  # noqa: S310
                return
        except (URLError, OSError, ValueError) as error:
            # The address may hold a secret.
            logger.warning("Webhook of the rescue not reached, try %d of %d: %s", number, TRIES, type(error).__name__)
