"""`/metrics`: behind a token of its own, since a scraper has no account."""

import os
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import Error
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe

from ami.environment.reader import read
from ami.topology.image import Image

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Send every metric, in the format that the scraper prefers; 404 where no token is configured.

    Without the database there are no figures: 503. Without the broker its own are absent.
    """
    if not settings.ANTENNA_METRICS_TOKEN:
        raise Http404("There are no metrics here: ANTENNA_METRICS_TOKEN is not set.")
    if not _is_allowed(request):
        text = "Send the value of ANTENNA_METRICS_TOKEN: Authorization: Bearer TOKEN.\n"
        return _text(text, 401, {"WWW-Authenticate": 'Bearer realm="metrics"'})
    from prometheus_client.exposition import choose_encoder  # Few processes are scraped.

    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    try:
        body = encode(_registry())
    except Error:
        return _text("The database did not answer.\n", 503, {"Retry-After": "15"})
    return HttpResponse(body, content_type=content_type, headers={"Cache-Control": "no-store"})


def _is_allowed(request: HttpRequest) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and constant_time_compare(given.strip(), settings.ANTENNA_METRICS_TOKEN)


def _text(text: str, status: int, headers: dict[str, str]) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8", headers=headers)


@cache
def _registry() -> "CollectorRegistry":
    from ami.telemetry.metrics import collector

    return collector.registry(settings.ANTENNA_TOPOLOGY, read(Image, os.environ).antenna_version)
